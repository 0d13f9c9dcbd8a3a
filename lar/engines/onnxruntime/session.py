"""The session driver, which runs ONNX Runtime with inputs and outputs that are bound once."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.driver import Driver, LateOutputs, Meanings, phases_of
from lar.engines.engine import importing
from lar.engines.formats import begins_like_ort, read_head
from lar.engines.onnx_file.fields import NUMBERS, Message, SavedModel, axes_of, open_model
from lar.engines.onnx_file.tensors import dtype_of, tensor_of
from lar.engines.onnxruntime import providers
from lar.engines.onnxruntime.providers import CPU, NO_FALLBACK, one_line
from lar.errors import LarError, UsageError, count_of
from lar.files.report_file import check_writable
from lar.inputs.dtypes import NARROW as WITHOUT_NUMPY
from lar.inputs.dtypes import is_narrow
from lar.options import table
from lar.records.run import EngineFacts, TensorInfo

if TYPE_CHECKING:
    from lar.dumps.recording import Unheld

# ONNX Runtime's values: tensors, strings, sequences, maps, and types that NumPy lacks


Array = np.ndarray[Any, Any]

WHOLE = (f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
PLAIN = ("bool", *WHOLE, "float16", "float32", "float64")
OTHER_NAMES = {"float32": "float", "float64": "double"}  # in ONNX Runtime
# lar's names of element types, by the engine's names; NumPy lacks the types in NARROW.
DTYPES = {f"tensor({OTHER_NAMES.get(name, name)})": name for name in PLAIN}
NARROW = {f"tensor({name.replace('8_', '8')})": name for name in WITHOUT_NUMPY}
TEXT = "tensor(string)"
# The element types that lar can feed, by the engine's names.
FED = {**DTYPES, TEXT: "string", **NARROW}


def tensor_type(dtype: str) -> Message:
    """Return the ONNX type of tensors whose element type has this NumPy name."""
    return Message("Type", tensor_type=Message("TensorType", elem_type=NUMBERS[dtype]))


def type_named(name: str) -> Message:
    """Return the ONNX type with a name that the engine uses, such as `seq(tensor(float))`.

    Raises:
        LookupError: lar cannot feed values of this type.
    """
    kind, _, inner = name.removesuffix(")").partition("(")
    if kind == "tensor":
        dtype = FED.get(name, inner)
        return tensor_type("object" if dtype == "string" else dtype)
    field = {"seq": "sequence_type", "optional": "optional_type"}[kind]
    content: dict[str, Any] = {field: Message("Sequence", elem_type=type_named(inner))}
    return Message("Type", **content)


def graph_alone(
    nodes: Iterable[Message], types: Mapping[str, Message], outputs: Iterable[str], **content: Any
) -> Message:
    """Return a graph of the given nodes, inputs (with their types) and outputs."""
    return Message(
        "Graph",
        name="alone",
        node=[*nodes],
        input=[Message("Value", name=name, type=kind) for name, kind in types.items()],
        output=[Message("Value", name=name) for name in outputs],
        **content,
    )


def model_alone(graph: Message, *domains: str) -> bytes:
    """Return a model of a graph.

    `domains` are domains of operators besides ONNX's own domain.
    """
    opsets = [Message("Opset", domain=domain, version=1) for domain in domains]
    opsets.append(Message("Opset", version=17))
    return Message("Model", ir_version=8, graph=graph, opset_import=opsets).encode()


def make_value(
    onnxruntime: Any, given: Array | Sequence[Array], device: tuple[str, int] = ("cpu", 0)
) -> Any:
    """Return an OrtValue of an array, or of several arrays as a sequence.

    On the CPU, the OrtValue of an array of numbers shares the array's memory, and this memory is
    not freed as long as the OrtValue exists.
    """
    # OrtValue cannot make sequences and strings, but a model with one node can.
    if not isinstance(given, np.ndarray):
        values = {f"item{at}": make_value(onnxruntime, each) for at, each in enumerate(given)}
        return run_node(onnxruntime, "SequenceConstruct", values)
    if given.dtype.kind == "O":
        return run_node(onnxruntime, "Identity", {}, tensor_of(given, "texts"))
    if is_narrow(given.dtype):
        plain, number = given.view(f"u{given.itemsize}"), NUMBERS[given.dtype.name]
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, number)
    return onnxruntime.OrtValue.ortvalue_from_numpy(given, *device)


def run_node(
    onnxruntime: Any, operator: str, values: Mapping[str, Any], *constants: Message
) -> Any:
    """Run one operator, and return its output as an OrtValue."""
    names = [*values, *(each.name for each in constants)]
    node = Message("Node", op_type=operator, input=names, output=["value"])
    types = {name: type_named(it.data_type()) for name, it in values.items()}
    graph = graph_alone([node], types, ["value"], initializer=[*constants])
    session = onnxruntime.InferenceSession(model_alone(graph), providers=[CPU])
    return session.run_with_ort_values(["value"], values)[0]


def read_tensor(name: str, value: Any) -> Array | Unheld | None:
    """Return the array in an OrtValue that is neither a sequence nor a map.

    The result is None if the OrtValue is optional and has no value. If the argument is an array
    already, it is returned unchanged.
    """
    if isinstance(value, np.ndarray):
        return value
    if not value.has_value():
        return None
    kind = value.data_type()
    if kind in DTYPES or kind == TEXT:
        array: Array = value.numpy()
        return array
    if kind not in NARROW:
        return unheld(name, f"no file holds a {kind}")
    size = value.tensor_size_in_bytes()
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), dtype_of(NARROW[kind])).reshape(value.shape())


def read_value(session: Any, name: str, value: Any) -> object:
    """Return the content of an OrtValue, which is the output `name` of the session.

    If no array can hold the content, return an `Unheld` with the reason.
    """
    if value.is_tensor() or not value.has_value():
        return read_tensor(name, value)
    # Only a binding can read sequences and maps, but it crashes if it has outputs of strings.
    binding = session.io_binding()
    binding.bind_ortvalue_output(name, value)
    try:
        return binding.copy_outputs_to_cpu()[0]
    except RuntimeError:
        return unheld(name, f"no array holds a {value.data_type()}")


def unheld(name: str, reason: str) -> Unheld:
    """Return the object that stands for a value that no file can hold, with the reason."""
    from lar.dumps.recording import Unheld  # slow to import, and few models need it

    return Unheld(name, reason)


def outputs_of(session: Any, binding: Any) -> Mapping[str, Any]:
    """Return the outputs of a session; each output is converted to an array only when it is read.

    The parts of sequences and maps have names such as `s[0]` and `p[cat]`. If an array cannot hold
    a part, the value of this part is a text with the reason.
    """
    from onnxruntime import OrtValue  # loaded already

    tensors, parts = dict[str, Any](), dict[str, Any]()
    vector = binding.get_outputs_as_ortvaluevector()  # indexed, as iterating takes 20 us
    for at, node in enumerate(session.get_outputs()):
        value = OrtValue(vector[at])
        if value.is_tensor():
            tensors[node.name] = parts[node.name] = value
        else:
            from lar.dumps.recording import leaves_of  # slow to import

            parts.update(leaves_of(node.name, read_value(session, node.name, value)))

    def read(name: str) -> Any:
        found = read_tensor(name, tensors[name]) if name in tensors else parts[name]
        # `Unheld` is a name and a reason.
        return found[1] if isinstance(found, tuple) else np.asarray(found)

    return LateOutputs([*parts], read)


# The session driver: ONNX Runtime with inputs and outputs bound once


# Messages about operators that the engine lacks contain the engine's `version`.
MEANINGS = Meanings(__file__)

FALLBACK = "session.disable_cpu_ep_fallback"

# Parts of the engine's messages about an output whose sizes differ from the bound output's.
OTHER_SIZES = ("dimensions for output", "rank for output", "OrtValue shape verification failed")

# Entries of a run that returns as soon as all its work is dispatched to a device. The second entry
# turns the capture of graphs off; without it version 1.31 raises and catches an error each time.
ASYNCHRONOUS = {"disable_synchronize_execution_providers": "1", "gpu_graph_id": "-1"}


def import_onnxruntime() -> Any:
    """Import onnxruntime.

    Raises:
        EngineMissing: onnxruntime is not installed, or does not load on this machine.
    """
    with importing("ONNX Runtime"):
        import onnxruntime
    return onnxruntime


def find_devices() -> tuple[str, ...]:
    """Return this machine's devices for which ONNX Runtime has a provider, the CPU first."""
    has_cuda = providers.CUDA in import_onnxruntime().get_available_providers()
    devices = providers.cuda_devices() if has_cuda else ()
    return ("cpu", *(f"cuda:{number} ({it.name})" for number, it in enumerate(devices)))


class SessionDriver(Driver):
    """A driver that runs an InferenceSession with an IOBinding."""

    name = "session"
    calls = {
        "load": "InferenceSession",
        "forward": "InferenceSession.run_with_iobinding",
        "outputs": "OrtValue.numpy",
    }

    def set_up(self) -> None:
        self.onnxruntime = import_onnxruntime()
        self.options = self.onnxruntime.SessionOptions()
        self.device, self.model_format = ("cpu", 0), ""
        # The hooks of the options set these attributes.
        self.providers: list[str] = [providers.CPU]
        self.provider_options: dict[str, dict[str, str]] = defaultdict(dict)
        self.disabled_optimizers: list[str] = []
        self.run_entries: dict[str, str] = {}
        self.feed_checks: list[Callable[[], None]] = []  # called for all inputs after the first
        self.open: Callable[[], Any] = partial(self.open_session, self.spec.model)
        # The saved model from which the session was loaded, if any, and its unchecked weights.
        self.saved: SavedModel | None = None
        self.unverified: Any = None
        # The saved optimised model for a dump.
        self.dump_source: SavedModel | None = None

    def facts(self) -> EngineFacts:
        # The session runs on the provider asked for, since `load` fails if it would be another.
        provider, device = self.asked_provider(), self.spec.device
        if provider in providers.DEVICES and not table.CUDA.is_given(self.spec.settings):
            device = f"{providers.DEVICES[provider]}:0"
        libraries = dict[str, str]()
        if provider in self.onnxruntime.get_available_providers():
            libraries["provider"] = provider
        if self.gpu:
            libraries["device"] = self.gpu.name
        facts = self.usual_facts(self.onnxruntime.__version__, **libraries)
        return replace(facts, device=device, products="tf32" if self.rounds_to_tf32() else "")

    @cached_property
    def gpu(self) -> providers.CudaDevice | None:
        """The CUDA device of the run, None if the run uses no CUDA device.

        If the machine lacks the requested CUDA device, the result is None too.
        """
        number = table.CUDA.of(self.spec.settings) or 0
        devices = providers.cuda_devices() if self.asked_provider() in providers.DEVICES else ()
        return devices[number] if number < len(devices) else None

    def rounds_to_tf32(self) -> bool:
        forbidden = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"
        # TF32 came with generation 8.
        able = self.gpu is not None and self.gpu.generation >= 8 and not forbidden
        return able and not table.NO_TF32.is_given(self.spec.settings)

    def thread_count(self) -> int | None:
        # Other providers do not say how many threads of the CPU they start.
        return super().thread_count() if self.asked_provider() == providers.CPU else None

    def default_threads(self) -> int | None:
        if self.spec.runners > 1:
            return 1
        cores = table.MULTI_THREAD_CORE_IDS.of(self.spec.settings)
        return len(cores.split(",")) if cores else len(os.sched_getaffinity(0))

    def asked_provider(self) -> str:
        """Return the engine's name of the run's provider; an unknown name is returned unchanged."""
        return providers.provider_for(self.spec.settings, self.onnxruntime.get_all_providers())

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.session = self.open()
        ran_on, asked = self.session.get_providers(), self.asked_provider()
        if asked not in ran_on:
            flag, offered = providers.flag_for(self.spec.settings), ", ".join(ran_on)
            name = f" {providers.short_name(asked)}" if flag == table.PROVIDER.flag else ""
            raise UsageError(
                f"{flag}{name}: ONNX Runtime can use only {offered}, not this device",
                "check the device's driver and the libraries that the provider needs",
            )
        self.fire_hooks("after_load")

    def open_session(self, model: str | bytes) -> Any:
        """Return a session of a model, with the current options of the driver."""
        head = read_head(Path(model)) if isinstance(model, str) else model
        found = "ORT" if begins_like_ort(head) else "ONNX"
        if found != self.model_format:
            # Else ONNX Runtime would go by the suffix, and read a file that lar has not checked.
            self.options.add_session_config_entry("session.load_model_format", found)
            self.model_format = found
        return self.onnxruntime.InferenceSession(
            model,
            self.options,
            providers=self.providers,
            provider_options=[self.provider_options[name] for name in self.providers],
            disabled_optimizers=self.disabled_optimizers,
            enable_fallback=0,
        )

    def find_lacking(self) -> str:
        """Return the operators that the provider cannot run; empty if they are unknown."""
        self.options.add_session_config_entry(FALLBACK, "0")
        self.options.add_session_config_entry(providers.ASSIGNMENTS, "1")
        with contextlib.suppress(Exception):  # the engine has no one kind for its errors
            return providers.operators_on_cpu(self.open_session(self.spec.model))
        return ""

    def drop_session(self) -> None:
        """Delete the session and its outputs; the driver cannot run after this."""
        del self.session, self.binding, self.start, self.wait

    def inputs(self) -> tuple[TensorInfo, ...]:
        nodes, others = self.session.get_inputs(), self.session.get_overridable_initializers()
        # The engine describes an input with any number of axes in the same way as a scalar.
        unclear: Container[str] = ()
        if not all(it.shape for it in nodes):
            fed = open_model(Path(self.spec.model)).graph.input
            unclear = {it.name for it in fed if "shape" not in it.type.tensor_type}
        return (
            *(info_of(node, unclear) for node in nodes),
            *(replace(info_of(it, ()), optional=True) for it in others if it.type in FED),
        )

    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        binding = self.session.io_binding()
        # The binding does not copy bound memory, so the driver keeps the values alive.
        self.fed, self.given = {}, arrays
        for name, array in arrays.items():
            # On the CPU the value shares the array's memory.
            with self.recorder.call("OrtValue.ortvalue_from_numpy"):
                self.fed[name] = make_value(self.onnxruntime, array, self.device)
            binding.bind_ortvalue_input(name, self.fed[name])
        self.binding = binding
        self.bind_outputs()
        # A bound sequence would grow in each run, so it is bound again before each run.
        grows = any(node.type.startswith("seq(") for node in self.session.get_outputs())
        self.rearm = self.bind_outputs if grows else None
        entries = {**(ASYNCHRONOUS if self.device[0] == "cuda" else {}), **self.run_entries}
        # On the CPU the run has ended when `start` returns, so `wait` does nothing; `bool` is the
        # cheapest such call.
        self.wait = bool
        if self.device[0] == "cuda":
            self.wait = binding.synchronize_outputs
            self.calls = {**self.calls, "wait": "IOBinding.synchronize_outputs"}
        options = run_options(self.onnxruntime, entries) if entries else None
        start = partial(self.session.run_with_iobinding, binding, options)
        ends = (*self.session.get_inputs(), *self.session.get_outputs())
        is_fixed = all(isinstance(size, int) for node in ends for size in node.shape or (None,))
        self.start = start if is_fixed else partial(self.start_anew, start)
        for check in self.feed_checks:
            check()
        self.fire_hooks("before_run")

    def start_anew(self, start: Callable[[], object]) -> None:
        """Run an iteration of a model whose shapes are not fixed.

        The size of an output may change between iterations, for example with random numbers. If an
        output does not fit into its bound memory, new outputs are bound, and the iteration is run
        again. After the first iteration that is run again, new outputs are bound before each
        iteration.
        """
        try:
            start()
        except RuntimeError as error:
            if not any(each in str(error) for each in OTHER_SIZES):
                raise
            self.rearm = self.bind_outputs
            self.rearm()
            start()

    def bind_outputs(self) -> None:
        """Have the engine allocate new memory for the outputs of the next run."""
        self.binding.clear_binding_outputs()
        for node in self.session.get_outputs():
            place = self.device if node.type in DTYPES else ("cpu", 0)
            self.binding.bind_output(node.name, *place)

    def outputs(self) -> Mapping[str, Any]:
        return outputs_of(self.session, self.binding)

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        name = providers.short_name(self.providers[0])
        if loading and (missing := providers.why_unloadable(name)):
            return UsageError(
                f"the provider {name} of ONNX Runtime does not load: {missing}",
                LIBRARY_HINTS.get(name, "install the libraries that the provider needs"),
                flag=providers.flag_for(self.spec.settings),
            )
        if loading and NO_FALLBACK in str(error):
            lacking = self.find_lacking()
            return UsageError(
                f"the provider {name} cannot run {lacking or 'some operators of the model'}",
                f"with --provider {name},cpu, the CPU runs the operators that {name} cannot",
                subject=self.spec.model,
            )
        facts = {"said": one_line(str(error)), "version": self.onnxruntime.__version__}
        facts |= {"phases": phases_of(loading=loading), "settings": self.spec.settings}
        return MEANINGS.explain(str(error), self.spec.model, **facts)


def run_options(onnxruntime: Any, entries: Mapping[str, str]) -> Any:
    """Return the engine's RunOptions with the given configuration entries."""
    options = onnxruntime.RunOptions()
    for key, value in entries.items():
        options.add_run_config_entry(key, value)
    return options


def info_of(node: Any, unclear: Container[str]) -> TensorInfo:
    """Describe an input of a session; inputs named in `unclear` may have any number of axes.

    Raises:
        UsageError: lar cannot feed elements of this type, or the input is neither a tensor nor a
            sequence.
    """
    sequence = re.fullmatch(r"seq\((tensor\(\w+\))\)", node.type)
    kind = sequence[1] if sequence else node.type
    if kind not in FED:
        raise UsageError(
            f"the model's input {node.name} is a {node.type}, which lar cannot feed",
            "export the model so that each input holds strings or numbers of 8 or more bits",
        )
    shape, axes = axes_of(node.shape)
    return TensorInfo(
        name=node.name,
        dtype=FED[kind],
        shape=shape,
        axes=axes,
        any_rank=bool(sequence) or node.name in unclear,
        sequence=bool(sequence),
    )


# Hints for providers whose library does not load.
LIBRARY_HINTS: Mapping[str, str] = {
    "cuda": "pip install 'onnxruntime-gpu[cuda,cudnn]' brings the libraries of CUDA",
    "tensorrt": "put the folder of TensorRT's libraries into LD_LIBRARY_PATH",
}


# The hooks of the options that choose a provider. They set the driver's `providers`,
# `provider_options` and `device`.


def choose_provider(driver: SessionDriver, name: object) -> None:
    """Have the session run on the provider that the options ask for.

    With --tensorrt, CUDA runs the operators that TensorRT cannot run. With --provider NAME,cpu, the
    CPU runs the operators that NAME cannot run.

    Raises:
        UsageError: the installed ONNX Runtime does not have the provider, or the device does not
            exist.
    """
    provider, settings = driver.asked_provider(), driver.spec.settings
    installed, flag = driver.onnxruntime.get_available_providers(), providers.flag_for(settings)
    if provider not in installed:
        package = providers.PACKAGES.get(provider)
        instead = f"; pip install {package} in place of this package" if package else ""
        listed = ", ".join(map(providers.short_name, installed))
        raise UsageError(
            f"the installed ONNX Runtime has no provider {providers.short_name(provider)!r}",
            f"installed providers: {listed}{instead}; `lar engines` lists the devices",
            flag=flag,
        )
    if provider == providers.CPU:
        return
    if provider in providers.DEVICES:
        open_cuda(driver, table.CUDA.of(settings) or 0)
    driver.providers = [provider, *([providers.CUDA] if table.TENSORRT.is_given(settings) else [])]
    entry = providers.ASSIGNMENTS if flag == table.PROVIDER.flag and "," in str(name) else FALLBACK
    driver.options.add_session_config_entry(entry, "1")


def warn_of_fallback(driver: SessionDriver, name: str) -> None:
    """Add a note for the user with the operators that the CPU runs in place of the provider."""
    if "," in name and (found := providers.operators_on_cpu(driver.session)):
        name = providers.short_name(driver.providers[0])
        driver.notes.append(f"the CPU runs what {name} cannot: {found}")


def open_cuda(driver: SessionDriver, device_id: int) -> None:
    """Place inputs and outputs in the memory of the CUDA device with this number.

    Raises:
        UsageError: this machine has no CUDA device with this number.
    """
    devices = providers.cuda_devices()
    if device_id >= len(devices):
        hint = f"{count_of(len(devices), 'device')} can be used, counted from 0"
        if not devices:
            hint = "nvidia-smi lists the devices of the driver; CUDA_VISIBLE_DEVICES may hide some"
        problem = f"there is no CUDA device {device_id} here"
        raise UsageError(problem, hint, flag=providers.flag_for(driver.spec.settings))
    # CUDA's libraries may be in Python packages, where the system does not look for them. If a
    # library is missing, the engine reports it later.
    with contextlib.redirect_stdout(io.StringIO()):
        driver.onnxruntime.preload_dlls()
    driver.device = ("cuda", device_id)
    for name in providers.DEVICES:
        driver.provider_options[name]["device_id"] = str(device_id)


def multiply_in_float32(driver: SessionDriver, _: bool) -> None:
    """Have the CUDA libraries multiply float32 numbers without rounding the factors to TF32."""
    driver.provider_options[providers.CUDA]["use_tf32"] = "0"


def keep_tensorrt_engines(driver: SessionDriver, file: str) -> None:
    """Have TensorRT store its engines, in files whose names begin with `file`.

    Raises:
        UsageError: files cannot be written in this folder.
    """
    folder, name = os.path.split(os.path.abspath(file))
    check_writable(file, "--tensorrt-cache")
    driver.provider_options[providers.TENSORRT] |= {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": folder,
        "trt_engine_cache_prefix": name,
    }
