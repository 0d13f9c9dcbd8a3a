"""Reads facts about this machine, its software and a model file, without loading an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Protocol

from lar.errors import UsageError
from lar.files.input_file import cannot_read, open_input, read_input
from lar.records.run import MachineFacts, ModelFile

# The sources of the machine's noise: steal, throttling and frequency, each from a file of Linux.
#
# The file of a source is opened once. Each reading returns the growth since the last reading. A
# container, or a system other than Linux, may lack any of these sources.


NAN = math.nan
PROC_STAT = "/proc/stat"
OWN_CGROUPS = "/proc/self/cgroup"
CGROUPS = "/sys/fs/cgroup"
CPUS = "/sys/devices/system/cpu"
FREQUENCY = CPUS + "/cpu{}/cpufreq/scaling_cur_freq"
HEAT = CPUS + "/cpu{}/thermal_throttle/{}_throttle_total_time_ms"

# The shortest time between two readings of the list of threads, or of the machine's noise. They
# take longer to read, and change seldom: steal is counted in ticks of 10 ms anyway.
SELDOM_NS = 100_000_000

# The throttling in a cgroup's cpu.stat: microseconds in version 2, nanoseconds in version 1.
THROTTLED = re.compile(r"throttled_(usec|time) (\d+)")
UNITS = {"usec": 1e-6, "time": 1e-9}


class Source(Protocol):
    """A source of one kind of noise."""

    where: str

    def read(self) -> float:
        """Return the noise since the last reading."""


class Growth:
    """A source that reads several counters, and returns the largest growth in seconds."""

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
    """Open the source of steal: the time that the host took from this guest for other guests.

    Steal grows only while a CPU has work to do. The kernel usually counts steal in ticks of 10 ms.
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
    """Open the source of throttling: the time for which a CPU limit stopped this process.

    The limit may be set for the cgroup of the process, or for a cgroup around this cgroup.
    """
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
    """Yield the folders of this process's cgroup and of the cgroups around it, the innermost first.

    In a container that sees only its own cgroup, the outermost folder belongs to this cgroup.
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
    """Return the CPU limit of a cgroup as a number of CPUs, or None if no limit is set."""
    first_version = [f"{folder}/cpu.cfs_{name}_us" for name in ("quota", "period")]
    quota, period = read_text(f"{folder}/cpu.max").split() or map(read_text, first_version)
    return None if quota in ("", "max", "-1") else int(quota) / int(period)


def open_heat(cpus: Sequence[int]) -> Growth:
    """Open the source of heat: the time for which heat slowed down a CPU or a whole processor."""
    places = [HEAT.format(cpu, unit) for cpu in cpus for unit in ("core", "package")]
    files = [open_to_read(place) for place in places if os.path.exists(place)]
    if not files:
        raise OSError("no times of throttling by heat")
    return Growth(HEAT.format("*", "*"), lambda: [int(read_again(file)) * 1e-3 for file in files])


class Frequency:
    """A source that reads the frequency, in Hz, of the CPU that the calling thread runs on."""

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


# The functions that open the sources of noise, by their names in `NoiseSources`.
KINDS: dict[str, Callable[[Sequence[int]], Source]] = {
    "steal": open_steal,
    "throttled": open_throttling,
    "heat": open_heat,
    "frequency": Frequency,
}


class MachineNoise:
    """A reader of the noise of the machine, from all sources that the machine has."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        for kind, open_source in KINDS.items():
            with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
                self.sources[kind] = open_source(usable_cpus())
        self._due_ns = 0

    def is_due(self, *, ends: bool) -> bool:
        """Return whether sources that are read only every 0.1 s must be read now."""
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns and not ends:
            return False
        self._due_ns = now_ns + SELDOM_NS
        return True

    def read(self, *, is_due: bool) -> tuple[float, float, float]:
        """Return steal, throttling by limits or heat, and frequency; an unknown figure is NaN."""
        found: dict[str, float] = {}
        for kind, source in self.sources.items() if is_due else ():
            with contextlib.suppress(OSError, ValueError, IndexError):  # a CPU went offline
                found[kind] = source.read()
        limits = [found[it] for it in ("throttled", "heat") if it in found]
        throttled = max(limits, default=math.nan)
        return found.get("steal", math.nan), throttled, found.get("frequency", math.nan)


def open_to_read(path: str | Path) -> int:
    """Open a system file, which stays open until this process ends."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_again(file: int, size: int = 4096) -> str:
    """Return the present text of an open system file."""
    return os.pread(file, size, 0).decode()


def read_text(path: str | Path) -> str:
    """Return the text of a system file, or an empty string if the file cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


# Facts about this machine, its software and a model file


CPUINFO = "/proc/cpuinfo"

# The beginnings of environment variables that the libraries below an engine use. They set the
# number and the CPUs of threads, the instruction sets, and the allocation of memory.
PREFIXES = (
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "VECLIB_", "DNNL_", "ONEDNN_", "TBB_"),
    *("CUDA_", "NVIDIA_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("PYTHONMALLOC", "DYLD_"),
)


def read_machine(
    environment: Mapping[str, str] | None = None, prefixes: Sequence[str] = ()
) -> MachineFacts:
    """Read the facts about this machine; unknown facts stay empty.

    `environment` has the environment variables of a run. The facts include the variables that
    libraries use, and the variables whose names begin with one of the `prefixes`.
    """
    affinity = usable_cpus()
    heeded = (*PREFIXES, *prefixes)
    variables = {
        name: value
        for name, value in sorted((environment or {}).items())
        if name.startswith(heeded)
    }
    return MachineFacts(
        system=f"{platform.system()} {platform.release()}",
        processor=read_processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        usable_cores=len(affinity),
        memory_bytes=read_memory(),
        governor=read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        python=platform.python_version(),
        affinity=tuple(affinity),
        threads_per_core=read_threads_per_core(affinity[0]),
        smt=read_text(f"{CPUS}/smt/control"),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        cpu_limit=read_cpu_limit(),
        variables=variables,
        architecture=platform.machine(),
    )


def read_threads_per_core(cpu: int) -> int | None:
    """Return the number of CPUs that share the core of `cpu`, or None if it is unknown."""
    siblings = read_text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")
    ranges = re.findall(r"(\d+)(?:-(\d+))?", siblings)
    return sum(int(last or first) - int(first) + 1 for first, last in ranges) or None


def read_cpu_limit() -> float | None:
    """Return the lowest limit of this process's cgroups, in CPUs, or None if no limit is set."""
    try:
        limits = [cpu_limit_of(folder) for folder in own_cgroups()]
    except (OSError, ValueError):
        return None
    return min((limit for limit in limits if limit is not None), default=None)


def read_processor(path: str = CPUINFO) -> str:
    """Return the name of the processor, or an empty string if the system does not report it.

    For an ARM processor, Linux reports only numbers: the number of the designer and the number of
    the model ("part"). If the cores differ, Linux reports several model numbers.
    """
    name = read_field(path, "model name")
    parts = dict.fromkeys(re.findall(r"(?m)^CPU part\s*:\s*(.+)$", read_text(path)))
    if not parts:
        return name
    number = read_field(path, "CPU implementer") or "unknown"
    known = json.loads(Path(__file__).with_name("arm_designers.json").read_text())
    designer = known.get(number, f"implementer {number}")
    return " ".join(filter(None, (name, designer, "part", ", ".join(parts))))


def read_instruction_sets() -> str:
    """Return the vendor and the instruction sets of the processor, by Linux's names.

    On ARM the vendor is `unknown`.
    """
    vendor = read_field(CPUINFO, "vendor_id") or "unknown"
    return f"{vendor} {read_field(CPUINFO, 'flags') or read_field(CPUINFO, 'Features')}"


def read_memory(name: str = "MemTotal", path: str = "/proc/meminfo") -> int | None:
    """Return the figure `name` of /proc/meminfo in bytes; by default, the size of the memory."""
    text = read_field(path, name)
    return int(text.split()[0]) * 1024 if text else None


def read_field(path: str, name: str) -> str:
    """Return the value of the first line `name : value` in a file; else an empty text."""
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def installed_version(distribution: str, folders: Sequence[str] = ()) -> str:
    """Return the version of a package, or an empty string if the package is not installed.

    `folders` are the folders to search; without folders, Python's own folders are searched.
    """
    # The version is in the name of a folder. `importlib.metadata` is not used: it imports slowly.
    wanted = re.sub("[-_.]+", "_", distribution).lower()
    for folder in folders or sys.path:
        for name in glob("*.dist-info", root_dir=folder or os.curdir):
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if re.sub("[-_.]+", "_", package).lower() == wanted:
                return version
    return ""


def read_model_file(path: Path) -> ModelFile:
    """Return a model file's size and SHA-256; check the SHA-256 if `FILE.sha256` exists.

    The command `sha256sum FILE` prints the content for `FILE.sha256`. Model formats have no
    checksum for weights, so that only the check against `FILE.sha256` detects a flipped bit in the
    weights.

    Raises:
        UsageError: the model file cannot be read or does not match its checksum, or the checksum
            file cannot be read or is damaged.
    """
    digest, size = hashlib.sha256(), 0
    with open_input(path, what="model file") as file:
        try:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
        except OSError as error:
            raise cannot_read(path, error) from None
    found, sums = digest.hexdigest(), read_checksums(checksum_place(path))
    if sums and found not in sums:
        raise UsageError(
            f"the file is damaged or has changed: its SHA-256 is not in {path.name}.sha256",
            "copy or export the model again; if the model changed, remove the .sha256 file",
            subject=path,
        )
    return ModelFile(path=str(path), size_bytes=size, sha256=found)


def checksum_place(model: Path) -> Path:
    """Return the path of the file with a model file's checksum."""
    return model.with_name(model.name + ".sha256")


def read_checksums(path: Path) -> list[str]:
    """Return the SHA-256 in each line of a checksum file, in lower case; empty if no file exists.

    Raises:
        UsageError: the file cannot be read, is empty, or has a line without a checksum.
    """
    if not os.path.lexists(path):
        return []
    content = read_input(path, what="checksum file", limit=1 << 20)
    lines = content.decode(errors="replace").lower().split("\n")
    found = [re.search(r"\b[0-9a-f]{64}\b", line) for line in lines if line.strip()]
    if not found or not all(found):
        raise UsageError(
            "is damaged: each line of a checksum file must have a SHA-256",
            "make the file again with sha256sum, or remove the file",
            subject=path,
        )
    return [each[0] for each in found if each]
