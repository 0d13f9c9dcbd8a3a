"""The printed lines of a run: load_and_run's own, then lar's summary.

The first are a contract: scripts parse them. Milliseconds with three decimals; what is not
known is `N/A`, never nan.
"""

from __future__ import annotations

import math

from lar import __version__
from lar.engines import engine_named
from lar.errors import EXIT_CODES, printable
from lar.measurement.statistics import (
    PERCENTILES,
    Statistics,
    disturbed_of,
    samples_for,
    statistics_of,
)
from lar.options.table import PROFILE, PROFILE_HOST
from lar.records.events import (
    CasesFound,
    CaseStarted,
    EngineStarted,
    Event,
    Fed,
    Finished,
    Loaded,
    PhaseEntered,
    Prepared,
)
from lar.records.run import RunResult, RunSpec


def format_ms(seconds: float | None) -> str:
    """Format a time in milliseconds, without the unit."""
    return "N/A" if seconds is None or math.isnan(seconds) else f"{seconds * 1e3:.3f}"


def format_event(event: Event, spec: RunSpec) -> str:
    """Return the line that an event makes, empty for none."""
    match event:
        case EngineStarted(engine):
            title = engine_named(engine.name).title
            return f"lar {__version__}: using {title} {engine.version} ({engine.driver})"
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
            return f"=== going to run input for {spec.iterations * feeds_in(spec)} times"
        case _:
            return ""


def format_note(event: Event, spec: RunSpec) -> list[str]:
    """Return what the user should know about an event besides the contract's lines."""
    if isinstance(event, Finished):
        return [printable(f"lar: warning: {text}") for text in event.warnings]
    if not isinstance(event, Fed):
        return []
    generated = [fed for fed in event.fed if fed.generated]
    notes = [f"lar: warning: {text}" for text in event.warnings]
    if generated and not spec.inputs and not spec.cases:
        shapes = ", ".join(f"{fed.name} {fed.dtype} {fed.shape}" for fed in generated)
        notes.append(f"lar: note: no --input: data is generated ({generated[0].source}): {shapes}")
    return [printable(note) for note in notes]


def format_row(
    index: int, row: tuple[float, float, float, float], spec: RunSpec, runner: int = 0
) -> str:
    """Return the line of one iteration; the first rows are the warm-up's."""
    end_to_end, host, device, _ = row
    whose = format_runner(runner, spec)
    if index < spec.warmup_iterations:
        return f"warmup {index}: {format_ms(end_to_end)}ms{whose}"
    position, iteration = divmod(index - spec.warmup_iterations, max(1, spec.iterations))
    if spec.items:
        item = spec.items[position]
        iteration += item.number * spec.iterations
        whose = f" {printable(item.name)}"
    return (
        f"iter {iteration}/{spec.iterations * feeds_in(spec)}: {format_ms(end_to_end)}ms "
        f"(exec={format_ms(host)},device={format_ms(device)}){whose}"
    )


def feeds_in(spec: RunSpec) -> int:
    """Return how many feeds the iterations are counted over: the items of a data set."""
    return max(1, len(spec.item_names))


def format_runner(runner: int, spec: RunSpec) -> str:
    """Return the end of a line that names its runner, empty if there is only one."""
    return f" [runner {runner}]" if spec.runners > 1 else ""


def format_finish(result: RunResult) -> list[str]:
    """Return the line that ends a test, one for each runner, none when nothing was timed.

    Scripts take the line for a test that ended, so a run that the engine broke has none; one
    that the user ended prints what was measured.
    """
    if result.status not in ("ok", "interrupted"):
        return []
    lines = []
    for runner in range(result.spec.runners):
        statistics = statistics_of(result.samples.of_runner(runner).end_to_end)
        if statistics is not None:
            lines.append(format_finished(0, statistics) + format_runner(runner, result.spec))
    return lines


def format_finished(number: int, statistics: Statistics) -> str:
    """Return the line that ends a test."""
    deviation = statistics.standard_deviation
    return (
        f"=== finished test #{number}: time={format_ms(statistics.total)}ms "
        f"avg_time={format_ms(statistics.mean)}ms "
        f"sd={format_ms(deviation)}{'ms' if deviation is not None else ''} "
        f"minmax={format_ms(statistics.minimum)},{format_ms(statistics.maximum)}"
    )


def format_summary(result: RunResult) -> list[str]:
    """Return lar's own lines after the contract's."""
    statistics = statistics_of(result.samples.end_to_end)
    lines = []
    if statistics is not None:
        lines.append(format_distribution(statistics))
        lines.append(format_throughput(result))
    if result.peak_memory_bytes is not None:
        lines.append(f"peak memory: {result.peak_memory_bytes / 2**20:.1f} MiB")
    lines += [*format_profile(result), *format_disturbance(result)]
    done = len(result.samples.end_to_end)
    asked = result.spec.sample_count - result.spec.warmup_iterations
    asked *= result.spec.runners
    if result.status != "ok" and done:
        lines.append(f"note: {done} of {asked} iterations were run")
    lines += [
        f"warning: output {output.name} holds {output.nonfinite_count} NaN or infinite values"
        for output in result.outputs
        if output.nonfinite_count
    ]
    return lines


def format_profile(result: RunResult) -> list[str]:
    """Return where the profile is and what profiling cost; empty for a run without a profile."""
    settings = result.spec.settings
    place = PROFILE.of(settings) or PROFILE_HOST.of(settings)
    if not place or result.status != "ok":
        return []
    timed = statistics_of(result.samples.end_to_end)
    plain = statistics_of(result.unprofiled.end_to_end)
    if timed is None or plain is None:
        return [f"profile: {place}"]
    change = 100 * (timed.median / plain.median - 1) if plain.median else 0.0
    return [
        f"profile: {place}; median {format_ms(timed.median)}ms with the profiler, "
        f"{format_ms(plain.median)}ms without ({change:+.1f} %)"
    ]


def format_throughput(result: RunResult) -> str:
    """Return the iterations of all runners in a second.

    With several runners it is their number over the time that all took together, or, where that
    is not known, the sum of what each reached.
    """
    samples, runners = result.samples, result.spec.runners
    if runners > 1 and result.iterations_seconds:
        rate = len(samples.end_to_end) / result.iterations_seconds
    else:
        times = [samples.of_runner(runner).end_to_end for runner in range(runners)]
        rate = sum(len(each) / total for each in times if (total := math.fsum(each)) > 0)
    if not rate:
        return "throughput: N/A"
    return f"throughput: {rate:.3f} iterations/s" + (
        f" over {runners} runners" if runners > 1 else ""
    )


def format_distribution(statistics: Statistics) -> str:
    """Return the percentiles that the number of samples supports, and what the others need."""
    figures = [f"min={format_ms(statistics.minimum)}ms", f"median={format_ms(statistics.median)}ms"]
    figures += [f"p{rank}={format_ms(value)}ms" for rank, value in statistics.percentiles.items()]
    missing = [rank for rank in PERCENTILES if rank not in statistics.percentiles]
    needs = ", ".join(f"p{rank} needs {samples_for(rank)}" for rank in missing)
    return "latency: " + " ".join(figures) + (f" ({needs} iterations)" if needs else "")


def format_disturbance(result: RunResult) -> list[str]:
    """Return a line if iterations stood waiting for a CPU."""
    samples = result.samples
    disturbed = disturbed_of(samples.end_to_end, samples.queue_delay)
    if not disturbed:
        return []
    longest = max(samples.queue_delay[index] or 0.0 for index in disturbed)
    return [
        f"note: {len(disturbed)} of {len(samples.end_to_end)} iterations were disturbed: "
        f"their threads waited up to {format_ms(longest)}ms for a CPU that other work held"
    ]


def format_last_words(result: RunResult) -> list[str]:
    """Return the engine's last lines, for a run that it broke."""
    failure = result.failure
    broke = failure is not None and failure.exit_code in (
        EXIT_CODES["crashed"],
        EXIT_CODES["timed_out"],
    )
    if not broke or not result.log_tail:
        return []
    lines = (printable(line) for line in result.log_tail.splitlines())
    return ["the engine's last words:", *(f"  | {line}" for line in lines)]
