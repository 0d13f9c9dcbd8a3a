"""Executes one run in this process, in five phases: load, prepare, warmup, iterations, finish.

Inputs, testcases or items of a data set are fed one after the other.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from lar.engines import engine_named
from lar.engines.driver import SILENT, Driver, Silent
from lar.errors import NO_ROOM, LarError, UsageError, first_line
from lar.inputs import NAME_IT, Loaded, UnnamedInput
from lar.inputs.feed import Feed, feed_of, repeat_batches, without_batch
from lar.inputs.grammar import Item as Given
from lar.inputs.grammar import PathItem, items_of
from lar.inputs.model_inputs import AxisSizes, hint_at_sizes
from lar.inputs.readers import read_path
from lar.measurement.loop import (
    Idle,
    Pace,
    Requests,
    Threads,
    is_failure,
    no_garbage_collection,
    take_samples,
)
from lar.measurement.noise import Meter
from lar.measurement.rows import SampleRows, samples_since
from lar.measurement.summary import batch_of, precision_of, windows_agree
from lar.options.table import BATCH_SIZE, PROFILE_FILES, one_of
from lar.records import events
from lar.records.events import Emit
from lar.records.run import (
    Case,
    Ending,
    Item,
    NoiseSources,
    OutputSummary,
    RunContext,
    RunSpec,
    Scenario,
    ScenarioResult,
    Stopped,
    Stopping,
    TensorInfo,
    TimeSources,
)

if TYPE_CHECKING:
    from lar.datasets.judging import Judge

Look = Callable[[Mapping[str, Any]], None]

STACK_HINT = "the first axes of a stack count items; for one run, give each array as a .npy"


@dataclass(frozen=True, eq=False)
class NumberedFeed(Feed):
    """The input arrays for one item or testcase; `judge` checks the outputs of each iteration."""

    number: int = 0
    item: Item | None = None
    judge: Judge | None = None


@dataclass(frozen=True, eq=False)
class Feeder:
    """Reads the inputs of a run.

    `notes` collects warnings that are reported at the end. `names` maps files to the names that the
    user knows.
    """

    spec: RunSpec
    infos: Sequence[TensorInfo]
    names: Mapping[str, str]
    emit: Emit
    notes: list[str]

    def feeds(self) -> Iterator[NumberedFeed]:
        """Yield the feeds of the run one after the other; each feed is read when it is needed.

        Raises:
            UsageError: an input is wrong, or does not fit the model.
        """
        if self.spec.items:
            yield from self.feeds_of_items()
        elif not self.spec.cases:
            yield self.feed_of_inputs()
        for number, case in enumerate(self.spec.cases):
            yield self.feed_of_case(number, case)

    def feed_of_inputs(self) -> NumberedFeed:
        """Read the inputs of a run without testcases or a data set.

        Raises:
            UsageError: an input is wrong, or does not fit the model.
        """
        try:
            return NumberedFeed(**vars(self.read(self.spec.inputs)))
        except UnnamedInput as error:
            if "--input" in self.names:
                error.hint = error.hint.replace(NAME_IT, "give a mapping from names to arrays")
            raise

    def read(self, given: Sequence[str | Given], *, generates: bool = True) -> Feed:
        """Read the inputs of a model, and repeat them to fill the requested batch.

        Missing inputs are generated. If no input is given, all inputs are generated. If `generates`
        is false and some inputs are given, all inputs must be given.

        Raises:
            UsageError: an input is wrong, or does not fit the model.
        """
        spec, infos, names, size = self.spec, self.infos, self.names, self.spec.batch_size
        taken = without_batch(infos, size) if given else infos
        feed = feed_of(given, taken, spec, generates=generates)
        arrays, fed = feed.arrays, feed.fed
        if size is not None:
            arrays, fed = repeat_batches(arrays, fed, infos, size)
            sizes = AxisSizes(infos, spec.shape)
            for info in infos:
                if info.name in arrays and spec.shape:
                    sizes.learn(info, arrays[info.name].shape, BATCH_SIZE.flag)
        if names:
            fed = tuple(replace(each, source=names.get(each.source, each.source)) for each in fed)
        return Feed(arrays, fed, tuple(note.called(names) for note in feed.notes), feed.guessed)

    def feed_of_case(self, number: int, case: Case) -> NumberedFeed:
        """Read the inputs of a testcase.

        Raises:
            UsageError: a file of the testcase is wrong, or does not fit the model.
        """
        # If the model needs no inputs, the folder of a testcase may have none.
        needed = [info for info in self.infos if not info.optional]
        items = [
            PathItem(name, file)
            for name, file in case.inputs
            if needed or os.path.exists(os.path.join(file, "input_0.pb"))
        ]
        try:
            feed = self.read(items, generates=False)
            from lar.datasets.judging import Judge  # few runs need it

            is_exact = engine_named(self.spec.engine).is_exact
            judge = Judge(number, case, self.spec, self.emit, self.notes, is_exact)
        except UsageError as error:
            error.flag = ""
            raise
        fed = tuple(replace(each, source=case.name) for each in feed.fed)
        return NumberedFeed(feed.arrays, fed, feed.notes, number=number, judge=judge)

    def feeds_of_items(self) -> Iterator[NumberedFeed]:
        """Yield the feeds of a data set's items; each item is read when the item before it is done.

        Raises:
            UsageError: a file is wrong, or does not fit the model.
        """
        spec = self.spec
        stack = () if spec.items[0].inputs else read_stack(spec)
        for item in spec.items:
            given: list[Given] = [slice_of(each, item) for each in stack]
            given += [PathItem(name, file) for name, file in item.inputs]
            try:
                feed = self.read(given)
            except UsageError as error:
                error.hint = STACK_HINT if stack else error.hint
                raise
            yield NumberedFeed(**vars(feed), number=item.number, item=item)


def read_stack(spec: RunSpec) -> tuple[Loaded, ...]:
    """Read the stacks that `--input` names, each with the name of its input.

    A stack is an array that holds all items of a data set along its first axis.

    Raises:
        UsageError: a file cannot be used.
    """
    return tuple(
        loaded._replace(name=item.name or loaded.name, name_binds=True)
        for item in items_of(spec.inputs)
        if isinstance(item, PathItem)
        for loaded in read_path(item.path, item.name)
    )


def slice_of(stack: Loaded, item: Item) -> Loaded:
    """Return one item of a stack, as an array whose first axis has length 1."""
    array = stack.array[item.number : item.number + 1]
    return stack._replace(array=array, source=f"{stack.source}, item {item.number}")


# Iterations without a fixed number: they end when times settle, a median is known, or time is up


# A window of the warm-up has at least this many iterations, and lasts at least this long.
WINDOW_ITERATIONS = 5
WINDOW_SECONDS = 0.1
# The warm-up ends after this share of --max-time, whether or not it has settled.
WARMUP_SHARE = 0.25
# The interval is computed again each time the measured time has grown by this factor. Measuring
# ends when the interval is narrow enough twice in a row. The first narrow interval is often narrow
# by chance: in simulations it held the median in fewer than 92 of 100 runs.
GROWTH = 1.5
NARROW_LOOKS = 2


def room_in(tables: Sequence[SampleRows]) -> int:
    """Return how many more iterations can be recorded in every runner's table of samples."""
    return min(rows.capacity - rows.count for rows in tables)


def warm_up(runners: Copies, most_seconds: float) -> bool:
    """Run windows of iterations until two successive windows agree.

    Return whether two successive windows agreed before the time for the warm-up ran out.
    """
    spent, before = 0.0, None
    while spent < most_seconds:
        firsts = [rows.count for rows in runners.tables]
        count = min(WINDOW_ITERATIONS, room_in(runners.tables))
        took = runners.run(count, seconds=most_seconds - spent)
        if took < WINDOW_SECONDS:
            took += runners.run(room_in(runners.tables), seconds=WINDOW_SECONDS - took)
        spent += took
        window = samples_since(runners.tables, firsts).end_to_end
        if not window:
            return False
        if before is not None and windows_agree(before, window):
            return True
        before = window
    return False


def measure(runners: Copies, spec: RunSpec) -> Stopped:
    """Run timed iterations until a condition of the spec ends them; return why they ended."""
    stopping = spec.stopping
    if spec.pacing.rate is not None:
        return serve(runners, spec, spec.pacing.rate)
    if stopping.duration_seconds is None:
        return approach(runners, stopping)
    seconds = runners.run(room_in(runners.tables), seconds=stopping.duration_seconds)
    met = seconds >= stopping.duration_seconds
    return Stopped(ending="duration" if met else "room", met=met, seconds=seconds)


def serve(runners: Copies, spec: RunSpec, rate: float) -> Stopped:
    """Serve requests that arrive at a given rate, and return how the measuring ended."""
    duration, room = spec.stopping.duration_seconds, room_in(runners.tables)
    firsts = [rows.count for rows in runners.tables]
    requests = Requests(spec.pacing, spec.seed, most=min(spec.iterations, room), seconds=duration)
    seconds, offered = runners.run(room, requests=requests), requests.offered()
    services = samples_since(runners.tables, firsts).end_to_end
    load = rate * math.fsum(services) / max(1, len(services)) / len(runners.tables)
    ending: Ending = "iterations" if duration is None else "duration"
    if duration is not None and requests.begun == requests.most:
        ending = "room"
    return Stopped(
        ending=ending,
        met=ending != "room" and load < 1,
        seconds=seconds,
        load=load,
        offered=offered,
        unserved=offered - requests.begun,
    )


def approach(runners: Copies, stopping: Stopping) -> Stopped:
    """Run iterations until the median's confidence interval is as narrow as requested."""
    target, least = stopping.target_interval or 0.0, stopping.min_seconds or 0.0
    most = math.inf if stopping.max_seconds is None else stopping.max_seconds
    firsts = [rows.count for rows in runners.tables]
    seconds, until, narrow_looks = 0.0, least / GROWTH, 0
    ending: Ending | None = None
    while ending is None:
        seconds += runners.run(room_in(runners.tables), seconds=until - seconds)
        reached, undisturbed = precision_of(samples_since(runners.tables, firsts))
        narrow_looks = narrow_looks + 1 if reached is not None and reached <= target else 0
        if narrow_looks >= NARROW_LOOKS and seconds >= least:
            ending = "target"
        elif seconds >= most:
            ending = "max_time"
        elif room_in(runners.tables) == 0:
            ending = "room"
        until = min(most, max(least, seconds * GROWTH))
    return Stopped(
        ending=ending,
        met=ending == "target",
        seconds=seconds,
        reached=reached,
        undisturbed=undisturbed,
    )


# One run in this process: load, prepare, warm-up, iterations, outputs


T = TypeVar("T")


class Copies:
    """The copies of a model that run at once.

    Each copy has a driver, a table of samples, and a meter for the noise of the machine.

    If the copies execute a step one after the other, the time of the step is the sum of the times
    of all copies.
    """

    def __init__(self, spec: RunSpec, context: RunContext, tables: Sequence[SampleRows]) -> None:
        self.spec, self.tables, self.threads = spec, tables, Threads(spec.runners)
        self.drivers, self.meters = list[Driver](), list[Meter | None]()
        self.recorder: Silent = SILENT
        if one_of(PROFILE_FILES, spec.settings):
            from lar.worker.recorder import Recorder  # few runs are profiled

            self.recorder = Recorder()
        idle = spec.pacing.idle_seconds
        self.pace: Pace | None = None if idle is None else Idle(idle)

        def start(runner: int) -> None:
            driver = engine_named(spec.engine).make_driver(spec, context)
            self.drivers.append(driver)
            driver.runner, driver.first = runner, self.drivers[0]
            self.recorder.attach(driver)

        self.threads.each(start)

    def at_once(self, call: Callable[[int], T]) -> list[T]:
        """Call a function for all runners at the same time.

        The calls are made one after the other if the first run of one copy prepares something that
        all copies use.
        """
        begins_alone = self.drivers[0].begins_alone and self.tables[0].count == 0
        alone = begins_alone or len(self.drivers) == 1
        return (self.threads.each if alone else self.threads.together)(call)

    def timed(self, call: Callable[[Driver], object]) -> float:
        """Call a function for each driver, one after the other; return the sum of the seconds."""

        def run(runner: int) -> float:
            driver = self.drivers[runner]
            began = driver.clock()
            call(driver)
            return driver.clock() - began

        return sum(self.threads.each(run))

    def load(self) -> float:
        """Load the model in each driver; return the sum of the seconds.

        Raises:
            LarError: the model does not load.
        """

        def load(driver: Driver) -> None:
            recorder, call = driver.recorder, driver.calls.get("load", "")
            with recorder.phase("load"), recorder.call(call), explaining(driver, loading=True):
                driver.load()

        return self.timed(load)

    def prepare(self, arrays: Mapping[str, Any], name: str = "prepare") -> float:
        """Feed all copies with the same inputs, and return the seconds that this took.

        `name` is the name of this phase in a profile.
        """

        def prepare(driver: Driver) -> None:
            with driver.recorder.phase(name):
                driver.feed(arrays)
            if self.spec.copy_outputs:
                driver.wait = wait_and_copy(driver)

        seconds = self.timed(prepare)
        if not self.meters:
            self.meters = self.threads.each(lambda runner: self.drivers[runner].meter())
        return seconds

    def run(
        self,
        count: int,
        look: Look | None = None,
        *,
        seconds: float = math.inf,
        requests: Requests | None = None,
    ) -> float:
        """Run `count` iterations in each copy, all copies at once; return the elapsed seconds.

        With one copy, `look` is called with the outputs of each iteration; the samples do not
        include the time of this call. A copy ends early when `seconds` have passed. If `requests`
        is given, each iteration of a copy serves the next request.
        """
        pace = requests or self.pace
        if requests is not None:
            requests.open(self.drivers[0].clock())

        def run(runner: int) -> tuple[float, float]:
            driver, rows, meter = self.drivers[runner], self.tables[runner], self.meters[runner]
            began = driver.clock()
            for part in (count,) if look is None else repeat(1, count):
                take_samples(driver, part, rows, meter, seconds=seconds, pace=pace)
                if look is not None:
                    look(driver.outputs())
            return began, driver.clock()

        times = self.at_once(run) if len(self.drivers) > 1 else [run(0)]
        return max(ended for _, ended in times) - min(began for began, _ in times)

    def serve(self, scenario: Scenario, batch: int, log_folder: str) -> ScenarioResult:
        """Run the queries of MLPerf's load generator, with `batch` samples in each iteration."""
        from lar.worker.load_generator import LoadGenerator  # few runs need it

        generator = LoadGenerator(scenario, batch, len(self.drivers), log_folder)

        def run(runner: int) -> None:
            driver, rows = self.drivers[runner], self.tables[runner]
            # Reading the noise would delay the next query.
            generator.serve(lambda: take_samples(driver, 1, rows, None))

        with no_garbage_collection():
            generator.start(min(min(rows.end_to_end()) for rows in self.tables))  # of the warm-up
            self.at_once(run)
        return generator.finish()


@contextlib.contextmanager
def explaining(driver: Driver, hint: str = "", *, loading: bool = False) -> Iterator[None]:
    """Replace an engine's error by an error that explains it.

    If the error that is raised has no hint, it gets the hint `hint`.

    Raises:
        LarError: the engine failed. The message gives the known reason, or the engine's own message
            if a model does not load for an unknown reason.
    """
    try:
        yield
    except LarError:
        raise
    except MemoryError as error:
        raise LarError("out of memory", "use a smaller batch or model, or more memory") from error
    except UnicodeDecodeError as error:
        problem = "holds a name or a string that is not UTF-8: is the file damaged?"
        raise UsageError(problem, "export the model again", subject=driver.spec.model) from error
    except Exception as error:
        if loading and isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        explained = driver.explain(error, loading=loading)
        if explained is None and loading:
            problem = "the engine cannot load it; it may be damaged, or made for another version"
            what_to_do = f"copy or export the model again; the engine says: {first_line(error)}"
            explained = UsageError(problem, what_to_do, subject=driver.spec.model)
        if explained is None:
            raise
        explained.hint = explained.hint or hint
        raise explained from error


class Execution:
    """Executes a run, from load to outputs, and emits events."""

    def __init__(
        self, spec: RunSpec, context: RunContext, emit: events.Emit, tables: Sequence[SampleRows]
    ) -> None:
        self.spec, self.context, self.emit = spec, context, emit
        self.copies = Copies(spec, context, tables)
        self.driver, self.recorder = self.copies.drivers[0], self.copies.recorder
        self.notes, self.batches = list[str](), set[int | None]()  # the batch sizes of all feeds
        self.infos: Sequence[TensorInfo] = ()
        self.seconds: float | None = None  # from the first start to the last end of any runner
        self.settled: bool | None = None
        self.stopped: Stopped | None = None

    def run(self, turns: Iterable[int] | None = None) -> events.Finished:
        """Execute all phases of the run, and return the last event.

        With `turns`, this process takes turns with other processes. Each number in `turns` starts a
        turn with this number of timed iterations.

        Raises:
            LarError: the engine failed. If lar knows the engine's error message, the LarError
                explains what the message means.
        """
        spec, context, driver = self.spec, self.context, self.driver
        with explaining(driver):
            self.emit(events.EngineStarted(driver.facts()))
            self.emit(events.PhaseEntered("load"))
            seconds, self.infos = self.copies.load(), driver.inputs()
            feeds = Feeder(spec, self.infos, context.names, self.emit, self.notes).feeds()
            with self.recorder.phase("dataloader"):
                first = next(feeds)  # a wrong input is reported before any times
            fed = [it for it in self.infos if not it.optional or it.name in first.arrays]
            self.emit(events.Loaded(seconds, tuple(fed)))
        with explaining(driver, hint_at_sizes(self.infos, first.guessed)):
            self.prepare(first)
            if spec.warmup_iterations:
                self.warm_up(first)
            for rows in self.copies.tables:
                rows.end_warmup()
            if spec.iterations:
                self.emit(events.PhaseEntered("iterations"))
                if spec.scenario is not None:
                    batch = batch_of(first.fed, self.infos) or 1
                    served = self.copies.serve(spec.scenario, batch, context.work_folder)
                    self.emit(events.ScenarioEnded(served))
                elif turns is not None:
                    with no_garbage_collection():
                        for count in turns:
                            self.copies.run(count)
                            self.emit(events.TurnEnded())
                else:
                    self.iterate(chain([first], self.recorder.each_feed(feeds)))
            return self.finish()

    def prepare(self, first: NumberedFeed) -> None:
        """Feed the model for the first time."""
        if first.judge is not None:
            self.emit(events.CasesFound(first.judge.variables))
        self.emit(events.Fed(first.fed, (*self.driver.notes, *first.warnings)))
        self.driver.notes.clear()  # notes of later hooks are reported in the end
        self.batches.add(batch_of(first.fed, self.infos))
        self.emit(events.PhaseEntered("prepare"))
        seconds = self.copies.prepare(first.arrays)
        meter = self.copies.meters[0]
        noise = meter.sources if meter else NoiseSources()
        self.emit(events.Prepared(seconds, sources_of(self.driver), noise))

    def warm_up(self, first: NumberedFeed) -> None:
        """Run the iterations of the warm-up."""
        spec, stopping = self.spec, self.spec.stopping
        self.emit(events.PhaseEntered("warmup"))
        if len(spec.items) < len(spec.item_names):
            self.driver.run_number = None  # the earlier run of the data set has dumped its warm-up
        with self.recorder.warming_up():
            self.copies.run(spec.warmup_iterations, first.judge)
            if stopping.warmup_seconds is not None:
                self.copies.run(stopping.warmup_room, seconds=stopping.warmup_seconds)
            if stopping.settle:
                self.settled = warm_up(self.copies, WARMUP_SHARE * (stopping.max_seconds or 0))

    def iterate(self, feeds: Iterable[NumberedFeed]) -> None:
        """Run the timed iterations of each feed."""
        spec = self.spec
        # Garbage is collected once, before all feeds: once for each would take longer than some
        # runs.
        with no_garbage_collection():
            for number, feed in enumerate(feeds):
                if number:
                    self.batches.add(batch_of(feed.fed, self.infos))
                    fed = events.Fed(feed.fed if spec.cases else (), feed.warnings)
                    if fed.fed or fed.warnings:  # an empty event would only wake up the parent
                        self.emit(fed)
                    self.copies.prepare(feed.arrays, "input_copy")
                if spec.cases:
                    self.emit(events.CaseStarted(number))
                self.driver.run_number = spec.warmup_iterations + feed.number * spec.iterations
                if spec.stopping.is_open or spec.pacing.rate is not None:
                    self.stopped = replace(measure(self.copies, spec), settled=self.settled)
                    self.seconds = self.stopped.seconds
                else:
                    self.seconds = self.copies.run(spec.iterations, feed.judge)
                if feed.item is not None and spec.tell_classes:
                    from lar.datasets.classes import classes_of  # few runs need it

                    outputs = self.driver.outputs()
                    classes = classes_of(feed.item, outputs[next(iter(outputs))])
                    self.emit(events.Classified((classes,)))

    def finish(self) -> events.Finished:
        """Write the profile, close the drivers, and return the event with outputs and warnings."""
        from lar.measurement.machine import read_memory  # slow to import

        spec, driver = self.spec, self.driver
        self.emit(events.PhaseEntered("finish"))
        driver.fire_hooks("after_run")
        self.notes += driver.notes
        # The peak is read now, since writing the profile later takes more memory.
        peak = read_memory("VmHWM", "/proc/self/status")
        outputs: tuple[OutputSummary, ...] = ()
        if any(rows.count for rows in self.copies.tables):
            outputs = tuple(summarize_outputs(driver.outputs(), self.context.outputs_folder))
            differing = [*compare_runners(self.copies.drivers, outputs)]
            batch = self.batches.pop() if len(self.batches) == 1 else None
            # The outputs are summarised first: they may be gone after the profile is written.
            self.notes += [*self.recorder.write(batch), *differing]
        for each in self.copies.drivers:
            each.close()
        if self.stopped is not None:
            self.notes += warnings_of(self.stopped, spec)
        is_told = spec.runners > 1 or spec.pacing.rate is not None
        seconds, notes = self.seconds if is_told else None, tuple(self.notes)
        return events.Finished(
            outputs, peak, seconds, notes, driver.uncached_operators, self.stopped
        )


def warnings_of(stopped: Stopped, spec: RunSpec) -> Iterator[str]:
    """Yield a warning for each of the user's conditions that the measurement did not meet."""
    if stopped.settled is False:
        yield "the warm-up did not settle in a quarter of --max-time: the first times may be longer"
    if stopped.ending == "room":
        yield f"measuring ended after {stopped.seconds:.3g} s: there is no room for more iterations"
    if spec.stopping.target_interval is not None and not stopped.met:
        after = f"after {stopped.seconds:.3g} s"
        if stopped.reached is None:
            known = f"the samples were too few {after}"
        elif stopped.reached <= spec.stopping.target_interval:
            known = f"the interval was narrow enough only at the last look, {after}"
        else:
            median = "undisturbed median" if stopped.undisturbed else "median"
            known = f"the {median} was known to +-{100 * stopped.reached:.3g}% {after}"
        yield f"--target-ci {100 * spec.stopping.target_interval:g}% is not reached: {known}"
    if stopped.offered == 0:
        yield "no request arrived while measuring: measure for longer, or at a higher rate"
    rate, load = spec.pacing.rate, stopped.load
    if rate is not None and load is not None and load >= 1:
        left = f"; {stopped.unserved} of {stopped.offered} still waited in the end"
        yield (
            f"the queue grew: {rate:.10g} requests/s are asked for and {rate / load:.6g} can be "
            "served, so that waiting times depend on the length of the run"
        ) + (left if stopped.unserved else "")


def wait_and_copy(driver: Driver) -> Callable[[], object]:
    """Return a wait function that also copies the outputs to the host."""
    wait, copy = driver.wait, driver.recorder.noting_begin(driver, driver.copy_outputs)

    def wait_for_outputs() -> object:
        status = wait()
        if not is_failure(status):
            copy()
        return status

    return wait_for_outputs


def compare_runners(drivers: Sequence[Driver], outputs: Sequence[OutputSummary]) -> Iterator[str]:
    """Yield a warning for each runner whose outputs differ from the outputs of the first runner."""
    for runner, driver in enumerate(drivers[1:], start=1):
        pairs = zip(outputs, summarize_outputs(driver.outputs()), strict=True)
        if names := [ours.name for ours, theirs in pairs if ours != theirs]:
            yield f"runner {runner} gave another {', '.join(names)} than runner 0, bit by bit"


def sources_of(driver: Driver) -> TimeSources:
    """Return how the end-to-end, the host and the device time of a sample are measured."""
    copied = driver.spec.copy_outputs
    end_to_end = "dispatch, wait and copy of the outputs" if copied else "dispatch and wait"
    waited = "clock around dispatch or wait, whichever is longer"
    return TimeSources(
        end_to_end=f"clock around {end_to_end}",
        host="clock around dispatch",
        device=waited if driver.device_seconds is None else "engine",
    )


def summarize_outputs(outputs: Mapping[str, Any], folder: str = "") -> Iterator[OutputSummary]:
    """Yield a summary of each output; if a folder is given, also write each output into it.

    Only one output is in memory at a time. The files are named `000.npy`, `001.npy` and so on, in
    the order of outputs. Float types that NumPy lacks, such as bfloat16, are stored as float32,
    which holds all their values.
    """
    import hashlib

    import numpy as np

    from lar.inputs.dtypes import name_of, plain_array

    for number, name in enumerate(outputs):
        value = outputs[name]
        if isinstance(value, str):  # the reason why the output is no array
            yield OutputSummary(name=name, dtype=value, shape=())
            continue
        array = np.require(plain_array(value), requirements="C")
        if folder:
            os.makedirs(folder, exist_ok=True)
            np.save(os.path.join(folder, f"{number:03}.npy"), array)
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        figures: dict[str, float | None] = {}
        if finite.size and finite.dtype.kind in "biuf":
            mean = float(finite.mean(dtype=np.float64))
            figures = {"minimum": float(finite.min()), "maximum": float(finite.max())}
            figures["mean"] = mean if math.isfinite(mean) else None
        content = array
        if array.dtype.kind == "U":
            from lar.dumps.recording import bytes_of_texts  # slow to import, and few are texts

            content = bytes_of_texts(array)
        yield OutputSummary(
            name=name,
            dtype=name_of(value.dtype),
            shape=array.shape,
            nonfinite_count=array.size - finite.size,
            sha256=hashlib.sha256(content.data).hexdigest(),
            **figures,
        )
