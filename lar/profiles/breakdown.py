"""The breakdown of each step's time: every moment counts for the first bucket that it lies in.

The buckets and their priority are those of the PyTorch profiler's TensorBoard plugin: Kernel,
Memcpy, Memset, Runtime, DataLoader, CPU Exec, Other. A CPU has no device to report, so the first
four are left out. A bucket is the union of its intervals within the step less all buckets before
it, so that the buckets sum to the step exactly.

Most of the plugin's Other has a name here: the cost of profiling (`lar.profiles.costs`), the copies
of inputs and outputs, and the engine's own time around its operators. What is left is lar's own
work between reading, feeding and running.

No record says at which moments a thread waited for a CPU. It is only known how long a thread was
ready without a CPU in a step. This time counts as waiting, but at most as much as the buckets
outside of operators took longer than in undisturbed steps, and it is taken from them in proportion.
If too few steps were undisturbed, the usual time of a bucket is the least that waiting cannot
explain in any step. An operator's own waiting stays in the operator, and marks its execution as
disturbed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lar.measurement.statistics import percentile_of
from lar.profiles.copies import split_copies
from lar.profiles.devices import is_of_device
from lar.profiles.disturbance import FEWEST_CALM, disturbed_steps, waiting_by_step
from lar.profiles.intervals import merge_intervals, subtract_intervals, total_of
from lar.records.profile import Category, Interval, Profile, Span, Step

KERNEL, MEMCPY, MEMSET, RUNTIME = "Kernel", "Memcpy", "Memset", "Runtime"
DATA_LOADER, CPU_EXEC, OTHER = "DataLoader", "CPU Exec", "Other"
PROFILING, INPUT_COPY, OUTPUT_COPY = "Profiling", "Input Copy", "Output Copy"
OVERHEAD, WAITING = "Engine Overhead", "Waiting for a CPU"
MOVES: Mapping[str, Category] = {MEMCPY: "memcpy", MEMSET: "memset"}
# The phases whose union is the bucket.
PHASES = {INPUT_COPY: ("input_copy",), OUTPUT_COPY: ("output_copy",), OVERHEAD: ("forward", "wait")}
# The buckets that may wait for a CPU: neither operators nor a device.
HOST_PARTS = frozenset({RUNTIME, DATA_LOADER, INPUT_COPY, OUTPUT_COPY, OVERHEAD, OTHER})


@dataclass(frozen=True)
class StepBreakdown:
    """One step; `buckets_ns` has every bucket of the breakdown and sums to `total_ns`."""

    number: int
    total_ns: int
    buckets_ns: Mapping[str, int]


def breakdown_of(profile: Profile) -> list[StepBreakdown]:
    """Cut the timed steps into buckets, the same for each.

    If a profile has no steps at all, the span of its operators is one step, number 0. A step of one
    copy of a model is cut by what that copy did.
    """
    if len(copies := split_copies(profile)) > 1:
        steps = [step for each in copies for step in breakdown_of(each)]
        return sorted(steps, key=lambda step: step.number)
    intervals, correction = intervals_by_bucket(profile), profile.correction
    recorded = steps_of(profile)
    found: dict[str, list[int]] = {}
    taken: list[Interval] = []
    for bucket, own in intervals.items():
        exclusive = subtract_intervals(own, taken)
        found[bucket] = [time_within(exclusive, step) for step in recorded]
        taken = merge_intervals([*taken, *own])
    steps = []
    for place, step in enumerate(recorded):
        times = {bucket: own_ns[place] for bucket, own_ns in found.items()}
        if correction is not None and OVERHEAD in times:
            between = min(times[OVERHEAD], correction.cost_ns)
            times[OVERHEAD] -= between
            times[PROFILING] = between
        times[OTHER] = step.duration_ns - sum(times.values())
        steps.append(StepBreakdown(step.number, step.duration_ns, times))
    waits = waiting_by_step(profile)
    return take_out_waiting(profile, steps, waits) if waits else steps


def take_out_waiting(
    profile: Profile, steps: Sequence[StepBreakdown], waits: Mapping[int, int]
) -> list[StepBreakdown]:
    """Return the steps with a bucket for waiting, taken from the host's buckets.

    Only buckets that took longer than usual give time.
    """
    disturbed = disturbed_steps(profile)
    calm = [step for step in steps if step.number in waits and step.number not in disturbed]
    usual = {}
    for bucket in HOST_PARTS:
        own = sorted(step.buckets_ns.get(bucket, 0) for step in calm)
        unexplained = (step.buckets_ns.get(bucket, 0) - waits.get(step.number, 0) for step in steps)
        least = max(0, min(unexplained, default=0))
        usual[bucket] = round(percentile_of(own, 50)) if len(own) >= FEWEST_CALM else least
    found = []
    for step in steps:
        times = {**step.buckets_ns}
        longer = {it: max(0, times[it] - usual[it]) for it in HOST_PARTS.intersection(times)}
        excess = sum(longer.values())
        waited = min(waits.get(step.number, 0), excess)
        for bucket, ns in longer.items():
            times[bucket] -= waited * ns // excess if excess else 0
        other = times.pop(OTHER)
        times |= {WAITING: step.total_ns - sum(times.values()) - other, OTHER: other}
        found.append(StepBreakdown(step.number, step.total_ns, times))
    return found


def steps_of(profile: Profile) -> tuple[Step, ...]:
    """Return the timed steps, or one around all operators if the profile has no steps."""
    if profile.steps:
        return profile.timed_steps()
    recorded = [each.interval for each in profile.executions]
    recorded += dispatch_intervals(profile)
    if not recorded:
        return ()
    return (Step(0, min(start for start, _ in recorded), max(end for _, end in recorded)),)


def intervals_by_bucket(profile: Profile) -> dict[str, list[Interval]]:
    """Return the merged intervals of each bucket, by priority, warm-up included.

    Waiting and Other are not among them. The buckets that the plugin does not have are there only
    if something was recorded for them.
    """
    found: dict[str, list[Interval]] = {}
    # If operators compute on the host, their dispatch counts as the engine's overhead.
    host = [each.work for each in profile.executions]
    if profile.on_device:
        host = dispatch_intervals(profile)
        kernels = [span.interval for span in profile.spans if span.category == "kernel"]
        # If no kernels are known, the device computed while operators did.
        found[KERNEL] = kernels or [each.computation for each in profile.executions]
        for bucket, category in MOVES.items():
            moves = profile.spans_of(category, timed=False)
            found[bucket] = [it.interval for it in moves if is_of_device(profile, it)]
        found[RUNTIME] = [span.interval for span in leaf_calls(profile)]
    phases = profile.spans_of("phase", timed=False)
    found[DATA_LOADER] = [span.interval for span in phases if span.name == "dataloader"]
    found[CPU_EXEC] = host
    if profile.correction is not None:
        found[PROFILING] = []
    for bucket, names in PHASES.items():
        if own := [span.interval for span in phases if span.name in names]:
            found[bucket] = own
    return {bucket: merge_intervals(own) for bucket, own in found.items()}


def dispatch_intervals(profile: Profile) -> list[Interval]:
    """Return when operators were dispatched, if that is recorded."""
    return [times for each in profile.executions if (times := each.dispatch) is not None]


def leaf_calls(profile: Profile) -> list[Span]:
    """Return the calls within which no operator is dispatched.

    A call that dispatches, such as a whole forward, would hide all that happens in it.
    """
    starts = sorted(start for start, _ in dispatch_intervals(profile))
    return [
        span
        for span in profile.spans
        if span.category == "runtime"
        and bisect_left(starts, span.start_ns) == bisect_left(starts, span.end_ns)
    ]


def time_within(intervals: Sequence[Interval], step: Step) -> int:
    """Return how many nanoseconds of sorted intervals lie within a step."""
    first = bisect_right(intervals, step.start_ns, key=lambda interval: interval[1])
    last = bisect_left(intervals, step.end_ns, key=lambda interval: interval[0])
    return total_of(
        (max(start, step.start_ns), min(end, step.end_ns)) for start, end in intervals[first:last]
    )
