"""The execution providers of ONNX Runtime, with their names, libraries and devices."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from lar.options import table

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
SUFFIX = "ExecutionProvider"

# The device in whose memory a provider's inputs and outputs are, if it is not the CPU.
DEVICES: Mapping[str, str] = {CUDA: "cuda", TENSORRT: "cuda"}

# The package of ONNX Runtime that has a provider.
PACKAGES: Mapping[str, str] = {
    CUDA: "onnxruntime-gpu",
    TENSORRT: "onnxruntime-gpu",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "DmlExecutionProvider": "onnxruntime-directml",
    "QNNExecutionProvider": "onnxruntime-qnn",
}


def package_folder() -> str:
    """Return the folder of the package `onnxruntime` without importing it.

    The path is empty if the package is not installed.
    """
    found = importlib.util.find_spec("onnxruntime")
    places = found.submodule_search_locations if found is not None else None
    return places[0] if places else ""


def library_of(name: str) -> str:
    """Return the path of a provider's library, given its short name; empty if it has no library."""
    path = os.path.join(package_folder(), "capi", f"libonnxruntime_providers_{name}.so")
    return path if os.path.exists(path) else ""


def why_unloadable(name: str) -> str:
    """Return why the system cannot load a provider's library.

    The reason is empty if the library loads, or if the provider has no library. The engine itself
    writes the reason only into its log.
    """
    import ctypes  # slow to import, and the help reads the table of options

    try:
        ctypes.CDLL(library_of(name) or None)
    except OSError as error:
        return str(error)
    return ""


class CudaDevice(NamedTuple):
    """The name of a CUDA device, and the first number of its compute capability."""

    name: str
    generation: int


GENERATION = 75  # NVIDIA's number of the attribute with the first number of the capability


def cuda_devices() -> tuple[CudaDevice, ...]:
    """Return the CUDA devices that this process may use; empty if NVIDIA's driver is missing."""
    import ctypes  # see above

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count, device, generation = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    if driver.cuInit(0) == 0:
        driver.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for number in range(count.value):
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceGetAttribute(ctypes.byref(generation), GENERATION, device)
        found.append(CudaDevice(name.value.decode(errors="replace"), generation.value))
    return tuple(found)


ASSIGNMENTS = "session.record_ep_graph_assignment_info"


def operators_on_cpu(session: Any) -> str:
    """Return the operators that a session runs on the CPU, as a text such as `Det (1), Einsum (2)`.

    The text is empty if no operator runs on the CPU, or if ONNX Runtime is too old to report this.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return ""
    parts = session.get_provider_graph_assignment_info()
    types = Counter(
        node.op_type for part in parts if part.ep_name == CPU for node in part.get_nodes()
    )
    return ", ".join(f"{name} ({count})" for name, count in types.items())


def short_name(provider: str) -> str:
    """Return the short name of a provider, such as `cuda` for `CUDAExecutionProvider`."""
    return provider.lower().removesuffix(SUFFIX.lower())


def first_provider(asked: str) -> str:
    """Return the first provider in a value of --provider.

    The CPU may be the second provider in the value.
    """
    return asked.partition(",")[0]


def provider_in(settings: Mapping[str, Any]) -> str:
    """Return the provider that the options ask for, as a value for --provider.

    If no option asks for a provider, the result is the CPU's provider.
    """
    on_cuda = CUDA if table.CUDA.is_given(settings) else CPU
    by_flag = TENSORRT if table.TENSORRT.is_given(settings) else on_cuda
    return table.PROVIDER.of(settings) or by_flag


def provider_for(settings: Mapping[str, Any], known: list[str]) -> str:
    """Return the engine's name of the provider to run on; an unknown name is returned as is."""
    asked = first_provider(provider_in(settings))
    return next((name for name in known if short_name(name) == short_name(asked)), asked)


def flag_for(settings: Mapping[str, Any]) -> str:
    """Return the flag by which the user chose a provider other than the CPU's."""
    options = (table.TENSORRT, table.CUDA, table.PROVIDER)
    return next(option.flag for option in options if option.is_given(settings))


# Messages of ONNX Runtime


# Part of the engine's message about a model that a provider can run only in part.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# The beginning of a message of the engine, before the important words.
PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(This is an invalid model\. )?(In Node, .* , Error )?"
)


def one_line(message: str) -> str:
    """Return the first line of a message, without the engine's preamble, cut to 160 characters."""
    return PREAMBLE.sub("", (message.strip().splitlines() or [""])[0])[:160]
