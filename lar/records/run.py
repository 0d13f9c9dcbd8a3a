"""The records of a run, which are frozen, plain data that become JSON without loss.

A `RunSpec` describes a run, and a `RunResult` is the result of the run. The samples are raw data,
and the summary is computed from the samples. No field of a record holds an array.

All times are in seconds and all sizes in bytes. The names of most fields contain the unit, such as
`load_seconds`.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lar.errors import LarError, WrongContent, format_message, kind_of_error
from lar.records.record import NO_NUMBERS, Encodable, Numbers, Record, ShortRecord, record_of_format
from lar.records.summary import Rank, Summary

if TYPE_CHECKING:
    import numpy as np

MOST_COPIES = 1024  # the most copies of a model that may run at once, with `--thread`

Channels = Literal["bgr", "rgb"]
Setting = bool | int | float | str
Status = Literal["ok", "failed", "crashed", "timed_out", "interrupted"]
Phase = Literal["start", "load", "prepare", "warmup", "iterations", "finish", "done"]
Arrivals = Literal["poisson", "fixed"]
Ending = Literal["iterations", "duration", "target", "max_time", "room"]
ScenarioName = Literal["single-stream", "multi-stream", "offline", "server"]
Arrays = Mapping[str, "np.ndarray[Any, Any]"]
R = TypeVar("R", bound="Ran")


class TensorInfo(Record):
    """An input or output of a model: name, NumPy dtype name (or `string`) and shape.

    If an axis of `shape` is None, the axis may have any size. `resizable` says that the engine also
    accepts other sizes than `shape` has, if the number of axes and of channels stays the same.

    Attributes:
        axes: the names of the axes in the model; the name is empty for an axis without a name, and
            the tuple is empty if no axis has a name.
        any_rank: the model accepts any number of axes, and `shape` is empty.
        optional: the model has a default value for this input.
        sequence: the input or output is a sequence of tensors of this kind.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    resizable: bool = False
    axes: tuple[str, ...] = ()
    any_rank: bool = False
    optional: bool = False
    sequence: bool = False

    @property
    def shape_text(self) -> str:
        """The shape as a user types it, such as `{1,3,n}`.

        An axis of any size is written as its name, or as `?` if it has no name.
        """
        return "?" if self.any_rank else format_shape(self.shape, self.axes)


def batch_axis(info: TensorInfo) -> int:
    """Return the index of the axis that the model names a batch, or 0 without such a name."""
    return next((at for at, axis in enumerate(info.axes) if "batch" in axis.lower()), 0)


def format_shape(shape: Sequence[int | None], axes: Sequence[str] = ()) -> str:
    """Return a shape as a user types it, such as `{1,3,n}`.

    An axis of any size is written as its name, or as `?` if it has no name.
    """
    sizes = zip(shape, axes or ("",) * len(shape), strict=True)
    return "{" + ",".join(name or "?" if size is None else str(size) for size, name in sizes) + "}"


class ImageSettings(Record):
    """The conversion of an image or another array for an input of a model.

    A setting that is None changes nothing.

    `layout` is the layout of the model's input. `size` is height, width. The fed value is `(pixel -
    mean) * scale`. `mean` and `scale` have one number for all channels, or one number for each
    channel.
    """

    layout: Literal["nchw", "nhwc"] | None = None
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    channels: Channels | None = None


class Labelled(Record):
    """An item of a data set, with its class in `label`, or None if the class is not known."""

    number: int
    name: str
    label: int | None = None


class Item(Labelled):
    """An item of a data set, with its data.

    `inputs` are pairs of an input's name and a file. If `inputs` is empty, the data of the item is
    the slice with the item's number in the array that `--input` names.
    """

    inputs: tuple[tuple[str, str], ...] = ()


class Judgement(Record):
    """An output that a testcase checks.

    `output` is the output's name in the model. `name` and `id` identify the engine's own operator
    that makes the check. `shown` says that each run prints the error of the output.
    """

    output: str = ""
    name: str = ""
    id: int = 0
    shown: bool = True


class Expected(Judgement):
    """The expected value of one output: the array in `file`, a .npy or an ONNX .pb.

    If `output` is empty, the file contains the name of the output, or `id` is the output's number.
    `limit` is the largest allowed error; if it is None, the file contains the limit.
    """

    file: str
    limit: float | None = None


class Case(Record):
    """A testcase.

    The field `inputs` has pairs of an input's name and a file that `--input` can read.

    A pair with a folder has an empty name, since the files in the folder are named after inputs.
    `variables` are the outputs that the engine reports. If the case is in a file that is not
    unpacked yet, only its name is known.
    """

    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    expected: tuple[Expected, ...] = ()
    variables: tuple[str, ...] = ()


class Scenario(Record):
    """A scenario of MLPerf, with the settings of the load generator.

    A query has one sample; in `multi-stream` it has `samples_per_query` samples, in `offline` all
    samples. A sample is one item of a batch. In `server`, queries arrive at random with
    `target_rate` per second, and must be answered within `target_latency_seconds`. A run is valid
    if it lasts at least `min_seconds`, has at least `min_queries` queries, and obeys LoadGen's
    other rules.
    """

    name: ScenarioName
    min_seconds: float = 10.0
    min_queries: int = 100
    target_rate: float | None = None
    target_latency_seconds: float = 0.1
    samples_per_query: int = 8
    seed: int = 0


class Stopping(Record):
    """The conditions that end measuring, besides the number of iterations.

    A field is None if the user did not request its condition.

    Attributes:
        duration_seconds: the time to measure.
        target_interval: measure until half the width of the 95 % confidence interval of the median,
            divided by the median, is at most this share; 0.01 is 1 %.
        min_seconds: with a target, the shortest time to measure.
        max_seconds: with a target, the longest time to measure.
        settle: warm up until the times of iterations settle, which means that the times of two
            successive windows agree.
        warmup_seconds: the shortest time to warm up.
        warmup_room: the number of further warm-up iterations that can be recorded.
    """

    duration_seconds: float | None = None
    target_interval: float | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None
    settle: bool = False
    warmup_seconds: float | None = None
    warmup_room: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the number of iterations is decided only while lar measures."""
        return self.duration_seconds is not None or self.target_interval is not None


class Pacing(Record):
    """The pace of iterations, if an iteration does not begin right after the previous one.

    Attributes:
        idle_seconds: the time that a runner sleeps before each iteration.
        rate: the number of requests that arrive per second, even if no runner is free.
        arrivals: whether requests arrive at random, as a Poisson process, or at equal intervals.
    """

    idle_seconds: float | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"


class RunSpec(Record):
    """All that the user asked for in one run.

    `settings` has only the engine options that the user set, by keys such as `fast_run`.

    `python` is the Python interpreter of the worker; if it is empty, the parent's interpreter runs
    the worker too. `shape` has sizes of the axes of inputs, by the name of an axis in the model or
    by `INPUT[AXIS]`.

    `items` are the items of a data set. Each item is fed for `iterations` iterations. `item_names`
    has the names of all items of the data set, also of items that an earlier run has done. With
    `tell_classes`, the first output is read as scores of classes, which have the names
    `class_names`.

    `cases` are testcases. Each case is fed for `iterations` iterations; the warm-up uses the first
    case.

    If `stopping` leaves the number of iterations open, `iterations` is the largest number that a
    runner can record. If the warm-up goes on until times settle, it has at least
    `warmup_iterations` iterations. `percentiles` are the percentiles of the summary; if
    `percentiles` is empty, the summary has the default percentiles.

    With a rate in `pacing`, or with a `scenario`, `iterations` is the number of requests that all
    runners serve together. In a scenario, MLPerf's load generator decides how many requests arrive
    and when they arrive.
    """

    model: str
    engine: str
    driver: str
    device: str = "cpu"
    inputs: tuple[str, ...] = ()
    image: ImageSettings = field(default_factory=ImageSettings)
    fill: Literal["uniform", "normal", "zeros", "ones"] = "uniform"
    seed: int = 0
    batch_size: int | None = None
    shape: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    warmup_iterations: int = 1
    iterations: int = 10
    timeout_seconds: float | None = None
    stall_seconds: float | None = 30.0
    environment: dict[str, str] = field(default_factory=dict)
    python: str = ""
    copy_outputs: bool = False
    items: tuple[Item, ...] = ()
    item_names: tuple[str, ...] = ()
    tell_classes: bool = False
    class_names: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    stopping: Stopping = field(default_factory=Stopping)
    pacing: Pacing = field(default_factory=Pacing)
    scenario: Scenario | None = None
    percentiles: tuple[Rank, ...] = ()

    @property
    def runners(self) -> int:
        """The number of copies of the model that run at once, each in its own thread."""
        return int(self.settings.get("thread", 1))

    @property
    def sample_count(self) -> int:
        """The largest number of samples that each runner may take, warm-up included."""
        timed = self.iterations * max(1, len(self.cases), len(self.items))
        return self.warmup_iterations + self.stopping.warmup_room + timed


class MachineFacts(Record):
    """The machine of a run, at the time when the run began. Unknown facts are empty or None.

    Attributes:
        affinity: the numbers of the CPUs that the process may use.
        threads_per_core: the number of CPUs that share one core: 2 if SMT (hyper-threading) is on.
        smt: the state of SMT in the kernel's words: on, off, notsupported.
        load: the average number of threads that computed, or were ready to, in the last minute.
        cpu_limit: the CPU limit of the process's cgroup, as a number of CPUs.
        variables: the environment variables of the worker that affect libraries.
        architecture: the instruction set, as the system names it: x86_64, aarch64.
    """

    system: str = ""
    processor: str = ""
    cores: int = 0
    usable_cores: int = 0
    memory_bytes: int | None = None
    governor: str = ""
    python: str = ""
    affinity: tuple[int, ...] = ()
    threads_per_core: int | None = None
    smt: str = ""
    load: float | None = None
    cpu_limit: float | None = None
    variables: dict[str, str] = field(default_factory=dict)
    architecture: str = ""


class ModelFile(Record):
    """The model file of a run; its SHA-256 distinguishes two models with the same name.

    `weights` has the SHA-256 of each separate file of weights, by its path. `weights` is empty
    unless a function needs the checksums of weights.
    """

    path: str
    size_bytes: int
    sha256: str
    weights: dict[str, str] = field(default_factory=dict)


class EngineFacts(Record):
    """The engine that ran the model: its version, driver and device, and the libraries it used.

    `products` is the type to which float32 numbers are rounded before they are multiplied; it is
    empty if they are not rounded. `threads` is the number of CPU threads that compute a copy of the
    model, or None if it is not known. `spin_seconds` is the longest CPU time for which a thread
    polls for work before it sleeps; it is 0 if threads do not poll, or if the time is not known.
    """

    name: str
    version: str
    driver: str
    device: str
    libraries: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    spin_seconds: float = 0.0
    products: str = ""


class Packing(Record):
    """The options of `lar pack`: how testcases are packed into a model."""

    max_error: float = 1e-4
    asserts: bool = True
    verbose: bool = True
    optimize: bool = False
    resize: bool = False
    transform: str = ""
    repeat: int = 1


class RunContext(Record):
    """The facts that the parent process adds to a spec, such as where the files of the run go.

    The worker gets the `RunContext` together with the spec. The result of the run does not contain
    the `RunContext`.

    Attributes:
        began: the time from which the time limit counts, on the monotonic clock.
        in_process: the run is made in the parent process, so that a debugger can be used.
        overwrite: new dumps may replace existing files.
        resume: a run of a data set continues an earlier run.
        model: the facts about the spec's model file, or None as long as the file is not read.
        model_file: the file to load instead of the spec's model file, if the spec's file contains a
            model with testcases, from which the model was unpacked.
        work_folder: a folder of the parent, for files that are needed after a worker is killed.
        written: the temporary paths to which the engine writes the files of options, by the
            option's key. The files are moved to their final paths when the run has succeeded.
        turns: several processes take turns. Each time that the parent asks, this process makes some
            timed iterations, in all at most the spec's `iterations`.
        outputs_folder: the folder for the outputs of the last iteration; empty to keep no outputs.
        ranges: the open ranges of `lar.range` in the parent process.
        packing: how to pack testcases, one testcase for each of the spec's `inputs`, or None if the
            worker runs the model instead of packing.
        names: for flags and files, the names that errors and warnings print instead of lar's own
            names. An array from Python and an unpacked file have other names for the user.
    """

    began: float = field(default_factory=time.monotonic)
    in_process: bool = False
    overwrite: bool = False
    resume: bool = False
    model: ModelFile | None = None
    model_file: str = ""
    work_folder: str = ""
    written: dict[str, str] = field(default_factory=dict)
    turns: bool = False
    outputs_folder: str = ""
    ranges: tuple[str, ...] = ()
    packing: Packing | None = None
    names: dict[str, str] = field(default_factory=dict)

    @property
    def model_sha256(self) -> str:
        """The SHA-256 of the spec's model file, empty until the file is read."""
        return self.model.sha256 if self.model else ""

    def deadline(self, spec: RunSpec) -> float | None:
        """Return the end of a spec's time limit, on the monotonic clock."""
        return None if spec.timeout_seconds is None else self.began + spec.timeout_seconds


class Failure(ShortRecord):
    """The error that ended a run: the parts of a `LarError`, and the exit code of this error.

    `message` is the whole line of the error, made of the other parts, for readers of the JSON. A
    result of an older lar has only `message`, which then becomes `problem`.
    """

    problem: str = ""
    hint: str = ""
    exit_code: int = 4
    detail: str = ""
    flag: str = ""
    subject: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        parts = (self.flag, self.subject, self.problem)
        told = {"message": format_message(*parts)} if any(parts) else {"problem": self.message}
        vars(self).update(told)

    @classmethod
    def of(cls, error: LarError, detail: str = "") -> Failure:
        """Return the record of an error."""
        parts = {each.name: getattr(error, each.name) for each in fields(cls)}
        return cls(**{**parts, "detail": detail or error.detail})

    def to_error(self) -> LarError:
        """Return this failure as an error that can be raised."""
        kind = kind_of_error(self.exit_code)
        return kind(self.problem, self.hint, self.detail, flag=self.flag, subject=self.subject)

    def called(self, names: Mapping[str, str]) -> Failure:
        """Return this failure with its flag and its subject replaced by names that users know."""
        flag, subject = (names.get(part, part) for part in (self.flag, self.subject))
        return replace(self, flag=flag, subject=subject)

    def within(self, what: str) -> Failure:
        """Return this failure, with `what` (such as a variant) put before its message."""
        return replace(self, flag="", subject=format_message(what, self.flag, self.subject))


class Tensor(Record):
    """A tensor: its name, the name of its dtype and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Quantization(Record):
    """The scale and zero point with which integers stand for real numbers.

    The real number is (integer - zero point) * scale.

    There is one scale and one zero point for the whole tensor, or for each index of the axis
    `axis`. `axis` is the number of an axis in the plain shape, without blocks.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None


class GraphTensor(Tensor):
    """A tensor of a graph; its `key` is unique in the graph.

    `layout` is the name of a blocked layout, and `operator` is the operator that made the tensor.
    If there is a `quantization`, the elements are integers that stand for real numbers.
    """

    key: str
    layout: str = ""
    operator: str = ""
    quantization: Quantization | None = None


class GraphOperator(Record):
    """An operator of a graph; its `key` is unique in the graph.

    If an operator of an engine stands for several operators of the model, `origin` has the model's
    names for the outputs of these operators. `origin` is empty if the operator is one of the
    model's operators, or if the model's operators are not known.
    """

    key: str
    name: str
    type: str
    parameters: dict[str, Any] = field(default_factory=dict)
    algorithm: str = ""
    origin: tuple[str, ...] = ()


class Origin(Record):
    """Facts about the run that made a dump, or that made a side of a comparison.

    A fact that is not known is empty. `complete` is false if the run failed or was ended early.
    `system`, `architecture` and `processor` describe the machine of the run. `provider` is the
    engine's execution provider, if the engine has several providers.
    """

    complete: bool = True
    engine: str = ""
    engine_version: str = ""
    driver: str = ""
    device: str = ""
    provider: str = ""
    system: str = ""
    architecture: str = ""
    processor: str = ""
    model: str = ""
    model_sha256: str = ""
    settings: dict[str, Setting] = field(default_factory=dict)


class FedInput(Tensor):
    """The data that was fed to one input of the model, and the source of the data."""

    source: str
    generated: bool = False


class OutputSummary(Tensor):
    """One output of the last iteration, with a few statistics that may show wrong results.

    `sha256` shows whether two runs computed equal outputs. `minimum`, `maximum` and `mean` are
    computed over the finite elements; if no element is finite, all three are None.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    nonfinite_count: int = 0
    sha256: str = ""


class TimeSources(Record):
    """How each of the three times of a sample was measured; empty if the time was not measured."""

    end_to_end: str = ""
    host: str = ""
    device: str = ""


class NoiseSources(Record):
    """The source of each kind of noise; empty if this machine does not report this noise.

    `throttled` is the source for time lost by a limit of CPU time, and `heat` is the source for
    time lost by the slowing down of hot CPUs. The column `throttled` of the samples contains the
    longer of two times: the time lost by the limit, and the time lost by heat.
    """

    queue_delay: str = ""
    cpu: str = ""
    steal: str = ""
    throttled: str = ""
    heat: str = ""
    frequency: str = ""
    probe: str = ""


class Samples(Record):
    """Raw times in seconds, in the order of measurement, with one entry for each iteration.

    A column takes at most 8 bytes for each number, and can be compared with tuples. A column that
    was never measured is empty; a single number that was not measured is None. One reading of the
    noise may cover several iterations, since a reading for each iteration would disturb the
    iterations. If a reading covers several iterations, each iteration has a share of the reading in
    proportion to its time. If there are several runners, the samples of the first runner come
    first.

    Attributes:
        end_to_end: the time from the dispatch to the end of the wait.
        host: the time from the dispatch to its return.
        device: the time that the device computed.
        queue_delay: the longest time that a runnable thread of the process waited for a CPU that
            other work may have held.
        began: the time when the dispatch began, counted from the first dispatch of all timed
            iterations.
        cpu: the CPU time of all threads of the process; if there are several runners, of the
            runner's own thread.
        busiest_thread: the CPU time of the thread that computed most.
        steal: the longest time that another guest of the same host held one of the CPUs.
        throttled: the time that a limit of CPU time, or heat, held the process back.
        frequency: the frequency in Hz of the CPU that the iteration ran on.
        queueing: the time that the request waited until its runner was free.
        probe: the time of a small, fixed piece of work after the iteration, which takes longer if
            other programs use the core or its caches.
        runner: the number of the runner, empty if there is only one runner.
        case: the number of the testcase, or of the item of a data set, if the run has them.
    """

    end_to_end: Sequence[float] = ()
    host: Sequence[float] = ()
    device: Sequence[float | None] = ()
    queue_delay: Sequence[float | None] = ()
    began: Sequence[float] = ()
    cpu: Sequence[float | None] = ()
    busiest_thread: Sequence[float | None] = ()
    steal: Sequence[float | None] = ()
    throttled: Sequence[float | None] = ()
    frequency: Sequence[float | None] = ()
    queueing: Sequence[float | None] = ()
    probe: Sequence[float | None] = ()
    runner: tuple[int, ...] = ()
    case: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in MEASURED:
            if type(column := getattr(self, name)) is not Numbers:
                vars(self)[name] = Numbers(column) or NO_NUMBERS

    def part(self, place: slice) -> Samples:
        """Return the measured columns of a slice of the iterations."""
        return Samples(**{name: getattr(self, name)[place] for name in MEASURED})

    def of_runner(self, runner: int) -> Samples:
        """Return the samples of one runner."""
        if not self.runner:
            return self if runner == 0 else Samples()
        return self.part(slice(bisect_left(self.runner, runner), bisect_right(self.runner, runner)))


# The columns of samples that hold measured numbers.
MEASURED = tuple(each.name for each in fields(Samples) if each.name not in ("runner", "case"))


class AlgorithmChoice(Record):
    """The algorithm that the engine ran for one kind of convolution.

    `winograd` is the size of a winograd algorithm, such as F(4,3); it is empty for any other
    algorithm. `seconds` is the time that the search measured, None if it was not measured.
    `other_algorithm` is the algorithm that would run without winograd.
    """

    operator: str
    shapes: str
    algorithm: str
    winograd: str = ""
    seconds: float | None = None
    other_algorithm: str = ""
    other_seconds: float | None = None


class NumericError(Record):
    """The largest difference between an output and the same output computed with other algorithms.

    `relative` is |a - b| / max(|a|, |b|, 1) for an element a of one output and the same element b
    of the other output. `absolute` and `relative` are None if only one output has a NaN or an
    infinity.
    """

    output: str
    absolute: float | None
    relative: float | None


class Verdict(Judgement):
    """The comparison of one output with its expected value.

    `error` is the largest |e-a| / max(min(|e|,|a|), 1) of all elements, or None if an element is
    NaN or infinite on one side only. `index` is the index of the first element whose error is above
    `limit`. `actual` and `expected` are the two values of the element at `index`, as text. `actual`
    and `expected` are empty if no error is above `limit`. If the dtypes or shapes differ, `actual`
    and `expected` contain the dtypes or shapes.
    """

    error: float | None
    limit: float
    passed: bool
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""


class CaseResult(Record):
    """The result of a testcase: for each output, the worst verdict of all runs of the testcase.

    `passed` is None if the testcase has no expected outputs.
    """

    name: str
    passed: bool | None
    verdicts: tuple[Verdict, ...] = ()


class ItemClasses(Labelled):
    """The five classes to which the first output gives the highest scores, best class first."""

    classes: tuple[int, ...]
    scores: tuple[float, ...]


class ScenarioResult(Record):
    """The result of MLPerf's load generator.

    `reasons` say in the load generator's own words why a run is invalid. `figures` are the load
    generator's results, by the names that they have in the load generator's detailed log, such as
    `result_99.00_percentile_latency_ns`.
    """

    version: str
    valid: bool
    reasons: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


class Stopped(Record):
    """How measuring ended, if the number of iterations was not the only condition.

    Attributes:
        ending: the condition that ended measuring, where `room` means that no more samples could be
            recorded.
        met: whether the user's target was reached. A rate is reached if requests can be served as
            fast as they arrive.
        seconds: the time of measuring, without the warm-up.
        reached: half the width of the 95 % confidence interval of the median, divided by the
            median, or None if the user gave no target for it or there were too few samples.
        undisturbed: whether `reached` is for the median of only the undisturbed iterations.
        settled: whether the times of the warm-up settled, or None if this was not requested.
        offered: the number of requests that had arrived, if they arrive at a rate.
        unserved: the number of these requests that no runner had begun when measuring ended.
        load: the number of requests that arrive while one request is served, divided by the number
            of runners; if the load is 1 or more, the queue grows for as long as requests arrive.
    """

    ending: Ending
    met: bool
    seconds: float
    reached: float | None = None
    undisturbed: bool = False
    settled: bool | None = None
    offered: int | None = None
    unserved: int = 0
    load: float | None = None


class Ran(Record):
    """The facts that a run and a variant of a bench share: engine, model, inputs and outcome.

    A variant of a bench has several processes, and only the first process gives `outputs` and
    `load_seconds`.

    Attributes:
        fed: the inputs that were fed.
        outputs: the outputs of the last iteration.
        load_seconds: the time to load the model.
        peak_memory_bytes: the most memory that a process held.
        failure: why the run was refused, failed or was ended early.
    """

    engine: EngineFacts | None = None
    model: ModelFile | None = None
    fed: tuple[FedInput, ...] = ()
    outputs: tuple[OutputSummary, ...] = ()
    load_seconds: float | None = None
    peak_memory_bytes: int | None = None
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None

    def with_arrays(self: R, arrays: Arrays) -> R:
        """Return this result with the outputs of the last iteration."""
        result = replace(self)
        vars(result)["_arrays"] = arrays  # no field, so it is neither compared nor encoded
        return result


class Made(Encodable):
    """The facts that every result has about the way it was made.

    If the work ended early, `failure` says why.
    """

    lar_version: str = ""
    started_at: str = ""
    machine: MachineFacts | None = None
    wall_seconds: float = 0.0
    failure: Failure | None = None


class RunResult(Ran, Made):
    """All facts about one run, which may have succeeded or failed.

    `iterations_seconds` is the time from the start of the first timed iteration to the end of the
    last timed iteration, over all runners. `iterations_seconds` is known only if all runners have
    ended, and if there are several runners or requests arrive at a rate. `stopped` says how
    measuring ended, if the number of iterations was open or requests arrived at a rate.
    `algorithms` and `numeric_errors` are known only if the run preferred winograd algorithms.

    `cases` has the results of the testcases. `items` has the classes of a data set's items. `top1`
    is the share of labelled items whose class had the highest score, and `top5` is the share of
    labelled items whose class was among the five highest. `profiled` has the samples of a second
    run, with the profiler, if `--profile` was given. `uncached_operators` counts the operators that
    ran but are not in the given cache. `summary` is None if no iteration was timed, or if an older
    version of lar wrote the result.
    """

    spec: RunSpec
    status: Status
    phase: Phase
    # History: lar.result/1  first version
    format: str = "lar.result/1"
    inputs: tuple[TensorInfo, ...] = ()
    prepare_seconds: float | None = None
    warmup: Samples = field(default_factory=Samples)
    samples: Samples = field(default_factory=Samples)
    profiled: Samples = field(default_factory=Samples)
    sources: TimeSources = field(default_factory=TimeSources)
    noise_sources: NoiseSources | None = None
    summary: Summary | None = None
    iterations_seconds: float | None = None
    stopped: Stopped | None = None
    algorithms: tuple[AlgorithmChoice, ...] = ()
    numeric_errors: tuple[NumericError, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    items: tuple[ItemClasses, ...] = ()
    top1: float | None = None
    top5: float | None = None
    scenario: ScenarioResult | None = None
    uncached_operators: int = 0
    log_tail: str = ""

    @property
    def latency(self) -> Summary:
        """The summary of the timed iterations, such as `result.latency.median` in seconds.

        Raises:
            LarError: no iteration was timed, or an older lar wrote the result without a summary.
        """
        if self.summary is None:
            hint = "no iteration was timed, or an older lar wrote it: look at status and samples"
            raise LarError("the result has no summary", hint)
        return self.summary

    @property
    def arrays(self) -> Arrays:
        """The outputs of the last iteration, by name, of a run with `keep_outputs=True`.

        Outputs that NumPy cannot hold, such as strings, are left out. Outputs are not written as
        JSON.

        Raises:
            LarError: the result contains no outputs.
        """
        arrays: Arrays | None = vars(self).get("_arrays")
        if arrays is None:
            hint = "lar.run(..., keep_outputs=True) keeps the outputs"
            raise LarError("the result contains no outputs", hint)
        return arrays

    def rows(self) -> list[dict[str, float | None]]:
        """Return a dictionary for each timed iteration, for `pandas.DataFrame(result.rows())`.

        Each dictionary has the number of the iteration, and the measured figures under their names
        in `Samples`.
        """
        columns = {"iteration": range(len(self.samples.end_to_end)), **vars(self.samples)}
        measured = {name: column for name, column in columns.items() if column}
        return [dict(zip(measured, it, strict=True)) for it in zip(*measured.values(), strict=True)]


def read_result(data: bytes | str) -> RunResult:
    """Decode a result that `--json` wrote, in any format that lar has ever written.

    Raises:
        UsageError: the text is not JSON, or is not a result in a format that this lar reads, or has
            values that no run can have.
    """
    return check_result(record_of_format(data, RunResult))


def check_result(result: RunResult) -> RunResult:
    """Check that a run can have this result, and return the result unchanged.

    Raises:
        WrongContent: the result has too many copies of the model, an impossible percentile, columns
            of samples of different lengths, or a time that is negative or infinite.
    """
    copies = result.spec.settings.get("thread", 1)
    if type(copies) is not int or not 0 < copies <= MOST_COPIES:
        raise WrongContent(f"it has {copies} copies of the model")
    if not all(0 < rank < 100 for rank in result.spec.percentiles):
        raise WrongContent("one of its percentiles is not between 0 and 100")
    for samples in (result.warmup, result.samples):
        if not {*map(len, vars(samples).values())} <= {0, len(samples.end_to_end)}:
            raise WrongContent("its samples have columns of several lengths")
        if not all(0 <= seconds < math.inf for seconds in samples.end_to_end):
            raise WrongContent("one of its times is negative or infinite")
    return result


class ModelInfo(Record):
    """The content of a model file, which is read without running the model.

    `operators` counts operators by type, the most frequent type first. `flops` counts a
    multiply-accumulate as two operations. If the number of operations depends on an unknown shape,
    `flops` is None. In this case, `flops_unknown` has the types of the operators that could not be
    counted, and `open_axes` has the axes of inputs whose sizes must be given, under the names that
    `--shape` takes. `activation_bytes` is the size of the results of all operators, without the
    model's outputs. All sizes in bytes are None if a shape is unknown. `at` has the input shapes
    that the user asked for, by the names of the inputs. If `at` is not empty, FLOPs and bytes are
    computed for the shapes in `at`.
    """

    engine: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: dict[str, int]
    parameter_count: int
    weight_bytes: int
    flops: int | None
    flops_unknown: tuple[str, ...] = ()
    open_axes: tuple[str, ...] = ()
    input_bytes: int | None = None
    output_bytes: int | None = None
    activation_bytes: int | None = None
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def add_verdicts(
    results: tuple[CaseResult, ...], number: int, name: str, verdicts: Sequence[Verdict]
) -> tuple[CaseResult, ...]:
    """Add the verdicts of one more run of a testcase to the results of all testcases.

    The testcases are added in the order of their numbers.
    """
    known = results[number].verdicts if number < len(results) else verdicts
    worst = tuple(max(pair, key=error_of) for pair in zip(known, verdicts, strict=False))
    passed = all(verdict.passed for verdict in worst) if worst else None
    result = CaseResult(name=name, passed=passed, verdicts=worst)
    return (*results[:number], result, *results[number + 1 :])


def error_of(verdict: Verdict) -> float:
    """Return a verdict's error as a number, which is infinity if the error is None."""
    return math.inf if verdict.error is None else verdict.error
