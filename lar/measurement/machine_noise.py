"""Reads how the machine disturbs a run: steal, throttling, frequency, each from its Linux source.

A source is opened once and read through its open file; each reading gives what came since the last
one. A container or another system may lack any of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

NAN = math.nan
PROC_STAT = "/proc/stat"
OWN_CGROUPS = "/proc/self/cgroup"
CGROUPS = "/sys/fs/cgroup"
CPUS = "/sys/devices/system/cpu"
FREQUENCY = CPUS + "/cpu{}/cpufreq/scaling_cur_freq"
HEAT = CPUS + "/cpu{}/thermal_throttle/{}_throttle_total_time_ms"

# Some things take longer to read or change seldom, and are read at most this often: the list of
# threads and the machine's noise, since steal comes in ticks of 10 ms anyway.
SELDOM_NS = 100_000_000

# The throttling in a cgroup's cpu.stat: microseconds in version 2, nanoseconds in version 1.
THROTTLED = re.compile(r"throttled_(usec|time) (\d+)")
UNITS = {"usec": 1e-6, "time": 1e-9}


class Source(Protocol):
    """Reads one kind of noise."""

    where: str

    def read(self) -> float:
        """Return what came since the last reading."""


class Growth:
    """The growth in seconds of whichever of several counters grew most."""

    def __init__(self, where: str, count: Callable[[], Sequence[float]]) -> None:
        self.where, self._count = where, count
        self._counts = count()

    def read(self) -> float:
        before, self._counts = self._counts, self._count()
        grown = (now - then for now, then in zip(self._counts, before, strict=True))
        return max(grown, default=0.0)


def usable_cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [*range(os.cpu_count() or 1)]


def open_steal(cpus: Sequence[int]) -> Growth:
    """Open the time that the host gave to other guests while a CPU of this one had work to do.

    The kernel usually counts it in ticks of 10 ms.
    """
    file = open_to_read(PROC_STAT)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    wanted = {f"cpu{cpu}" for cpu in cpus}

    def count() -> list[float]:
        lines = read_again(file, 1 << 17).splitlines()
        rows = [line.split() for line in lines if line.startswith("cpu")]
        return [int(row[8]) * tick for row in rows if row[0] in wanted]

    if not count():
        raise OSError(f"nothing about any CPU in {PROC_STAT}")
    return Growth(PROC_STAT, count)


def open_throttling(cpus: Sequence[int]) -> Growth:
    """Open the time for which a CPU limit stopped the process's cgroup, or one around it."""
    folders = [each for each in own_cgroups() if THROTTLED.search(read_text(f"{each}/cpu.stat"))]
    if not folders:
        raise OSError("no cgroup with the CPU controller")
    limited = [folder for folder in folders if cpu_limit_of(folder)]
    files = [open_to_read(f"{folder}/cpu.stat") for folder in limited]

    def count() -> list[float]:
        found = [THROTTLED.search(read_again(file)) for file in files]
        return [UNITS[each[1]] * int(each[2]) for each in found if each]

    named = ", ".join(limited)
    return Growth(f"cpu.stat of {named}" if named else "no limit is set", count)


def own_cgroups() -> Iterator[str]:
    """Yield the folders of this process's cgroup and of those around it, the innermost first.

    In a container that sees only its own cgroup, this is where the outermost one would be.
    """
    with open(OWN_CGROUPS) as file:
        lines = file.read().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = ["", "/unified"]
        if controllers:
            is_wanted = "cpu" in controllers.split(",")
            names = [f"/{controllers}", "/cpu"] if is_wanted else []
        for name in names:
            folder = f"{CGROUPS}{name}{path.rstrip('/')}"
            while len(folder) >= len(CGROUPS + name):
                yield folder
                folder = os.path.dirname(folder)


def cpu_limit_of(folder: str) -> float | None:
    """Return a cgroup's limit of CPU time, in CPUs; None without one."""
    first_version = [f"{folder}/cpu.cfs_{name}_us" for name in ("quota", "period")]
    quota, period = read_text(f"{folder}/cpu.max").split() or map(read_text, first_version)
    return None if quota in ("", "max", "-1") else int(quota) / int(period)


def open_heat(cpus: Sequence[int]) -> Growth:
    """Open the time for which heat slowed down a CPU, or its package."""
    places = [HEAT.format(cpu, unit) for cpu in cpus for unit in ("core", "package")]
    files = [open_to_read(place) for place in places if os.path.exists(place)]
    if not files:
        raise OSError("no times of throttling by heat")
    return Growth(HEAT.format("*", "*"), lambda: [int(read_again(file)) * 1e-3 for file in files])


class Frequency:
    """The frequency in Hz of the CPU that the calling thread runs on at a reading."""

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


# How the machine disturbs a run, by its name in `NoiseSources`.
KINDS: dict[str, Callable[[Sequence[int]], Source]] = {
    "steal": open_steal,
    "throttled": open_throttling,
    "heat": open_heat,
    "frequency": Frequency,
}


class MachineNoise:
    """How the machine disturbs a run, from those sources that it has."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        for kind, open_source in KINDS.items():
            with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
                self.sources[kind] = open_source(usable_cpus())
        self._due_ns = 0

    def is_due(self, *, ends: bool) -> bool:
        """Return whether it is time to read what is not read every time."""
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns and not ends:
            return False
        self._due_ns = now_ns + SELDOM_NS
        return True

    def read(self, *, is_due: bool) -> tuple[float, float, float]:
        """Return steal, throttling by limits or heat, and frequency; NaN for what was not read."""
        found: dict[str, float] = {}
        for kind, source in self.sources.items() if is_due else ():
            with contextlib.suppress(OSError, ValueError, IndexError):  # a CPU went offline
                found[kind] = source.read()
        limits = [found[it] for it in ("throttled", "heat") if it in found]
        throttled = max(limits, default=math.nan)
        return found.get("steal", math.nan), throttled, found.get("frequency", math.nan)


def open_to_read(path: str | Path) -> int:
    """Open a system file for as long as this process lives."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_again(file: int, size: int = 4096) -> str:
    """Return what a system file says now."""
    return os.pread(file, size, 0).decode()


def read_text(path: str | Path) -> str:
    """Return the text of a system file, empty if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
