"""Regressions: new runs against the stored ones of the same model, options and machine.

Runs that are made one after another share the state of the machine: its other guests, its clock
rate, its heat. Another hour has another state, which moves all of them together, often by more
than they differ among each other. So what is compared are sittings: runs of one tag that were made
within minutes are one value. How much sittings differ is known from tags that have several, or
from several tags. Where it is not, single runs are compared, if the machine was calm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal

from lar.measurement.differences import Spread, compare_groups, usual_spread
from lar.measurement.statistics import percentile_of
from lar.records.run import RunResult
from lar.records.summary import Difference, Verdict
from lar.results.figures import Figure, Run, figure_of, is_calm

Unit = Literal["sittings", "runs"]
Sitting = Sequence[Run]

GAP_SECONDS = 600.0  # between two runs, for another sitting
FEWEST_TAGS = 3  # whose sittings show how much sittings differ


@dataclass(frozen=True, kw_only=True)
class Check:
    """What new runs of one kind show against those of the baseline.

    `new` and `baseline` are the runs whose times can be trusted, `left_out` counts the others.
    `unit` is what counts as one value, `figure` what is compared.
    """

    name: str
    new: tuple[Run, ...]
    baseline: tuple[Run, ...]
    left_out: int
    unit: Unit
    difference: Difference | None
    figure: Figure = "latency"

    @property
    def verdict(self) -> Verdict:
        return self.difference.verdict if self.difference else "not judged"

    @property
    def reason(self) -> str:
        """Why there is no difference."""
        if not self.new and not self.baseline:
            return f"all {self.left_out} runs were disturbed"
        side = "baseline's" if self.new else "new"
        return f"all {side} runs were disturbed"


def check_kind(
    name: str,
    new: Sequence[RunResult],
    baseline: Sequence[RunResult],
    others: Mapping[str, Sequence[RunResult]],
    comparisons: int = 1,
) -> Check:
    """Compare new runs of one kind with the baseline's.

    `others` are more stored runs of that kind, by tag: they show by how much its sittings differ.
    """
    sides = [new, baseline, *others.values()]
    figure, runs = figure_of([result for side in sides for result in side])
    left = iter(runs)
    fresh, base, *rest = [
        [run for run in islice(left, len(side)) if run.is_trusted] for side in sides
    ]
    unit: Unit = "sittings"
    a, b = ([time_of(sitting) for sitting in sittings_of(side)] for side in (base, fresh))
    tags = [sittings_of(side) for side in rest]
    usual = usual_between_sittings(tags)
    if usual is None and max(len(a), len(b)) == 1 and is_calm([*fresh, *base]):
        unit = "runs"
        a, b = ([run.median or 0.0 for run in side] for side in (base, fresh))
        usual = usual_spread([logs_of(sitting) for tag in tags for sitting in tag])
    return Check(
        name=name,
        new=tuple(fresh),
        baseline=tuple(base),
        left_out=len(new) + len(baseline) - len(fresh) - len(base),
        unit=unit,
        difference=compare_groups(a, b, usual=usual, comparisons=comparisons),
        figure=figure,
    )


def usual_between_sittings(tags: Sequence[Sequence[Sitting]]) -> Spread | None:
    """Return how much sittings differ: those of one tag, or else those of several tags, between
    which something may have changed, so that it is rather too much."""
    times = [[math.log(time_of(sitting)) for sitting in tag] for tag in tags if tag]
    within = usual_spread(times)
    if within is not None or len(times) < FEWEST_TAGS:
        return within
    return usual_spread([[each[0] for each in times]])


def sittings_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Return runs that were made soon after one another together, oldest first."""
    sittings: list[list[Run]] = []
    last = None
    for run in sorted(runs, key=lambda run: run.result.started_at):
        started = moment_of(run.result.started_at)
        if not sittings or (started and last and started - last > GAP_SECONDS):
            sittings.append([])
        sittings[-1].append(run)
        last = started or last
    return sittings


def moment_of(started_at: str) -> float | None:
    """Return when a run was started, in seconds; None if that is not known, as of a log."""
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except (ValueError, OverflowError):
        return None


def time_of(sitting: Sitting) -> float:
    """Return the median of the medians of its runs."""
    return percentile_of(sorted(run.median or 0.0 for run in sitting), 50)


def logs_of(sitting: Sitting) -> list[float]:
    return [math.log(run.median or 1.0) for run in sitting]
