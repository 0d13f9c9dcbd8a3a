"""Decides whether stored runs are slower than others of the same model, options and machine.

Runs that are made one after another share the state of the machine: its other guests, its clock
rate, its heat. An hour later the state is another one, which moves all of them together, often by
more than they differ from each other. So sittings are compared: runs within minutes count as one
value. If each side has one sitting and nothing says how much sittings differ, single runs are
compared if they took turns, so that both sides met the same states, or if the machine was calm.
Stored tags show how much sittings of one kind differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Literal

from lar.measurement.differences import Spread, compare_groups, usual_spread
from lar.measurement.statistics import percentile_of
from lar.records.run import RunResult
from lar.records.summary import Difference, Verdict
from lar.results.facts import Figure, Run, figure_of, is_calm

Unit = Literal["sittings", "runs"]
Sitting = Sequence[Run]

GAP_SECONDS = 600.0  # between two runs of different sittings
FEWEST_TAGS = 3  # so many tags show how much sittings differ

NOT_IN_TURNS = "one side was run after the other, on a machine that did something else too"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The verdict on new runs of one kind against the baseline's.

    `new` and `baseline` are the runs with times to trust; `left_out` counts the others. `unit` is
    what counts as one value, `figure` is what is compared.
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
        """Why there is no difference to show."""
        which = "baseline's" if self.new else "new" if self.baseline else self.left_out
        return f"all {which} runs were disturbed"


def check_kind(
    name: str,
    new: Sequence[RunResult],
    baseline: Sequence[RunResult],
    others: Mapping[str, Sequence[RunResult]],
    comparisons: int = 1,
) -> Check:
    """Compare new runs of one kind with the baseline's.

    `others` are more stored runs of that kind, by tag: they show how much its sittings differ.
    """
    sides = [new, baseline, *others.values()]
    figure, runs = figure_of([result for side in sides for result in side])
    left = iter(runs)
    fresh, base, *tags = [
        [run for run in islice(left, len(side)) if run.is_trusted] for side in sides
    ]
    difference, unit = compare_sides(base, fresh, tags, comparisons=comparisons)
    return Check(
        name=name,
        new=tuple(fresh),
        baseline=tuple(base),
        left_out=len(new) + len(baseline) - len(fresh) - len(base),
        unit=unit,
        difference=difference,
        figure=figure,
    )


def compare_sides(
    base: Sequence[Run],
    new: Sequence[Run],
    tags: Iterable[Sequence[Run]] = (),
    *,
    comparisons: int = 1,
    one_machine: bool = True,
) -> tuple[Difference | None, Unit]:
    """Return what trusted runs show against others, and what counts as one value.

    Each of the `tags` has more runs of that kind, of one program. The state of a machine explains
    no difference if both sides met the same states, or are not of `one_machine`.
    """
    if not base or not new:
        return None, "sittings"
    a, b = ([time_of(sitting) for sitting in sittings_of(side)] for side in (base, new))
    others = [sittings_of(tag) for tag in tags]
    usual = usual_between_sittings(others)
    is_one_against_one = usual is None and max(len(a), len(b)) == 1
    if not is_one_against_one:
        return compare_groups(a, b, usual=usual, comparisons=comparisons), "sittings"
    if not one_machine or are_in_turns(base, new) or is_calm([*base, *new]):
        a, b = ([run.median or 0.0 for run in side] for side in (base, new))
        usual = usual_spread([logs_of(sitting) for tag in others for sitting in tag])
        return compare_groups(a, b, usual=usual, comparisons=comparisons), "runs"
    found = compare_groups(a, b)
    return found and replace(found, reason=NOT_IN_TURNS), "sittings"


def are_in_turns(one: Sequence[Run], other: Sequence[Run]) -> bool:
    """Return whether neither side ended before the other began, False if that is unknown."""
    first, second = ([run.result.started_at for run in side] for side in (one, other))
    are_known = all((*first, *second))
    return are_known and min(first) <= max(second) and min(second) <= max(first)


def usual_between_sittings(tags: Sequence[Sequence[Sitting]]) -> Spread | None:
    """Return how much sittings of one tag differ, else sittings of several tags.

    Something may have changed between tags, so their spread is rather too large.
    """
    times = [[math.log(time_of(sitting)) for sitting in tag] for tag in tags if tag]
    within = usual_spread(times)
    if within is not None or len(times) < FEWEST_TAGS:
        return within
    return usual_spread([[each[0] for each in times]])


def sittings_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Return runs in groups that were made soon after one another, oldest first."""
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
    """Return when a run was started, in seconds; None if unknown, as for a log."""
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except (ValueError, OverflowError):
        return None


def time_of(sitting: Sitting) -> float:
    """Return the median of the medians of a sitting's runs."""
    return percentile_of(sorted(run.median or 0.0 for run in sitting), 50)


def logs_of(sitting: Sitting) -> list[float]:
    return [math.log(run.median or 1.0) for run in sitting]
