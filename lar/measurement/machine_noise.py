"""What the machine does to a run: steal, throttling, frequency, each from its source in Linux.

A source is opened once and read by its open descriptors; each reading gives what came since the
last one. A container or another system may lack any of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

PROC_STAT = "/proc/stat"
OWN_CGROUPS = "/proc/self/cgroup"
CGROUPS = "/sys/fs/cgroup"
CPUS = "/sys/devices/system/cpu"
FREQUENCY = CPUS + "/cpu{}/cpufreq/scaling_cur_freq"

# A source whose reading takes longer than this is not read between two iterations: on a machine of
# hundreds of CPUs /proc/stat takes a millisecond.
LONGEST_SECONDS = 5e-5


class Source(Protocol):
    """Reads one kind of noise."""

    where: str

    def read(self) -> float:
        """Return what came since the last reading."""


class OpenSource:
    """A source that this machine has. It may be too slow to be read between iterations."""

    def __init__(self, source: Source) -> None:
        self._source, self.where = source, source.where
        self._is_slow = False
        # The least of three: others disturb some readings.
        cost = min(self._time_reading() for _ in range(3))
        if cost > LONGEST_SECONDS:
            self._is_slow = True
            self.where += f" (a reading takes {cost * 1e3:.1f} ms, so at the ends alone)"

    def _time_reading(self) -> float:
        began = time.monotonic()
        self._source.read()
        return time.monotonic() - began

    def read(self, *, ends: bool = False) -> float:
        """Return what came since the last reading, NaN where it was not read; with `ends` no
        iteration follows at once."""
        if self._is_slow and not ends:
            return math.nan
        try:
            return self._source.read()
        except (OSError, ValueError, IndexError):
            return math.nan  # it went away, as a CPU that is taken offline


def open_source(make: Callable[[Sequence[int]], Source]) -> OpenSource | None:
    """Open a source for the CPUs that this process may use, None where it cannot be read."""
    try:
        return OpenSource(make(usable_cpus()))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def usable_cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [*range(os.cpu_count() or 1)]


class Steal:
    """The time that the host gave to other guests while a CPU of this one had work to do.

    Of the CPUs that may be used, that which lost most counts. The kernel adds it up in ticks, of
    10 ms as a rule.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._file = open_to_read(PROC_STAT)
        self._seconds = 1 / os.sysconf("SC_CLK_TCK")
        self._wanted = {b"cpu%d" % cpu for cpu in cpus}
        self._ticks: dict[bytes, int] = {}
        self._all = -1
        self.where = f"{PROC_STAT}, CPUs {format_cpus(cpus)}"
        self.read()

    def read(self) -> float:
        lines = read_again(self._file, 1 << 17).split(b"\n")
        total = int(lines[0].split()[8])
        if total == self._all:
            return 0.0
        self._all, most = total, 0
        for line in lines[1:]:
            name, *ticks = line.split()
            if name in self._wanted:
                most = max(most, int(ticks[7]) - self._ticks.get(name, 0))
                self._ticks[name] = int(ticks[7])
            elif not name.startswith(b"cpu"):
                break
        return most * self._seconds


class CgroupThrottling:
    """The time for which a limit of CPU time stopped the process's cgroup, or one that holds it."""

    def __init__(self, cpus: Sequence[int]) -> None:
        folders = [folder for folder in own_cgroups() if statistics_of(folder)]
        if not folders:
            raise OSError("no cgroup with the CPU controller")
        limited = [folder for folder in folders if cpu_limit_of(folder)]
        self._files = [open_to_read(folder / "cpu.stat") for folder in limited]
        self._seconds = [0.0] * len(self._files)
        self.where = "cpu.stat of " + ", ".join(map(str, limited)) if limited else "no limit is set"
        self.read()

    def read(self) -> float:
        most = 0.0
        for index, file in enumerate(self._files):
            seconds = throttled_seconds(read_again(file))
            most = max(most, seconds - self._seconds[index])
            self._seconds[index] = seconds
        return most


def own_cgroups() -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of those that hold it, the innermost first.

    In a container that is given its own cgroup alone, this stands where the outermost would.
    """
    for line in Path(OWN_CGROUPS).read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names = ["", "unified"]
        elif "cpu" in controllers.split(","):
            names = [controllers, "cpu"]
        else:
            continue
        for base in (Path(CGROUPS, name) for name in names):
            inner = base / path.lstrip("/")
            folders = [inner, *inner.parents]
            yield from folders[: folders.index(base) + 1]


def statistics_of(folder: Path) -> bytes:
    """Return a cgroup's CPU statistics if they have its throttling, empty otherwise."""
    with contextlib.suppress(OSError):
        statistics = (folder / "cpu.stat").read_bytes()
        if b"throttled_" in statistics:
            return statistics
    return b""


def cpu_limit_of(folder: Path) -> float | None:
    """Return a cgroup's limit of CPU time, in CPUs; None without one."""
    with contextlib.suppress(OSError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError):
        microseconds = int((folder / "cpu.cfs_quota_us").read_text())
        period = (folder / "cpu.cfs_period_us").read_text()
        return None if microseconds < 0 else microseconds / int(period)
    return None


def throttled_seconds(statistics: bytes) -> float:
    """Return the throttling that a cgroup's cpu.stat has, of version 2 or 1.

    Raises:
        ValueError: it has none.
    """
    for line in statistics.split(b"\n"):
        if line.startswith(b"throttled_usec"):
            return int(line.split()[1]) * 1e-6
        if line.startswith(b"throttled_time"):
            return int(line.split()[1]) * 1e-9
    raise ValueError("no throttling in cpu.stat")


class Heat:
    """The time for which heat slowed down a CPU, or the package that it is part of.

    Older kernels only count how often: then all the time since the last reading counts, if the
    number has grown.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        times, counts = ([*throttle_files(cpus, name)] for name in ("total_time_ms", "count"))
        self._is_time = bool(times)
        self._files = times or counts
        if not self._files:
            raise OSError("no counts of throttling by heat")
        self._values = [0] * len(self._files)
        self._read_at = 0.0
        kind = "total_time_ms" if times else "count"
        self.where = f"{CPUS}/cpu*/thermal_throttle/*_{kind}"
        self.read()

    def read(self) -> float:
        most = 0
        for index, file in enumerate(self._files):
            value = int(read_again(file))
            most = max(most, value - self._values[index])
            self._values[index] = value
        now, before = time.monotonic(), self._read_at
        self._read_at = now
        if self._is_time:
            return most * 1e-3
        return now - before if most else 0.0


def throttle_files(cpus: Iterable[int], kind: str) -> Iterator[int]:
    """Open the counters of one kind, those of the cores and of the packages."""
    for cpu in cpus:
        for unit in ("core", "package"):
            with contextlib.suppress(OSError):
                yield open_to_read(f"{CPUS}/cpu{cpu}/thermal_throttle/{unit}_throttle_{kind}")


class Frequency:
    """The frequency in Hz of the CPU that the calling thread runs on, when it is read."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._files = {cpu: open_to_read(FREQUENCY.format(cpu)) for cpu in cpus[:1]}
        import ctypes  # slow to import, and many machines do not show frequencies

        self._find_cpu = ctypes.CDLL(None).sched_getcpu
        self.where = FREQUENCY.format("*")
        self.read()

    def read(self) -> float:
        cpu = self._find_cpu()
        if cpu not in self._files:
            self._files[cpu] = open_to_read(FREQUENCY.format(cpu))
        return int(read_again(self._files[cpu])) * 1e3


def open_to_read(path: str | Path) -> int:
    """Open a system file for as long as this process lives."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_again(file: int, size: int = 4096) -> bytes:
    """Return what a system file says now."""
    return os.pread(file, size, 0)


def format_cpus(cpus: Sequence[int]) -> str:
    """Return numbers of CPUs as ranges, as in 0-3,8."""
    parts: list[str] = []
    first = last = -2
    for cpu in (*cpus, -2):
        if cpu == last + 1:
            last = cpu
            continue
        if first >= 0:
            parts.append(f"{first}-{last}" if last > first else f"{first}")
        first = last = cpu
    return ",".join(parts)
