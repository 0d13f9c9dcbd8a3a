"""Records the system calls of a run with strace.

A traced run is slower, since strace, another process, stops each thread at each system call. For
each thread, strace writes a file. Each line of a thread's file has the time of day, a call, its
result and its duration in seconds:
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import get_native_id
from typing import TYPE_CHECKING, NamedTuple

from lar.errors import UsageError
from lar.measurement.machine import read_field, read_text

if TYPE_CHECKING:
    from lar.records.profile import Span, Step

FLAG = "--profile-syscalls"
LEAST_NS = 1000  # shorter calls are left out, as in other profilers
ATTACH_SECONDS, DETACH_SECONDS = 10.0, 5.0
SOURCE = "strace"
PR_SET_PTRACER = 0x59616D61  # linux/prctl.h

CALL = re.compile(r"(\d+\.\d{6}) (\w+)\(.* = (.*) <(\d+\.\d{6})>")


class Syscall(NamedTuple):
    """One system call of a thread.

    `unix_ns` is the time of day when the call began.
    """

    name: str
    unix_ns: int
    duration_ns: int
    result: str


def require_strace() -> None:
    """Check that strace is installed, before anything is timed.

    Raises:
        UsageError: strace is not installed.
    """
    if shutil.which("strace") is None:
        raise UsageError("strace is not installed", "install strace, or omit the flag", flag=FLAG)


def cannot_trace(said: str) -> UsageError:
    lines = said.strip().splitlines()
    why = lines[-1].removeprefix("strace: ") if lines else "it has not begun"
    hint = "allow ptrace (in a container, the capability SYS_PTRACE), or leave the flag out"
    return UsageError(f"strace cannot trace processes here: {why.lower()}", hint, flag=FLAG)


class TracedCalls(NamedTuple):
    """All finished system calls of a trace, by the thread ID (TID) of the calling thread.

    `main_thread` is the thread that started the trace. `names` has the names of the threads that
    existed at the end of the trace.
    """

    calls: Mapping[int, Sequence[Syscall]]
    main_thread: int
    names: Mapping[int, str]


class SyscallTrace:
    """Traces all threads of this process, until `stop` is called.

    Raises:
        UsageError: strace cannot trace this process.
    """

    def __init__(self, folder: str | Path) -> None:
        self._file, self._said = Path(folder, "strace"), Path(folder, "strace-messages")
        self._main_thread = get_native_id()
        command = ["strace", "-ff", "-T", "-ttt", "-qq", "-s", "0", "-o", str(self._file)]
        with self._said.open("wb") as messages:
            # The shell starts strace when its standard input is closed. By then, strace has the
            # permission to trace its parent.
            self._process = subprocess.Popen(
                ["sh", "-c", 'read -r _; exec "$@"', "sh", *command, "-p", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=messages,
            )
        # If a kernel does not need this permission, the call fails, which does no harm.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(self._process.pid), 0, 0, 0)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._wait_until_traced()

    def _wait_until_traced(self) -> None:
        deadline = time.monotonic() + ATTACH_SECONDS
        while read_field("/proc/self/status", "TracerPid") != str(self._process.pid):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self._end()
                raise cannot_trace(self._said.read_text(errors="replace"))
            time.sleep(0.005)

    def _end(self) -> None:
        """End strace, and wait until it has ended."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DETACH_SECONDS)
                return

    def stop(self) -> TracedCalls:
        """Stop the trace, and return the traced calls."""
        threads = map(int, os.listdir("/proc/self/task"))
        names = {thread: read_text(f"/proc/self/task/{thread}/comm") for thread in threads}
        self._end()
        calls = {}
        for file in sorted(self._file.parent.glob(f"{self._file.name}.*")):
            with file.open(encoding="utf-8", errors="replace") as lines:
                calls[int(file.suffix[1:])] = [*parse_calls(lines)]
        return TracedCalls(calls, self._main_thread, names)


def parse_calls(lines: Iterable[str]) -> Iterator[Syscall]:
    """Yield the finished calls of a thread, without calls shorter than `LEAST_NS`.

    Signals, exits and unfinished calls are left out.
    """
    for found in filter(None, map(CALL.match, lines)):
        began, name, result, took = found.groups()
        # Without the decimal point, these numbers are microseconds.
        unix_ns, duration_ns = (1000 * int(it.replace(".", "")) for it in (began, took))
        if duration_ns >= LEAST_NS:
            yield Syscall(name, unix_ns, duration_ns, result)


def spans_of_calls(
    traced: TracedCalls,
    steps: Sequence[Step],
    main_number: int,
    taken: Iterable[int],
    unix_zero_ns: int,
) -> tuple[list[Span], dict[int, str]]:
    """Return the calls as spans in the order of time, and the names of their threads.

    Each thread except the main thread gets a new number, larger than all numbers in `taken`, since
    it is unknown which of the engine's threads it is. `unix_zero_ns` is the time of day at the
    profile's zero. A call belongs to the iteration in which it began.
    """
    from lar.records.profile import Span

    starts = [step.start_ns for step in steps]
    numbers = count(max((main_number, *taken)) + 1)
    spans: list[Span] = []
    names: dict[int, str] = {}
    for thread, calls in traced.calls.items():
        number = main_number if thread == traced.main_thread else next(numbers)
        if calls and number != main_number:
            names[number] = f"{traced.names.get(thread) or 'thread'} {thread}"
        for call in calls:
            start = call.unix_ns - unix_zero_ns
            index = bisect_right(starts, start) - 1
            step = steps[index] if index >= 0 and start < steps[index].end_ns else None
            spans.append(
                Span(
                    category="osrt",
                    name=call.name,
                    start_ns=start,
                    end_ns=start + call.duration_ns,
                    thread=number,
                    step=step.number if step else None,
                    warmup=step.warmup if step else False,
                    source=SOURCE,
                    result=call.result,
                )
            )
    return sorted(spans, key=lambda span: span.start_ns), names
