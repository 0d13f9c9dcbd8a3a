"""The peers of lar: engines without lar, called as in a user's script.

    python tools/peers.py run MODEL COUNT [WARMUP [FOLDER]]
    python tools/peers.py session MODEL COUNT
    python tools/peers.py search MODEL
    python tools/peers.py loop MODEL [openvino|mnn]
    python tools/peers.py onnxruntime-test MODEL

`run` makes a whole run of a `.mge` through lite's C functions. It prints the milliseconds of each
timed iteration, and the first numbers of each output. WARMUP is the number of untimed iterations, 1
by default. If FOLDER is given, the engine computes in the calling thread, and dumps each tensor
into FOLDER; `-` means no dump. `session` makes a whole run of an `.onnx` with ONNX Runtime, and
prints the milliseconds of each iteration. `search` prints the seconds of a first iteration in which
MegEngine measures its algorithms.

`loop` and `onnxruntime-test` read lines of two numbers: how many untimed and how many timed
iterations to make. For each line, `loop` prints the median and the minimum of the seconds of an
iteration in a bare loop; OpenVINO and MNN compute with one thread. `onnxruntime-test` prints the
mean that ONNX Runtime's own test program prints. The test program makes a new session for each
call. Here, it always gets the same session, so that only the first call has the cost of a first
iteration. All inputs are filled with ones.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np

PROFILE, OPTIMIZED = 2, 8
EMPTY_CACHE = bytes(4)  # a cache file without categories

# A function that runs one iteration, and a function that is called before it, without timing.
Loop = tuple[Callable[[], Any], Callable[[], Any]]


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"lite failed: {status}")


class LiteModel:
    """A `.mge` with float32 tensors, run through lite's C functions."""

    def __init__(self, model: str, *, is_inplace: bool = False, cache: str = "") -> None:
        (file,) = glob.glob(f"{np.__path__[0]}/../megenginelite/libs/liblite*")
        self.lite, self.network = ctypes.CDLL(file), c_void_p()
        if cache:
            check(self.lite.LITE_set_persistent_cache(c_char_p(cache.encode()), c_int(1)))
        check(self.lite.LITE_make_default_network(byref(self.network)))
        if is_inplace:
            check(self.lite.LITE_set_cpu_inplace_mode(self.network))
        if cache:
            check(self.lite.LITE_set_network_algo_policy(self.network, PROFILE | OPTIMIZED))
        check(self.lite.LITE_load_model_from_path(self.network, c_char_p(model.encode())))
        for tensor in self.tensors("input"):
            tensor[:] = 1
        prototype = ctypes.CFUNCTYPE(c_int, c_void_p)
        self._forward = prototype(("LITE_forward", self.lite))
        self._wait = prototype(("LITE_wait", self.lite))

    def iterate(self) -> None:
        self._forward(self.network)
        self._wait(self.network)

    def tensors(self, kind: str) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
        """Yield the memory of each input or of each output, as an array."""
        read, count = self.lite[f"LITE_get_all_{kind}_name"], c_size_t()
        check(read(self.network, byref(count), None))
        names = (c_char_p * count.value)()
        check(read(self.network, None, names))
        for name in names:
            tensor, size, memory = c_void_p(), c_size_t(), c_void_p()
            check(self.lite.LITE_get_io_tensor(self.network, c_char_p(name), 0, byref(tensor)))
            check(self.lite.LITE_get_tensor_total_size_in_byte(tensor, byref(size)))
            check(self.lite.LITE_get_tensor_memory(tensor, byref(memory)))
            assert memory.value is not None
            floats = (ctypes.c_float * (size.value // 4)).from_address(memory.value)
            yield np.ctypeslib.as_array(floats)


def run(model: str, count: str, warmup: str = "1", folder: str = "") -> None:
    lite = LiteModel(model, is_inplace=bool(folder))
    if folder not in ("", "-"):
        os.mkdir(folder)
        check(lite.lite.LITE_enable_io_bin_dump(lite.network, c_char_p(folder.encode())))
    print_times(lite.iterate, count, warmup)
    for tensor in lite.tensors("output"):
        print(tensor[:4])


def session(model: str, count: str) -> None:
    print_times(open_session(model)[0], count)
    sys.exit()  # end like a script, with all the clean-up of Python


def print_times(iterate: Callable[[], Any], count: str, warmup: str = "1") -> None:
    times_of(iterate, int(warmup))
    for seconds in times_of(iterate, int(count)):
        print(f"{1e3 * seconds:.3f} ms")


def search(model: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as cache:
        cache.write(EMPTY_CACHE)
        cache.flush()
        print(*times_of(LiteModel(model, cache=cache.name).iterate, 1))


def loop(model: str, engine: str = "") -> None:
    import statistics

    iterate, rearm = LOOPS[engine or model.rpartition(".")[2]](model)

    def measure(count: int) -> tuple[float, float]:
        times = times_of(iterate, count, rearm)
        return statistics.median(times), min(times)

    answer_turns(measure)


def open_lite(model: str) -> Loop:
    return LiteModel(model).iterate, bool


def open_session(model: str) -> Loop:
    """Load an `.onnx` with ONNX Runtime, and return its loop functions."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for node in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in node.shape]
        binding.bind_cpu_input(node.name, np.ones(shape, np.float32))
    for node in session.get_outputs():
        binding.bind_output(node.name, "cpu")
    return lambda: session.run_with_iobinding(binding), bool


def open_openvino(model: str) -> Loop:
    """Compile a model with OpenVINO, and return its loop functions."""
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", config).create_infer_request()
    for tensor in request.input_tensors:
        tensor.data[:] = 1
    infer = openvino._pyopenvino.InferRequest.infer
    return lambda: infer(request, {}, True, False), bool


def open_mnn(model: str) -> Loop:
    """Load a `.mnn` with MNN, and return its loop functions.

    The inputs are fed before each iteration, since MNN reuses their memory for other tensors.
    """
    import MNN

    interpreter = MNN.Interpreter(model)
    session = interpreter.createSession({"numThread": 1, "precision": 1})
    fed = []
    for tensor in interpreter.getSessionInputAll(session).values():
        shape, kind = tensor.getShape(), MNN.Tensor_DimensionType_Caffe
        ones = np.ones(shape, np.float32)
        fed.append((tensor, MNN.Tensor(shape, tensor.getDataType(), ones, kind)))

    def feed() -> None:
        for tensor, host in fed:
            tensor.copyFrom(host)

    return lambda: interpreter.runSession(session), feed


LOOPS = {"mge": open_lite, "onnx": open_session, "openvino": open_openvino, "mnn": open_mnn}


def onnxruntime_test(model: str) -> None:
    import contextlib
    import io
    import re
    import types

    import onnxruntime
    from onnxruntime.tools import onnxruntime_test as program

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = program.generate_feeds(session)
    program.onnxrt = types.SimpleNamespace(
        InferenceSession=lambda *_, **__: session,
        get_available_providers=onnxruntime.get_available_providers,
    )

    def measure(count: int) -> tuple[float]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            program.run_model(model, count, feeds=feeds)
        found: Any = re.search(r"avg latency: ([0-9.e-]+) ms", printed.getvalue())
        return (float(found[1]) / 1e3,)

    answer_turns(measure)


def times_of(
    iterate: Callable[[], Any], count: int, rearm: Callable[[], Any] = bool
) -> list[float]:
    """Return the seconds of `count` iterations; `rearm` is called before each, without timing."""
    times = []
    for _ in range(count):
        rearm()
        began = time.perf_counter()
        iterate()
        times.append(time.perf_counter() - began)
    return times


def answer_turns(measure: Callable[[int], tuple[float, ...]]) -> None:
    """For each line of standard input, make the iterations, and print the measured seconds."""
    print("ready", flush=True)
    for line in sys.stdin:
        untimed, timed = map(int, line.split())
        measure(untimed)
        print(*measure(timed), flush=True)


if __name__ == "__main__":
    peers: tuple[Callable[..., None], ...] = run, session, search, loop, onnxruntime_test
    named = {each.__name__.replace("_", "-"): each for each in peers}
    named[sys.argv[1]](*sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)
