"""Results that are kept: they are read from files, grouped and compared.

This module has the facts about a result, by which lar finds, groups and distinguishes results. This
module also chooses the figure of a table: the kind of times that the table compares, which is the
latency or the CPU time.

A ratio of one run's latency to another run's CPU time says nothing. All runs of one table are
therefore compared by one figure: the latency or the CPU time. If the latency of each run can be
trusted, the figure is the latency. Otherwise, if each run's CPU time equals the run's latency on a
quiet machine, the figure is the CPU time. In all other cases, the table compares latencies, and lar
gives no verdict on runs whose latency cannot be trusted. Median, minimum and items per second are
computed from the same undisturbed iterations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from lar.measurement.statistics import disturbed_in, percentile_of
from lar.measurement.summary import (
    cpu_is_latency,
    in_turn,
    items_in_iteration,
    iterations_per_second,
    summarize,
)
from lar.options import table
from lar.options.option import flag_of
from lar.records.run import RunResult
from lar.records.summary import Summary, Trust

if TYPE_CHECKING:
    from lar.records.run import MachineFacts, RunSpec


Figure = Literal["latency", "CPU time"]
CALM_SHARE = 0.1  # the largest share of disturbed iterations of a calm run


@dataclass(frozen=True)
class Run:
    """A run, with its times of the kind that the table compares.

    If `trust` is "nothing", the run has the times of all iterations, and no verdict uses these
    times.
    """

    result: RunResult
    times: Sequence[float]
    trust: Trust
    disturbed_count: int

    @cached_property
    def median(self) -> float | None:
        """The median of the times, or None if the run has no times or the median is 0."""
        return (percentile_of(sorted(self.times), 50) or None) if self.times else None

    @property
    def sample_count(self) -> int:
        return len(self.result.samples.end_to_end)

    @property
    def is_trusted(self) -> bool:
        """Whether the run's times can show a difference."""
        return self.trust != "nothing" and self.median is not None

    @cached_property
    def iterations_per_second(self) -> float | None:
        """The iterations of all runners per second, computed from the run's times."""
        every, total = iterations_per_second(self.result), math.fsum(self.times)
        if every is None or not total or self.result.spec.pacing.rate is not None:
            return every
        whole = math.fsum(self.result.samples.end_to_end)
        return every * (whole / self.sample_count) / (total / len(self.times))

    @property
    def items_per_second(self) -> float | None:
        """The items per second, or None if the batch size is not known."""
        rate, items = self.iterations_per_second, items_in_iteration(self.result)
        return rate * items if rate and items else None


def figure_of(results: Sequence[RunResult]) -> tuple[Figure, list[Run]]:
    """Return the kind of times to compare in a table of results, and the `Run` of each result."""
    known = [(result, result.summary or summarize(result)) for result in results]
    timed = [(result, summary) for result, summary in known if summary]
    has_latency = all(has_trusted_latency(summary) for _, summary in timed)
    has_cpu_time = all(has_trusted_cpu_time(*each) for each in timed)
    figure: Figure = "CPU time" if has_cpu_time and not has_latency else "latency"
    return figure, [run_of(result, summary, figure) for result, summary in known]


def has_trusted_latency(summary: Summary) -> bool:
    return summary.trust in ("latency", "undisturbed latency")


def has_trusted_cpu_time(result: RunResult, summary: Summary) -> bool:
    return bool(summary.cpu_median) and (summary.trust == "cpu" or cpu_is_latency(result))


def run_of(result: RunResult, summary: Summary | None, figure: Figure) -> Run:
    """Return the `Run` of a result, with the times of the kind `figure`."""
    samples = result.samples
    if summary is None:
        return Run(result, (), "nothing", 0)
    times: Sequence[float] = samples.end_to_end
    trust = summary.trust if has_trusted_latency(summary) else "nothing"
    if figure == "CPU time":
        times, trust = [each for each in samples.busiest_thread if each is not None], "cpu"
    elif trust == "undisturbed latency":
        times = in_turn(samples, disturbed_in(samples))
    return Run(result, times, trust, summary.disturbed_count)


def is_calm(runs: Iterable[Run]) -> bool:
    """Return whether the known share of disturbed iterations is small in every run."""
    return all(run.disturbed_count <= CALM_SHARE * run.sample_count for run in runs)


# The facts that `--by` may name, in the order of the columns; `option` stands for all options.
NAMES = ("model", "machine", "engine", "version", "driver", "device", "option", "input")

# The flags of cache files.
CACHES = frozenset(option.flag for option in table.OPTIONS if option.purpose == "cache")


class NamedResult(NamedTuple):
    """A result, its name in tables, its file, and the user's name for the file.

    If a result does not name its machine, the user's name for the file is used as the name of the
    machine.
    """

    name: str
    result: RunResult
    path: str = ""
    given_name: str = ""


def facts_of(result: RunResult, machine: str = "") -> dict[str, str]:
    """Return the facts of a result by name; the name of an option is its flag.

    An unknown fact is an empty text. If the result does not describe its machine, the argument
    `machine` is used.
    """
    spec, engine = result.spec, result.engine
    return {
        "model": os.path.basename(spec.model),
        "machine": describe_machine(result.machine) if result.machine else machine,
        "engine": spec.engine,
        "version": engine.version if engine else "",
        "driver": spec.driver,
        "device": spec.device,
        **options_of(spec),
        "input": "; ".join(spec.inputs),
    }


def describe_machine(machine: MachineFacts) -> str:
    """Return the processor, the cores that may be used, and the memory."""
    if not machine.cores:  # named by hand
        return machine.processor
    usable = "" if machine.usable_cores == machine.cores else f"{machine.usable_cores} of "
    size = [] if machine.memory_bytes is None else [f"{machine.memory_bytes / 2**30:.0f} GiB"]
    return ", ".join([machine.processor, f"{usable}{machine.cores} cores", *size])


def options_of(spec: RunSpec) -> dict[str, str]:
    """Return the options that decide how fast a run is, by flag; a switch has the value `yes`.

    If an option names a file that is only written, its value is `yes`, since the file's path does
    not matter.
    """
    pacing = spec.pacing
    pairs = (f"{key}={value}" for key, value in sorted(spec.environment.items()))
    idle = pacing.idle_seconds
    others = {
        table.BATCH_SIZE.flag: spec.batch_size,
        table.SHAPE.flag: ",".join(f"{axis}={size}" for axis, size in spec.shape.items()),
        table.COPY_TO_HOST.flag: "yes" if spec.copy_outputs else "",
        table.IDLE_MS.flag: "" if idle is None else f"{1e3 * idle:g}",
        table.RATE.flag: f"{pacing.rate:g}" if pacing.rate else "",
        table.ARRIVALS.flag: pacing.arrivals if pacing.rate else "",
        "--scenario": spec.scenario.name if spec.scenario else "",
        table.PYTHON.flag: spec.python,
        table.ENGINE_ENV.flag: " ".join(pairs),
    }
    return {
        **{flag_of(key): text_of(key, value) for key, value in sorted(spec.settings.items())},
        **{flag: str(value) for flag, value in others.items() if value},
    }


def fed_shapes(result: RunResult) -> str:
    """Return the shapes of a run's inputs, empty if they are not known."""
    return ", ".join(
        f"{fed.name} {fed.dtype} {'x'.join(map(str, fed.shape))}" for fed in result.fed
    )


def text_of(key: str, value: object) -> str:
    option = table.BY_KEY.get(key)
    text = str(value).replace("\n", " ")  # of an option that is given several times
    return "yes" if value is True or (option and option.writes) else text


def is_option(name: str) -> bool:
    """Return whether a fact is an option."""
    return name.startswith("--")


def describe_options(facts: Mapping[str, str]) -> str:
    """Return the options among facts as the user would type them; empty if no fact is an option."""
    return " ".join(
        name if value == "yes" else f"{name} {value}"
        for name, value in facts.items()
        if is_option(name) and value and name != table.INPUT.flag
    )


def describe_kind_of_options(facts: Mapping[str, str]) -> str:
    """Return the options that runs of one kind share, without the paths of caches."""
    return describe_options(
        {name: "yes" if name in CACHES and value else value for name, value in facts.items()}
    )
