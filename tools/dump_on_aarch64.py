"""Makes the dumps of `tests/data/aarch64` on an emulated aarch64, on any Linux with apt and uv.

    uv run python tools/dump_on_aarch64.py FOLDER [--userland FOLDER] [--qemu FILE]

QEMU runs Debian's Python for aarch64 with ONNX Runtime's package for it; nothing is installed and
no root folder is changed. All of it is kept in the userland's folder, if one is named. It takes
some 20 s and 65 MB.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QEMU = ("qemu-aarch64-static", "qemu-aarch64")

DEBIAN_PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8"),
    *("libbz2-1.0", "liblzma5", "libuuid1"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
PYTHON_PACKAGES = (
    *("numpy", "onnxruntime", "onnx", "msgspec", "flatbuffers", "protobuf", "packaging"),
    *("ml_dtypes", "typing_extensions"),
)
SITE = "usr/local/lib/python3.11/dist-packages"

# ONNX Runtime reads the features of the processor here; it ends where it reads another one's.
CPU = """processor\t: {number}
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""

# What the dumps say ran them, wherever they are made.
KERNEL = "6.1.0"

FLOAT16 = "tests/data/aarch64/digits_float16.onnx"
MODELS = {
    "digits_cnn": "models/digits_cnn.onnx",
    "int8": "models/int8.onnx",
    "float16": FLOAT16,
}
# One thread: two wait for each other for long where both are emulated.
FLAGS = ("--input", "inputs/digit_7.npy", "--cpu-default", "--iter", "1", "--warmup-iter", "0")


def find_qemu(given: str = "") -> str:
    """Return the emulator's file, empty if it is not installed."""
    return given or next(filter(None, map(shutil.which, QEMU)), "")


def make_userland(folder: Path, qemu: str) -> Path:
    """Make what runs Python and ONNX Runtime on an emulated aarch64; return the command for it.

    Raises:
        CalledProcessError: a package cannot be had.
    """
    python = folder / "python"
    if python.exists():
        return python
    root, packages = folder / "root", folder / "packages"
    for part in ("lists/partial", "cache/archives/partial", "packages", "root/proc"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    download_packages(folder, packages)
    for package in sorted(packages.glob("*.deb")):
        run("dpkg-deb", "-x", str(package), str(root))
    run(
        *("uv", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:"),
        *("--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.11"),
        *("--target", str(root / SITE), *PYTHON_PACKAGES),
    )
    cpus = range(os.cpu_count() or 1)
    (root / "proc/cpuinfo").write_text("".join(CPU.format(number=number) for number in cpus))
    # lar starts its workers with `sys.executable`, which must be the emulated Python.
    (root / SITE / "emulated.pth").write_text(
        'import os, sys; sys.executable = os.environ.get("EMULATED_PYTHON", sys.executable)\n'
    )
    emulated = shlex.join(
        [qemu, "-cpu", "neoverse-n1", "-L", str(root), str(root / "usr/bin/python3.11")]
    )
    python.write_text(
        f'#!/bin/sh\nEMULATED_PYTHON={shlex.quote(str(python))} exec {emulated} "$@"\n'
    )
    python.chmod(0o755)
    return python


def download_packages(folder: Path, packages: Path) -> None:
    """Download Debian's packages for aarch64 from the sources that this machine has."""
    status, settings = folder / "status", folder / "apt.conf"
    status.touch()
    settings.write_text(
        'APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Sandbox::User "root";\n'
        f'Dir::State::lists "{folder}/lists"; Dir::State::status "{status}";\n'
        f'Dir::Cache "{folder}/cache";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(settings)}
    run("apt-get", "update", "-qq", environment=environment)
    run("apt-get", "download", "-qq", *DEBIAN_PACKAGES, folder=packages, environment=environment)


def dump_models(python: Path, folder: Path, names: Sequence[str] = tuple(MODELS)) -> None:
    """Dump models of the repository into a folder, with an emulated Python."""
    folder.mkdir(parents=True, exist_ok=True)
    # Temporary files apart from those of others: an emulated process has another starting time, so
    # that another lar would take its files for those of one that has ended.
    temporary = python.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(temporary),
        "QEMU_UNAME": KERNEL,
    }
    for name in names:
        place = os.path.relpath(folder / name, ROOT)  # which the index names
        words = (MODELS[name], *FLAGS, "--bin-io-dump", place, "--overwrite")
        run(str(python), "-m", "lar", *words, environment=environment)


def write_float16_model() -> None:
    """Write the model of digits that computes in float16."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = onnx.load(ROOT / "models/digits_cnn.onnx")
    onnx.save(convert_float_to_float16(model, keep_io_types=True), ROOT / FLOAT16)


def run(
    *command: str, folder: Path = ROOT, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=True, cwd=folder, env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", metavar="FOLDER", help="where the dumps go")
    parser.add_argument("--userland", metavar="FOLDER", help="where the userland is kept")
    parser.add_argument("--qemu", metavar="FILE", default="", help="the emulator, if not installed")
    arguments = parser.parse_args()
    qemu = find_qemu(arguments.qemu)
    if not qemu:
        parser.error("qemu-aarch64 is not installed: Debian's package is qemu-user-static")
    if not (ROOT / FLOAT16).exists():
        (ROOT / FLOAT16).parent.mkdir(parents=True, exist_ok=True)
        write_float16_model()
    with tempfile.TemporaryDirectory() as temporary:
        userland = Path(arguments.userland or temporary).resolve()
        dump_models(make_userland(userland, qemu), Path(arguments.folder).resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
