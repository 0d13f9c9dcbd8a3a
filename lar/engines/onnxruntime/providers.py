"""The execution providers: their names, and which one a run asks for."""

from __future__ import annotations

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
