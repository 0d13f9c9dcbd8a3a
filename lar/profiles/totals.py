"""Groups and sums of executions and spans, as all reports count them, and the units of time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from lar.records.profile import Execution, Profile

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The nanoseconds in each, the smallest first.
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class Totals(NamedTuple):
    """Calls and their durations; of no calls the extremes are None."""

    calls: int
    total_ns: int
    max_ns: int | None
    min_ns: int | None

    @property
    def average_ns(self) -> float | None:
        return self.total_ns / self.calls if self.calls else None


def totals_of(durations_ns: Iterable[int]) -> Totals:
    """Sum up durations."""
    values = list(durations_ns)
    if not values:
        return Totals(0, 0, None, None)
    return Totals(len(values), sum(values), max(values), min(values))


def group_by(items: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Put together what has a key in common, in the order of the first of each."""
    groups: dict[K, list[V]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_by_operator(profile: Profile) -> dict[int, list[Execution]]:
    """Group the executions of timed iterations by operator."""
    return group_by(profile.timed_executions(), lambda execution: execution.operator)


def group_by_type(profile: Profile) -> dict[str, list[Execution]]:
    """Group the executions of timed iterations by the operator's type."""
    types = [operator.type for operator in profile.operators]
    return group_by(profile.timed_executions(), lambda execution: types[execution.operator])
