"""A whole run of a `.mge` without lar: the other side of the bench.

    python tools/bare_run.py MODEL COUNT [WARMUP [FOLDER]]

loads the model through lite's C functions, feeds float32 ones, and prints the milliseconds of each
iteration after those that warm up, one by default, and what the outputs begin with. With a folder
the engine computes in the calling thread and, unless it is `-`, dumps each tensor there.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import time
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, NoReturn

import numpy as np


def load_library() -> ctypes.CDLL:
    (file,) = glob.glob(f"{np.__path__[0]}/../megenginelite/libs/liblite*")
    return ctypes.CDLL(file)


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"lite failed: {status}")


def names_of(lite: ctypes.CDLL, network: c_void_p, kind: str) -> list[bytes | None]:
    """Return the names of the inputs or of the outputs."""
    read, count = lite[f"LITE_get_all_{kind}_name"], c_size_t()
    check(read(network, byref(count), None))
    names = (c_char_p * count.value)()
    check(read(network, None, names))
    return list(names)


def tensors_of(
    lite: ctypes.CDLL, network: c_void_p, kind: str
) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
    """Yield the memory of the inputs or of the outputs."""
    for name in names_of(lite, network, kind):
        tensor, size, memory = c_void_p(), c_size_t(), c_void_p()
        check(lite.LITE_get_io_tensor(network, c_char_p(name), c_int(0), byref(tensor)))
        check(lite.LITE_get_tensor_total_size_in_byte(tensor, byref(size)))
        check(lite.LITE_get_tensor_memory(tensor, byref(memory)))
        assert memory.value is not None
        floats = (ctypes.c_float * (size.value // 4)).from_address(memory.value)
        yield np.ctypeslib.as_array(floats)


def main(model: str, count: int, warmup: int, folder: str) -> NoReturn:
    lite, network = load_library(), c_void_p()
    check(lite.LITE_make_default_network(byref(network)))
    if folder:
        check(lite.LITE_set_cpu_inplace_mode(network))
    check(lite.LITE_load_model_from_path(network, c_char_p(model.encode())))
    for tensor in tensors_of(lite, network, "input"):
        tensor[:] = 1
    if folder not in ("", "-"):
        os.mkdir(folder)
        check(lite.LITE_enable_io_bin_dump(network, c_char_p(folder.encode())))
    times = []
    for _ in range(warmup + count):
        began = time.perf_counter()
        check(lite.LITE_forward(network))
        check(lite.LITE_wait(network))
        times.append(time.perf_counter() - began)
    for seconds in times[warmup:]:
        print(f"{1e3 * seconds:.3f} ms")
    for tensor in tensors_of(lite, network, "output"):
        print(tensor[:4])
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    model, count, warmup, folder = [*sys.argv[1:], *["1", ""][len(sys.argv) - 3 :]]
    main(model, int(count), int(warmup), folder)
