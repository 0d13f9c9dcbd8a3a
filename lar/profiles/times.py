"""The times in reports: what an operator takes, and what a step consists of.

An operator has three times. While it waits, nobody works for it: only `wall` includes the wait. If
one thread both dispatches and computes, there is no wait.

    dispatch   wait      compute
    |--------|........|-----------|
             [------ wall --------]

A step is an iteration with what comes before it, if each iteration has its own: the loading of its
item and the copy of its input, as with a data set. The iteration is what a run prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from lar.records.profile import Interval, Profile, keep_with_profile

# Engines record times in whole microseconds.
CLOCK_STEP_NS = 1_000


def iterations_of(profile: Profile) -> dict[int, Interval]:
    """Return the begin and the end of each timed iteration by its number, in their order.

    It begins when the engine is started. If that is not recorded, the whole step is the iteration.
    """
    phases = profile.spans_of("phase")
    begins = {span.step: span.start_ns for span in phases if span.name == "forward"}
    return {
        step.number: (max(step.start_ns, begins.get(step.number, step.start_ns)), step.end_ns)
        for step in profile.timed_steps()
    }


def iteration_times_of(profile: Profile) -> list[int]:
    """Return how long each timed iteration took, in nanoseconds, as the run prints it."""
    return [end - begin for begin, end in iterations_of(profile).values()]


def waiting_calls(profile: Profile) -> frozenset[int]:
    """Return the engine's calls that only wait for an iteration, by `id()` of their spans."""
    waits = {
        (span.thread, span.step, *span.interval)
        for span in profile.spans
        if span.category == "phase" and span.name == "wait"
    }
    return frozenset(
        id(span)
        for span in profile.spans
        if span.category == "runtime" and (span.thread, span.step, *span.interval) in waits
    )


def parents_of(timed: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return for each call the position of the innermost one around it on its thread, else -1.

    `timed` has thread, begin and end of each. If two are equal, the first is around the other.
    """
    parents = [-1] * len(timed)
    around: list[int] = []
    for place in sorted(range(len(timed)), key=lambda at: (*timed[at][:2], -timed[at][2])):
        thread, _, end = timed[place]
        while around and (timed[around[-1]][0] != thread or timed[around[-1]][2] < end):
            around.pop()
        if around:
            parents[place] = around[-1]
        around.append(place)
    return parents


def own_times(timed: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return how long each call took without those within it on its thread, in nanoseconds.

    The sum is that of the outermost ones. `timed` has thread, begin and end of each.
    """
    own = [end - start for _, start, end in timed]
    for (_, start, end), parent in zip(timed, parents_of(timed), strict=True):
        if parent >= 0:
            own[parent] -= end - start
    return [max(0, each) for each in own]


@keep_with_profile
def self_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each timed execution computed itself, in nanoseconds.

    This leaves out its waiting and the operators within it, such as the body of a loop.
    """
    executions = profile.timed_executions
    own = own_times([(each.thread, *each.interval) for each in executions])
    return [max(0, ns - (each.wait_ns or 0)) for ns, each in zip(own, executions, strict=True)]


@keep_with_profile
def self_host_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each timed execution kept the host busy itself, in nanoseconds.

    This is its dispatch and, on a CPU, its computation without the operators within it.
    """
    if profile.on_device:
        return profile.host_times_ns
    timed = zip(
        profile.timed_executions, profile.host_times_ns, self_times_of(profile), strict=True
    )
    return [max(0, host_ns - each.compute_ns + own_ns) for each, host_ns, own_ns in timed]
