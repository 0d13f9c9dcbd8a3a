"""The compiled driver: OpenVINO compiles a model, and an inference request runs this model.

If several copies of a model run at once, they share one compiled model. Each copy has its own
inference request, and its own stream of OpenVINO with the stream's threads. The module also reads
names, types, shapes and values of OpenVINO's tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from lar.engines.driver import Driver, Meanings, phases_of
from lar.engines.engine import importing
from lar.engines.formats import is_onnx
from lar.engines.onnx_file.contents import read_ends
from lar.engines.operator_facts import Shape
from lar.errors import LarError, UsageError
from lar.options import table
from lar.options.values import pairs_in
from lar.records.run import EngineFacts, TensorInfo

Array = np.ndarray[Any, Any]

# OpenVINO's names of element types that NumPy has; NARROW has those of types that NumPy lacks.
DTYPES: Mapping[str, str] = {
    "boolean": "bool",
    **{f"{kind[0]}{n}": f"{kind}{n}" for kind in ("float", "int", "uint") for n in (8, 16, 32, 64)},
}

NARROW = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
FED = {**DTYPES, **NARROW}


def tensor_name(output: Any) -> str:
    """Return the name of an operator's output, or of an input or output of a model.

    If one of the tensor's names is the name of the operator that computes the tensor, the
    operator's name is returned. Otherwise, the first of the tensor's names is returned. A tensor
    without names has the name of the operator that computes the tensor. A result of the model has
    the name of the operator that computes the result.
    """
    names, node = sorted(output.get_names()), output.get_node()
    own = str(node.get_friendly_name().partition("/sink_port_")[0])
    if names:
        return own if own in names else str(names[0])
    return f"{own}:{output.get_index()}" if node.get_output_size() > 1 else own


def shape_of(value: Any) -> Shape:
    """Return the shape of an input or output, in which None stands for an open axis.

    The result is None if even the number of axes is open.
    """
    shape = value.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(axis.get_length() if axis.is_static else None for axis in shape)


def describe(port: Any) -> TensorInfo:
    """Describe an input or output of a model; axes without a fixed size can have any size."""
    type_name, shape = port.get_element_type().get_type_name(), shape_of(port)
    return TensorInfo(
        name=tensor_name(port),
        dtype=FED.get(type_name, type_name),
        shape=shape or (),
        any_rank=shape is None,
    )


def results_of(model: Any) -> list[Any]:
    """Return the tensors that are results of a model."""
    return [it.get_node().input_value(0) for it in model.outputs]


def array_of(tensor: Any) -> Array | str:
    """Return a tensor as an array, or the name of its element type if lar cannot read this type."""
    type_name = tensor.element_type.get_type_name()
    if type_name in NARROW:
        import ml_dtypes  # most models do not need it

        narrow: Array = np.asarray(tensor.data).view(getattr(ml_dtypes, NARROW[type_name]))
        return narrow
    return tensor.data if type_name in DTYPES else f"tensor({type_name})"


def reshape(model: Any, arrays: Mapping[str, Array]) -> None:
    """Change the shapes of a model's inputs to the shapes of arrays."""
    model.reshape({port: list(arrays[tensor_name(port)].shape) for port in model.inputs})


MEANINGS = Meanings(__file__)
CONVERTER = "openvino.tools.ovc"

# The engine's names for the values of --precision.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def import_openvino() -> Any:
    """Import the package openvino without its model converter.

    When OpenVINO's model converter is imported, the converter sends usage statistics over the
    network. The thread that sends these statistics may still run while a model is timed. Importing
    the converter also takes as long as importing the rest of the package.

    Raises:
        EngineMissing: openvino is not installed, or does not load on this machine.
    """
    # A module that is None in `sys.modules` cannot be imported; the package works without it.
    sys.modules.setdefault(CONVERTER, None)  # type: ignore[arg-type]
    try:
        with importing("OpenVINO", "pip install 'lar[openvino]'"):
            import openvino
    finally:
        if sys.modules[CONVERTER] is None:
            del sys.modules[CONVERTER]
    return openvino


def find_devices() -> tuple[str, ...]:
    """Return the devices for which OpenVINO finds a plugin and a driver, the CPU first."""
    names = import_openvino().Core().available_devices
    return tuple(name.lower() for name in sorted(names, key=lambda name: (name != "CPU", name)))


class CompiledDriver(Driver):
    """A driver with a CompiledModel, and an inference request whose inputs are set once."""

    name = "compiled"
    first: CompiledDriver
    calls = {"load": "Core.compile_model", "forward": "InferRequest.infer"}

    def set_up(self) -> None:
        self.openvino = import_openvino()
        self.core = self.openvino.Core()
        self.device = str(table.PROVIDER.of(self.spec.settings) or "CPU").upper()
        self.config = config_of(self.spec.settings, self.spec.runners)
        self.reshaped: Any = None  # the model with the shapes of the inputs that are fed
        self.compiled: Any = None
        self.open: Callable[[], Any] = lambda: self.compile(self.model)
        self.request: Any = None
        self.fed: dict[str, Array] = {}

    def facts(self) -> EngineFacts:
        here = self.core.available_devices
        if self.device not in here:
            hint = f"it finds: {', '.join(name.lower() for name in here)}"
            problem = f"OpenVINO finds no device {self.device} here"
            raise UsageError(problem, hint, flag=table.PROVIDER.flag)
        precision = self.effective_precision()
        facts = self.usual_facts(self.openvino.get_version().split("-")[0], precision=precision)
        products = "" if precision == "float32" else precision
        return replace(facts, device=self.device.lower(), products=products)

    def effective_precision(self) -> str:
        """Return the type in which the device really computes float32 tensors.

        Raises:
            UsageError: the device cannot compute in the type that the options ask for.
        """
        asked = self.config["INFERENCE_PRECISION_HINT"]
        self.core.set_property(self.device, {"INFERENCE_PRECISION_HINT": asked})
        found = str(self.core.get_property(self.device, "INFERENCE_PRECISION_HINT").get_type_name())
        if found != asked:
            # The engine would take another type without a message.
            device, wanted = self.device.lower(), FED.get(asked, asked)
            problem = f"the device {device} does not compute in {wanted} here"
            hint = f"it takes {FED.get(found, found)} instead: give that, or float32"
            raise UsageError(problem, hint, flag=table.PRECISION.flag)
        return FED.get(found, found)

    def default_threads(self) -> int | None:
        if self.spec.runners > 1 and self.device == "CPU":
            return 1
        # Only a compiled model has this property, and a tiny model is compiled quickly.
        data = self.openvino.op.Parameter(self.openvino.Type.f32, self.openvino.Shape([1]))
        tiny = self.openvino.Model([data.output(0)], [data], "tiny")
        config = {name: it for name, it in self.config.items() if name != "CACHE_DIR"}
        return self.threads_of(self.core.compile_model(tiny, self.device, config))

    def threads_of(self, compiled: Any) -> int | None:
        """Return how many CPU threads compute one request, None if the device is not the CPU."""
        if self.device != "CPU":
            return None
        threads, streams = map(compiled.get_property, ("INFERENCE_NUM_THREADS", "NUM_STREAMS"))
        return max(1, int(threads) // int(streams))

    def load(self) -> None:
        self.fire_hooks("before_load")
        if self.first is not self:
            self.compiled = self.first.compiled
        elif not self.compiles_when_fed:
            self.compiled = self.open()
        self.fire_hooks("after_load")

    @cached_property
    def source(self) -> Any:
        """The model as read from the file.

        The file is read only once, since OpenVINO invents names each time that it reads a file. A
        run with a cache does not need the model as read from the file.
        """
        return self.core.read_model(self.model_file)

    @property
    def model(self) -> Any:
        """The compiled model, with the shapes in the file or the shapes of the fed inputs."""
        return self.first.source if self.first.reshaped is None else self.first.reshaped

    @cached_property
    def compiles_when_fed(self) -> bool:
        """Whether the model is compiled only when the inputs are fed, for the inputs' shapes.

        On the CPU, the model can only be compiled when the number of axes of each input is known.
        """
        settings = self.spec.settings
        if table.CONST_SHAPE.of(settings) or table.FAST_RUN_ALGO_POLICY.is_given(settings):
            return bool(table.CONST_SHAPE.of(settings))
        return any(port.get_partial_shape().rank.is_dynamic for port in self.model.inputs)

    def compile(self, model: Any) -> Any:
        """Compile a model for the driver's device, with the properties that the options set."""
        return self.core.compile_model(model, self.device, self.config)

    def inputs(self) -> tuple[TensorInfo, ...]:
        path = Path(self.model_file)
        known = {info.name: info for info in read_ends(path)[0]} if is_onnx(path) else {}
        infos = {info.name: info for info in map(describe, (self.compiled or self.model).inputs)}
        for info in infos.values():
            self.check_type(info)
        # A compiled model from a cache has no optional inputs: their values are fixed in it.
        has_model = not table.FAST_RUN_ALGO_POLICY.is_given(self.spec.settings)
        held = constants_by_name(self.model).keys() - infos if has_model else ()
        return (
            *(replace(it, axes=known[at].axes) if at in known else it for at, it in infos.items()),
            *(known[it] for it in known if it in held and is_optional(known[it])),
        )

    def check_type(self, info: TensorInfo) -> None:
        """Raise an error if lar cannot feed the element type of an input to OpenVINO.

        For example, OpenVINO accepts a tensor of strings, but damages its own memory when it frees
        this tensor.

        Raises:
            UsageError: lar cannot feed the type of the input's elements; the error names the type.
        """
        if info.dtype not in FED.values():
            what = f"the model's input {info.name} is a tensor of {info.dtype}"
            hint = "run it with --engine onnxruntime, if it is an .onnx model"
            problem = f"{what}, which lar cannot feed to OpenVINO"
            raise UsageError(problem, hint, subject=self.spec.model)

    def feed(self, arrays: Mapping[str, Array]) -> None:
        if self.must_compile(arrays):
            self.request = None
            if self.first is self:
                self.compile_for(arrays)
            self.compiled = self.first.compiled
        if self.request is None:
            self.request = self.compiled.create_infer_request()
        # The tensors share the arrays' memory, so the driver keeps the arrays alive.
        self.fed = {name: np.require(array, requirements="C") for name, array in arrays.items()}
        for port in self.compiled.inputs:
            with self.recorder.call("InferRequest.set_tensor"):
                self.request.set_tensor(port, self.tensor_of(port))
        # This calls the method of the base class, as the request's own method converts all inputs
        # and outputs. When it returns, the run has ended, so `wait` does nothing; `bool` is the
        # cheapest such call.
        infer = self.openvino._pyopenvino.InferRequest.infer
        self.start, self.wait = partial(infer, self.request, {}, True, False), bool
        self.fire_hooks("before_run")

    def must_compile(self, arrays: Mapping[str, Array]) -> bool:
        """Return whether the model must be compiled again for these inputs.

        The model must be compiled again if the shapes have changed, or if other optional inputs are
        given than before.
        """
        if self.compiled is None or {*arrays} != {*map(tensor_name, self.compiled.inputs)}:
            return True
        now, before = ({name: it.shape for name, it in fed.items()} for fed in (arrays, self.fed))
        return self.first.reshaped is not None and now != before

    def tensor_of(self, port: Any) -> Any:
        """Return the tensor for an input of the model; the tensor shares the fed array's memory."""
        array, kind = self.fed[tensor_name(port)], port.get_element_type()
        if kind.get_type_name() not in NARROW:
            return self.openvino.Tensor(array, shared_memory=True)
        shape = self.openvino.Shape(array.shape)
        return self.openvino.Tensor(array.view(f"u{array.itemsize}"), shape, kind)

    def compile_for(self, arrays: Mapping[str, Array]) -> None:
        """Compile the model for the given inputs and their shapes."""
        model = self.source.clone()
        others = arrays.keys() - set(map(tensor_name, model.inputs))
        for name, constant in constants_by_name(model).items():
            if name in others:
                open_constant(self.openvino, model, constant)
        reshape(model, arrays)
        self.reshaped, self.compiled = model, self.compile(model)

    def compute(self, compiled: Any, tensors: Iterable[Any]) -> list[Array | str]:
        """Run a compiled model once with the inputs `tensors`, in order, and return its outputs."""
        request = compiled.create_infer_request()
        for place, tensor in enumerate(tensors):
            request.set_input_tensor(place, tensor)
        request.infer()
        return [*map(array_of, request.output_tensors)]

    def outputs(self) -> Mapping[str, Array | str]:
        # The arrays share the request's memory; nothing is copied.
        arrays = map(array_of, self.request.output_tensors)
        return dict(zip(map(tensor_name, self.compiled.outputs), arrays, strict=True))

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        return MEANINGS.explain(str(error), self.spec.model, phases=phases_of(loading=loading))


def config_of(settings: Mapping[str, Any], copies: int) -> dict[str, str]:
    """Return the properties of OpenVINO with which a model is compiled, from lar's options."""
    threads = table.MULTITHREAD.of(settings) or table.MULTITHREAD_DEFAULT.of(settings) or 0
    if table.CPU_DEFAULT.of(settings) or (copies > 1 and not threads):
        threads = 1
    found = {
        # By default the engine takes bfloat16 on CPUs that have it, without a message.
        "INFERENCE_PRECISION_HINT": PRECISIONS[table.PRECISION.of(settings) or "float32"],
        "INFERENCE_NUM_THREADS": threads * copies,
        "NUM_STREAMS": table.STREAMS.of(settings) or (copies if copies > 1 else 0),
        "PERFORMANCE_HINT": (table.HINT.of(settings) or "").upper(),
        "PERF_COUNT": "YES" if table.PROFILE.is_given(settings) else "",
        "LOG_LEVEL": "LOG_DEBUG" if table.VERBOSE.of(settings) else "",
    }
    own = pairs_in(str(settings.get(table.ENGINE_OPTION.key, "")).splitlines())
    return {**{name: str(it) for name, it in found.items() if it}, **own}


def is_optional(info: TensorInfo) -> bool:
    """Return whether an input is optional, and has elements that lar can feed."""
    return info.optional and info.dtype in FED.values()


def constants_by_name(model: Any) -> dict[str, Any]:
    """Return the constants of a model by their names."""
    constants = (it for it in model.get_ops() if it.get_type_name() == "Constant")
    return {str(it.get_friendly_name()): it for it in constants}


def open_constant(openvino: Any, model: Any, constant: Any) -> None:
    """Replace a constant of a model by an input with the same name."""
    name, port = constant.get_friendly_name(), constant.output(0)
    parameter = openvino.op.Parameter(port.get_element_type(), port.get_partial_shape())
    parameter.set_friendly_name(name)
    for taker in port.get_target_inputs():
        taker.replace_source_output(parameter.output(0))
    parameter.output(0).set_names({name})
    model.add_parameters([parameter])
