"""The records that lar passes around and writes: frozen, plain data, JSON without loss.

A `RunSpec` goes in, a `RunResult` comes out. Raw samples are the truth; the summary beside them is
derived from them. Arrays are in no field of a record.

Times are seconds and sizes are bytes, everywhere; names carry the unit.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lar.errors import LarError, format_message, kind_of_error
from lar.records.record import NO_NUMBERS, Encodable, Numbers, Record, ShortRecord, record_of_format
from lar.records.summary import Rank, Summary

if TYPE_CHECKING:
    import numpy as np

MOST_COPIES = 1024  # of a model that run at once, as `--thread` takes them

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

    An axis is None where any size is accepted. `resizable` says that the engine takes other
    sizes than those of `shape` too, as long as the rank and the channels stay.

    Attributes:
        axes: the model's names of the axes, empty for one without; no names at all: ().
        any_rank: the model takes any number of axes; `shape` is then empty.
        optional: the model has a value of its own for this input.
        sequence: it is a sequence of such tensors.
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
        """The shape as it is typed, `{1,3,n}`: an axis of any size by its name, or as `?`."""
        return "?" if self.any_rank else format_shape(self.shape, self.axes)


def format_shape(shape: Sequence[int | None], axes: Sequence[str] = ()) -> str:
    """Return a shape as it is typed, `{1,3,224,224}`; axes of any size by their names or as `?`."""
    names = axes or ("",) * len(shape)
    sizes = zip(shape, names, strict=True)
    return "{" + ",".join(name or "?" if size is None else str(size) for size, name in sizes) + "}"


class ImageSettings(Record):
    """The conversion of an image (or any array) to what the model takes; None changes nothing.

    `layout` is that of the model's input; `size` is height, width; the value fed is
    `(pixel - mean) * scale`, with one number for all channels or one each.
    """

    layout: Literal["nchw", "nhwc"] | None = None
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    channels: Channels | None = None


class Labelled(Record):
    """An item of a data set; `label` is its class, None where unknown."""

    number: int
    name: str
    label: int | None = None


class Item(Labelled):
    """What an item is fed with: files by input name; without files, the slice of the stack that
    `--input` names, by the item's number."""

    inputs: tuple[tuple[str, str], ...] = ()


class Judgement(Record):
    """An output that a testcase looks at: `output` is its name in the model, `name` and `id` are
    those of the engine's assertion. `shown` says that each run prints its error."""

    output: str = ""
    name: str = ""
    id: int = 0
    shown: bool = True


class Expected(Judgement):
    """The expected value of one output: the array in `file`, a .npy or an ONNX .pb.

    If `output` is empty the file names it, or `id` counts it. `limit` is the largest error allowed;
    None leaves it to the file.
    """

    file: str
    limit: float | None = None


class Case(Record):
    """A testcase: `inputs` are names of inputs and files that `--input` reads.

    A folder has no name before it: it names its inputs itself. `variables` are the outputs as the
    engine reports them. A case of a file that is not unpacked yet has a name alone.
    """

    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    expected: tuple[Expected, ...] = ()
    variables: tuple[str, ...] = ()


class Scenario(Record):
    """One scenario, with the settings of the load generator.

    A query has one sample, in `multi-stream` `samples_per_query`, in `offline` all of them. A
    sample is one item of a batch. In `server` queries arrive at random, `target_rate` of them in a
    second, and are to be answered within `target_latency_seconds`. A run is valid if it lasts as
    long as `min_seconds`, has as many queries as `min_queries`, and meets LoadGen's other rules.
    """

    name: ScenarioName
    min_seconds: float = 10.0
    min_queries: int = 100
    target_rate: float | None = None
    target_latency_seconds: float = 0.1
    samples_per_query: int = 8
    seed: int = 0


class Stopping(Record):
    """What ends measuring, besides the number of iterations; None: not asked for.

    Attributes:
        duration_seconds: how long to measure.
        target_interval: measure until half the width of the 95 % interval of the median is at
            most this share of the median; 0.01 is 1 %.
        min_seconds: with a target, measure for at least so long.
        max_seconds: with a target, measure for at most so long.
        settle: warm up until two windows of iterations agree.
        warmup_seconds: warm up for at least so long.
        warmup_room: the iterations that this has room for.
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
        """Whether the number of iterations is not known beforehand."""
        return self.duration_seconds is not None or self.target_interval is not None


class Pacing(Record):
    """When an iteration begins, if not as soon as the one before it has ended.

    Attributes:
        idle_seconds: how long a runner sleeps before each iteration.
        rate: how many requests arrive in a second, whether or not a runner is free.
        arrivals: the times between arrivals are those of a Poisson process, or all the same.
    """

    idle_seconds: float | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"


class RunSpec(Record):
    """One run, complete, as the user asked for it.

    `settings` holds only the engine options that the user set, by key (`fast_run`).

    `python` is the interpreter of the worker, empty for the parent's own. `shape` has the sizes of
    axes of the inputs, by the model's name of an axis or as `INPUT[AXIS]`.

    With `items`, those of a data set, each is fed for `iterations` iterations; `item_names` has
    all of the set, also those that an earlier run has done. `tell_classes` has the first
    output taken for scores of classes, which `class_names` names.

    With `cases` each of them is fed for `iterations` iterations, the first for the warm-up too.

    If `stopping` leaves the number of iterations open, `iterations` is the most that a runner has
    room for, and `warmup_iterations` the fewest if the warm-up goes on until it settles.
    `percentiles` are those of the summary; if it is empty, the usual ones.
    With a rate in `pacing`, or with a `scenario`, `iterations` are the requests that all runners
    serve together. In a scenario MLPerf's load generator decides how many there are, and when.
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
        """The number of samples that each runner takes, warm-up included; the most that it may
        take where that is open."""
        timed = self.iterations * max(1, len(self.cases), len(self.items))
        return self.warmup_iterations + self.stopping.warmup_room + timed


class MachineFacts(Record):
    """The machine that ran it, when the run began. Unknown facts are empty or None.

    Attributes:
        affinity: the numbers of the CPUs that the process may use.
        threads_per_core: how many CPUs share one core: 2 with SMT (hyper-threading) on.
        smt: the kernel's word for it: on, off, notsupported.
        load: how many threads computed or wanted to, on average over the last minute.
        cpu_limit: the limit of CPU time of the process's cgroup, in CPUs.
        variables: the environment variables of the worker that libraries heed.
        architecture: of its instructions, as the system names it: x86_64, aarch64.
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
    """The model file that ran; its SHA-256 distinguishes two models of one name.

    `weights` are the SHA-256 of the files beside it that hold its weights, by their paths, where
    somebody has asked for them.
    """

    path: str
    size_bytes: int
    sha256: str
    weights: dict[str, str] = field(default_factory=dict)


class EngineFacts(Record):
    """The engine that really ran: its version, driver and device, and the libraries beside it.

    `products` is the type that factors of float32 products are rounded to, empty for none.
    `threads` is how many threads of the CPU compute a copy of the model; None if not known.
    `spin_seconds` is how much CPU time one of them spends at most while it waits for work; 0 if it
    sleeps, or if that is not known.
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
    """The facts that the parent process adds to a spec: how the run is made, where its files go.

    Results do not keep them; the worker gets them with the spec.

    Attributes:
        began: when the time limit begins to count, on the monotonic clock.
        in_process: the run is made in the parent process itself, for a debugger.
        overwrite: dumps may replace others.
        resume: a data set goes on with what an earlier run has done.
        model: the facts about the spec's model file, None until it is read.
        model_file: the file to load instead of the spec's, from which it was taken: a model that
            is packed with testcases.
        work_folder: a folder of the parent's, for what must outlive a worker that is killed.
        written: where the engine writes the files that options ask for, by key: they are moved
            to their places when the run has ended well.
        turns: the timed iterations are made in turns with other processes, when the parent says so;
            the spec's are the most that there is room for.
        outputs_folder: where the outputs of the last iteration are written, empty if nowhere.
        ranges: the ranges of `lar.range` that the parent is in.
        packing: how to pack testcases, one for each of the spec's `inputs`; the worker then packs
            and runs nothing.
        names: the user's names of flags and files for errors and warnings, if they are others: for
            an array that was given from Python, a file that was unpacked from the model's.
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
        """The SHA-256 of the spec's model file, empty until it is read."""
        return self.model.sha256 if self.model else ""

    def deadline(self, spec: RunSpec) -> float | None:
        """Return the end of a spec's time limit, on the monotonic clock."""
        return None if spec.timeout_seconds is None else self.began + spec.timeout_seconds


class Failure(ShortRecord):
    """Why a run did not end well: the parts of a `LarError`, and its exit code.

    `message` is the whole line, made of the other parts and kept for those who read the JSON; a
    result of an older lar holds nothing but the line, which is the problem then.
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
        """Return the error that it would be in this process."""
        kind = kind_of_error(self.exit_code)
        return kind(self.problem, self.hint, self.detail, flag=self.flag, subject=self.subject)

    def called(self, names: Mapping[str, str]) -> Failure:
        """Return it with the names that the user knows for its flag and its subject."""
        flag, subject = (names.get(part, part) for part in (self.flag, self.subject))
        return replace(self, flag=flag, subject=subject)

    def within(self, what: str) -> Failure:
        """Return it as the failure of a part of the user's task, which the message names first."""
        return replace(self, flag="", subject=format_message(what, self.flag, self.subject))


class Tensor(Record):
    """A tensor: its name, the name of its dtype and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Quantization(Record):
    """The real numbers that integers stand for: (integer - zero point) * scale.

    There is one scale and one zero point for the whole tensor, or one for each index of `axis`,
    which counts the axes of the plain shape.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None


class GraphTensor(Tensor):
    """A tensor of a graph, by a `key` that is unique there.

    `layout` names a blocked one, `operator` what made it. With a `quantization` its elements are
    integers of `dtype` that stand for real numbers.
    """

    key: str
    layout: str = ""
    operator: str = ""
    quantization: Quantization | None = None


class GraphOperator(Record):
    """An operator of a graph, by a `key` that is unique there.

    `origin` has the model's names for the results of its own operators that this one stands for,
    empty if it is one of them or if they are not known.
    """

    key: str
    name: str
    type: str
    parameters: dict[str, Any] = field(default_factory=dict)
    algorithm: str = ""
    origin: tuple[str, ...] = ()


class Origin(Record):
    """The run that a dump, or a side of a comparison, is of; unknown facts are empty.

    `complete` is false if it did not end well. `system`, `architecture` and `processor` are those
    of the machine that ran it, `provider` is what computed there if the engine has several.
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
    """The data that one input of the model was fed with, and its source."""

    source: str
    generated: bool = False


class OutputSummary(Tensor):
    """One output of the last iteration: enough to see a wrong run, and its hash to compare two.

    `minimum`, `maximum` and `mean` are over the finite elements; without any, each is None.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    nonfinite_count: int = 0
    sha256: str = ""


class TimeSources(Record):
    """The source of each of a sample's three times; empty if the time was not taken."""

    end_to_end: str = ""
    host: str = ""
    device: str = ""


class NoiseSources(Record):
    """The source of each kind of noise; empty if this machine does not show it.

    `throttled` and `heat` are both in the column `throttled` of the samples: a limit of CPU time,
    and CPUs that are slowed down since they are too hot.
    """

    queue_delay: str = ""
    cpu: str = ""
    steal: str = ""
    throttled: str = ""
    heat: str = ""
    frequency: str = ""
    probe: str = ""


class Samples(Record):
    """Raw times in seconds, in the order taken, one entry an iteration.

    A column holds each number in 8 bytes at most, and compares with tuples. One that was never
    measured is empty. If one reading covers several iterations, since a reading for each would have
    disturbed them, each has a share by its time. None: not measured.
    With several runners, the first runner's samples come first.

    Attributes:
        end_to_end: from the dispatch to the end of the wait.
        host: to the return of the dispatch.
        device: the device's own time.
        queue_delay: the longest time that a runnable thread of the process waited for a CPU that
            other work may have held.
        began: when the dispatch began, since that of the first timed iteration of all runners.
        cpu: the CPU time of all threads of the process; with several runners, of the runner's own.
        busiest_thread: the CPU time of the thread that computed most.
        steal: the longest that one of the CPUs was held by another guest of the same host.
        throttled: how long a limit of CPU time, or heat, held the process back.
        frequency: the frequency in Hz of the CPU that it ran on.
        queueing: how long the request waited until its runner was free.
        probe: how long a small, always equal piece of work took after the iteration. It takes
            longer where other programs hold a part of the core or of its caches.
        runner: the number of the runner, empty if there is only one.
        case: the number of the testcase, or of the item of a data set, if the run has any.
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
        """Return what was measured of some iterations; `place` is theirs."""
        return Samples(**{name: getattr(self, name)[place] for name in MEASURED})

    def of_runner(self, runner: int) -> Samples:
        """Return the samples of one runner."""
        if not self.runner:
            return self if runner == 0 else Samples()
        own = slice(bisect_left(self.runner, runner), bisect_right(self.runner, runner))
        return self.part(own)


# The columns of samples that are measured.
MEASURED = tuple(each.name for each in fields(Samples) if each.name not in ("runner", "case"))


class AlgorithmChoice(Record):
    """The algorithm that the engine ran for one kind of convolution.

    `winograd` names it, such as F(4,3), empty for any other. `seconds` is what the search measured,
    None if it did not; the `other` algorithm is the one that runs if winograd is passed over.
    """

    operator: str
    shapes: str
    algorithm: str
    winograd: str = ""
    seconds: float | None = None
    other_algorithm: str = ""
    other_seconds: float | None = None


class NumericError(Record):
    """The largest difference of an output from that of a run with other algorithms.

    `relative` is |a - b| / max(|a|, |b|, 1). None: one has a NaN or infinity, the other has not.
    """

    output: str
    absolute: float | None
    relative: float | None


class Verdict(Judgement):
    """The comparison of one output with its expected value.

    `error` is the largest |e-a| / max(min(|e|,|a|), 1) of its elements, None if only one side has a
    NaN or an infinity there. `index` is that of the first element whose error is above
    `limit`, with its two values as text; without such an element the texts are empty. Where dtype
    or shape differ, the texts name them.
    """

    error: float | None
    limit: float
    passed: bool
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""


class CaseResult(Record):
    """The result of a testcase: the worst run of each output.

    `passed` is None if the testcase says nothing of the outputs.
    """

    name: str
    passed: bool | None
    verdicts: tuple[Verdict, ...] = ()


class ItemClasses(Labelled):
    """The classes that the first output gives an item: the five highest scores, best first."""

    classes: tuple[int, ...]
    scores: tuple[float, ...]


class ScenarioResult(Record):
    """What the load generator found.

    `reasons` are those of an invalid run, in its own words. `figures` are its results by the
    names of its detailed log, as `result_99.00_percentile_latency_ns`.
    """

    version: str
    valid: bool
    reasons: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


class Stopped(Record):
    """How measuring ended, if not by the number of iterations alone.

    Attributes:
        ending: what ended it: `room` means that no more samples could be held.
        met: whether what was asked for was reached; a rate is, if as many can be served.
        seconds: how long was measured, the warm-up left out.
        reached: half the width of the 95 % interval of the median, as a share of the median; None
            where it was not asked for, or the samples were too few.
        undisturbed: that median is of the undisturbed iterations alone, as some were disturbed.
        settled: whether two windows of the warm-up agreed; None if that was not asked for.
        offered: how many requests had arrived, with a rate.
        unserved: how many of these no runner had begun when measuring ended.
        load: the requests that arrive while one is served, over the runners: from 1 on the queue
            grows for as long as requests arrive.
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
    """What a run, or a variant of a bench, was made with and what came of it.

    Attributes:
        fed: what it was fed with.
        outputs: those of the last iteration; of a variant, in its first process.
        load_seconds: of a variant, in its first process.
        peak_memory_bytes: the most that it held; of a variant, that one of its processes held.
        failure: why it was refused, or did not end well.
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
        """Return it with the outputs of its last iteration."""
        result = replace(self)
        vars(result)["_arrays"] = arrays  # no field: neither compared nor encoded
        return result


class Made(Encodable):
    """What every result says of how it was made; `failure` is why that ended early, if it did."""

    lar_version: str = ""
    started_at: str = ""
    machine: MachineFacts | None = None
    wall_seconds: float = 0.0
    failure: Failure | None = None


class RunResult(Ran, Made):
    """Everything known about one run, whether it ended well or not.

    `iterations_seconds` is the time from the start of the first timed iteration to the end of the
    last, over all runners; it is known where there are several, or requests arrive at a rate, and
    all have ended. `stopped` says how measuring ended where the number of iterations was open or
    requests arrived at a rate. `algorithms`
    and `numeric_errors` are known where winograd was preferred. `cases` has the testcases that
    were run, `items` the classes of a data set's items; `top1` and `top5` are the shares of the
    labelled items that are right. `profiled` is there with `--profile`:
    the samples of the same run with the profiler, made after it. `uncached_operators` counts
    the operators that ran and are not in the cache that was given. `summary` is there when an
    iteration was timed; results of older versions have none.
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
        """The summary of the timed iterations: `result.latency.median`, in seconds.

        Raises:
            LarError: no iteration was timed, or a lar without summaries wrote the result.
        """
        if self.summary is None:
            hint = "no iteration was timed, or an older lar wrote it: look at status and samples"
            raise LarError("the result has no summary", hint)
        return self.summary

    @property
    def arrays(self) -> Arrays:
        """The outputs of the last iteration, by name, of a run with `keep_outputs=True`.

        Outputs that NumPy does not hold, as texts, are not among them. They are never in the JSON.

        Raises:
            LarError: they were not kept.
        """
        arrays: Arrays | None = vars(self).get("_arrays")
        if arrays is None:
            hint = "lar.run(..., keep_outputs=True) keeps them"
            raise LarError("the outputs were not kept", hint)
        return arrays

    def rows(self) -> list[dict[str, float | None]]:
        """Return a dictionary for each timed iteration: `pandas.DataFrame(result.rows())`.

        It has the iteration's number and what was measured of it, by the names of `Samples`.
        """
        columns = {"iteration": range(len(self.samples.end_to_end)), **vars(self.samples)}
        measured = {name: column for name, column in columns.items() if column}
        return [dict(zip(measured, it, strict=True)) for it in zip(*measured.values(), strict=True)]


def read_result(data: bytes | str) -> RunResult:
    """Decode a result that `--json` wrote, of any version so far.

    Raises:
        ValueError: the text is not JSON, not a result of a version that this lar reads, or it holds
            what no run has.
    """
    return check_result(record_of_format(data, RunResult))


def check_result(result: RunResult) -> RunResult:
    """Return a result; refuse one that no run can have.

    Raises:
        ValueError: it has too many copies of the model or an impossible percentile, a column of its
            samples is shorter than another, or a time is negative or infinite.
    """
    copies = result.spec.settings.get("thread", 1)
    if type(copies) is not int or not 0 < copies <= MOST_COPIES:
        raise ValueError(f"it has {copies} copies of the model")
    if not all(0 < rank < 100 for rank in result.spec.percentiles):
        raise ValueError("one of its percentiles is not between 0 and 100")
    for samples in (result.warmup, result.samples):
        if not {*map(len, vars(samples).values())} <= {0, len(samples.end_to_end)}:
            raise ValueError("its samples have columns of several lengths")
        if not all(0 <= seconds < math.inf for seconds in samples.end_to_end):
            raise ValueError("one of its times is not a time")
    return result


class ModelInfo(Record):
    """The content of a model file, read without running it.

    `operators` counts operators by type, most frequent first. `flops` counts a multiply-accumulate
    as two operations; it is None if a shape that it depends on is unknown, and `flops_unknown` then
    names the operator types concerned. `activation_bytes` is the size of all operators' results
    without the model's outputs; None if a shape is unknown, and so are the bytes of inputs and
    outputs. With `at`, shapes of inputs by name, FLOPs and bytes are those at these shapes.
    """

    engine: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: dict[str, int]
    parameter_count: int
    weight_bytes: int
    flops: int | None
    flops_unknown: tuple[str, ...] = ()
    input_bytes: int | None = None
    output_bytes: int | None = None
    activation_bytes: int | None = None
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def add_verdicts(
    results: tuple[CaseResult, ...], number: int, name: str, verdicts: Sequence[Verdict]
) -> tuple[CaseResult, ...]:
    """Return the results with the verdicts of one more run of a case; cases come in their order."""
    known = results[number].verdicts if number < len(results) else verdicts
    worst = tuple(max(pair, key=error_of) for pair in zip(known, verdicts, strict=False))
    passed = all(verdict.passed for verdict in worst) if worst else None
    result = CaseResult(name=name, passed=passed, verdicts=worst)
    return (*results[:number], result, *results[number + 1 :])


def error_of(verdict: Verdict) -> float:
    """Return a verdict's error as a number."""
    return math.inf if verdict.error is None else verdict.error
