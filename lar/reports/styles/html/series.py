"""The figures of the page's plots: iterations, where their time went, the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lar.measurement.statistics import statistics_of
from lar.profiles.breakdown import (
    ENGINE_PHASES,
    OTHER,
    WAITING,
    breakdown_of,
    without_waiting,
)
from lar.profiles.disturbance import disturbed_steps
from lar.profiles.intervals import merge_intervals, subtract_intervals, total_of
from lar.profiles.roofline import host_peak_of, piece_of, work_of
from lar.profiles.times import is_loaded_in_steps, iteration_times_of
from lar.records.profile import Interval, Profile
from lar.reports.pages.tables import rounded

# More than these cannot be distinguished on a screen: what is drawn then stands for several.
MOST_ITERATIONS = 400
MOST_SAMPLES = 1000


def bins_of(count: int, most: int) -> list[range]:
    """Cut `count` things into ranges of the same length, at most `most` of them."""
    length = -(-count // most) or 1
    return [range(start, min(start + length, count)) for start in range(0, count, length)]


def numbers_of(profile: Profile) -> dict[int, int]:
    """Return the number of each timed iteration by that of its step: from 0, as a run prints it."""
    return {step.number: number for number, step in enumerate(profile.timed_steps())}


def latency_of(profile: Profile) -> dict[str, Any] | None:
    """Return the timed iterations in order: `[first, last, min, mean, max]` in milliseconds of
    each bin, with the statistics of all; None without any."""
    times = [ns / 1e6 for ns in iteration_times_of(profile)]
    statistics = statistics_of(times)
    if statistics is None:
        return None
    bins = []
    for part in bins_of(len(times), MOST_ITERATIONS):
        values = times[part.start : part.stop]
        mean = sum(values) / len(values)
        figures = (rounded(value) for value in (min(values), mean, max(values)))
        bins.append([part.start, part.stop - 1, *figures])
    numbers = numbers_of(profile)
    return {
        "bins": bins,
        "count": statistics.count,
        "mean": statistics.mean,
        "median": statistics.median,
        "minimum": statistics.minimum,
        "maximum": statistics.maximum,
        "deviation": statistics.standard_deviation,
        "percentiles": {f"p{rank}": value for rank, value in statistics.percentiles.items()},
        "disturbed": sorted(numbers[it] for it in disturbed_steps(profile) if it in numbers),
        "loaded": is_loaded_in_steps(profile),
        "warmup": [rounded(s.duration_ns / 1e6) for s in profile.steps if s.warmup][:20],
    }


def breakdowns_of(profile: Profile) -> list[dict[str, Any]]:
    """Return where the time of the iterations went, by what ran and by phase.

    Of each bin of iterations there is the mean of every part in milliseconds:
    `[first, last, part, ...]`. Empty where nothing was timed.
    """
    breakdown = breakdown_of(profile)
    if not breakdown.total_ns:
        return []
    numbers = numbers_of(profile)
    steps = [
        (numbers.get(step.number, step.number), list(step.buckets_ns.values()))
        for step in breakdown.steps
    ]
    about = (
        "Every moment counts for the first of these that it lies in. Waiting for a CPU, where that "
        "is known, is what an iteration took longer than usual while a thread stood ready without "
        "a CPU; Other is what lies between reading, feeding and running."
    )
    figures = [breakdown_figure("by what ran", about, breakdown.buckets, steps)]
    phases = phases_of(profile)
    if names := tuple(dict.fromkeys(name for times in phases.values() for name in times)):
        waits = {step.number: step.buckets_ns.get(WAITING, 0) for step in breakdown.steps}
        waiting = (WAITING,) if WAITING in breakdown.buckets else ()
        steps = []
        for step in profile.timed_steps():
            parts = {name: phases[step.number].get(name, 0) for name in names}
            parts[OTHER] = step.duration_ns - sum(parts.values())
            parts, waited = without_waiting(parts, waits.get(step.number, 0), ENGINE_PHASES)
            other = parts.pop(OTHER)
            times = [*parts.values(), *(waited for _ in waiting), other]
            steps.append((numbers[step.number], times))
        about = "What the run was in the middle of; Other is what lies between the phases."
        if waiting:
            about += " Waiting for a CPU is taken from the engine's calls, then from the others."
        figures.append(breakdown_figure("by phase", about, (*names, *waiting, OTHER), steps))
    return figures


def breakdown_figure(
    name: str, about: str, buckets: Sequence[str], steps: Sequence[tuple[int, list[int]]]
) -> dict[str, Any]:
    """Return one breakdown of steps, each a number and nanoseconds for every bucket."""
    bins = []
    for part in bins_of(len(steps), MOST_ITERATIONS):
        chosen = steps[part.start : part.stop]
        sums = [sum(times) / 1e6 for times in zip(*(times for _, times in chosen), strict=True)]
        ends = (chosen[0][0], chosen[-1][0])
        bins.append([*ends, *(rounded(total / len(chosen)) for total in sums)])
    totals = [sum(times) for times in zip(*(times for _, times in steps), strict=True)]
    return {
        "name": name,
        "about": about,
        "buckets": buckets,
        "bins": bins,
        "means": [rounded(total / len(steps) / 1e6) for total in totals],
        "shares": [rounded(100 * total / sum(totals)) for total in totals],
    }


def phases_of(profile: Profile) -> dict[int, dict[str, int]]:
    """Return how many nanoseconds of each timed step were in each phase, in the order of their
    begin; what lies in two phases counts for the one that began first."""
    steps = {step.number: step for step in profile.timed_steps()}
    taken: dict[int, list[Interval]] = {number: [] for number in steps}
    found: dict[int, dict[str, int]] = {number: {} for number in steps}
    for span in sorted(profile.spans_of("phase"), key=lambda span: span.start_ns):
        step = steps.get(-1 if span.step is None else span.step)
        if step is None:
            continue
        whole = (max(span.start_ns, step.start_ns), min(span.end_ns, step.end_ns))
        own = merge_intervals(subtract_intervals([whole], taken[step.number]))
        taken[step.number] = merge_intervals([*taken[step.number], *own])
        times = found[step.number]
        times[span.name] = times.get(span.name, 0) + total_of(own)
    return found


def roofline_of(profile: Profile) -> dict[str, Any]:
    """Return the operators as points `[name, type, flop/byte, GFLOP/s, share of time]`.

    Those of which operations or bytes are not known, or that have none, are counted in
    `left_out`: a logarithmic scale has no 0. `peak` is None where it has not been measured.
    """
    groups = profile.executions_by_operator
    works = {
        place: work_of(piece_of(profile, place, each.compute_ns) for each in executions)
        for place, executions in groups.items()
    }
    total_ns = sum(work.time_ns for work in works.values())
    points = []
    for place, work in sorted(works.items(), key=lambda item: -item[1].time_ns):
        operator, rate, intensity = profile.operators[place], work.flops_per_second, work.intensity
        if rate and intensity and work.flops_share == 1:
            share = 100 * work.time_ns / total_ns
            figures = (rounded(value) for value in (intensity, rate / 1e9, share))
            points.append([operator.name, operator.type, *figures])
    peak = host_peak_of(profile)
    return {
        "points": points[:MOST_SAMPLES],
        "left_out": len(works) - len(points[:MOST_SAMPLES]),
        "peak": peak
        and {
            "gflops": peak.flops_per_second / 1e9,
            "gbytes": peak.bytes_per_second / 1e9,
            "threads": peak.threads,
        },
    }
