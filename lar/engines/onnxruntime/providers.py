"""The execution providers: which one a run asks for, and the options that choose it.

The functions that take a driver and a value are hooks of the option table; they set the driver's
`providers`, `provider_options` and `device`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lar.errors import UsageError
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


def choose_cuda(driver: Any, device_id: int) -> None:
    """Run on that CUDA device, and nowhere else.

    Raises:
        UsageError: the installed ONNX Runtime has no CUDA provider.
    """
    use_device(driver, [CUDA], device_id)


def choose_tensorrt(driver: Any, _: bool) -> None:
    """Run on TensorRT what it can run, the rest on the CUDA device, and nothing on the CPU.

    Raises:
        UsageError: the installed ONNX Runtime has no TensorRT provider.
    """
    use_device(driver, [TENSORRT, CUDA], table.CUDA.of(driver.spec.settings) or 0)


def use_device(driver: Any, providers: list[str], device_id: int) -> None:
    """Run on a CUDA device.

    Raises:
        UsageError: the installed ONNX Runtime does not have the first provider.
    """
    if providers[0] not in driver.onnxruntime.get_available_providers():
        what = "TensorRT" if providers[0] == TENSORRT else "CUDA"
        raise UsageError(
            f"{flag_for(driver.spec.settings)}: the installed ONNX Runtime has no {what} provider",
            f"pip install {PACKAGES[providers[0]]} in its place; `lar engines` lists the devices",
        )
    forbid_fallback(driver)
    driver.providers = providers
    driver.device = ("cuda", device_id)


def choose_provider(driver: Any, name: str) -> None:
    """Run on that provider, and on no other.

    Raises:
        UsageError: the installed ONNX Runtime has no such provider.
    """
    provider = driver.asked_provider()
    installed = driver.onnxruntime.get_available_providers()
    if provider not in installed:
        package = PACKAGES.get(provider)
        raise UsageError(
            f"--provider: the installed ONNX Runtime has no provider {name!r}",
            f"installed: {', '.join(map(short_name, installed))}"
            + (f"; pip install {package} in its place" if package else ""),
        )
    if provider == CPU:
        return
    forbid_fallback(driver)
    driver.providers = [provider]
    driver.device = (DEVICES.get(provider, "cpu"), 0)


def forbid_fallback(driver: Any) -> None:
    """Have the session fail where it would run on the CPU what its provider cannot."""
    driver.options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")


def keep_tensorrt_engines(driver: Any, file: str) -> None:
    """Have TensorRT keep its engines in files whose names begin with `file`.

    Raises:
        UsageError: nothing can be written there.
    """
    folder, name = os.path.split(os.path.abspath(file))
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--tensorrt-cache: {file}: cannot be written", "choose another file")
    driver.provider_options[TENSORRT] = {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": folder,
        "trt_engine_cache_prefix": name,
    }


def measure_algorithms(driver: Any, _: bool) -> None:
    """Have cuDNN measure the algorithms of convolutions; on the CPU, there is a cache to build."""
    if driver.asked_provider() in DEVICES:
        driver.provider_options[CUDA] = {"cudnn_conv_algo_search": "EXHAUSTIVE"}
