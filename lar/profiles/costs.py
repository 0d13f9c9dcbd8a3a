"""The cost of profiling, and operator times scaled to a plain iteration.

A plain run comes before each profiled run. The cost of profiling is how much longer a profiled
iteration takes than a plain iteration. It is unknown how much of the cost of profiling belongs to
each operator. At first, lar assumes that the whole cost of profiling lies outside of operators. If
the operators together still take longer than a plain iteration, all their times are multiplied by
the same factor, so that they take as long as a plain iteration.

All times stay as recorded if the cost is at most `LIMIT` times the time of a plain iteration. If
other work disturbed the runs so much that the cost is unknown, all times stay as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lar.profiles.breakdown import disturbed_steps
from lar.profiles.ranges import OPERATOR_RANGE
from lar.profiles.times import group_by, iterations_of, merge_intervals, times_in, total_of
from lar.records.profile import Correction, Cost, Execution, Interval, Profile, Span

if TYPE_CHECKING:
    from lar.records.run import Samples

R = TypeVar("R", Execution, Span)

# A cost above this part of a plain iteration is subtracted from times.
LIMIT = 0.03

# Two runs differ by this factor only for a reason, not by chance.
SURELY_SLOWER = 1.1


def cost_of(profiled: Samples, plain: Samples) -> Cost | None:
    """Return the cost of profiling: the median times of iterations with and without profiling.

    If too few iterations were undisturbed, the fastest undisturbed profiled iteration is used
    instead of a median. In this case, the cost is known only if the fastest undisturbed profiled
    iteration is certainly slower than the median plain iteration. If even the fastest profiled
    iteration is slower than the median plain iteration, profiling certainly costs time: other work
    on the machine can only make an iteration slower.
    """
    # Reports do not need these modules.
    from lar.measurement.statistics import disturbed_in
    from lar.measurement.summary import calm_median, in_turn

    times, without = profiled.end_to_end, plain.end_to_end
    if not times or not without:
        return None
    calm, calm_without = calm_median(profiled), calm_median(plain)
    if calm is None or calm_without is None:
        fastest = min(in_turn(profiled, disturbed_in(profiled)), default=0.0)
        if fastest > SURELY_SLOWER * median(without):
            calm, calm_without = fastest, median(without)
    return Cost(
        median(times),
        median(without),
        len(times),
        len(without),
        calm,
        calm_without,
        disturbed=calm is None or calm_without is None,
    )


def plain_iterations_of(plain: Samples) -> tuple[tuple[float, bool], ...]:
    """Return the seconds of each plain iteration, and whether the iteration was disturbed."""
    from lar.measurement.statistics import disturbed_in

    disturbed = disturbed_in(plain)
    return tuple((seconds, place in disturbed) for place, seconds in enumerate(plain.end_to_end))


def seconds_of(profile: Profile) -> tuple[float, float] | None:
    """Return the median seconds of an iteration with and without profiling, or None if unknown."""
    cost = profile.facts.cost
    if cost is None or cost.disturbed or not cost.calm[1]:
        return None
    return cost.calm


def extra_share(profile: Profile) -> float | None:
    """Return the cost of profiling divided by the time of a plain iteration, or None if unknown."""
    seconds = seconds_of(profile)
    return None if seconds is None else seconds[0] / seconds[1] - 1


def fit_to_plain(profile: Profile) -> Profile:
    """Return a profile whose operator times are scaled to an iteration without profiling.

    The profile stays unchanged if the cost of profiling is low, unknown or already subtracted. The
    times of all operators and of their spans are moved towards the start of the iteration and
    shortened by the same factor, so that inner operators still lie within outer operators. Steps,
    calls and phases stay as recorded. Steps and phases include the cost of profiling each
    iteration, which is `Correction.cost_ns`.
    """
    seconds, share = seconds_of(profile), extra_share(profile)
    if seconds is None or share is None or share <= LIMIT or profile.correction is not None:
        return profile
    cost_ns = round((seconds[0] - seconds[1]) * 1e9)
    scale = 1.0 if profile.on_device else scale_of(profile, seconds[1] * 1e9)
    fitted = replace(profile, correction=Correction(scale, cost_ns))
    if scale == 1.0:
        return fitted
    begins = {step.number: step.start_ns for step in profile.steps}
    begins |= {step: begin for step, (begin, _) in iterations_of(profile).items()}

    def moved(record: R) -> R:
        """Return a record, with scaled times if it belongs to an operator."""
        if isinstance(record, Span) and record.operator is None and record.style != OPERATOR_RANGE:
            return record
        times = times_in(record)
        begin = None if record.step is None else begins.get(record.step)
        for name, at_ns in times.items():
            if begin is not None and at_ns >= begin:
                times[name] = begin + round((at_ns - begin) * scale)
        if isinstance(record, Execution) and record.wait_ns is not None:
            times["wait_ns"] = round(record.wait_ns * scale)
        return msgspec.structs.replace(record, **times)

    return replace(
        fitted,
        executions=tuple(map(moved, profile.executions)),
        spans=tuple(map(moved, profile.spans)),
    )


def fit_all_to_plain(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles of a report; all their operator times are of one kind.

    The times of all profiles are scaled as by `fit_to_plain`. If the cost of profiling is not known
    for one of the profiles, the times of all profiles stay as recorded.
    """
    known = all(map(seconds_of, profiles))
    return [fit_to_plain(profile) if known else profile for profile in profiles]


def scale_of(profile: Profile, plain_ns: float) -> float:
    """Return the factor (at most 1) by which operator times are scaled to a plain iteration.

    A plain iteration is an iteration without profiling.

    The scaled operators must fit into the plain iteration together with the copying of inputs and
    outputs. Only undisturbed iterations are used, unless all iterations were disturbed. If several
    copies of a model run, each copy has its own iterations.
    """
    busy = group_by(profile.timed_executions, lambda each: each.step)
    copied: dict[int, list[Interval]] = {}
    iterations = iterations_of(profile)
    for span in profile.spans_of("phase"):
        if span.name in ("input_copy", "output_copy") and span.step in iterations:
            begin, end = iterations[span.step]
            times = max(begin, span.start_ns), min(end, span.end_ns)
            copied.setdefault(span.step, []).append(times)
    if not busy:
        return 1.0
    steps = busy.keys() - disturbed_steps(profile).keys() or busy.keys()
    busy_ns = median(total_of(merge_intervals(it.interval for it in busy[step])) for step in steps)
    copied_ns = median(total_of(merge_intervals(copied.get(step, ()))) for step in steps)
    return min(1.0, max(plain_ns - copied_ns, 0.0) / busy_ns) if busy_ns else 1.0


def describe_cost(profile: Profile) -> str:
    """Return sentences on the cost of profiling, and on its effect on operator times.

    Return an empty string if there was no plain run. `profile` is the profile that a report shows:
    as recorded, or from `fit_to_plain`.
    """
    cost, seconds, share = profile.facts.cost, seconds_of(profile), extra_share(profile)
    if cost is None or not cost.unprofiled_seconds:
        return ""
    if seconds is None or share is None:
        return (
            "Other work disturbed the runs, so that the cost of profiling is not known: an "
            f"iteration took {format_time(cost.profiled_seconds)} with it."
        )
    if share < 0:
        return "Profiling had no measurable cost."
    text = f"Profiling adds {100 * share:.1f}%: an iteration took {format_time(seconds[0])} with it"
    correction = profile.correction
    if correction is None:
        return f"{text}. Times of operators are as recorded."
    if correction.scale == 1:
        return f"{text}. It lies outside of operators, whose times are as recorded."
    return (
        f"{text}. Times of operators are scaled by {correction.scale:.3f}, so that they fit into "
        "an iteration without it."
    )


def format_time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
