"""The figures of calls that another tool's table lacks: text has those that --columns names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from lar.profiles.times import FIGURES as FIGURES_OF_TIMES
from lar.profiles.times import Totals
from lar.reports.model import Column


class Counted(Protocol):
    """A row: the times of its calls, and how much of an iteration it would save at the roofs.

    Both are None if unknown.
    """

    @property
    def times(self) -> Totals | None: ...
    @property
    def saving_ns(self) -> float | None: ...


class Figure(NamedTuple):
    """One figure of a row: a time in nanoseconds or, without `is_time`, a count."""

    title: str
    value: Callable[[Counted], float | None]
    is_time: bool = True


def of_times(value: Callable[[Totals], float | None]) -> Callable[[Counted], float | None]:
    """Return the figure of a row's times, None if these are not known."""
    return lambda row: None if row.times is None else value(row.times)


FIGURES: Mapping[str, Figure] = {
    "median": Figure("median", of_times(lambda it: it.median_ns)),
    **{name: Figure(name, of_times(value)) for name, value in FIGURES_OF_TIMES.items()},
    "saving": Figure("could save", lambda row: row.saving_ns),
    "calls": Figure("calls", of_times(lambda it: it.calls), is_time=False),
    "disturbed": Figure("disturbed", of_times(lambda it: it.disturbed), is_time=False),
}

Row = TypeVar("Row")


def asked_for(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the figures that --columns names, and the one that rows are sorted by."""
    return frozenset((*options.get("columns", ()), str(options.get("sort")).lstrip("+-")))


def figure_columns(
    names: Iterable[str], make: Callable[[str, Figure], Column[Row]]
) -> tuple[Column[Row], ...]:
    """Return the columns of some figures, made by the style's own `make`."""
    return tuple(make(name, FIGURES[name]) for name in names)
