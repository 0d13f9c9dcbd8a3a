"""Starts and ends a worker process; light, so that the worker starts before its parent is ready."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lar.engines import engine_named
from lar.files.python_process import python_command
from lar.measurement.rows import SampleRows, create_shared_file, make_rows
from lar.running.interrupts import uninterrupted

# The worker's descriptors: standard input brings the spec, 1 and 2 are the log.
EVENT_FILE, SAMPLE_FILE = 3, 4
# A killed process is gone sooner, unless the system waits for a device; Ctrl-C ends this wait.
GONE_SECONDS = 2.0
# Between two looks whether it is gone.
GLANCE_SECONDS = 0.001

# Imports make no garbage, so collecting it waits until they are done.
CODE = """\
import gc
gc.disable()
from lar.worker.start import start
start(sys.argv[1:], {library!r})
"""

# The same for another Python, which may be too old for newer syntax: it has its own libraries, and
# only lar from the folder that lar is in.
FOREIGN_CODE = """\
import gc, json, os
gc.disable()
try:
    if sys.version_info < {oldest!r}:
        raise ImportError("it is Python %d.%d" % sys.version_info[:2])
    sys.path.insert(0, {home!r})
    import lar
    del sys.path[0]
    import numpy
    from lar.worker.start import start
except ImportError as error:
    failure = dict(
        problem="lar's worker cannot run there: %s" % error, hint={hint!r}, exit_code=3,
        flag="--python", subject=sys.executable,
    )
    if "lar" in sys.modules:
        from lar.errors import memory_error
        refused = memory_error(error)
        if refused:
            failure = dict(problem=refused.problem, hint=refused.hint, exit_code=4)
    os.write(int(sys.argv[4]), (json.dumps(["Failed", dict(failure=failure)]) + "\\n").encode())
    os._exit(1)
start(sys.argv[1:], "")
"""
OLDEST_PYTHON = (3, 10)
FOREIGN_HINT = "it needs Python 3.10 or newer, NumPy and the engine; lar itself is not needed there"


class WorkerProcess:
    """A started worker process, the parent's ends of its pipes, and the samples of each runner."""

    def __init__(self, pid: int, request: BinaryIO, samples: int, events: int, log: int) -> None:
        self.pid = pid
        self.events = events
        self.log = log
        self.tables: tuple[SampleRows, ...] = ()
        self.is_free = True  # until it is asked for something
        self._request = request
        self._samples = samples
        self._reaped: tuple[int, Any] | None = None
        self._killed = False

    def make_room(self, capacity: int, runners: int) -> None:
        """Make room for that many samples of each runner, before it is asked to take any."""
        self.tables, self.is_free = make_rows(self._samples, capacity, runners), False

    def send(self, request: bytes, *, more: bool = False) -> None:
        """Write a request, and close the pipe unless more comes; if it has died, that is seen
        later."""
        with contextlib.suppress(BrokenPipeError):
            left = memoryview(request)
            while left:
                left = left[self._request.write(left) :]
        if not more:
            self.end_requests()

    def end_requests(self) -> None:
        """Close the pipe: nothing more comes."""
        self._request.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker's whole group, unless it was killed."""
        if not self._killed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def poll_exit(self) -> tuple[int, Any] | None:
        """Return the exit status and resource usage once the process has ended."""
        if self._reaped is None:
            with uninterrupted():  # the system says it once
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                self._reaped = (status, usage) if pid else None
        return self._reaped

    def end(self) -> None:
        """Kill the worker's whole group; freeing its memory takes a while longer."""
        self.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker's whole group and wait for it."""
        if not self._killed:
            with uninterrupted():
                self.end()
                self._await_exit(GONE_SECONDS)
            self._await_exit()
            self._killed = True

    def _await_exit(self, seconds: float = math.inf) -> None:
        """Wait until the process has ended, at most so long."""
        end = time.monotonic() + seconds
        while self.poll_exit() is None and time.monotonic() < end:
            time.sleep(GLANCE_SECONDS)

    def cpu_ticks(self) -> int:
        """Return the CPU time used so far, in clock ticks; 0 if the system does not report it."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        except (OSError, IndexError):
            return 0


def above_worker_files(file: int) -> int:
    """Close a descriptor and return a copy whose number the worker is not given: so no descriptor
    is overwritten before it is copied."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, SAMPLE_FILE + 1)
    finally:
        os.close(file)


def open_pipe() -> tuple[int, int]:
    """Return the two ends of a pipe, the one to read from first."""
    read_end, write_end = os.pipe()
    return above_worker_files(read_end), above_worker_files(write_end)


def start_python(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Mapping[int, int],
    python: str = "",
) -> int:
    """Start Python on the worker's code in a group of its own, with files under those numbers."""
    _, name, driver, *_ = arguments
    engine = engine_named(name)
    if python:
        home = str(Path(__file__).resolve().parents[2])
        code = FOREIGN_CODE.format(oldest=OLDEST_PYTHON, home=home, hint=FOREIGN_HINT)
    else:
        code = CODE.format(library=engine.shared_library_of(driver))
    command = python_command(code, *arguments, python=python)
    return os.posix_spawn(
        command[0],
        command,
        {**engine.environment, **os.environ, **environment},
        file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in files.items()],
        setpgroup=0,
        setsigmask=(),  # here interrupts may be blocked
    )


@contextlib.contextmanager
def start_worker(
    task: str, engine: str, driver: str, environment: Mapping[str, str], python: str = ""
) -> Iterator[WorkerProcess]:
    """Start a worker, and kill its group in the end.

    It loads the driver's libraries and then waits for a request. `python` is its interpreter,
    this process's own if empty.
    """
    with contextlib.ExitStack() as stack:
        request_out, request_in = open_pipe()
        event_out, event_in = open_pipe()
        log_out, log_in = open_pipe()
        samples = above_worker_files(create_shared_file())
        for file in (event_out, log_out, samples):
            os.set_blocking(file, False)
            stack.callback(os.close, file)
        request = open(request_in, "wb", buffering=0)  # noqa: SIM115 - closed by the stack
        stack.callback(request.close)
        copies = {0: request_out, 1: log_in, 2: log_in, EVENT_FILE: event_in, SAMPLE_FILE: samples}
        arguments = [task, engine, driver, str(EVENT_FILE), str(SAMPLE_FILE)]
        with uninterrupted():
            try:
                pid = start_python(arguments, environment, copies, python)
            finally:
                for file in (request_out, event_in, log_in):
                    os.close(file)
            worker = WorkerProcess(pid, request, samples, event_out, log_out)
            stack.callback(worker.kill)
        yield worker
