"""`--tensorrt` and `--tensorrt-cache`: TensorRT, on a CUDA device, for what it can run.

TensorRT builds an engine for each part of the graph, which takes long; the cache file keeps them.
It holds the number of engines, then for each its key and its content, both behind their size;
numbers are 32 bits, little endian (src/tensorrt/impl/tensorrt_engine_cache.cpp in MegEngine).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from lar.engines.megengine.cache import Reader
from lar.engines.megengine.lite import LiteDriver
from lar.engines.megengine.symbols import find_function
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.files.report_file import OutputFile, check_writable

VERSION = "_ZN3mgb20get_tensorrt_versionEv"  # -1 in a library without TensorRT


def use_tensorrt(driver: LiteDriver, _: bool) -> None:
    """Have the network use TensorRT.

    Raises:
        UsageError: this MegEngine is built without it.
    """
    if find_function("--tensorrt", VERSION, [], ctypes.c_int)() < 0:
        problem = "this MegEngine is built without TensorRT"
        raise UsageError(problem, "leave the flag out", flag="--tensorrt")
    driver.network_setup.append(lambda network: network.use_tensorrt())


def use_cache(driver: LiteDriver, path: str) -> None:
    """Have the engine read the engines in a cache file, from a copy in the work folder.

    Raises:
        UsageError: the file cannot be read or written, or is not such a cache.
    """
    if driver.runner:
        return
    place, copy = Path(path), work_copy(driver)
    if place.exists():
        copy.write_bytes(read_cache(place))
    check_writable(path, "--tensorrt-cache")
    driver.call("LITE_set_tensor_rt_cache", str(copy).encode())


def keep_cache(driver: LiteDriver, path: str) -> None:
    """Replace the cache file, whole, by what the engine knows now.

    Raises:
        UsageError: it cannot be written.
    """
    driver.call("LITE_dump_tensor_rt_cache")
    with OutputFile(os.path.realpath(path), "--tensorrt-cache") as file:
        file.write(work_copy(driver).read_bytes())


def work_copy(driver: LiteDriver) -> Path:
    """Return where the engine's own copy of the cache stands."""
    return Path(driver.context.work_folder) / "tensorrt.cache"


def read_cache(path: Path) -> bytes:
    """Return the content of a cache file.

    Raises:
        UsageError: it cannot be read, or is not a whole cache.
    """
    data = read_input(path, "--tensorrt-cache")
    try:
        reader = Reader(data)
        reader.pairs()
        reader.end()
    except ValueError as error:
        problem = f"is not a cache of TensorRT's engines, or is damaged: {error}"
        hint = "choose another file"
        raise UsageError(problem, hint, flag="--tensorrt-cache", subject=path) from None
    return data
