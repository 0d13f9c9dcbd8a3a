"""The session driver: ONNX Runtime with inputs and outputs bound once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lar.engines.base import Driver
from lar.engines.onnxruntime.messages import explain_onnxruntime
from lar.engines.table import OptionRow
from lar.errors import EngineMissing, LarError, UsageError
from lar.options import flag_of
from lar.records import EngineFacts, RunSpec, TensorInfo

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
SUFFIX = "ExecutionProvider"

# The device that a provider's inputs and outputs lie on, where it is not the CPU.
DEVICES: Mapping[str, str] = {CUDA: "cuda", "TensorrtExecutionProvider": "cuda"}

# The package of ONNX Runtime that has a provider.
PACKAGES: Mapping[str, str] = {
    CUDA: "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "DmlExecutionProvider": "onnxruntime-directml",
    "QNNExecutionProvider": "onnxruntime-qnn",
}

# ONNX Runtime's names of element types that NumPy has too.
DTYPES: Mapping[str, str] = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{
        f"tensor({kind}{bits})": f"{kind}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}


def import_onnxruntime() -> Any:
    """Import onnxruntime.

    Raises:
        EngineMissing: it is not installed, or does not load on this machine.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineMissing(f"ONNX Runtime cannot be imported: {error}") from error
    return onnxruntime


def find_devices() -> tuple[str, ...]:
    """Return the devices that this ONNX Runtime has a provider for, the CPU first."""
    return ("cpu", *(["cuda:0"] if CUDA in import_onnxruntime().get_available_providers() else []))


class SessionDriver(Driver):
    """An InferenceSession that runs through an IOBinding."""

    name = "session"

    def __init__(self, spec: RunSpec, rows: Mapping[str, OptionRow]) -> None:
        super().__init__(spec, rows)
        self.onnxruntime = import_onnxruntime()
        self.options = self.onnxruntime.SessionOptions()
        self.providers: list[Any] = [CPU]
        self.device = ("cpu", 0)
        self.disabled_optimizers: list[str] = []

    def facts(self) -> EngineFacts:
        # What is asked for is what runs: `load` fails where it would be another provider.
        provider = self.asked_provider()
        installed = provider in self.onnxruntime.get_available_providers()
        device = self.spec.device
        if "provider" in self.spec.settings:
            device = f"{DEVICES[provider]}:0" if provider in DEVICES else "cpu"
        return EngineFacts(
            name="onnxruntime",
            version=self.onnxruntime.__version__,
            driver=self.name,
            device=device,
            libraries={"numpy": np.__version__, **({"provider": provider} if installed else {})},
        )

    def asked_provider(self) -> str:
        """Return the engine's name of the provider to run on; an unknown name is returned as is."""
        settings = self.spec.settings
        asked = CUDA if "cuda" in settings else str(settings.get("provider", CPU))
        known = self.onnxruntime.get_all_providers()
        return next((name for name in known if short_name(name) == short_name(asked)), asked)

    def runs_on_cpu(self) -> bool:
        return self.asked_provider() == CPU

    def choose_cuda(self, device_id: int) -> None:
        """Run on that CUDA device, and nowhere else.

        Raises:
            UsageError: the installed ONNX Runtime has no CUDA provider.
        """
        if CUDA not in self.onnxruntime.get_available_providers():
            raise UsageError(
                "--cuda: the installed ONNX Runtime has no CUDA provider",
                "pip install onnxruntime-gpu in its place; `lar engines` lists the devices",
            )
        self.forbid_fallback()
        self.providers = [(CUDA, {"device_id": device_id})]
        self.device = ("cuda", device_id)

    def choose_provider(self, name: str) -> None:
        """Run on that provider, and on no other.

        Raises:
            UsageError: the installed ONNX Runtime has no such provider, or a flag asks for the CPU.
        """
        provider = self.asked_provider()
        installed = self.onnxruntime.get_available_providers()
        if provider not in installed:
            package = PACKAGES.get(provider)
            raise UsageError(
                f"--provider: the installed ONNX Runtime has no provider {name!r}",
                f"installed: {', '.join(map(short_name, installed))}"
                + (f"; pip install {package} in its place" if package else ""),
            )
        if provider == CPU:
            return
        for key in ("cpu", "cpu_default"):
            if key in self.spec.settings:
                raise UsageError(f"{flag_of(key)} and --provider {name} exclude each other")
        self.forbid_fallback()
        self.providers = [provider]
        self.device = (DEVICES.get(provider, "cpu"), 0)

    def forbid_fallback(self) -> None:
        """Have the session fail where it would run on the CPU what its provider cannot."""
        self.options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")

    def set_log_level_verbose(self) -> None:
        self.options.log_severity_level = 0

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.session = self.onnxruntime.InferenceSession(
            self.spec.model,
            self.options,
            providers=self.providers,
            disabled_optimizers=self.disabled_optimizers,
        )
        ran_on = self.session.get_providers()
        asked = self.asked_provider()
        if asked not in ran_on:
            flag = "--cuda" if "cuda" in self.spec.settings else f"--provider {short_name(asked)}"
            raise UsageError(
                f"{flag}: ONNX Runtime could not use the device, it offers {', '.join(ran_on)}",
                "check the device's driver and the libraries that the provider needs",
            )
        self.fire_hooks("after_load")

    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(info_of(node) for node in self.session.get_inputs())

    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        device, device_id = self.device
        binding = self.session.io_binding()
        # Bound memory is not copied by the binding: the values live as long as the driver.
        self.fed = {
            name: self.onnxruntime.OrtValue.ortvalue_from_numpy(array, device, device_id)
            for name, array in arrays.items()
        }
        for name, value in self.fed.items():
            binding.bind_ortvalue_input(name, value)
        for node in self.session.get_outputs():
            binding.bind_output(node.name, device, device_id)
        self.binding = binding
        self.start = partial(self.session.run_with_iobinding, binding)
        # On the CPU the run has ended when it returns; `bool` is the cheapest call that does
        # nothing.
        self.wait = binding.synchronize_outputs if device == "cuda" else bool
        self.fire_hooks("before_run")

    def outputs(self) -> Mapping[str, Any]:
        return SessionOutputs(self.session.get_outputs(), self.binding.get_outputs())

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        return explain_onnxruntime(str(error), self.spec.model, loading=loading)


class SessionOutputs(Mapping[str, Any]):
    """The outputs of a session, each made an array when it is asked for."""

    def __init__(self, nodes: Sequence[Any], values: Sequence[Any]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._values = dict(zip(self._nodes, values, strict=True))

    def __getitem__(self, name: str) -> Any:
        type_name = self._nodes[name].type
        return self._values[name].numpy() if type_name in DTYPES else type_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def short_name(provider: str) -> str:
    """Return what a provider is called for short: `CUDAExecutionProvider` is `cuda`."""
    return provider.lower().removesuffix(SUFFIX.lower())


def info_of(node: Any) -> TensorInfo:
    """Describe an input of a session; symbolic axes take any size.

    Raises:
        UsageError: NumPy has no such element type.
    """
    if node.type not in DTYPES:
        raise UsageError(f"the model's input {node.name} is a {node.type}, which lar cannot feed")
    shape = tuple(size if isinstance(size, int) else None for size in node.shape)
    return TensorInfo(name=node.name, dtype=DTYPES[node.type], shape=shape)
