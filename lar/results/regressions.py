"""Regressions: new runs against the stored ones of the same model, options and machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lar.measurement.differences import compare_groups, spread_between_runs
from lar.records.run import RunResult
from lar.records.summary import Difference
from lar.results.side_by_side import Run, run_of

Basis = Literal["latency", "CPU time"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What new runs of one kind show against those of the baseline.

    `basis` is what was compared: CPU time where most iterations of a run were disturbed and it is
    known of all.
    """

    name: str
    new: tuple[Run, ...]
    baseline: tuple[Run, ...]
    basis: Basis
    difference: Difference | None

    @property
    def is_regression(self) -> bool:
        return self.difference is not None and self.difference.verdict == "slower"

    @property
    def can_show(self) -> bool:
        """Whether any change could have been shown."""
        return self.difference is not None and math.isfinite(self.difference.smallest_detectable)


def check_kind(
    name: str,
    new: Sequence[RunResult],
    baseline: Sequence[RunResult],
    others: Mapping[str, Sequence[RunResult]],
    comparisons: int = 1,
) -> Check:
    """Compare new runs of one kind with the baseline's.

    `others` are more stored runs of that kind, by tag: they show by how much its runs differ.
    """
    sides = [[run_of(each) for each in side] for side in (new, baseline)]
    groups = [[run_of(each) for each in group] for group in others.values()]
    fresh, base = ([run for run in side if run.median] for side in sides)
    basis = basis_of([*fresh, *base])
    between = spread_between_runs([times_of(group, basis) for group in groups])
    difference = compare_groups(
        times_of(base, basis), times_of(fresh, basis), between=between, comparisons=comparisons
    )
    return Check(
        name=name, new=tuple(fresh), baseline=tuple(base), basis=basis, difference=difference
    )


def basis_of(runs: Sequence[Run]) -> Basis:
    """Return what is to be compared: CPU time where latency shows the load of the machine."""
    disturbed = any(2 * run.disturbed_count > run.sample_count for run in runs)
    known = all(any(each is not None for each in run.result.samples.cpu) for run in runs)
    return "CPU time" if disturbed and known else "latency"


def times_of(runs: Sequence[Run], basis: Basis) -> list[list[float]]:
    """Return the times of each run that has more than no time."""
    if basis == "latency":
        return [[*run.times] for run in runs if run.median]
    cpu = ([each for each in run.result.samples.cpu if each] for run in runs)
    return [times for times in cpu if times]
