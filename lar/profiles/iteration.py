"""The typical iteration of a profile: its time, that of its operators, and the part of some."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import cached_property

from lar.profiles.breakdown import steps_of
from lar.profiles.times import iteration_times_of
from lar.records.profile import Profile, ProfiledOperator


class TypicalIteration:
    """The medians of a profile; all times are nanoseconds of one iteration."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @cached_property
    def times_ns(self) -> list[int]:
        """How long each timed iteration took, without the loading of its item; without recorded
        steps, all operators together."""
        known = iteration_times_of(self.profile)
        return known or [step.duration_ns for step in steps_of(self.profile)]

    @cached_property
    def iteration_ns(self) -> float:
        """The median iteration, 0 if nothing was timed."""
        return statistics.median(self.times_ns) if self.times_ns else 0.0

    @cached_property
    def single_ns(self) -> Mapping[int, float]:
        """The median time of a single execution of each operator, by its place."""
        return {
            place: statistics.median(each.compute_ns for each in executions)
            for place, executions in self.profile.executions_by_operator.items()
        }

    @cached_property
    def operator_ns(self) -> Mapping[int, float]:
        """The time of each operator in an iteration, by its place: the median of an execution times
        their number, so that disturbed ones count little."""
        steps = max(1, len(steps_of(self.profile)))
        counts = self.profile.executions_by_operator
        return {place: ns * len(counts[place]) / steps for place, ns in self.single_ns.items()}

    @property
    def computing_ns(self) -> float:
        """The time of all operators together."""
        return sum(self.operator_ns.values())

    @cached_property
    def calls(self) -> float:
        """How many operators are executed."""
        steps = max(1, len(steps_of(self.profile)))
        return sum(map(len, self.profile.executions_by_operator.values())) / steps

    def share(self, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0) -> float:
        """Return the part of the operators' time that some of them take, of which one execution
        takes `least_ns` at least."""
        found = sum(
            total
            for place, total in self.operator_ns.items()
            if self.single_ns[place] >= least_ns and accepts(self.profile.operators[place])
        )
        return found / self.computing_ns if found else 0.0
