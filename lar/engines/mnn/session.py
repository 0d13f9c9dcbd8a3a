"""The interpreter driver, which runs a session of MNN's interpreter on the CPU.

The module also writes the dumps and the profile of a session.

Dumped tensors are computed in a separate session, in which MNN keeps the values of all tensors
(`saveTensors`). The separate session runs the same kernels as the timed session, since operators
are fused only by the converter, and never by a session. The names of tensors are those
of the `.onnx` file, and layouts are plain, such as NCHW.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lar.engines.driver import HOST_THREAD, Driver, EngineTrace, Meanings, Misfit, last_line
from lar.engines.engine import importing
from lar.engines.formats import is_onnx
from lar.engines.mnn.model_file import FACTS, KINDS, Net, NetOperator, damaged, read_net
from lar.engines.onnx_file.contents import read_ends
from lar.engines.operator_facts import Operation, flops_of
from lar.engines.operator_times import bytes_of, derived_operator
from lar.errors import EngineMissing, LarError, UsageError
from lar.files.python_process import python_command
from lar.files.work_folders import error_of_full_disk
from lar.graphs import HEAVY
from lar.options.table import MODEL_DUMP, PRECISION, VERBOSE
from lar.records.profile import Execution, ExecutionColumns, ProfiledOperator, Step, TensorFact
from lar.records.run import EngineFacts, ModelInfo, TensorInfo, format_shape

Array = np.ndarray[Any, Any]

# The meanings of texts that MNN and its converter print.
MEANINGS = Meanings(__file__)

# Runs the converter's module without the package around it, as the package's command reports each
# use over the network.
CODE = "import _tools; _tools.mnnconvert(sys.argv)"
INSTALL = "pip install 'lar[mnn]'"

# The beginning of a line of the log, before the important words.
PREAMBLE = re.compile(r"\[[\d:]+\] :\d+: |\[ERROR\] ")
PROGRESS = re.compile(r"onvert|Start to |ONNX Model |The device supports")

# NumPy's names of MNN's element types.
DTYPES = {
    "Halide_Type_Float": "float32",
    "Halide_Type_Int": "int32",
    "Halide_Type_Uint8": "uint8",
    "Halide_Type_Int64": "int64",
}

# The types of an `.onnx` file that the converter replaces by other types.
CONVERTED = ["float64", "float16", "bool", "int8", "int16", "int64", "uint16", "uint32", "uint64"]

# MNN's modes of precision, by the type in which they compute if the processor supports it.
PRECISIONS = {"float32": 1, "float16": 2, "bfloat16": 3}

# The numbers that `Interpreter.getSessionInfo` takes.
MEMORY, RESIZE_STATUS = 0, 3

# The engine's own default number of threads; lar takes no more than the number of cores.
DEFAULT_THREADS = 4


def import_mnn() -> Any:
    """Import MNN, without letting MNN print on standard output during the import.

    Raises:
        EngineMissing: the package MNN is not installed, or does not load on this machine.
    """
    with importing("MNN", INSTALL), printed():
        import MNN
    return MNN


@contextlib.contextmanager
def printed() -> Iterator[Callable[[], str]]:
    """While the `with` block runs, catch the text that MNN would print on standard output.

    Yield a function that returns the text that MNN has printed. The text is needed, since MNN
    prints the reason for a failure and does not return it.
    """
    flush: Callable[[None], object] = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)

        def read() -> str:
            flush(None)
            return os.pread(file.fileno(), 1 << 16, 0).decode(errors="replace")

        try:
            yield read
        finally:
            flush(None)
            os.dup2(kept, 1)
            os.close(kept)


class Session:
    """A session of MNN for a model file, with the session's input tensors."""

    def __init__(
        self, mnn: Any, file: Path, model: str, config: Mapping[str, Any], hints: Mapping[int, Any]
    ) -> None:
        """Open a session.

        `model` is the file that error messages name. `hints` are MNN's hints for a session, by
        MNN's numbers for hints.

        Raises:
            LarError: the file is damaged, or MNN's sessions cannot run it.
        """
        self.mnn, self.model = mnn, model
        self.fed: list[tuple[Any, Any]] = []
        with printed() as said:
            try:
                self.interpreter = mnn.Interpreter(str(file))
            except Exception as error:  # the engine has no one kind for its errors
                raise damaged(model) from error
            for number, value in hints.items():
                self.interpreter.setSessionHint(number, value)
            try:
                self.session = self.interpreter.createSession(dict(config))
            except Exception as error:
                raise MEANINGS.explain(said(), model) or error from error
        self.inputs: dict[str, Any] = self.interpreter.getSessionInputAll(self.session)
        self.outputs: dict[str, Any] = self.interpreter.getSessionOutputAll(self.session)
        self.run = partial(self.interpreter.runSession, self.session)
        # Runs an iteration; takes functions that MNN calls before and after each operator.
        self.run_with = partial(self.interpreter.runSessionWithCallBackInfo, self.session)

    def feed(self, arrays: Mapping[str, Array]) -> None:
        """Set the shapes and the values of the inputs.

        Raises:
            Misfit: with the shapes of the inputs, MNN cannot compute the model.
            UsageError: an input has a type that MNN lacks, or has a number that MNN would change.
        """
        host_type = self.mnn.Tensor_DimensionType_Caffe
        used = {name: (self.inputs[name], arrays[name]) for name in arrays if name in self.inputs}
        with printed() as said:
            for tensor, array in used.values():
                if tuple(tensor.getShape()) != array.shape:
                    self.interpreter.resizeTensor(tensor, array.shape)
            self.interpreter.resizeSession(self.session)
            # MNN's Python reads this integer as a float, but 0 is 0 in both.
            if self.interpreter.getSessionInfo(self.session, RESIZE_STATUS):
                fed = (f"{it} of shape {format_shape(arrays[it].shape)}" for it in used)
                raise Misfit(f"MNN cannot compute it with {', '.join(fed)}: {last_line(said())}")
        self.fed = []
        for name, (tensor, array) in used.items():
            fitting = np.require(array, self.dtype_of(name), "C")
            if array.dtype.kind in "iu" and (lost := array[fitting != array]).size:
                problem = f"{name} holds {lost[0]}, and MNN's integers have 32 bits"
                raise UsageError(problem, "run the model on another engine", flag="--input")
            host = self.mnn.Tensor(array.shape, tensor.getDataType(), fitting, host_type)
            self.fed.append((tensor, host))
        self.upload()

    def upload(self) -> None:
        """Copy the inputs into the session's memory; each run overwrites this memory."""
        for tensor, host in self.fed:
            tensor.copyFrom(host)

    def megabytes(self) -> float:
        """Return the megabytes of memory that the session's tensors and weights take."""
        return float(self.interpreter.getSessionInfo(self.session, MEMORY))

    def dtype_of(self, name: str) -> str:
        """Return the NumPy name of an input's type.

        Raises:
            UsageError: the input has a type that MNN's Python package cannot pass on.
        """
        if dtype := self.fact_of(self.inputs[name]).dtype:
            return dtype
        problem = f"{name} is of a type that MNN's Python does not pass on"
        raise UsageError(problem, subject=self.model)

    def fact_of(self, tensor: Any) -> TensorFact:
        """Return the shape and the type of a tensor, which is an object of MNN."""
        found = tensor.getDataType()
        known = (it for name, it in DTYPES.items() if found is getattr(self.mnn, name))
        return TensorFact(tuple(tensor.getShape()), next(known, ""))

    def read(self, tensor: Any) -> Array | None:
        """Return a tensor's values with plain axes, or None if MNN has no values for the tensor."""
        host = self.mnn.Tensor(tensor, self.mnn.Tensor_DimensionType_Caffe)
        return np.array(host.getNumpyData()) if tensor.copyToHostTensor(host) else None

    def values_of(self, names: Iterable[str]) -> dict[str, Array | None]:
        """Return the values of tensors with plain axes, None for tensors without stored values."""
        kept = self.outputs
        return {name: self.read(kept[name]) if name in kept else None for name in names}


def unable(model: str, problem: str) -> LarError:
    """Return the error for a valid model that MNN cannot run."""
    return LarError(problem, "run the model on another engine", subject=model)


class InterpreterDriver(Driver):
    """A driver that runs a session of MNN's interpreter.

    The inputs are copied into the session before each iteration, since MNN reuses the memory of
    inputs for other tensors.
    """

    name = "interpreter"
    first: InterpreterDriver
    calls = {
        "load": "Interpreter.createSession",
        "forward": "Interpreter.runSession",
        "outputs": "Tensor.copyToHostTensor",
    }

    def set_up(self) -> None:
        self.mnn = import_mnn()
        # Hooks set `begin`, which returns the function that runs an iteration of a fed session, and
        # `config`, settings by MNN's names.
        self.begin: Callable[[Session], Callable[[], object]] = lambda session: session.run
        self.config: dict[str, Any] = {"numThread": self.thread_count()}
        if asked := PRECISION.of(self.spec.settings):
            self.config["precision"] = PRECISIONS[asked]
        self.hints: dict[int, Any] = {}
        self.arrays: Mapping[str, Array] = {}
        self.file = Path(self.spec.model)
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        if self.folder is not None:
            self.folder.cleanup()

    def facts(self) -> EngineFacts:
        asked = PRECISION.of(self.spec.settings) or "float32"
        facts = self.usual_facts(self.mnn.version())
        return replace(facts, products="" if asked == "float32" else asked)

    def default_threads(self) -> int:
        return 1 if self.spec.runners > 1 else min(DEFAULT_THREADS, len(os.sched_getaffinity(0)))

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.infos: tuple[TensorInfo, ...] | None = None  # the inputs of an .onnx file
        self.types: dict[str, str] = {}  # the types of the outputs in an .onnx file
        if is_onnx(self.file):
            self.infos, self.types = read_values(self.file)
            self.file = self.first.file if self.runner else self.convert()
        self.net = read_net(self.file)
        for each in self.net.operators:
            if each.type in ("While", "If"):
                problem = f"MNN's sessions run no control flow, as {each.type} {each.name}"
                raise unable(self.spec.model, problem)
            if 0 in each.parameters.get("stride", ()):  # MNN would divide by it
                raise unable(self.spec.model, f"MNN needs strides, and {each.name} has none")
        self.session = self.open_session()
        if lost := [name for name in self.net.outputs if name not in self.session.outputs]:
            raise unable(self.spec.model, f"MNN's converter has lost the output {lost[0]}")
        self.check_precision()
        self.fire_hooks("after_load")

    def check_precision(self) -> None:
        """Raise an error if MNN silently computes in float32 and not in the wanted type.

        If MNN has replaced the type, the memory of the tensors is as large as for float32.

        Raises:
            UsageError: the options ask for another type, but MNN computes in float32.
        """
        asked = PRECISION.of(self.spec.settings) or "float32"
        if asked == "float32":
            return
        plain = self.open_session(precision=PRECISIONS["float32"])
        if self.session.megabytes() == plain.megabytes():
            hint = "leave it out; the processor or the MNN package does not support this type"
            flag = f"{PRECISION.flag} {asked}"
            raise UsageError("MNN computes in float32 on this machine", hint, flag=flag)

    def convert(self) -> Path:
        """Convert the model, and return the path of the `.mnn` file."""
        # The file is in a folder of its own, which `close` removes.
        self.folder = tempfile.TemporaryDirectory(dir=self.context.work_folder or None)
        file = Path(self.folder.name, "converted.mnn")
        said = convert(Path(self.spec.model), file)
        if VERBOSE.of(self.spec.settings):
            sys.stderr.write(said)
        done = "MNN's converter has made an .mnn model of it, which is run"
        self.notes.append(f"{done} ({MODEL_DUMP.flag} FILE keeps that)")
        return file

    def open_session(self, **more: Any) -> Session:
        """Return a session of the model with the driver's settings and with `more` settings."""
        return Session(self.mnn, self.file, self.spec.model, {**self.config, **more}, self.hints)

    def inputs(self) -> tuple[TensorInfo, ...]:
        return infos_of(self.session, self.net) if self.infos is None else self.infos

    def feed(self, arrays: Mapping[str, Array]) -> None:
        for info in self.infos or ():
            if info.optional and info.name in arrays:
                problem = f"MNN's converter makes a constant of the optional input {info.name}"
                hint = "leave it out, or run the model with --engine onnxruntime"
                raise UsageError(problem, hint, flag="--input")
        self.arrays = arrays
        with self.recorder.call("Tensor.copyFrom"):
            self.session.feed(arrays)
        self.fire_hooks("before_run")
        self.start, self.wait = self.begin(self.session), bool  # a run has ended when it returns
        self.rearm = self.session.upload

    def outputs(self) -> Mapping[str, Array | str]:
        return {name: self.output(name) for name in self.net.outputs}

    def output(self, name: str) -> Array | str:
        """Return an output of the last iteration, converted to its type in the model file."""
        array, dtype = self.session.read(self.session.outputs[name]), self.types.get(name)
        if array is None:
            return "tensor without values"
        return array.astype(dtype) if dtype in CONVERTED else array

    def failure(self) -> Exception:
        status = f"status {self.session.run()}"
        return MEANINGS.explain(status, "", phases=("run",)) or super().failure()


def infos_of(session: Session, net: Net) -> tuple[TensorInfo, ...]:
    """Describe the inputs of an `.mnn` model.

    The inputs may also be fed with shapes other than those in the file.
    """
    shapes = {name: tuple(None if n < 0 else n for n in it) for name, it in net.inputs.items()}
    return tuple(
        TensorInfo(name=name, dtype=session.dtype_of(name), shape=shape, resizable=True)
        for name, shape in shapes.items()
    )


def read_values(model: Path) -> tuple[tuple[TensorInfo, ...], dict[str, str]]:
    """Return the inputs of an `.onnx` model, and the types of its outputs.

    The types are read from the `.onnx` file, since the converter replaces some types, such as
    64-bit integers and booleans.

    Raises:
        UsageError: the file is damaged, or an input or output is not a tensor of numbers.
    """
    inputs, outputs = read_ends(model)
    for each in (*inputs, *outputs):
        what = "sequence" if each.sequence else each.dtype
        if what in ("sequence", "map", "optional", "string"):
            end = "its input" if each in inputs else "the output"
            raise UsageError(f"{end} {each.name} is a {what}, which MNN cannot use", subject=model)
        if each in inputs and each.any_rank:
            problem = (
                f"its input {each.name} has any number of axes, and MNN needs to know how many"
            )
            hint = "export it with its axes, or run it with --engine onnxruntime"
            raise UsageError(problem, hint, subject=model)
    return inputs, {each.name: each.dtype for each in outputs}


# Conversion of `.onnx` models to `.mnn` files, by MNN's own converter


def convert(model: Path, place: Path) -> str:
    """Convert an `.onnx` model to an `.mnn` file; return the text that the converter printed.

    The converter runs in a separate process, since the converter may end its process, and since the
    converter's libraries take memory. Starting the converter's process takes some 20 ms.

    Raises:
        EngineMissing: the converter is not installed.
        LarError: the converter cannot convert the model.
    """
    if find_spec("_tools") is None:
        raise EngineMissing("MNN's converter is not installed", INSTALL)
    done = subprocess.run(
        python_command(
            *(CODE, "-f", "ONNX", "--bizCode", "lar"),
            *("--modelFile", str(model.absolute()), "--MNNModel", str(place)),
            # Without these options recurrent operators would become loops, which a session does
            # not run.
            *("--useOriginRNNImpl", "--useGeluApproximation", "0"),
        ),
        # The converter keeps large weights for a while in a file in this folder, whose name is
        # always the same. Two converters in one folder would mix up their weights without an error.
        cwd=place.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if full := error_of_full_disk(str(place.parent)):  # the converter does not notice it
        raise full
    if done.returncode or not place.exists():
        raise error_of(model, done.stdout, done.returncode)
    return done.stdout


def error_of(model: Path, printed: str, status: int) -> LarError:
    """Return the error for a model that the converter could not convert."""
    lines = [PREAMBLE.sub("", line) for line in printed.splitlines() if not PROGRESS.search(line)]
    said = next((line for line in reversed(lines) if line not in ("", "True")), f"status {status}")
    names = printed.replace("ONNX::", "").replace(" | ", ", ")
    error = MEANINGS.explain(f"converter: {names}", str(model), said[:160])
    assert error is not None
    error.detail = printed
    return error


def dump_net(driver: InterpreterDriver, _: object) -> None:
    """Write a dump of all tensors for a driver's present inputs, and facts about the operators."""
    from lar.dumps.recording import Layer, dump_layers  # slow to import

    if driver.runner:
        return
    operators = driver.net.computed()
    taken = {name for each in operators for name in each.inputs}
    constants = [it for it in driver.net.operators if it.type == "Const"]
    weights = [name for it in constants for name in it.outputs if name in taken]
    made = [name for each in operators for name in each.outputs]
    session = driver.open_session(saveTensors=(*weights, *made))
    session.feed(driver.arrays)
    if session.run():
        raise driver.failure()
    dump_layers(
        driver,
        driver.arrays,
        (
            Layer(it.name, it.type, it.inputs, session.values_of(it.outputs), it.parameters)
            for it in operators
        ),
        driver.net.outputs,
        constants=session.values_of(weights),
    )


def dump_outputs(driver: InterpreterDriver, _: object) -> None:
    """Write a dump of the outputs of each iteration."""
    from lar.dumps.recording import number_outputs, write_outputs

    write_outputs(driver, number_outputs(driver.net.outputs))


# The profile of a session: MNN calls a function before and after each operator.
#
# That function only keeps the time. Before that, lar finds the operators in a run in which MNN is
# told to skip each of them. MNN runs some operators of the model as several operators, named
# `NAME_raster_0` and so on. An operator that moves a tensor is named after the operator that takes
# the tensor. Operators that only reshape are not run.


CALLBACKS = "MNN calls lar around each operator: this adds about a microsecond to each time"


class Described(NamedTuple):
    """An operator that a session runs.

    `multiplications` is the number of multiplications in millions, as MNN reports it.
    """

    name: str
    type: str
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    multiplications: float

    @property
    def flops(self) -> int | None:
        """The number of operations; a multiply-accumulate counts as two operations."""
        if KINDS.kind_of(self.type) in HEAVY:
            return round(2e6 * self.multiplications)
        inputs, outputs = (tuple(it.shape for it in each) for each in (self.inputs, self.outputs))
        kind = FACTS.work_by_type.get(self.type)
        return flops_of(Operation(type=self.type, kind=kind, inputs=inputs, outputs=outputs))


def describe(session: Session) -> list[Described]:
    """Return the operators that a session runs for its inputs, in the order of computation."""
    inputs: list[tuple[TensorFact, ...]] = []
    found: list[Described] = []

    def begin(tensors: Sequence[Any], _: Any) -> bool:
        inputs.append(tuple(map(session.fact_of, tensors)))
        return False  # MNN then skips the operator

    def end(tensors: Sequence[Any], info: Any) -> bool:
        outputs = tuple(map(session.fact_of, tensors))
        it = Described(info.getName(), info.getType(), inputs[-1], outputs, info.getFlops())
        found.append(it)
        return True

    session.run_with(begin, end)
    return found


class CallbackProfiler:
    """Stores the times at which MNN calls lar before and after each operator."""

    def __init__(self, driver: InterpreterDriver) -> None:
        self.driver = driver
        self.operators: dict[Described, int] = {}
        self.sequence: list[int] = []  # the operators of an iteration, for the last inputs
        self.times = array("q")
        self.executions = ExecutionColumns()

    def start_of(self, session: Session) -> Callable[[], object]:
        """Return a function that runs one iteration of a session after its inputs are set."""
        places = self.operators
        self.sequence = [places.setdefault(each, len(places)) for each in describe(session)]
        append, now = self.times.append, time.perf_counter_ns

        def note(tensors: object, info: object) -> bool:
            append(now())
            return True

        return partial(session.run_with, note, note)

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        t0_ns = self.driver.recorder.t0_ns  # a time of the same clock
        times = [each - t0_ns for each in self.times]
        for operator, start, end in zip(self.sequence, times[::2], times[1::2], strict=True):
            self.executions.append(
                Execution(operator, step.number, HOST_THREAD, start, end, warmup=step.warmup)
            )
        del self.times[:]

    def finish(self) -> EngineTrace:
        sources = {it.name: it for it in self.driver.net.computed()}
        return EngineTrace(
            operators=tuple(
                operator_of(place, each, sources.get(each.name))
                for each, place in self.operators.items()
            ),
            executions=self.executions,
            thread_count=self.driver.thread_count(),
            dropped=(CALLBACKS,),
        )


def operator_of(place: int, found: Described, source: NetOperator | None) -> ProfiledOperator:
    """Return the record of an operator that MNN ran.

    If the operator is in the model file, the record has the facts from the model file too.
    """
    moved, known = bytes_of((*found.inputs, *found.outputs)), dict[str, Any]()
    if source is not None:
        known = {"reads": source.inputs, "writes": source.outputs, "parameters": source.parameters}
    return derived_operator(
        found.name,
        flops=found.flops,
        size_bytes=moved and moved + (4 * source.elements if source else 0),
        id=str(place),
        type=found.type,
        inputs=found.inputs,
        outputs=found.outputs,
        **known,
    )


def start_profiling(driver: InterpreterDriver, _: object) -> None:
    """Have the profiler time the operators in the driver's iterations."""
    driver.profiler = profiler = CallbackProfiler(driver)
    driver.begin = profiler.start_of


def read_model(model: Path) -> ModelInfo:
    """Read a description of an `.mnn` model.

    To read the model, lar opens a session of MNN, but does not run this session.

    FLOPs are counted for the shapes in the file, with a size of 1 for open axes.

    Raises:
        LarError: the file is damaged, or MNN's sessions cannot run it.
    """
    net = read_net(model)
    session = Session(import_mnn(), model, str(model), {"numThread": 1}, {})
    infos = infos_of(session, net)
    described = []
    with contextlib.suppress(Misfit):  # the model may not allow sizes of 1
        session.feed({it.name: np.zeros([n or 1 for n in it.shape], it.dtype) for it in infos})
        described = describe(session)
    unknown = sorted({each.type for each in described if each.flops is None})
    operators = Counter(it.type for it in net.operators if it.type not in ("Input", "Const"))
    count = sum(each.elements for each in net.operators)
    outputs = {name: session.fact_of(session.outputs[name]) for name in net.outputs}
    return ModelInfo(
        engine="mnn",
        inputs=infos,
        outputs=tuple(
            TensorInfo(name=name, dtype=it.dtype, shape=it.shape, any_rank=not described)
            for name, it in outputs.items()
        ),
        operators=dict(operators.most_common()),
        parameter_count=count,
        weight_bytes=min(4 * count, model.stat().st_size),  # weights may be quantised
        flops=None if unknown or not described else sum(each.flops or 0 for each in described),
        flops_unknown=tuple(unknown),
    )
