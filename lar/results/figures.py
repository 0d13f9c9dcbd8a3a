"""The figure of a table: the times that stand for each run, chosen for all runs together.

A ratio of one run's latency to another's CPU time says nothing. So all runs of a table have the
same figure: the latency if each run's can be trusted, else the CPU time if that is each run's
latency on a quiet machine. Otherwise it is the latency, and runs whose latency cannot be trusted
are not judged. Median, minimum and items in a second are of the same iterations: the undisturbed
ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

from lar.measurement.statistics import disturbed_in, percentile_of
from lar.measurement.summary import (
    cpu_is_latency,
    in_turn,
    items_in_iteration,
    iterations_per_second,
    summarize,
)
from lar.records.run import RunResult
from lar.records.summary import Summary, Trust

Figure = Literal["latency", "CPU time"]

CALM_SHARE = 0.1  # the part of disturbed iterations, at most


@dataclass(frozen=True)
class Run:
    """One run, and its times of the table's figure.

    With the trust "nothing" these are the times of all iterations, and decide nothing.
    """

    result: RunResult
    times: Sequence[float]
    trust: Trust
    disturbed_count: int

    @cached_property
    def median(self) -> float | None:
        """The median of its times, None without any or if they took no time."""
        return (percentile_of(sorted(self.times), 50) or None) if self.times else None

    @property
    def sample_count(self) -> int:
        return len(self.result.samples.end_to_end)

    @property
    def is_watched(self) -> bool:
        """Whether disturbances were looked for."""
        samples = self.result.samples
        return any(each is not None for each in chain(samples.queue_delay, samples.steal))

    @property
    def is_trusted(self) -> bool:
        """Whether its times can show a difference."""
        return self.trust != "nothing" and self.median is not None

    @cached_property
    def iterations_per_second(self) -> float | None:
        """The iterations of all runners in a second, by the times that stand for the run."""
        every, total = iterations_per_second(self.result), math.fsum(self.times)
        if every is None or not total or self.result.spec.pacing.rate is not None:
            return every
        whole = math.fsum(self.result.samples.end_to_end)
        return every * (whole / self.sample_count) / (total / len(self.times))

    @property
    def items_per_second(self) -> float | None:
        """Its items in a second, None if the batch is not known."""
        rate, items = self.iterations_per_second, items_in_iteration(self.result)
        return rate * items if rate and items else None


def figure_of(results: Sequence[RunResult]) -> tuple[Figure, list[Run]]:
    """Return the figure of a table of these results, and the run of each."""
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
    """Return a run with its times of the figure."""
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
    """Return whether hardly any iteration was disturbed, as far as known."""
    return all(run.disturbed_count <= CALM_SHARE * run.sample_count for run in runs)
