"""The timed iterations of one profile, of which all of Paddle's tables are made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lar.profiles.devices import is_of_device, streams_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.range_members import Begun, members_of_ranges
from lar.records.profile import Execution, Profile, Span, Step
from lar.reports.styles.paddle.device import Activity, WorkSums, activities_of


class Settings(NamedTuple):
    """The settings of a report; `views` were asked for by name, an empty one stands for the
    usual."""

    unit: str = "ms"
    sort: str = "cpu_total"
    group_by: str = "type"
    filter: str | None = None
    top: int | None = None
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedRun:
    """A profile, and what several tables need of it."""

    profile: Profile

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return self.profile.timed_steps()

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        return self.profile.timed_executions()

    @cached_property
    def step_ns(self) -> int:
        """The time of all steps, which most ratios are of."""
        return total_of(merge_intervals(step.interval for step in self.steps))

    @cached_property
    def activities(self) -> list[Activity]:
        return activities_of(self.profile, self.executions)

    @property
    def reports_kernels(self) -> bool:
        """True if the kernels are those that a device reported."""
        return self.profile.on_device and bool(self.profile.spans_of("kernel"))

    @cached_property
    def device_ns(self) -> int:
        """The sum of all that a device did: kernels, copies, fills."""
        return sum(activity.duration_ns for activity in self.activities)

    @cached_property
    def by_execution(self) -> dict[int, list[Activity]]:
        """The device's work for each execution."""
        groups: dict[int, list[Activity]] = {}
        for activity in self.activities:
            if activity.execution is not None:
                groups.setdefault(activity.execution, []).append(activity)
        return groups

    @cached_property
    def streams(self) -> frozenset[int]:
        """The threads that stand for a device's streams."""
        return streams_of(self.profile)

    @cached_property
    def host_copies(self) -> tuple[Span, ...]:
        """The copies, fills and conversions of layout within the host's memory."""
        spans = self.profile.spans_of("memcpy", "memset", "relayout")
        return tuple(span for span in spans if not is_of_device(self.profile, span))

    @cached_property
    def user_ranges(self) -> tuple[Span, ...]:
        """The ranges that the user has named, but for those of the warm-up; one around several
        steps belongs to none."""
        ranges = self.profile.spans_of("user_annotation", timed=False)
        return tuple(span for span in ranges if not span.warmup)

    @cached_property
    def _launched(self) -> WorkSums:
        return WorkSums((each.launch_ns, each.duration_ns) for each in self.activities)

    @cached_property
    def _begun(self) -> WorkSums:
        return WorkSums((each.start_ns, each.duration_ns) for each in self.activities)

    def host_ns_of(self, span: Span) -> int | None:
        """Return how long a span kept the host busy; None for one on a device's stream."""
        return None if span.thread in self.streams else span.duration_ns

    @cached_property
    def _range_ns(self) -> dict[int, int]:
        """The device's work of each of the user's ranges, by its identity."""
        begun = [Begun(each.execution, each.starts) for each in self.activities]
        return {
            id(span): sum(self.activities[place].duration_ns for place in places)
            for span, places in members_of_ranges(self.profile, begun)
        }

    def device_ns_of(self, span: Span) -> int:
        """Return the device's work of a span: that of what belongs to a range of the user's, of any
        other what it had begun, or on a stream what began in it."""
        if span.category == "user_annotation":
            return self._range_ns[id(span)]
        work = self._begun if span.thread in self.streams else self._launched
        return work.total_between(*span.interval)
