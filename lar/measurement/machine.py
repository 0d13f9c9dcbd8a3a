"""Facts about this machine, its software and a model file, read without loading anything."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path

from lar.errors import UsageError
from lar.records.run import MachineFacts, ModelFile

CPUINFO = "/proc/cpuinfo"


def read_machine() -> MachineFacts:
    """Read the facts about this machine; unknown ones stay empty."""
    cores = os.cpu_count() or 1
    return MachineFacts(
        system=f"{platform.system()} {platform.release()}",
        processor=read_processor() or platform.machine(),
        cores=cores,
        usable_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        memory_bytes=read_memory(),
        governor=read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        python=platform.python_version(),
    )


# Who designed an ARM processor, by the number that Linux gives.
IMPLEMENTERS = {
    "0x41": "ARM",
    "0x42": "Broadcom",
    "0x43": "Cavium",
    "0x46": "Fujitsu",
    "0x48": "HiSilicon",
    "0x4e": "NVIDIA",
    "0x50": "APM",
    "0x51": "Qualcomm",
    "0x53": "Samsung",
    "0x61": "Apple",
    "0x6d": "Microsoft",
    "0x70": "Phytium",
    "0xc0": "Ampere",
}


def read_processor(path: str = CPUINFO) -> str:
    """Return the processor's name, empty where the system gives none.

    Linux names an ARM processor by numbers only: an implementer and a part, with several parts
    where its cores are not all alike.
    """
    fields: dict[str, list[str]] = {}
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), []).append(value.strip())
    name, *_ = fields.get("model name", [""])
    parts = list(dict.fromkeys(fields.get("CPU part", [])))
    if not parts:
        return name
    number, *_ = fields.get("CPU implementer", ["unknown"])
    designer = IMPLEMENTERS.get(number, f"implementer {number}")
    return " ".join(filter(None, (name, designer, "part", ", ".join(parts))))


def read_memory() -> int | None:
    """Return the size of the machine's memory in bytes."""
    text = read_field("/proc/meminfo", "MemTotal")
    return int(text.split()[0]) * 1024 if text else None


def read_field(path: str, name: str) -> str:
    """Return the value of the first `name : value` line of a file, empty where there is none."""
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def read_text(path: str) -> str:
    """Return the text of a system file, empty where it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def installed_version(distribution: str) -> str:
    """Return the version of an installed package, empty when it is not installed."""
    from importlib import metadata  # slow to import, and only `lar engines` asks

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def read_model_file(path: Path) -> ModelFile:
    """Hash a model file, and compare with `FILE.sha256` beside it where there is one.

    Such a file is what `sha256sum FILE` prints. Neither model format has a checksum over its
    weights: a flipped bit in them is found by this alone.

    Raises:
        UsageError: the file cannot be read or is not the one that was hashed.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or '').lower()}") from None
    expected = read_checksum(path.with_name(path.name + ".sha256"))
    if expected and expected != digest.hexdigest():
        raise UsageError(
            f"{path}: its content is damaged: it does not match {path.name}.sha256",
            "copy or export it again, or remove the .sha256 file if the model changed",
        )
    return ModelFile(path=str(path), size_bytes=size, sha256=digest.hexdigest())


def read_checksum(path: Path) -> str:
    """Return the SHA-256 in a checksum file, empty when there is none."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            found = re.search(rb"\b[0-9a-fA-F]{64}\b", file.read(4096))
    except OSError:
        return ""
    return found[0].decode().lower() if found else ""
