"""Sums over executions and spans, as all reports count them, and the units of time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from lar.records.profile import Execution, Profile

K = TypeVar("K", bound=Hashable)

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


def group_executions(profile: Profile, key: Callable[[Execution], K]) -> dict[K, list[Execution]]:
    """Group the executions of timed iterations, in the order of their first."""
    groups: dict[K, list[Execution]] = {}
    for execution in profile.executions:
        if not execution.warmup:
            groups.setdefault(key(execution), []).append(execution)
    return groups


def group_by_operator(profile: Profile) -> dict[int, list[Execution]]:
    """Group the executions of timed iterations by operator."""
    return group_executions(profile, lambda execution: execution.operator)


def group_by_type(profile: Profile) -> dict[str, list[Execution]]:
    """Group the executions of timed iterations by the operator's type."""
    types = [operator.type for operator in profile.operators]
    return group_executions(profile, lambda execution: types[execution.operator])
