"""The peer of a lar run: a bare loop on the engine's own interface, as a user would write it.

    python tools/bare_loop.py MODEL WARMUP COUNT

prints the median time of an iteration in seconds. MegEngine goes through lite's C functions,
ONNX Runtime through IOBinding; inputs are ones.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def open_lite(model: str) -> Callable[[], Any]:
    """Load a `.mge` with lite and return what runs one iteration."""
    import megenginelite as lite

    network = lite.LiteNetwork()
    network._api.LITE_load_model_from_path(network._network, model.encode())
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        tensor.set_data_by_copy(np.ones(tensor.layout.shapes, tensor.layout.dtype))
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    forward = prototype(("LITE_forward", network._api))
    wait = prototype(("LITE_wait", network._api))
    handle = network._network

    def iterate(network: Any = network) -> None:
        forward(handle)
        wait(handle)

    return iterate


def open_session(model: str) -> Callable[[], Any]:
    """Load an `.onnx` with ONNX Runtime and return what runs one iteration."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for node in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in node.shape]
        binding.bind_cpu_input(node.name, np.ones(shape, np.float32))
    for node in session.get_outputs():
        binding.bind_output(node.name, "cpu")

    def iterate() -> None:
        session.run_with_iobinding(binding)

    return iterate


def main(model: str, warmup: int, count: int) -> None:
    iterate = open_session(model) if model.endswith(".onnx") else open_lite(model)
    for _ in range(warmup):
        iterate()
    print(median_time(iterate, count))


def median_time(iterate: Callable[[], Any], count: int) -> float:
    """Return the median time of so many iterations, in seconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        iterate()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
