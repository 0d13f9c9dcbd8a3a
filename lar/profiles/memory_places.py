"""Where an exported trace has allocations, so that the TensorBoard plugin gives them to their
operators.

The plugin gives an allocation to the innermost operator on its thread that has begun, and has not
ended, at its time. What an operator releases when it ends would be the next one's, and what belongs
to an operator that lasts no time, or is on a device, would be any other's. So allocations are moved
into their operators, most of them by a nanosecond, and operators that last no time last one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from lar.profiles.activities import HostActivity, positions_of_dispatches
from lar.profiles.totals import group_by
from lar.records.profile import Interval, Profile


class MemoryPlace(NamedTuple):
    """The position of the activity that an allocation belongs to, and a time within that."""

    activity: int
    at_ns: int


class MemoryPlaces:
    """The places of a profile's allocations, by their position; those of the warm-up and those of
    no operator have none. `lengthened` has the times of activities that last longer so."""

    def __init__(self, profile: Profile, activities: Sequence[HostActivity]) -> None:
        self._activities = activities
        owners = owners_of(profile, activities)
        self.lengthened = lengthen(activities, sorted({*owners.values()}))
        self._inner = self._inner_intervals({*owners.values()})
        self.places: dict[int, MemoryPlace] = {}
        at_ns = 0
        for number, owner in owners.items():
            # The plugin sorts them by time: none should come before one that happened earlier.
            at_ns = self._time_in(owner, max(at_ns, profile.allocations[number].at_ns))
            self.places[number] = MemoryPlace(owner, at_ns)

    def _interval(self, position: int) -> Interval:
        own = self._activities[position]
        return self.lengthened.get(position, (own.start_ns, own.end_ns))

    def _inner_intervals(self, owners: set[int]) -> dict[int, list[Interval]]:
        """Return the times that lie within those of activities but are others'."""
        inner: dict[int, list[Interval]] = {}
        for own in self._activities:
            if own.parent in owners and own.start_ns < own.end_ns:
                inner.setdefault(own.parent, []).append((own.start_ns, own.end_ns))
        around = Surroundings(self._activities)
        for position, times in self.lengthened.items():
            # It lies within none in the profile, as it lasts no time there.
            other = around.innermost(self._activities[position], times[0])
            if other is not None:
                inner.setdefault(other, []).append(times)
        return {position: sorted(times) for position, times in inner.items()}

    def _time_in(self, owner: int, at_ns: int) -> int:
        """Return the nearest time in an activity that is no other's, if there is one."""
        start, end = self._interval(owner)
        wanted = min(max(at_ns, start), end - 1)
        inner = self._inner.get(owner, [])
        later = wanted
        for begin, done in inner:
            if begin <= later < done:
                later = done
        if later < end:
            return later
        earlier = wanted
        for begin, done in reversed(inner):
            if begin <= earlier < done:
                earlier = begin - 1
        return earlier if earlier >= start else wanted


def line_of(activity: HostActivity) -> tuple[int, int]:
    return activity.thread, activity.track


class Surroundings:
    """The activities on each line that last, by when they begin."""

    def __init__(self, activities: Sequence[HostActivity]) -> None:
        self._activities = activities
        lasting = (at for at, own in enumerate(activities) if own.start_ns < own.end_ns)
        self._lines = group_by(
            sorted(lasting, key=lambda at: (activities[at].start_ns, -activities[at].end_ns)),
            lambda at: line_of(activities[at]),
        )

    def innermost(self, activity: HostActivity, at_ns: int) -> int | None:
        """Return the position of the innermost activity at a time on an activity's line."""
        line = self._lines.get(line_of(activity), [])
        place = bisect_right(line, at_ns, key=lambda at: self._activities[at].start_ns) - 1
        found = line[place] if place >= 0 else -1
        while found >= 0 and self._activities[found].end_ns <= at_ns:
            found = self._activities[found].parent
        return found if found >= 0 else None


def lengthen(activities: Sequence[HostActivity], positions: Iterable[int]) -> dict[int, Interval]:
    """Return the times of those activities that last no time, so that each lasts a nanosecond of
    its own, by their positions."""
    found: dict[int, Interval] = {}
    free: dict[tuple[int, int], int] = {}  # by line, the end of the last one
    for position in sorted(positions, key=lambda at: activities[at].start_ns):
        own = activities[position]
        if own.start_ns == own.end_ns:
            begin = max(own.start_ns, free.get(line_of(own), own.start_ns))
            found[position] = begin, begin + 1
            free[line_of(own)] = begin + 1
    return found


def owners_of(profile: Profile, activities: Sequence[HostActivity]) -> dict[int, int]:
    """Return the positions of the activities that timed allocations belong to, by the positions of
    the allocations: that of the operator's last execution that had begun."""
    timed = set(map(id, profile.timed_allocations()))
    if not timed:
        return {}  # what follows takes much memory for each execution
    find = by_device if profile.on_device else by_host
    places = find(profile, activities)
    owners: dict[int, int] = {}
    for number, each in enumerate(profile.allocations):
        if each.operator is None or id(each) not in timed:
            continue
        own = places.get(each.operator, [])
        begun = bisect_right(own, each.at_ns, key=itemgetter(0))
        if own:
            owners[number] = own[max(begun - 1, 0)][1]
    return owners


# By operator: when each of its executions began, and the position of its activity.
Begun = dict[int, list[tuple[int, int]]]


def by_host(profile: Profile, activities: Sequence[HostActivity]) -> Begun:
    """Return the executions on a CPU; an activity begins when the wait of its execution has
    ended."""
    computed: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for position, each in enumerate(activities):
        if not each.is_dispatch:
            own = computed.setdefault((each.operator, each.step), [])
            own.append((each.start_ns, position))
    positions = {key: (position for _, position in sorted(own)) for key, own in computed.items()}
    begun: Begun = {}
    for execution in sorted(profile.timed_executions, key=lambda each: each.computation):
        found = next(positions.get((execution.operator, execution.step), iter(())), None)
        if found is not None:
            begun.setdefault(execution.operator, []).append((execution.start_ns, found))
    return {operator: sorted(own) for operator, own in begun.items()}


def by_device(profile: Profile, activities: Sequence[HostActivity]) -> Begun:
    """Return the executions on a device, whose activities on the host are their dispatches."""
    dispatches = positions_of_dispatches(activities)
    begun: Begun = {}
    for each in profile.timed_executions:
        if (position := dispatches.get((each.operator, each.step))) is not None:
            begun.setdefault(each.operator, []).append((each.start_ns, position))
    return {operator: sorted(own) for operator, own in begun.items()}
