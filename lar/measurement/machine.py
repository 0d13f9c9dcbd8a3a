"""Reads facts about this machine, its software and a model file, without loading anything."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path

from lar.errors import UsageError
from lar.files.input_file import cannot_read, open_input, read_input
from lar.measurement.machine_noise import CPUS, cpu_limit_of, own_cgroups, read_text, usable_cpus
from lar.records.run import MachineFacts, ModelFile

CPUINFO = "/proc/cpuinfo"

# Environment variables that the libraries below an engine use, by their beginnings: the number and
# place of threads, which instructions are used, how memory is allocated.
PREFIXES = (
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "VECLIB_", "DNNL_", "ONEDNN_", "TBB_"),
    *("CUDA_", "NVIDIA_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("PYTHONMALLOC", "DYLD_"),
)


def read_machine(
    environment: Mapping[str, str] | None = None, prefixes: Sequence[str] = ()
) -> MachineFacts:
    """Read the facts about this machine; unknown ones stay empty.

    Of the `environment` of a run it keeps the variables that libraries use, including those that
    begin with one of the `prefixes`.
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
    """Return how many CPUs share the core of `cpu`, None if the system does not say."""
    siblings = read_text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")
    ranges = re.findall(r"(\d+)(?:-(\d+))?", siblings)
    return sum(int(last or first) - int(first) + 1 for first, last in ranges) or None


def read_cpu_limit() -> float | None:
    """Return the lowest CPU limit of this process's cgroups, in CPUs; None without a limit."""
    try:
        limits = [cpu_limit_of(folder) for folder in own_cgroups()]
    except (OSError, ValueError):
        return None
    return min((limit for limit in limits if limit is not None), default=None)


def read_processor(path: str = CPUINFO) -> str:
    """Return the processor's name, empty if the system gives none.

    Linux names an ARM processor only by numbers: an implementer and a part, or several parts if its
    cores differ.
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
    """Return the processor's vendor and its instruction sets, by Linux's names.

    On ARM the vendor is `unknown`.
    """
    vendor = read_field(CPUINFO, "vendor_id") or "unknown"
    return f"{vendor} {read_field(CPUINFO, 'flags') or read_field(CPUINFO, 'Features')}"


def read_memory(name: str = "MemTotal", path: str = "/proc/meminfo") -> int | None:
    """Return the size of the machine's memory, or another size that Linux names, in bytes."""
    text = read_field(path, name)
    return int(text.split()[0]) * 1024 if text else None


def read_field(path: str, name: str) -> str:
    """Return the value of the first `name : value` line of a file, empty without one."""
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def installed_version(distribution: str, folders: Sequence[str] = ()) -> str:
    """Return the version of an installed package, empty if it is not installed.

    `folders` are searched for it, or Python's own if none are given.
    """
    # The name of the package's folder tells it; the library that reads its files is slow to import.
    wanted = re.sub("[-_.]+", "_", distribution).lower()
    for folder in folders or sys.path:
        for name in glob("*.dist-info", root_dir=folder or os.curdir):
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if re.sub("[-_.]+", "_", package).lower() == wanted:
                return version
    return ""


def read_model_file(path: Path) -> ModelFile:
    """Hash a model file, and compare with `FILE.sha256` beside it if there is one.

    `sha256sum FILE` prints such a file. Neither model format has a checksum for its weights: only
    this finds a flipped bit in them.

    Raises:
        UsageError: the file cannot be read or is not the one that was hashed, or the checksum
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
            f"its content is damaged: it does not match {path.name}.sha256",
            "copy or export it again, or remove the .sha256 file if the model changed",
            subject=path,
        )
    return ModelFile(path=str(path), size_bytes=size, sha256=found)


def checksum_place(model: Path) -> Path:
    """Return the place of a model file's checksum."""
    return model.with_name(model.name + ".sha256")


def read_checksums(path: Path) -> list[str]:
    """Return the SHA-256 in each line of a checksum file, in small letters; empty without a file.

    Raises:
        UsageError: it cannot be read, is empty, or has a line without a checksum.
    """
    if not os.path.lexists(path):
        return []
    content = read_input(path, what="checksum file", limit=1 << 20)
    lines = content.decode(errors="replace").lower().split("\n")
    found = [re.search(r"\b[0-9a-f]{64}\b", line) for line in lines if line.strip()]
    if not found or not all(found):
        raise UsageError(
            "is damaged: each line of a checksum file has a SHA-256",
            "make it again with sha256sum, or remove it",
            subject=path,
        )
    return [each[0] for each in found if each]
