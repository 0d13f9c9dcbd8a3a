"""A row of a table of results: runs, and the figures that stand for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from lar.measurement.differences import compare_pairs
from lar.measurement.intervals import median_interval
from lar.measurement.statistics import median_of_known, statistics_of
from lar.records.run import RunResult
from lar.records.summary import Difference, Interval
from lar.results.figures import Run


@dataclass(frozen=True, kw_only=True)
class Row:
    """The runs of a row of the table, and the facts about them.

    `difference` is from the `baseline`, another row; None if one of the two has no trusted run.
    """

    name: str
    facts: Mapping[str, str]
    runs: tuple[Run, ...]
    baseline: str = ""
    ratio: float | None = None
    difference: Difference | None = None

    @property
    def results(self) -> tuple[RunResult, ...]:
        return tuple(run.result for run in self.runs)

    @cached_property
    def timed(self) -> tuple[Run, ...]:
        """The runs that its figures are made of: those that can show a difference.

        If there are none, they are all runs whose samples took time.
        """
        timed = [run for run in self.runs if run.median]
        return tuple([run for run in timed if run.is_trusted] or timed)

    @property
    def medians(self) -> list[float]:
        """The medians of those runs."""
        return [run.median for run in self.timed if run.median]

    @property
    def sample_count(self) -> int:
        return sum(run.sample_count for run in self.runs)

    @property
    def disturbed_count(self) -> int:
        return sum(run.disturbed_count for run in self.runs)

    @property
    def statuses(self) -> str:
        """The statuses of its runs, the first of each kind."""
        return ", ".join(dict.fromkeys(result.status for result in self.results))

    @cached_property
    def median(self) -> float | None:
        """The median of the runs' medians."""
        return median_of_known(self.medians)

    @cached_property
    def interval(self) -> Interval | None:
        """The interval of the median: over several runs, or over the samples of one."""
        if len(self.timed) == 1:
            return median_interval(self.timed[0].times)
        # The interval of their ratio to a second: each run is one value.
        found = compare_pairs([[math.log(median)] for median in self.medians], once=True)
        return found.interval if found else None

    @cached_property
    def minimum(self) -> float | None:
        return min((min(run.times) for run in self.timed), default=None)

    def percentile(self, rank: int) -> float | None:
        """Return a percentile of the samples of a single run, None if they are too few."""
        if len(self.timed) != 1:
            return None
        statistics = statistics_of(self.timed[0].times)
        return statistics.percentiles.get(rank) if statistics else None

    def middle(self, figure: Callable[[Run], float | None]) -> float | None:
        """Return the median of another figure of the timed runs, or of all if none has times."""
        return median_of_known([figure(run) for run in self.timed or self.runs])
