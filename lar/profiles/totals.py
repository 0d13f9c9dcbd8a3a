"""Groups and sums of executions and spans, as all reports count them, and the units of time.

Filters of operators: by a regular expression, or operators that only move values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import reduce
from operator import itemgetter
from typing import NamedTuple, TypeVar

from lar.measurement.statistics import percentile_of, samples_for
from lar.records.profile import Profile, ProfiledOperator, ThreadUse, Times

MOVING_TYPES = re.compile(
    r"(Host2DeviceCopy|Copy|RelayoutFormat|Dimshuffle|Reshape|Concat|MemcpyToHost|MemcpyFromHost"
    r"|ReorderInput|ReorderOutput|Transpose)(Forward|V\d+)?"
)


def only_moves(type: str) -> bool:
    """Return whether operators of a type only move values, from one place or layout to another."""
    return MOVING_TYPES.fullmatch(type) is not None


def operators_matching(profile: Profile, pattern: str) -> frozenset[int]:
    """Return the places of the operators whose name or type matches `pattern`."""
    search = re.compile(pattern).search
    return frozenset(
        place
        for place, operator in enumerate(profile.operators)
        if search(operator.name) or search(operator.type)
    )


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The nanoseconds in each unit, the smallest first.
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class Totals(NamedTuple):
    """Calls and their durations; without calls the figures are None.

    `p90_ns` is None if too few calls support it; means have no spread at all. `disturbed` counts
    the calls that something else on the machine made longer. Rows are ranked by `ranking_ns`: the
    median of each operator times its calls, summed over the operators of a row, so that some
    disturbed calls do not put an operator before others.
    """

    calls: int
    total_ns: int
    max_ns: int | None
    min_ns: int | None
    median_ns: float | None = None
    p90_ns: float | None = None
    disturbed: int = 0
    ranking_ns: float = 0.0

    @property
    def average_ns(self) -> float | None:
        return self.total_ns / self.calls if self.calls else None


# The figures of a row besides its calls and their median.
FIGURES: Mapping[str, Callable[[Totals], float | None]] = {
    "p90": lambda it: it.p90_ns,
    "mean": lambda it: it.average_ns,
    "min": lambda it: it.min_ns,
    "max": lambda it: it.max_ns,
    "total": lambda it: it.total_ns,
}


def totals_of(
    durations_ns: Iterable[int],
    owners: Iterable[Hashable] | None = None,
    disturbed: int = 0,
    times: Times = "each",
) -> Totals:
    """Sum up durations; `owners` has the operator of each if they are of several.

    If `times` says that durations are means, they say nothing of single calls.
    """
    values = list(durations_ns)
    if not values:
        return Totals(0, 0, None, None)
    ordered, of_owners = sorted(values), [values]
    if owners is not None:
        owned = group_by(zip(owners, values, strict=True), itemgetter(0)).values()
        of_owners = [[ns for _, ns in own] for own in owned]
    count, total, median = len(values), sum(values), percentile_of(ordered, 50)
    ranking_ns = sum(percentile_of(sorted(own), 50) * len(own) for own in of_owners)
    if times == "mean":
        return Totals(count, total, None, None, ranking_ns=ranking_ns)
    p90 = percentile_of(ordered, 90) if len(values) >= samples_for(90) else None
    return Totals(count, total, ordered[-1], ordered[0], median, p90, disturbed, ranking_ns)


def group_by(items: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Group values by a key, in the order of the first value of each key."""
    groups: dict[K, list[V]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def use_of(operators: Iterable[ProfiledOperator]) -> ThreadUse | None:
    """Return how operators used the engine's threads together, None if it does not report it."""
    uses = [each.threads for each in operators if each.threads is not None]
    return reduce(ThreadUse.with_that_of, uses) if uses else None
