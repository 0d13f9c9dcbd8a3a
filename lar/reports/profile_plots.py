"""The plots on the page of a profile: iterations, memory, and a trace to save.

The plot of iterations shows the distribution of their times, and each iteration at the moment when
it ran.
"""

from __future__ import annotations

import gzip
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import PurePath

from lar.measurement.statistics import disturbed_of
from lar.profiles.breakdown import disturbed_steps
from lar.profiles.export import export_chrome
from lar.profiles.times import iterations_of
from lar.records.profile import Profile, Step
from lar.records.run import Samples
from lar.reports.model import Plot

# The most iterations of a lane that are drawn; they are chosen evenly.
MOST_ITERATIONS = 3000

ABOUT = (
    "All timed iterations. Above: the distribution of their times, with a line at the median. "
    "Below: each at the time when it ran. Pale or a cross: disturbed, a thread waited for a CPU."
)

# An iteration: its begin in seconds, its time in milliseconds, and 1 if it was disturbed.
Point = tuple[float, float, int]


def plot_iterations(
    lanes: Mapping[str, Iterable[tuple[float, Samples]]],
    rounds: Sequence[tuple[float, float]] = (),
) -> Plot:
    """Return the plot of iterations; each lane has samples, with the second at which each began.

    `rounds` has, for each round, the seconds at which its first and its last turn began.
    """
    drawn = {
        name: [point for began, samples in parts for point in points_of(began, samples)]
        for name, parts in lanes.items()
    }
    return plot_points(drawn, rounds)


def plot_points(
    lanes: Mapping[str, Sequence[Point]], rounds: Sequence[tuple[float, float]] = ()
) -> Plot:
    """Return the plot of iterations; each lane (a row of the plot) has its points."""
    drawn = []
    for name, points in lanes.items():
        every = math.ceil(len(points) / MOST_ITERATIONS) or 1
        drawn.append({"name": name, "points": points[::every], "total": len(points)})
    about = f"{ABOUT} Each shaded stripe is a round of fresh processes." if rounds else ABOUT
    return Plot("iterations", "Iterations", {"lanes": drawn, "rounds": rounds}, about)


def points_of(began: float, samples: Samples) -> Iterator[Point]:
    """Yield a point for each iteration: its start, its time, and 1 if it was disturbed, else 0."""
    times = samples.end_to_end
    disturbed = set(disturbed_of(times, samples.queue_delay))
    for index, seconds in enumerate(times):
        yield round(began, 6), float(f"{1e3 * seconds:.5g}"), int(index in disturbed)
        began += seconds


MIB = 2**20

# The most points of a curve: a screen cannot show more.
MOST_POINTS = 1000

# The largest trace in a page; it has as many iterations as fit.
MOST_TRACE_BYTES = 80_000


def plots_of(profile: Profile) -> tuple[Plot, ...]:
    """Return all plots for which a profile has records."""
    return (*plot_times(profile), *plot_memory(profile), *plot_trace(profile))


def plot_times(profile: Profile) -> Iterator[Plot]:
    """Yield the plot of timed iterations, in two lanes: without and with the profiler."""
    disturbed = disturbed_steps(profile)
    lanes: dict[str, list[Point]] = {"without the profiler": [], "with the profiler": []}
    plain, profiled = lanes.values()
    at = 0.0
    for seconds, was_disturbed in profile.facts.plain:
        plain.append((round(at, 6), float(f"{1e3 * seconds:.5g}"), int(was_disturbed)))
        at += seconds
    steps = profile.timed_steps()
    for step, (begin, end) in zip(steps, iterations_of(profile).values(), strict=True):
        after = at + (step.start_ns - steps[0].start_ns) / 1e9
        ms = float(f"{(end - begin) / 1e6:.5g}")
        profiled.append((round(after, 6), ms, int(step.number in disturbed)))
    if any(lanes.values()):
        yield plot_points({name: points for name, points in lanes.items() if points})


def plot_memory(profile: Profile) -> Iterator[Plot]:
    """Yield the curves of memory over time, one for tensors and one for the process."""
    events = sorted(profile.allocations, key=lambda each: each.at_ns)
    sums = accumulate(each.size_bytes for each in events)
    tensors = [(each.at_ns, total) for each, total in zip(events, sums, strict=True)]
    resident = [(it.at_ns, it.value) for it in profile.counters if it.name == "rss"]
    first = min((step.start_ns for step in profile.timed_steps()), default=0)
    for title, samples in (
        ("Memory of tensors", tensors),
        ("Resident memory of the process", resident),
    ):
        if not samples:
            continue
        points = [(round(at / 1e9, 6), round(size / MIB, 4)) for at, size in thin_out(samples)]
        has_warmup = points[0][0] < first / 1e9
        yield Plot(
            "curve",
            title,
            {
                **{"title": title, "x": "time, s", "y": "MiB", "points": points, "step": True},
                "folded": first / 1e9 if has_warmup else None,
            },
            "The warm-up is the stripe at the left." if has_warmup else "",
        )


def thin_out(samples: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield the samples; if there are too many, yield the largest of each group of neighbours."""
    length = -(-len(samples) // MOST_POINTS)
    for start in range(0, len(samples), length):
        yield max(samples[start : start + length], key=lambda sample: sample[1])


def plot_trace(profile: Profile) -> Iterator[Plot]:
    """Yield a button that saves a trace of the median iteration and of evenly spaced iterations."""
    ordered = sorted(profile.timed_steps(), key=lambda step: step.duration_ns)
    if not ordered:
        return
    middle = ordered[len(ordered) // 2]
    data = trace_of(profile, [middle])
    count = min(len(ordered), MOST_TRACE_BYTES // len(data))
    if count > 1:
        every = -(-len(ordered) // count)
        data = trace_of(profile, {middle, *profile.timed_steps()[::every]})
    name = f"{PurePath(profile.facts.model.path).stem or 'model'}.trace.json.gz"
    about = "The timeline of threads and operators, for ui.perfetto.dev or chrome://tracing."
    yield Plot("download", "Timeline", {"name": name, "data": b64encode(data).decode()}, about)


def trace_of(profile: Profile, steps: Sequence[Step] | set[Step]) -> bytes:
    """Return the trace of some iterations, compressed with gzip."""
    numbers = {step.number for step in steps}
    part = replace(
        profile,
        steps=tuple(step for step in profile.steps if step.number in numbers),
        executions=tuple(each for each in profile.executions if each.step in numbers),
        spans=tuple(span for span in profile.spans if span.step in numbers),
        counters=(),
        allocations=(),
        engine_raw=b"",
    )
    return gzip.compress(b"".join(export_chrome(part)), mtime=0)
