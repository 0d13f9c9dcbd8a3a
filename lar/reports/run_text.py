"""The printed lines of a run: the lines of MegEngine's tool load_and_run, then lar's summary.

Testcases, classes of a data set, winograd algorithms and MLPerf's load generator have lines too.
The lines of load_and_run must not change, since scripts parse them. Times are milliseconds with
three decimals. An unknown time is `N/A`, never nan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from lar import __version__
from lar.engines import engine_named
from lar.errors import EXIT_CODES, count_of, one_line
from lar.measurement.rows import SampleRows
from lar.measurement.statistics import (
    PERCENTILES,
    Statistics,
    samples_for,
    statistics_of,
)
from lar.measurement.summary import accuracy_of, iterations_per_second, summarize, summarize_queue
from lar.options.table import LAYOUTS, PROFILE, PROFILE_HOST, WINOGRAD_TRANSFORM
from lar.records.events import (
    CasesFound,
    CaseStarted,
    EngineStarted,
    Event,
    Fed,
    Finished,
    Judged,
    Loaded,
    PhaseEntered,
    Prepared,
)
from lar.records.run import (
    AlgorithmChoice,
    ItemClasses,
    NumericError,
    RunResult,
    RunSpec,
    Scenario,
    ScenarioName,
    ScenarioResult,
    Verdict,
    error_of,
)
from lar.records.summary import Cause, Interval, QueueSummary, Summary

Times = tuple[float, float, float]  # the times of an iteration: end to end, host, device

# The lines of load_and_run on standard error about options that change the computation.
CHANGES = {
    **{
        layout.key: f"enable {layout.key.removeprefix('enable_')} optimization"
        for layout in LAYOUTS
    },
    WINOGRAD_TRANSFORM.key: "enable winograd transform",
}


@lru_cache(maxsize=8192)  # short iterations have few different times
def format_ms(seconds: float | None) -> str:
    """Format a time in milliseconds, without the unit."""
    return "N/A" if seconds is None or math.isnan(seconds) else f"{seconds * 1e3:.3f}"


def in_ms(seconds: float | None) -> str:
    """Format a time in milliseconds with its unit; an unknown time has no unit."""
    return "N/A" if seconds is None else f"{format_ms(seconds)}ms"


def format_event(event: Event, spec: RunSpec) -> str:
    """Return the line for an event; empty if the event has no line."""
    match event:
        case EngineStarted(engine):
            used = engine_named(engine.name).title, engine.version, f"({engine.driver})"
            line = f"lar {__version__}: using {' '.join(filter(None, used))}"
            kernels = engine.libraries.get("megdnn")
            return f"{line} and megdnn {kernels}" if kernels else line
        case Loaded(seconds, _):
            return f"load model: {format_ms(seconds)}ms"
        case Prepared(seconds, _):
            ahead = "; going to warmup" if spec.warmup_iterations else ""
            return f"=== prepare: {format_ms(seconds)}ms{ahead}"
        case CasesFound(variables):
            names = ", ".join(variables) or "none"
            return f"=== going to run {len(spec.cases)} testcases; output vars: {names}"
        case CaseStarted(number):
            return f"=== going to run test #{number} for {spec.iterations} times"
        case PhaseEntered("iterations") if not spec.cases:
            return f"=== going to run input {format_end(spec)}"
        case _:
            return ""


def format_end(spec: RunSpec) -> str:
    """Describe for how long, or how many times, the model is run."""
    stopping = spec.stopping
    if stopping.duration_seconds is not None:
        return f"for {stopping.duration_seconds:g} s"
    if stopping.target_interval is not None:
        return (
            f"until the median is known to +-{100 * stopping.target_interval:g}%, "
            f"for {stopping.max_seconds:g} s at most"
        )
    return f"for {spec.iterations * feeds_in(spec)} times"


def format_note(event: Event, spec: RunSpec) -> list[str]:
    """Return lar's own notes and warnings on an event."""
    if isinstance(event, EngineStarted):
        began = time.strftime("[%d %H:%M:%S lar][warn]")
        return [f"{began} {CHANGES[key]}" for key in spec.settings if key in CHANGES]
    if isinstance(event, Finished):
        return [one_line(f"lar: warning: {text}") for text in event.warnings]
    if not isinstance(event, Fed):
        return []
    generated = [fed for fed in event.fed if fed.generated]
    notes = [f"lar: warning: {text}" for text in event.warnings]
    if generated and not spec.inputs and not spec.cases:
        shapes = ", ".join(f"{fed.name} {fed.dtype} {fed.shape}" for fed in generated)
        notes.append(f"lar: note: no --input: data is generated ({generated[0].source}): {shapes}")
    return [one_line(note) for note in notes]


def format_rows(
    rows: Iterable[tuple[int, Times]], spec: RunSpec, runner: int = 0, warmups: int | None = None
) -> Iterator[str]:
    """Yield the line of each iteration; a row has the number and the times of an iteration.

    The first `warmups` iterations are the warm-up. By default, the spec gives the number of warm-up
    iterations.
    """
    warmups = spec.warmup_iterations if warmups is None else warmups
    whose, iterations = format_runner(runner, spec), max(1, spec.iterations)
    of = "" if spec.stopping.is_open else f"/{spec.iterations * feeds_in(spec)}"
    for index, (end_to_end, host, device) in rows:
        if index < warmups:
            yield f"warmup {index}: {format_ms(end_to_end)}ms{whose}"
            continue
        position, iteration = divmod(index - warmups, iterations)
        if spec.items:
            item = spec.items[position]
            iteration += item.number * spec.iterations
            whose = f" {item.name}"
        yield (
            f"iter {iteration}{of}: {format_ms(end_to_end)}ms "
            f"(exec={format_ms(host)},device={format_ms(device)}){whose}"
        )


def feeds_in(spec: RunSpec) -> int:
    """Return the number of items of the data set; 1 if the run has no data set."""
    return max(1, len(spec.item_names))


def format_runner(runner: int, spec: RunSpec) -> str:
    """Return the name of a runner for the end of a line; empty if the run has only one runner."""
    return f" [runner {runner}]" if spec.runners > 1 else ""


def format_finish(result: RunResult) -> list[str]:
    """Return the line that ends a test for each runner; empty if no iteration was timed.

    Scripts take the line `=== finished test` as a sign that the test ended. If the engine failed,
    the line `=== finished test` is missing. If the user interrupted the run, the line has the
    figures so far.
    """
    if result.status not in ("ok", "interrupted"):
        return []
    lines = []
    for runner in range(result.spec.runners):
        statistics: Statistics | Summary | None = result.summary
        if statistics is None or result.samples.runner:
            statistics = statistics_of(result.samples.of_runner(runner).end_to_end)
        if statistics is not None:
            lines.append(format_finished(0, statistics) + format_runner(runner, result.spec))
    return lines


def format_finished(number: int, statistics: Statistics | Summary) -> str:
    """Return the line with which load_and_run ends a test, with the test's times."""
    return (
        f"=== finished test #{number}: time={format_ms(statistics.count * statistics.mean)}ms "
        f"avg_time={format_ms(statistics.mean)}ms "
        f"sd={in_ms(statistics.standard_deviation)} "
        f"minmax={format_ms(statistics.minimum)},{format_ms(statistics.maximum)}"
    )


def format_summary(result: RunResult) -> list[str]:
    """Return lar's own lines, which follow the lines of load_and_run."""
    summary = result.summary or summarize(result)
    lines = []
    if summary is not None:
        lines += format_trust(summary)
        lines += [format_distribution(summary, result.spec)]
        lines += format_queue(result) or [format_throughput(result)]
        lines += format_stopped(result)
    if result.peak_memory_bytes is not None:
        lines.append(f"peak memory: {result.peak_memory_bytes / 2**20:.1f} MiB")
    lines += format_profile(result)
    if summary is not None:
        lines += [*format_disturbance(summary), *format_missing(result)]
    done = len(result.samples.end_to_end)
    if result.status != "ok" and done:
        lines.append(f"note: {count_of(done, 'iteration')} {'was' if done == 1 else 'were'} run")
    lines += [
        f"warning: output {output.name} holds "
        f"{count_of(output.nonfinite_count, 'NaN or infinite value')}"
        for output in result.outputs
        if output.nonfinite_count
    ]
    return lines


def format_profile(result: RunResult) -> list[str]:
    """Return a line with the profile's file and the cost of profiling; empty for a plain run."""
    settings = result.spec.settings
    place = PROFILE.of(settings) or PROFILE_HOST.of(settings)
    if not place or result.status != "ok":
        return []
    from lar.profiles.costs import cost_of  # few runs are profiled

    cost = cost_of(result.profiled, result.samples)
    if cost is None:
        return [f"profile: {place}"]
    timed, plain = cost.calm
    change = f"{100 * (timed / plain - 1) if plain else 0.0:+.1f}%"
    return [
        f"profile: {place}; {format_ms(timed)}ms with the profiler, {format_ms(plain)}ms without "
        f"({'too disturbed to say what it cost' if cost.disturbed else change})"
    ]


def format_stopped(result: RunResult) -> list[str]:
    """Return a line on a run that was ended by a time limit or a reached precision; else empty."""
    stopped = result.stopped
    if stopped is None or stopped.ending not in ("duration", "target"):
        return []
    done = len(result.samples.end_to_end)
    line = f"measured: {count_of(done, 'iteration')} in {stopped.seconds:.3f} s"
    if stopped.reached is not None:
        line += f"; the median is known to +-{100 * stopped.reached:.3g}%"
    return [line]


def format_queue(result: RunResult) -> list[str]:
    """Return the figures of a run whose requests arrive at a set rate; empty for other runs."""
    queue = summarize_queue(result)
    if queue is None:
        return []
    line = f"load: {queue.offered_per_second:.10g} requests/s asked for"
    if queue.arrived_per_second is not None:
        line += f", {queue.arrived_per_second:.3f} arrived"
    if queue.served_per_second is not None:
        line += f", {queue.served_per_second:.3f} served"
    return [
        f"waiting: {format_queued(queue, 'waiting')}",
        f"latency from arrival: {format_queued(queue, 'latency')}",
        line,
    ]


def format_queued(queue: QueueSummary, key: str) -> str:
    """Return the figures of the requests' `waiting` or `latency` as text."""
    figures = {name: getattr(queue, f"{key}_{name}") for name in ("mean", "median")}
    figures |= {f"p{rank:g}": value for rank, value in getattr(queue, f"{key}_percentiles").items()}
    figures["max"] = getattr(queue, f"{key}_maximum")
    return " ".join(f"{name}={format_ms(value)}ms" for name, value in figures.items())


def format_throughput(result: RunResult) -> str:
    """Return the line of the throughput: the iterations per second of all runners."""
    rate, runners = iterations_per_second(result), result.spec.runners
    if not rate:
        return "throughput: N/A"
    over = f" over {runners} runners" if runners > 1 else ""
    pauses = ", pauses between iterations included" if over and result.iterations_seconds else ""
    return f"throughput: {rate:.3f} iterations/s{over}{pauses}"


def format_trust(summary: Summary) -> list[str]:
    """Return a line on which figure to trust and why; empty if the latency can be trusted.

    The line on trust is printed first, since the figure that is read first must be right.
    """
    verb = "was" if summary.disturbed_count == 1 else "were"
    count = f"{summary.disturbed_count} of {count_of(summary.count, 'iteration')} {verb} disturbed"
    cpu = format_median(summary.cpu_median)
    match summary.trust:
        case "undisturbed latency":
            median = format_median(summary.undisturbed_median, summary.undisturbed_interval)
            return [f"note: trust the undisturbed {median} (CPU time: {cpu}): {count}"]
        case "cpu":
            return [f"note: trust the CPU time, {cpu}, not the latency: {count}"]
        case "nothing":
            return [f"note: trust neither the latency nor the CPU time, {cpu}: {count}"]
    return []


def format_median(median: float | None, interval: Interval | None = None) -> str:
    """Return a median as text, with its interval if this is known."""
    text = f"median={in_ms(median)}"
    if median is None or interval is None:
        return text
    return f"{text} interval={format_ms(interval.low)},{format_ms(interval.high)}ms"


def format_distribution(statistics: Summary, spec: RunSpec) -> str:
    """Return the line of latencies: minimum, median and percentiles.

    If there are too few samples for a percentile, the line has the needed number of iterations
    instead.
    """
    title = "latency" if spec.pacing.rate is None else "service time"
    median = format_median(statistics.median, statistics.interval)
    figures = [f"min={format_ms(statistics.minimum)}ms", median]
    figures += [f"p{rank:g}={format_ms(value)}ms" for rank, value in statistics.percentiles.items()]
    missing = [
        rank for rank in spec.percentiles or PERCENTILES if rank not in statistics.percentiles
    ]
    needs = ", ".join(f"p{rank:g} needs {samples_for(rank)}" for rank in missing)
    return f"{title}: " + " ".join(figures) + (f" ({needs} iterations)" if needs else "")


CAUSES: Mapping[Cause, str] = {
    "queue delay": "waited for a CPU that other work held",
    "steal": "lost time to other guests of the host",
    "throttling": "were throttled",
    "frequency": "ran at a lower frequency than the others",
    "slow core": "ran on a core that others slowed down",
}


def format_disturbance(summary: Summary) -> list[str]:
    """Return a line on the causes that disturbed iterations; empty without disturbances."""
    parts = (f"{count} {CAUSES[cause]}" for cause, count in summary.disturbed.items())
    return [f"note: disturbed iterations: {'; '.join(parts)}"] if summary.disturbed_count else []


def format_missing(result: RunResult) -> list[str]:
    """Return a line that names the disturbances which this machine cannot detect."""
    sources = vars(result.noise_sources) if result.noise_sources else {}
    missing = [key.replace("_", " ") for key, it in sources.items() if not it and key != "probe"]
    return [f"note: not seen on this machine: {', '.join(missing)}"] if missing else []


def format_last_words(result: RunResult) -> list[str]:
    """Return the last output of an engine that crashed or timed out; empty for other runs."""
    broken = {EXIT_CODES["crashed"], EXIT_CODES["timed_out"]}
    if result.failure is None or result.failure.exit_code not in broken or not result.log_tail:
        return []
    lines = (one_line(line) for line in result.log_tail.splitlines())
    return ["the engine's last words:", *(f"  | {line}" for line in lines)]


class CaseLines:
    """Makes the lines of testcases; an iteration's line follows the lines of its assertions."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.waiting: list[tuple[int, Times]] = []
        self.times: list[list[float]] = [[] for _ in spec.cases]

    def add(self, rows: SampleRows, first: int, last: int) -> None:
        """Add the rows from `first` to `last` - 1 to the rows whose lines are not printed yet."""
        self.waiting += zip(range(first, last), rows.times(first, last), strict=True)

    def take(self, judged: Judged) -> list[str]:
        """Return the lines with an iteration's verdicts, then the line with its times.

        The closing lines of a test follow if the iteration is the last of the test.
        """
        lines = [format_verdict(verdict) for verdict in judged.verdicts if verdict.shown]
        return lines + (self.take_row() if self.waiting else [])

    def take_row(self) -> list[str]:
        """Return the line of the first waiting row.

        If the row is the last of a test, the last lines of the test follow.
        """
        index, row = self.waiting.pop(0)
        lines = [*format_rows([(index, row)], self.spec)]
        iteration = index - self.spec.warmup_iterations
        if iteration >= 0:
            number = iteration // self.spec.iterations
            self.times[number].append(row[0])
            if len(self.times[number]) == self.spec.iterations:
                lines += self.end_test(number)
        return lines

    def end_test(self, number: int) -> list[str]:
        """Return the line that ends a test, and an empty line."""
        statistics = statistics_of(self.times[number])
        return [format_finished(number, statistics), ""] if statistics else []

    def finish(self, result: RunResult) -> list[str]:
        """Return the last lines of an ended run: iterations without a verdict, and totals."""
        lines = []
        while self.waiting:
            lines += self.take_row()
        if result.status in ("ok", "interrupted"):
            for number, times in enumerate(self.times):
                if 0 < len(times) < self.spec.iterations:
                    lines += self.end_test(number)
            lines.append(f"=== total time: {format_ms(sum(sum(times) for times in self.times))}ms")
        return lines + format_cases(result)


def format_verdict(verdict: Verdict) -> str:
    """Return the line that load_and_run prints for an assertion."""
    return f"assertequal: err={error_of(verdict):g} (name={verdict.name} id={verdict.id})"


def format_cases(result: RunResult) -> list[str]:
    """Return a line on how many testcases gave the expected outputs; empty without comparisons."""
    judged = [case for case in result.cases if case.passed is not None]
    if not judged:
        return []
    passed, left = sum(bool(case.passed) for case in judged), len(result.spec.cases) - len(judged)
    largest = max(error_of(verdict) for case in judged for verdict in case.verdicts)
    return [
        f"testcases: {passed} of {len(judged)} as expected, largest err={largest:g}"
        + (f"; {left} not compared" if left else "")
    ]


def format_classes(item: ItemClasses, spec: RunSpec) -> str:
    """Return the line of an item of a data set, with its best classes."""
    if not item.classes:
        return f"{item.name}: the first output has no classes"
    best, others = item.classes[0], " ".join(map(str, item.classes))
    name = f" {spec.class_names[best]}" if best < len(spec.class_names) else ""
    right = "" if item.label is None else f", is {item.label}"
    return f"{item.name}: top-1 {best}{name} ({item.scores[0]:.4g}), top-5 {others}{right}"


def format_accuracy(result: RunResult) -> list[str]:
    """Return a line on how often the right class is the best, or among the best five.

    If no item has a label, the line says that the file of `--labels` was read as names of classes.
    """
    count, first, five = accuracy_of(result.items)
    if not count:
        names = len(result.spec.class_names)
        return [f"note: --labels: its {names} lines are the names of classes"] if names else []
    left = len(result.spec.item_names) - count
    return [
        f"accuracy: top-1 {first / count:.2%} ({first} of {count}), "
        f"top-5 {five / count:.2%} ({five} of {count})"
        + (f"; {count_of(left, 'unfinished item')} skipped" if left else "")
    ]


def format_algorithms(result: RunResult) -> list[str]:
    """Return the lines about winograd; empty if winograd was not requested."""
    if not result.algorithms:
        return []
    chosen = [choice for choice in result.algorithms if choice.winograd]
    # The engine reports each kind of convolution once, even if several operators are of this kind.
    counts = f"winograd: {len(chosen)} of {count_of(len(result.algorithms), 'kind')} of convolution"
    return [
        counts,
        *map(format_numeric_error, result.numeric_errors),
        *map(format_choice, chosen),
    ]


def format_numeric_error(error: NumericError) -> str:
    """Return the line on how much an output differs with winograd."""
    found = "NaN or infinite values in one run alone"
    if error.absolute is not None:
        found = f"at most {error.absolute:.3g}, relative {error.relative:.3g}"
    return f"error of winograd in {error.output}: {found}"


def format_choice(choice: AlgorithmChoice) -> str:
    """Return the line of a convolution, with the times that the search measured."""
    text = f"  {choice.winograd} {in_ms(choice.seconds)}"
    if choice.other_algorithm:
        text += f", {choice.other_algorithm} {in_ms(choice.other_seconds)}"
    return f"{text}: {choice.operator} {choice.shapes}"


NANOSECONDS = 1e-9


class Metric(NamedTuple):
    """The figure by which MLPerf compares systems, and its name in LoadGen's log."""

    title: str
    key: str
    is_latency: bool


METRICS: dict[ScenarioName, Metric] = {
    "single-stream": Metric("p90 of the latency", "result_90.00_percentile_latency_ns", True),
    "multi-stream": Metric(
        "p99 of the latency of a query", "result_99.00_percentile_per_query_latency_ns", True
    ),
    "offline": Metric("throughput", "result_samples_per_second", False),
    "server": Metric("throughput, as scheduled", "result_scheduled_samples_per_sec", False),
}

SCENARIO_PERCENTILES = (50, 90, 95, 97, 99)
QUERY_COUNT = "result_query_count"


def format_scenario(result: RunResult) -> list[str]:
    """Return the lines about an ended run of MLPerf's load generator; empty for any other run."""
    scenario, found = result.spec.scenario, result.scenario
    if scenario is None or found is None:
        return []
    return [
        f"scenario: {describe_scenario(scenario)}; MLPerf LoadGen {found.version}",
        *format_figures(scenario, found),
        f"result: {'valid' if found.valid else 'INVALID'} by LoadGen's rules",
        *(f"  {one_line(reason)}" for reason in found.reasons),
    ]


def describe_scenario(scenario: Scenario) -> str:
    """Return the requested scenario in a few words."""
    parts = [
        scenario.name,
        f"at least {scenario.min_seconds:g} s and {scenario.min_queries} queries",
    ]
    if scenario.name == "multi-stream":
        parts.append(f"{scenario.samples_per_query} samples a query")
    if scenario.name == "server":
        parts.append(f"{scenario.target_rate:g} queries/s")
        parts.append(f"each within {format_ms(scenario.target_latency_seconds)}ms")
    return ", ".join(parts)


def format_figures(scenario: Scenario, found: ScenarioResult) -> Iterator[str]:
    """Yield lines with the figure that MLPerf compares, and with the latencies."""
    metric = METRICS[scenario.name]
    value = found.figures.get(metric.key)
    if value is None:
        yield f"{metric.title}: N/A"
    elif metric.is_latency:
        yield f"{metric.title}: {format_ms(value * NANOSECONDS)}ms"
    else:
        yield f"{metric.title}: {value:.3f} samples/s"
    if scenario.name == "offline":
        return  # all samples are one query, with the latency of the whole run
    count = found.figures.get(QUERY_COUNT, 0.0)
    infix = "_per_query" if scenario.name == "multi-stream" else ""
    figures = (
        f"p{rank}={format_ms(found.figures[key] * NANOSECONDS)}ms"
        for rank in SCENARIO_PERCENTILES
        if (key := f"result_{rank}.00_percentile{infix}_latency_ns") in found.figures
        and count >= samples_for(rank)
    )
    yield f"latency from the query's arrival: {' '.join(figures)}"
