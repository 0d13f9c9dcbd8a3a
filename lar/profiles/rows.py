"""Rows of reports: the executions of timed iterations, grouped by operator, type, module and so on.

All reports take their rows from this module. Operators within an operator, such as the operators in
the body of a Loop, are listed separately. Each row has a time without inner operators, and the sum
of these times over all rows is the time of all operators. A row also has the time that includes
inner operators.

Reports in the style of another tool show further figures of a row if --columns names these figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from lar.profiles.activities import Launch, launches_of
from lar.profiles.breakdown import disturbed_executions, steps_of
from lar.profiles.roofline import Bound, Work, host_peak_of, work_of
from lar.profiles.times import FIGURES as FIGURES_OF_TIMES
from lar.profiles.times import Totals, group_by, keep_with_profile, totals_of
from lar.records.profile import Profile

Key = Literal["operator", "type", "module", "shape", "kernel", "range"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """The executions of one operator, type, module, shape, kernel or range, with their figures.

    `operators` are indexes in `Profile.operators`. `times` has the own times of executions in
    nanoseconds. `total_ns` is the sum of the times of all executions, including inner operators.
    `iteration_ns` is the row's time in an iteration: for each operator, the median time is
    multiplied by the number of executions, and the products are added. Since medians are used, a
    disturbed execution hardly changes `iteration_ns`. `share` is the row's part of the
    `iteration_ns` of all rows, from 0 to 1; rows that a filter leaves out count, too. `bounds` maps
    each bound to the part of the row's time that this bound limits, the largest part first. The key
    None has the part of the time for which the bound is unknown. `saving_ns` is the time that an
    iteration would save if the row reached the machine's roofs, or None if unknown.
    """

    name: str
    type: str
    kernel: str
    operators: tuple[int, ...]
    times: Totals
    total_ns: int
    iteration_ns: float
    share: float
    work: Work
    bounds: Mapping[Bound | None, float]
    saving_ns: float | None = None

    @property
    def bound(self) -> Bound | None:
        """The bound that limits most of the row's time, or None if it is unknown."""
        return next(iter(self.bounds), None)

    def describe_bounds(self) -> str:
        """Return the bound of the row as text; empty if the bound is unknown.

        If the operators of the row have different bounds, the text has the part of each bound.
        """
        if len(self.operators) < 2 or max(self.bounds.values()) > 0.995:
            return self.bound or ""
        shares = self.bounds.items()
        return ", ".join(f"{it} {share:.0%}" for it, share in shares if it and share >= 0.01)


def rows_of(
    profile: Profile,
    by: Key = "operator",
    launches: Sequence[Launch] | None = None,
    whole: Sequence[Launch] | None = None,
) -> list[Row]:
    """Return the rows of a profile, or only the rows of `launches`, with the slowest row first.

    The share of a row is its part of the time of all launches in `whole`; by default, `whole` has
    all launches of the profile.
    """
    disturbed, peak = disturbed_executions(profile), host_peak_of(profile)

    def times_of(group: Sequence[Launch]) -> Totals:
        return totals_of(
            [launch.piece.duration_ns for launch in group],
            [launch.place for launch in group],
            sum(launch.execution in disturbed for launch in group),
            profile.facts.times,
        )

    groups = group_by(launches_of(profile) if whole is None else whole, KEYS[by])
    known = {title: times_of(group) for title, group in groups.items()}
    whole_ns, steps = sum(it.ranking_ns for it in known.values()), len(steps_of(profile)) or 1
    rows = []
    for title, group in (groups if launches is None else group_by(launches, KEYS[by])).items():
        times = known[title] if launches is None else times_of(group)
        work = work_of(launch.piece for launch in group)
        saving = work.saving_ns(peak)
        types = {launch.operator.type for launch in group}
        rows.append(
            Row(
                name=group[0].operator.name if by == "operator" else str(title),
                type=types.pop() if len(types) == 1 else "",
                kernel=busiest_kernel(group),
                operators=tuple(dict.fromkeys(it.place for it in group if it.place is not None)),
                times=times,
                total_ns=sum(launch.total_ns for launch in group),
                iteration_ns=times.ranking_ns / steps,
                share=times.ranking_ns / whole_ns if whole_ns else 0.0,
                work=work,
                bounds=work.bounds(peak),
                saving_ns=None if saving is None else saving / steps,
            )
        )
    return sorted(rows, key=lambda row: -row.iteration_ns)


@keep_with_profile
def known_operators(profile: Profile) -> list[Row]:
    """Return the rows of operators; leave out kernels without an operator."""
    return [row for row in rows_of(profile) if row.operators]


@keep_with_profile
def savings_of(profile: Profile) -> Mapping[int, float]:
    """Return how many nanoseconds an iteration would save if an operator reached its roof.

    The keys are the indexes of operators in `Profile.operators`. Operators without a known saving
    are left out.
    """
    rows = known_operators(profile)
    return {row.operators[0]: row.saving_ns for row in rows if row.saving_ns is not None}


def shape_of(launch: Launch) -> str:
    """Return the type of a launch's operator and the shapes of the operator's inputs."""
    shapes = " ".join(f"{{{','.join(map(str, fact.shape))}}}" for fact in launch.operator.inputs)
    return f"{launch.operator.type} {shapes}".rstrip()


KEYS: Mapping[Key, Callable[[Launch], object]] = {
    "operator": lambda launch: launch.kernel if launch.place is None else launch.place,
    "type": lambda launch: launch.operator.type,
    "module": lambda launch: launch.operator.module,
    "shape": shape_of,
    "kernel": lambda launch: launch.kernel,
    "range": lambda launch: " / ".join(launch.ranges) or "outside the ranges",
}


def busiest_kernel(launches: Sequence[Launch]) -> str:
    """Return the kernel that took the most time in the given launches."""
    times: dict[str, int] = {}
    for launch in launches:
        times[launch.kernel] = times.get(launch.kernel, 0) + launch.piece.duration_ns
    return max(times, key=times.__getitem__)


# Figures of rows, for tables of other tools


class Counted(Protocol):
    """A row with the times of its calls, and the time that it would save if it reached the roofs.

    `times` and `saving_ns` are None if they are unknown.
    """

    @property
    def times(self) -> Totals | None: ...
    @property
    def saving_ns(self) -> float | None: ...


class Figure(NamedTuple):
    """One figure of a row: a time in nanoseconds, or a count if `is_time` is false."""

    title: str
    value: Callable[[Counted], float | None]
    is_time: bool = True


def of_times(value: Callable[[Totals], float | None]) -> Callable[[Counted], float | None]:
    """Return a function that gets a figure from a row's times, or None if these are unknown."""
    return lambda row: None if row.times is None else value(row.times)


FIGURES: Mapping[str, Figure] = {
    "median": Figure("median", of_times(lambda it: it.median_ns)),
    **{name: Figure(name, of_times(value)) for name, value in FIGURES_OF_TIMES.items()},
    "saving": Figure("could save", lambda row: row.saving_ns),
    "calls": Figure("calls", of_times(lambda it: it.calls), is_time=False),
    "disturbed": Figure("disturbed", of_times(lambda it: it.disturbed), is_time=False),
}

Column = TypeVar("Column")


def asked_for(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the figures that --columns names, and the figure by which --sort sorts."""
    return frozenset((*options.get("columns", ()), str(options.get("sort")).lstrip("+-")))


def figure_columns(
    names: Iterable[str], make: Callable[[str, Figure], Column]
) -> tuple[Column, ...]:
    """Return the columns of the named figures.

    `make` makes a column in the style of the report.
    """
    return tuple(make(name, FIGURES[name]) for name in names)
