"""The calls of the operating system, by the part of a run that they belong to.

Between iterations, and when the engine neither loads nor prepares, the thread that runs the model
works for lar: it keeps the profiler's records, reads the noise, writes files. Those calls count as
the profiler's; the calls of the engine's own threads at that time do not.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from lar.profiles.intervals import merge_intervals
from lar.profiles.totals import group_by
from lar.records.profile import Profile, Span

Part = Literal["iterations", "rest", "warm-up", "profiler"]


def calls_by_part(profile: Profile) -> dict[Part, list[Span]]:
    """Return the calls of each part of a run that has any.

    The parts are the timed iterations, the warm-up, the profiler and lar itself, and the rest, such
    as the loading of the model.
    """
    phases = [
        span
        for span in profile.spans
        if span.category == "phase" and span.step is None and span.name != "warmup"
    ]
    around = merge_intervals(span.interval for span in phases)
    starts = [start for start, _ in around]
    hosts = {span.thread for span in profile.spans if span.category == "phase"}

    def part_of(span: Span) -> Part:
        if span.warmup:
            return "warm-up"
        if span.step is not None:
            return "iterations"
        place = bisect_right(starts, span.start_ns) - 1
        is_in_phase = place >= 0 and span.start_ns < around[place][1]
        return "profiler" if span.thread in hosts and not is_in_phase else "rest"

    return group_by((span for span in profile.spans if span.category == "osrt"), part_of)
