"""The processor's counters, sampled while an engine computes: cycles, instructions, cache misses.

Linux counts for each thread by itself (perf_event_open(2)). Each time that a thread has computed
for so many cycles, the kernel writes down the time and all counters of that thread, in a buffer
that is shared with this process:

    u32 kind (9), u16, u16 size    header
    u32 process, u32 thread
    u64 time                       of CLOCK_MONOTONIC, the clock of `time.perf_counter_ns`
    u64 number of counters
    u64 time enabled, u64 time running
    u64 value of each counter

What the kernel itself computes is left out, which a user may count where it may count at all. Many
machines have no such counters, above all virtual ones, and many containers forbid the call.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

# System calls by machine (asm/unistd.h).
SYSCALLS = {"x86_64": 298, "aarch64": 241}

# linux/perf_event.h
TYPE_HARDWARE = 0
SAMPLE_TID, SAMPLE_TIME, SAMPLE_READ = 1 << 1, 1 << 2, 1 << 4
FORMAT_TIME_ENABLED, FORMAT_TIME_RUNNING, FORMAT_GROUP = 1 << 0, 1 << 1, 1 << 3
FLAG_DISABLED, FLAG_EXCLUDE_KERNEL, FLAG_EXCLUDE_HV, FLAG_USE_CLOCK = 1, 1 << 5, 1 << 6, 1 << 25
CLOSE_ON_EXEC = 8
ENABLE, DISABLE, WHOLE_GROUP = 0x2400, 0x2401, 1
RECORD_SAMPLE = 9
HEAD_AT, TAIL_AT = 1024, 1032  # in the first page of the buffer
CLOCK_MONOTONIC = 1

# A thread is sampled once in so many cycles: some ten thousand times in a second that it computes.
PERIOD_CYCLES = 250_000
# Pages of a buffer: a quarter of a second of samples. A user may lock only so much memory.
BUFFER_PAGES = (64, 16, 4)

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


class Counter(NamedTuple):
    """A counter of the kernel: its name in `HardwareCounts`, its type and number."""

    name: str
    type: int
    config: int


# The first is the one that samples.
COUNTERS = (
    Counter("cycles", TYPE_HARDWARE, 0),
    Counter("instructions", TYPE_HARDWARE, 1),
    Counter("cache_references", TYPE_HARDWARE, 2),
    Counter("cache_misses", TYPE_HARDWARE, 3),
)


class Attributes(ctypes.Structure):
    """struct perf_event_attr, as long as it was in Linux 4.1."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup", ctypes.c_uint32),
        ("breakpoint_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branches", ctypes.c_uint64),
        ("user_registers", ctypes.c_uint64),
        ("user_stack", ctypes.c_uint32),
        ("clock", ctypes.c_int32),
        ("interrupt_registers", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("most_frames", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
    )


class CountersMissing(Exception):
    """This machine, or this user on it, has no hardware counters; the text says why."""


class ThreadSample(NamedTuple):
    """The counters of a thread at one time: all of them count from the same begin.

    `at_ns` is the time of `time.perf_counter_ns`; `running_ns` is how long the thread was counted.
    """

    thread: int
    at_ns: int
    running_ns: int
    values: tuple[int, ...]


HEADER = struct.Struct("=IHH")
FIXED = struct.Struct("=IIQQQQ")


def samples_in(data: bytes) -> Iterator[ThreadSample]:
    """Yield the samples in the content of a buffer; other records are passed over, and so is what
    is cut off at the end."""
    at = 0
    while at + HEADER.size <= len(data):
        kind, _, size = HEADER.unpack_from(data, at)
        if size < HEADER.size or at + size > len(data):
            return
        if kind == RECORD_SAMPLE and size >= HEADER.size + FIXED.size:
            _, thread, time_ns, count, _, running = FIXED.unpack_from(data, at + HEADER.size)
            begin = at + HEADER.size + FIXED.size
            if begin + 8 * count <= at + size:
                values = struct.unpack_from(f"={count}Q", data, begin)
                yield ThreadSample(thread, time_ns, running, values)
        at += size


def reason_for(number: int, paranoid: str = "") -> str:
    """Return why counters cannot be had, for the number of an error of the system; `paranoid` is
    the content of the kernel's setting, empty where there is none."""
    name = errno.errorcode.get(number, str(number))
    if number in (errno.EACCES, errno.EPERM):
        setting = f" (kernel.perf_event_paranoid is {paranoid})" if paranoid else ""
        return (
            f"not permitted{setting}: set it to 2 or less with `sysctl "
            "kernel.perf_event_paranoid=2`, or give the process the capability PERFMON; a "
            f"container must allow perf_event_open [{name}]"
        )
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL):
        return (
            "not supported by this machine: its processor shows no counters to this system, as in "
            f"many virtual machines, which need a virtual PMU for them [{name}]"
        )
    if number == errno.ENOSYS:
        return f"not supported by this system: its kernel has no perf_event_open [{name}]"
    return f"not available: {os.strerror(number).lower()} [{name}]"


def read_paranoid() -> str:
    """Return the kernel's setting of who may count, empty where it has none."""
    with contextlib.suppress(OSError):
        return PARANOID.read_text().strip()
    return ""


def open_counter(counter: Counter, thread: int, leader: int, period: int) -> int:
    """Return the descriptor of a counter of a thread; the `leader` (-1 for itself) samples.

    Raises:
        OSError: the system does not count it.
    """
    number = SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "no perf_event_open")
    attributes = Attributes(
        type=counter.type,
        size=ctypes.sizeof(Attributes),
        config=counter.config,
        read_format=FORMAT_TIME_ENABLED | FORMAT_TIME_RUNNING | FORMAT_GROUP,
        flags=FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV,
    )
    if leader < 0:
        attributes.period = period
        attributes.sample_type = SAMPLE_TID | SAMPLE_TIME | SAMPLE_READ
        attributes.flags |= FLAG_DISABLED | FLAG_USE_CLOCK
        attributes.clock = CLOCK_MONOTONIC
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (number, ctypes.byref(attributes), thread, -1, leader, CLOSE_ON_EXEC)
    descriptor = int(library.syscall(*arguments))
    if descriptor < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return descriptor


class ThreadCounters:
    """The counters of one thread, and the buffer of their samples.

    Raises:
        OSError: the system does not count for this thread.
    """

    def __init__(self, thread: int, counters: Sequence[Counter], period: int) -> None:
        self.names: list[str] = []
        self._files: list[int] = []
        self._map: mmap.mmap | None = None
        try:
            for counter in counters:
                leader = self._files[0] if self._files else -1
                try:
                    self._files.append(open_counter(counter, thread, leader, period))
                except OSError:
                    if leader < 0:
                        raise
                    continue  # this processor does not count it, or not so many at once
                self.names.append(counter.name)
            self._map = map_buffer(self._files[0])
            self._control(ENABLE)
        except BaseException:
            self.close()
            raise

    def _control(self, what: int) -> None:
        import fcntl

        fcntl.ioctl(self._files[0], what, WHOLE_GROUP)

    def take(self) -> bytes:
        """Return the records since the last call, and give their room back."""
        buffer = self._map
        assert buffer is not None
        head, tail = (int.from_bytes(buffer[at : at + 8], "little") for at in (HEAD_AT, TAIL_AT))
        if head == tail:
            return b""
        size = len(buffer) - mmap.PAGESIZE
        first, last = tail % size, head % size
        begin = mmap.PAGESIZE
        if first < last:
            data = buffer[begin + first : begin + last]
        else:
            data = buffer[begin + first :] + buffer[begin : begin + last]
        buffer[TAIL_AT : TAIL_AT + 8] = head.to_bytes(8, "little")
        return data

    def close(self) -> None:
        if self._map is not None:
            with contextlib.suppress(OSError):
                self._control(DISABLE)
            self._map.close()
            self._map = None
        for file in self._files:
            os.close(file)
        self._files = []


def map_buffer(file: int) -> mmap.mmap:
    """Map the buffer of a counter, the largest that this user may have.

    Raises:
        OSError: none of them.
    """
    for pages in BUFFER_PAGES[:-1]:
        with contextlib.suppress(OSError):
            return mmap.mmap(file, (1 + pages) * mmap.PAGESIZE)
    return mmap.mmap(file, (1 + BUFFER_PAGES[-1]) * mmap.PAGESIZE)


class HardwareCounters:
    """The counters of all threads that this process has now.

    Raises:
        CountersMissing: there are none.
    """

    def __init__(self, counters: Sequence[Counter] = COUNTERS, period: int = PERIOD_CYCLES) -> None:
        own = threading.get_native_id()
        self._threads: list[ThreadCounters] = []
        self._taken: list[bytes] = []
        try:
            self._threads.append(ThreadCounters(own, counters, period))
        except OSError as error:
            raise CountersMissing(reason_for(error.errno or 0, read_paranoid())) from None
        self.names: tuple[str, ...] = tuple(self._threads[0].names)
        for thread in sorted(map(int, os.listdir("/proc/self/task"))):
            if thread != own:
                # One that has just ended is no loss; all count the same, or the values do not fit.
                with contextlib.suppress(OSError):
                    other = ThreadCounters(thread, counters, period)
                    if tuple(other.names) == self.names:
                        self._threads.append(other)
                    else:
                        other.close()

    def take(self) -> None:
        """Take the samples out of the buffers, which are not large."""
        for thread in self._threads:
            if data := thread.take():
                self._taken.append(data)

    def stop(self) -> list[ThreadSample]:
        """Stop counting, and return all samples."""
        self.take()
        for thread in self._threads:
            thread.close()
        self._threads = []
        return [sample for data in self._taken for sample in samples_in(data)]


def differences_of(
    samples: Sequence[ThreadSample],
) -> Mapping[int, list[tuple[ThreadSample, ThreadSample]]]:
    """Return by thread each sample with the one before it, in the order of time."""
    threads: dict[int, list[ThreadSample]] = {}
    for sample in samples:
        threads.setdefault(sample.thread, []).append(sample)
    for own in threads.values():
        own.sort(key=lambda sample: sample.at_ns)
    return {thread: [*pairwise(own)] for thread, own in threads.items()}
