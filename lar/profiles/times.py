"""The times that reports speak of: what an operator takes, and what a step consists of.

An operator has three times. While it waits, it works for nobody: only `wall` has that. Where the
thread that computes is the one that dispatches, it waits for nothing.

    dispatch   wait      compute
    |--------|........|-----------|
             [------ wall --------]

A step is an iteration with what stands before it: the loading of its item and the copy of its
input, where each iteration has its own, as with a data set. The iteration is what a run prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from lar.records.profile import Interval, Profile, keep_with_profile

# Engines record whole microseconds.
CLOCK_STEP_NS = 1_000


def iterations_of(profile: Profile) -> dict[int, Interval]:
    """Return the begin and the end of each timed iteration by its number, in their order.

    It begins where the engine is started; a step of which that is not recorded is all iteration.
    """
    phases = profile.spans_of("phase")
    begins = {span.step: span.start_ns for span in phases if span.name == "forward"}
    return {
        step.number: (max(step.start_ns, begins.get(step.number, step.start_ns)), step.end_ns)
        for step in profile.timed_steps()
    }


def iteration_times_of(profile: Profile) -> list[int]:
    """Return how long each timed iteration took, in nanoseconds: the figures of the run."""
    return [end - begin for begin, end in iterations_of(profile).values()]


def waiting_calls(profile: Profile) -> frozenset[int]:
    """Return the calls of the engine's API that only wait, by the identity of their spans: those
    that are the wait of an iteration and nothing else."""
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
    """Return the position of the innermost around each on its thread, -1 where there is none; given
    are the thread, the begin and the end of each. The first of equals is around the others."""
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
    """Return how long each took without those within it on its thread, in nanoseconds, so that the
    sum is that of the outermost; given are the thread, the begin and the end of each."""
    own = [end - start for _, start, end in timed]
    for (_, start, end), parent in zip(timed, parents_of(timed), strict=True):
        if parent >= 0:
            own[parent] -= end - start
    return [max(0, each) for each in own]


@keep_with_profile
def self_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each of the timed executions computed itself, in nanoseconds: without the
    operators within it, as the body of a loop, and without what it waited."""
    executions = profile.timed_executions
    own = own_times([(each.thread, *each.interval) for each in executions])
    return [max(0, ns - (each.wait_ns or 0)) for ns, each in zip(own, executions, strict=True)]


@keep_with_profile
def self_host_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each of the timed executions kept the host busy itself, in nanoseconds: its
    dispatch and, on a CPU, what it computed without the operators within it."""
    if profile.on_device:
        return profile.host_times_ns
    timed = zip(
        profile.timed_executions, profile.host_times_ns, self_times_of(profile), strict=True
    )
    return [max(0, host_ns - each.compute_ns + own_ns) for each, host_ns, own_ns in timed]
