"""The execution providers: their names, libraries and devices, and which one a run asks for."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
from collections.abc import Mapping
from typing import Any

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
    """Return the folder of the package `onnxruntime`, which is found without importing it; empty if
    there is none."""
    found = importlib.util.find_spec("onnxruntime")
    places = found.submodule_search_locations if found is not None else None
    return places[0] if places else ""


def library_of(name: str) -> str:
    """Return the path of the library of the provider with that short name; empty without one."""
    path = os.path.join(package_folder(), "capi", f"libonnxruntime_providers_{name}.so")
    return path if os.path.exists(path) else ""


def why_unloadable(name: str) -> str:
    """Return what the system says against loading a provider's library; empty if it loads, or if
    there is none. The engine itself says it in its log alone."""
    try:
        ctypes.CDLL(library_of(name) or None)
    except OSError as error:
        return str(error)
    return ""


def load_cuda(onnxruntime: Any) -> None:
    """Load CUDA's libraries out of the Python packages that have them, where the system does not
    look for them. Of those that are missing the engine complains later, if it needs them."""
    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()


def count_cuda_devices() -> int:
    """Return how many CUDA devices this process may use: 0 without NVIDIA's driver."""
    count = ctypes.c_int(0)
    with contextlib.suppress(OSError):
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def short_name(provider: str) -> str:
    """Return what a provider is called for short: `CUDAExecutionProvider` is `cuda`."""
    return provider.lower().removesuffix(SUFFIX.lower())


def provider_for(settings: Mapping[str, Any], known: list[str]) -> str:
    """Return the engine's name of the provider to run on; an unknown name is returned as is."""
    on_cuda = CUDA if table.CUDA.is_given(settings) else CPU
    by_flag = TENSORRT if table.TENSORRT.is_given(settings) else on_cuda
    asked = table.PROVIDER.of(settings) or by_flag
    return next((name for name in known if short_name(name) == short_name(asked)), asked)


def flag_for(settings: Mapping[str, Any]) -> str:
    """Return the flag that chose another provider than the CPU's."""
    options = (table.TENSORRT, table.CUDA, table.PROVIDER)
    return next(option.flag for option in options if option.is_given(settings))
