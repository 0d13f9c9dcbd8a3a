"""The breakdown of each step's time: every moment counts for the first bucket that it lies in.

The buckets and their priority are those of the PyTorch profiler's TensorBoard plugin: Kernel,
Memcpy, Memset, Runtime, DataLoader, CPU Exec, Other. A CPU has no device to report, so the first
four are left out. A bucket is the union of its intervals within the step less all buckets before
it, so that the buckets sum to the step exactly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lar.profiles.copies import split_copies
from lar.profiles.devices import is_of_device
from lar.profiles.intervals import merge_intervals, subtract_intervals, total_of
from lar.records.profile import Interval, Profile, Span, Step

KERNEL, MEMCPY, MEMSET, RUNTIME = "Kernel", "Memcpy", "Memset", "Runtime"
DATA_LOADER, CPU_EXEC, OTHER = "DataLoader", "CPU Exec", "Other"
DEVICE_BUCKETS = (KERNEL, MEMCPY, MEMSET, RUNTIME, DATA_LOADER, CPU_EXEC, OTHER)
HOST_BUCKETS = (DATA_LOADER, CPU_EXEC, OTHER)


@dataclass(frozen=True)
class StepBreakdown:
    """One step; `buckets_ns` has every bucket of the breakdown and sums to `total_ns`."""

    number: int
    total_ns: int
    buckets_ns: Mapping[str, int]


@dataclass(frozen=True)
class Breakdown:
    """The timed steps, each cut into the same buckets; no steps where none was timed."""

    buckets: tuple[str, ...]
    steps: tuple[StepBreakdown, ...]

    @property
    def total_ns(self) -> int:
        return sum(step.total_ns for step in self.steps)

    def bucket_ns(self, bucket: str) -> int:
        """Return a bucket's time in all steps."""
        return sum(step.buckets_ns[bucket] for step in self.steps)

    def share(self, bucket: str) -> float | None:
        """Return a bucket's part of all steps, from 0 to 1; None if nothing was timed."""
        return self.bucket_ns(bucket) / self.total_ns if self.total_ns else None


def breakdown_of(profile: Profile) -> Breakdown:
    """Cut the timed steps into buckets.

    If a profile has no steps at all, the span of its operators is one step, number 0. A step of one
    copy of a model is cut by what that copy did.
    """
    if len(copies := split_copies(profile)) > 1:
        parts = [breakdown_of(each) for each in copies]
        every = sorted((step for part in parts for step in part.steps), key=lambda it: it.number)
        return Breakdown(parts[0].buckets, tuple(every))
    buckets = DEVICE_BUCKETS if profile.on_device else HOST_BUCKETS
    intervals = intervals_by_bucket(profile)
    exclusive: dict[str, list[Interval]] = {}
    taken: list[Interval] = []
    for bucket in buckets[:-1]:
        exclusive[bucket] = subtract_intervals(intervals[bucket], taken)
        taken = merge_intervals([*taken, *intervals[bucket]])
    steps = []
    for step in steps_of(profile):
        times = {bucket: time_within(exclusive[bucket], step) for bucket in buckets[:-1]}
        times[OTHER] = step.duration_ns - sum(times.values())
        steps.append(StepBreakdown(step.number, step.duration_ns, times))
    return Breakdown(buckets, tuple(steps))


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
    """Return the merged intervals of each bucket but the last, warm-up included."""
    spans = profile.spans
    loading = [s for s in spans if s.category == "phase" and s.name == "dataloader"]
    host = dispatch_intervals(profile)
    if not profile.on_device:
        host += [each.computation for each in profile.executions]
    merged = {DATA_LOADER: merge_spans(loading), CPU_EXEC: merge_intervals(host)}
    if profile.on_device:
        merged[KERNEL] = merge_intervals(kernel_intervals(profile))
        copies = device_copies(profile)
        merged[MEMCPY] = merge_spans(s for s in copies if s.category == "memcpy")
        merged[MEMSET] = merge_spans(s for s in copies if s.category == "memset")
        merged[RUNTIME] = merge_spans(leaf_calls(profile))
    return merged


def merge_spans(spans: Iterable[Span]) -> list[Interval]:
    return merge_intervals(span.interval for span in spans)


def dispatch_intervals(profile: Profile) -> list[Interval]:
    """Return when operators were dispatched, where that is recorded."""
    return [times for each in profile.executions if (times := each.dispatch) is not None]


def kernel_intervals(profile: Profile) -> list[Interval]:
    """Return when the device computed: its kernels, or the operators if no kernels are known."""
    kernels = [span.interval for span in profile.spans if span.category == "kernel"]
    return kernels or [each.computation for each in profile.executions]


def device_copies(profile: Profile) -> list[Span]:
    """Return the copies and fills that a device took part in."""
    return [
        span
        for span in profile.spans
        if span.category in ("memcpy", "memset") and is_of_device(profile, span)
    ]


def leaf_calls(profile: Profile) -> list[Span]:
    """Return the calls within which no operator is dispatched: one that dispatches, as a whole
    forward does, would hide all that happens in it."""
    starts = sorted(start for start, _ in dispatch_intervals(profile))
    return [
        span
        for span in profile.spans
        if span.category == "runtime"
        and bisect_left(starts, span.start_ns) == bisect_left(starts, span.end_ns)
    ]


def time_within(intervals: Sequence[Interval], step: Step) -> int:
    """Return how much of sorted intervals lies within a step."""
    first = bisect_right(intervals, step.start_ns, key=lambda interval: interval[1])
    last = bisect_left(intervals, step.end_ns, key=lambda interval: interval[0])
    return total_of(
        (max(start, step.start_ns), min(end, step.end_ns)) for start, end in intervals[first:last]
    )
