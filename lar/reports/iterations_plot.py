"""The plot of iterations: the distribution of their times, and each one when it was made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lar.measurement.statistics import disturbed_of
from lar.records.run import Samples
from lar.reports.model import Plot

# At most so many iterations of a lane are drawn, evenly chosen.
MOST_POINTS = 3000
ABOUT = (
    "All timed iterations: above, how many took how long, with a line at the median; below, each "
    "at its time. Pale, or a cross: disturbed, as a thread was ready and had no CPU."
)


# The second, the milliseconds, and 1 if the iteration was disturbed.
Point = tuple[float, float, int]


def plot_iterations(
    lanes: Mapping[str, Iterable[tuple[float, Samples]]],
    rounds: Sequence[tuple[float, float]] = (),
) -> Plot:
    """Return the plot of the samples of each lane, with the seconds at which they began.

    `rounds` are when each round of processes began and when its last one did.
    """
    drawn = {
        name: [point for began, samples in parts for point in points_of(began, samples)]
        for name, parts in lanes.items()
    }
    return plot_points(drawn, rounds)


def plot_points(
    lanes: Mapping[str, Sequence[Point]], rounds: Sequence[tuple[float, float]] = ()
) -> Plot:
    """Return the plot of the points of each lane."""
    drawn = []
    for name, points in lanes.items():
        every = math.ceil(len(points) / MOST_POINTS) or 1
        drawn.append({"name": name, "points": points[::every], "total": len(points)})
    about = f"{ABOUT} Each shaded stripe is a round of fresh processes." if rounds else ABOUT
    return Plot("iterations", "Iterations", {"lanes": drawn, "rounds": rounds}, about)


def points_of(began: float, samples: Samples) -> Iterator[Point]:
    """Yield the point of each iteration."""
    times = samples.end_to_end
    disturbed = set(disturbed_of(times, samples.queue_delay))
    for index, seconds in enumerate(times):
        yield round(began, 6), float(f"{1e3 * seconds:.5g}"), int(index in disturbed)
        began += seconds
