"""The breakdown of each step's time into buckets.

Every moment of a step is assigned to the first bucket that covers this moment. The buckets and
their order are those of the PyTorch profiler's TensorBoard plugin: first Kernel, then Memcpy,
Memset, Runtime, DataLoader, CPU Exec and Other. For a run on a CPU, which has no device activities,
the buckets Kernel, Memcpy, Memset and Runtime are left out. A bucket is the union of its intervals
within the step, without the times that are already in earlier buckets. The times of all buckets
therefore add up exactly to the time of the step.

This module splits most of the bucket Other of TensorBoard's plugin: into the cost of profiling
(`lar.profiles.costs`), the copies of inputs and outputs, and the engine's own time around its
operators. The time that remains in the bucket Other is lar's own work between the reading of an
item, the feeding and the execution.

A profile records how long a thread waited for a CPU in each step, but not at which moments. Waiting
for a CPU has its own bucket. The waiting is subtracted from the buckets outside of operators. The
part that a bucket loses is proportional to the time by which the bucket took longer than in
undisturbed steps. If too few steps were undisturbed, the usual time of a bucket is estimated: in
each step, the waiting is subtracted from the bucket, and the smallest result is used. The time that
an operator itself waits is not subtracted from the operator, and the operator's execution counts as
disturbed.

`split_copies` returns the part of a profile that belongs to each copy of a model.

Other work on the machine may disturb iterations. The parent process of a run decides once which
iterations were disturbed (`lar.measurement.statistics.causes_of`); the printed lines and the
profile use this decision. An execution of an operator is disturbed if its iteration was disturbed
and the execution took longer than the operator takes in undisturbed iterations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from lar.errors import count_of
from lar.measurement.statistics import DISTURBED_SECONDS, DISTURBED_SHARE, causes_of, percentile_of
from lar.profiles.activities import is_of_device
from lar.profiles.times import (
    group_by,
    keep_with_profile,
    merge_intervals,
    subtract_intervals,
    total_of,
)
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Category,
    Interval,
    Profile,
    Span,
    Step,
    StepNoise,
)

if TYPE_CHECKING:
    from lar.records.run import Samples

# An execution that lost its CPU took longer by a part of a millisecond at least. A slow CPU slows
# down all operators alike, so that a smaller excess counts.
LEAST_LOST_NS = round(DISTURBED_SECONDS * 1e9)
LEAST_SLOWED_NS = 10_000
SLOWING = frozenset({"frequency", "slow core"})

# The fewest undisturbed executions that show how long an operator usually takes.
FEWEST_CALM = 3

# How reports describe what each cause did to iterations, in the same words as the printed run.
CAUSES: Mapping[str, str] = {
    "queue delay": "waited for a CPU that other work held",
    "steal": "lost time to other guests of the host",
    "throttling": "were throttled",
    "frequency": "ran at a lower frequency than the others",
    "slow core": "ran on a core that others slowed down",
}


def noise_of(samples: Samples, copies: int = 1) -> tuple[StepNoise, ...]:
    """Return the disturbances of the timed iterations of a run, sorted by step number.

    If `copies` copies of a model run at the same time, the first iterations of all copies get the
    first numbers, then the second iterations get the next numbers, and so on.
    """
    waits = samples.queue_delay or (None,) * len(samples.end_to_end)
    causes: dict[int, list[str]] = {}
    for cause, places in causes_of(samples).items():
        for place in places:
            causes.setdefault(place, []).append(cause)
    counts = [0] * copies
    found = []
    for place, wait in enumerate(waits):
        runner = samples.runner[place] if samples.runner else 0
        step = counts[runner] * copies + runner
        counts[runner] += 1
        waiting = None if wait is None else max(0, round(wait * 1e9))
        found.append(StepNoise(step, waiting, tuple(causes.get(place, ()))))
    return tuple(sorted(found, key=lambda each: each.step))


def waiting_by_step(profile: Profile) -> dict[int, int]:
    """Return how long a thread waited for a CPU in each timed step, in nanoseconds.

    In each step, the thread that waited longest is used, even if the step did not need this thread.
    Steps without a record are left out.
    """
    known = {each.step: each.waiting_ns for each in profile.facts.noise}
    return {
        step.number: min(waiting, step.duration_ns)
        for step in profile.timed_steps()
        if (waiting := known.get(step.number)) is not None
    }


def disturbed_steps(profile: Profile) -> dict[int, tuple[str, ...]]:
    """Return the causes of disturbance for each disturbed step, by the number of the step."""
    return {each.step: each.causes for each in profile.facts.noise if each.causes}


@keep_with_profile
def disturbed_executions(profile: Profile) -> frozenset[int]:
    """Return the indexes of the disturbed executions in the timed executions.

    A disturbed execution took longer than the operator's median execution in undisturbed steps.
    """
    steps, executions = disturbed_steps(profile), profile.timed_executions
    found: set[int] = set()
    if not steps:
        return frozenset()
    for own in group_by(enumerate(executions), lambda it: it[1].operator).values():
        calm = [each.compute_ns for _, each in own if each.step not in steps]
        # Even if every step is disturbed, many executions of an operator are not.
        compared = calm if len(calm) >= FEWEST_CALM else [each.compute_ns for _, each in own]
        usual = percentile_of(sorted(compared), 50)
        for place, each in own:
            causes = steps.get(each.step, ())
            least = LEAST_SLOWED_NS if SLOWING.intersection(causes) else LEAST_LOST_NS
            if causes and each.compute_ns - usual > max(least, DISTURBED_SHARE * usual):
                found.add(place)
    return frozenset(found)


def describe_disturbance(profile: Profile) -> str:
    """Return a sentence on how many timed iterations were disturbed and why, without a full stop.

    The sentence is empty if no iteration was disturbed, or if disturbances were not recorded.
    """
    steps = disturbed_steps(profile)
    if not steps:
        return ""
    counts = Counter(chain.from_iterable(steps.values()))
    parts = {cause: f"{number} {CAUSES.get(cause, cause)}" for cause, number in counts.items()}
    longest = max(waiting_by_step(profile).values(), default=0)
    if longest and "queue delay" in parts:
        parts["queue delay"] += f", up to {longest / 1e6:.3f} ms"
    count = len(profile.facts.noise)
    verb, what = "was" if len(steps) == 1 else "were", "; ".join(parts.values())
    return f"{len(steps)} of {count_of(count, 'iteration')} {verb} disturbed: {what}"


def split_copies(profile: Profile) -> list[Profile]:
    """Return a profile for each copy, with its iterations, executions and spans.

    If the model ran in only one copy, the result is the whole profile. Counters and memory belong
    to the process, and are in the profile of the first copy.
    """
    copies = sorted({step.copy for step in profile.steps})
    if len(copies) < 2:
        return [profile]
    owner = {step.number: step.copy for step in profile.steps}

    def owner_of(span: Span) -> int:
        return span.thread // THREADS_OF_A_COPY if span.step is None else owner.get(span.step, 0)

    return [
        replace(
            profile,
            steps=tuple(step for step in profile.steps if step.copy == copy),
            executions=tuple(
                each for each in profile.executions if owner.get(each.step, 0) == copy
            ),
            spans=tuple(span for span in profile.spans if owner_of(span) == copy),
            counters=() if copy else profile.counters,
            allocations=() if copy else profile.allocations,
        )
        for copy in copies
    ]


KERNEL, MEMCPY, MEMSET, RUNTIME = "Kernel", "Memcpy", "Memset", "Runtime"
DATA_LOADER, CPU_EXEC, OTHER = "DataLoader", "CPU Exec", "Other"
PROFILING, INPUT_COPY, OUTPUT_COPY = "Profiling", "Input Copy", "Output Copy"
OVERHEAD, WAITING = "Engine Overhead", "Waiting for a CPU"
MOVES: Mapping[str, Category] = {MEMCPY: "memcpy", MEMSET: "memset"}

# The phases that make up each bucket.
PHASES = {INPUT_COPY: ("input_copy",), OUTPUT_COPY: ("output_copy",), OVERHEAD: ("forward", "wait")}

# The buckets from which waiting for a CPU is taken: neither operators nor a device.
HOST_PARTS = frozenset({RUNTIME, DATA_LOADER, INPUT_COPY, OUTPUT_COPY, OVERHEAD, OTHER})


@dataclass(frozen=True)
class StepBreakdown:
    """The breakdown of one step.

    `buckets_ns` has the time of every bucket; the sum of these times is `total_ns`.
    """

    number: int
    total_ns: int
    buckets_ns: Mapping[str, int]


def breakdown_of(profile: Profile) -> list[StepBreakdown]:
    """Return the breakdown of each timed step; all steps have the same buckets.

    If a profile has no steps, the time from its first to its last operator is one step, number 0.
    For the step of one copy of a model, only the records of this copy are used.
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
    """Return the steps with a bucket for waiting, and subtract the waiting from other buckets.

    The waiting is subtracted only from buckets of the host, and only from buckets that took longer
    than usual.
    """
    disturbed = disturbed_steps(profile)
    calm = [step for step in steps if step.number in waits and step.number not in disturbed]
    usual = {}
    for bucket in HOST_PARTS.intersection(steps[0].buckets_ns):
        own = sorted(step.buckets_ns[bucket] for step in calm)
        unexplained = (step.buckets_ns[bucket] - waits.get(step.number, 0) for step in steps)
        least = max(0, min(unexplained))
        usual[bucket] = round(percentile_of(own, 50)) if len(own) >= FEWEST_CALM else least
    found = []
    for step in steps:
        times = {**step.buckets_ns}
        longer = {it: max(0, times[it] - ns) for it, ns in usual.items()}
        excess = sum(longer.values())
        waited = min(waits.get(step.number, 0), excess)
        for bucket, ns in longer.items():
            times[bucket] -= waited * ns // excess if excess else 0
        other = times.pop(OTHER)
        times |= {WAITING: step.total_ns - sum(times.values()) - other, OTHER: other}
        found.append(StepBreakdown(step.number, step.total_ns, times))
    return found


def steps_of(profile: Profile) -> tuple[Step, ...]:
    """Return the timed steps; if no steps are recorded, return one step around all operators."""
    if profile.steps:
        return profile.timed_steps()
    recorded = [each.interval for each in profile.executions]
    recorded += dispatch_intervals(profile)
    if not recorded:
        return ()
    return (Step(0, min(start for start, _ in recorded), max(end for _, end in recorded)),)


def intervals_by_bucket(profile: Profile) -> dict[str, list[Interval]]:
    """Return the merged intervals of each bucket, including intervals of the warm-up, in order.

    The buckets `Waiting for a CPU` and `Other` have no intervals. Buckets that TensorBoard's plugin
    does not have are in the result only if the profile has records for these buckets.
    """
    found: dict[str, list[Interval]] = {}
    # If operators compute on the host, their dispatch counts as the engine's overhead.
    host = [each.work for each in profile.executions]
    if profile.on_device:
        host = dispatch_intervals(profile)
        kernels = [span.interval for span in profile.spans if span.category == "kernel"]
        # Without recorded kernels, the device counts as busy while operators compute.
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
    """Return the recorded intervals in which operators were dispatched."""
    return [times for each in profile.executions if (times := each.dispatch) is not None]


def leaf_calls(profile: Profile) -> list[Span]:
    """Return the calls of the runtime during which no operator is dispatched.

    A call that dispatches operators, such as a whole forward pass, would hide everything inside it.
    """
    starts = sorted(start for start, _ in dispatch_intervals(profile))
    return [
        span
        for span in profile.spans
        if span.category == "runtime"
        and bisect_left(starts, span.start_ns) == bisect_left(starts, span.end_ns)
    ]


def time_within(intervals: Sequence[Interval], step: Step) -> int:
    """Return how many nanoseconds of a step the given sorted intervals cover."""
    first = bisect_right(intervals, step.start_ns, key=lambda interval: interval[1])
    last = bisect_left(intervals, step.end_ns, key=lambda interval: interval[0])
    return total_of(
        (max(start, step.start_ns), min(end, step.end_ns)) for start, end in intervals[first:last]
    )
