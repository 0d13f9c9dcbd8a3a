"""The execution providers: their names, libraries and devices, and which one a run asks for."""

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

# The device that a provider's inputs and outputs lie on, where it is not the CPU.
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
    """Return the folder of the package `onnxruntime`, found without an import; empty if it is not
    installed."""
    found = importlib.util.find_spec("onnxruntime")
    places = found.submodule_search_locations if found is not None else None
    return places[0] if places else ""


def library_of(name: str) -> str:
    """Return the path of the library of the provider with that short name; empty without one."""
    path = os.path.join(package_folder(), "capi", f"libonnxruntime_providers_{name}.so")
    return path if os.path.exists(path) else ""


def why_unloadable(name: str) -> str:
    """Return why the system cannot load a provider's library; empty if it loads, or if the provider
    has no library. The engine writes this reason only into its log."""
    import ctypes  # slow to import, and the help reads the table of options

    try:
        ctypes.CDLL(library_of(name) or None)
    except OSError as error:
        return str(error)
    return ""


class CudaDevice(NamedTuple):
    """NVIDIA's name of a device, and the first number of its compute capability."""

    name: str
    generation: int


GENERATION = 75  # NVIDIA's number of that attribute


def cuda_devices() -> tuple[CudaDevice, ...]:
    """Return the CUDA devices that this process may use: none without NVIDIA's driver."""
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
    """Return the types of the operators that a session runs on the CPU, with how many each has, as
    `Det (1), Relu (3)`; empty without any, or if this ONNX Runtime does not say."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return ""
    parts = session.get_provider_graph_assignment_info()
    types = Counter(
        node.op_type for part in parts if part.ep_name == CPU for node in part.get_nodes()
    )
    return ", ".join(f"{name} ({count})" for name, count in types.items())


def short_name(provider: str) -> str:
    """Return what a provider is called for short: `CUDAExecutionProvider` is `cuda`."""
    return provider.lower().removesuffix(SUFFIX.lower())


def first_provider(asked: str) -> str:
    """Return the provider that --provider names first: what it cannot run, the CPU may run."""
    return asked.partition(",")[0]


def provider_in(settings: Mapping[str, Any]) -> str:
    """Return what is asked for, as --provider names it: the CPU's provider without a flag."""
    on_cuda = CUDA if table.CUDA.is_given(settings) else CPU
    by_flag = TENSORRT if table.TENSORRT.is_given(settings) else on_cuda
    return table.PROVIDER.of(settings) or by_flag


def provider_for(settings: Mapping[str, Any], known: list[str]) -> str:
    """Return the engine's name of the provider to run on; an unknown name is returned as is."""
    asked = first_provider(provider_in(settings))
    return next((name for name in known if short_name(name) == short_name(asked)), asked)


def flag_for(settings: Mapping[str, Any]) -> str:
    """Return the flag that chose another provider than the CPU's."""
    options = (table.TENSORRT, table.CUDA, table.PROVIDER)
    return next(option.flag for option in options if option.is_given(settings))


# What ONNX Runtime says


# What the engine says of a model that its provider cannot run as a whole.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# What stands before what the engine has to say.
PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(This is an invalid model\. )?(In Node, .* , Error )?"
)


def one_line(message: str) -> str:
    """Return what the first line of a message says, at most 160 characters."""
    line = message.strip().splitlines()[0] if message.strip() else ""
    return PREAMBLE.sub("", line)[:160]
