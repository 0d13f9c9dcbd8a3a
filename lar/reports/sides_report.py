"""A comparison of several sides as a report: text, Markdown, CSV, JSON and a page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from string import ascii_uppercase as LETTERS

from lar.errors import one_line
from lar.records.comparison import ComparisonOfSides, SideFacts, TensorOfSides
from lar.reports.comparison_report import (
    counts_of,
    describe_basis,
    describe_culprits,
    describe_gaps,
    describe_left_out,
    describe_sides,
    error_of,
    format_error,
    heading_of,
    report_of,
    shorten,
    table_of,
    type_of,
    worst_of,
)
from lar.reports.model import ANY_DIGITS, Cell, Column
from lar.reports.report import Part, Report


def report_sides(found: ComparisonOfSides, *, everything: bool = False) -> Report:
    """Return the report of a comparison of several sides.

    It has the origin of each, the worst tensors or all, and the odd one out.
    """
    columns = columns_of(found)
    body: list[Part] = [*describe_head(found)]
    title, shown = "tensors:", list(found.tensors)
    if not everything:
        shown = [it for it in shown if not is_alike(it)]
        title, shown = worst_of("tensors that differ:", shown, badness_of)
    if shown:
        body += ["", title, table_of(columns, shown, is_alike, heading_of(title))]
    body += ["", *format_summary(found)]
    return report_of(found, body, table_of(columns, found.tensors, is_alike))


def is_alike(row: TensorOfSides) -> bool:
    """Return whether all sides that have the tensor agree."""
    return len(row.groups) == 1


def columns_of(found: ComparisonOfSides) -> list[Column[TensorOfSides]]:
    """Return the columns: the tensor, the error of each side against the first, the odd one."""
    return [
        Column("tensor", name_of, name_of, rank=0),
        Column("type", lambda row: format_type(row) or None, format_type, rank=3),
        *(column_of_side(side) for side in range(1, len(found.sides))),
        Column("odd one out", describe_odd, describe_odd, rank=0),
    ]


def column_of_side(side: int) -> Column[TensorOfSides]:
    """Return the column of one side's error against the first side."""

    def error(row: TensorOfSides) -> Cell:
        return error_of(row.figures[side])

    def text(row: TensorOfSides) -> str:
        figures = row.figures[side]
        if figures is None:
            return "not comparable" if row.tensors[side] else "no twin"
        return format_error(figures)

    letter = LETTERS[side]
    return Column(letter, error, text, key=f"error_{letter}", rank=1, digits=ANY_DIGITS)


def name_of(row: TensorOfSides) -> str:
    """Return the names that a tensor has on any side."""
    names = dict.fromkeys(tensor.name for tensor in row.tensors if tensor)
    return " = ".join(map(shorten, names))


def format_type(row: TensorOfSides) -> str:
    facts = next(tensor for tensor in row.tensors if tensor is not None)
    return type_of(facts.operator_type, facts.operator)


def describe_odd(row: TensorOfSides) -> str:
    """Return the letters of the sides that differ from most.

    If no side is odd, they are the sides that agree with each other.
    """
    if row.odd:
        return " ".join(LETTERS[side] for side in row.odd)
    groups = (" ".join(LETTERS[side] for side in group) for group in row.groups)
    return "" if is_alike(row) else " | ".join(groups)


def describe_head(found: ComparisonOfSides) -> Iterator[str]:
    """Yield the lines about the sides; what a side did not record comes first."""
    sides: dict[str, SideFacts] = dict(zip(LETTERS, found.sides, strict=False))
    left_out = [[it for it in found.comparisons[0].left_out if it.side == "expected"]]
    left_out += [[it for it in each.left_out if it.side == "actual"] for each in found.comparisons]
    for (letter, side), lacking in zip(sides.items(), left_out, strict=True):
        yield from describe_gaps(letter, side, lacking)
    yield from describe_sides(sides)


def badness_of(row: TensorOfSides) -> float:
    """Return the largest error of a tensor, infinite if two sides cannot be compared."""
    errors = map(error_of, row.figures[1:])
    known = zip(errors, row.tensors[1:], strict=True)
    return max((math.inf if error is None else error for error, it in known if it), default=0.0)


def format_summary(found: ComparisonOfSides) -> Iterator[str]:
    """Yield the last lines: notes and the result."""
    for letter, each in zip(LETTERS[1:], found.comparisons, strict=False):
        yield from (one_line(f"note: {letter} against A: {note}") for note in each.notes)
    yield from (one_line(f"note: {note}") for note in found.notes)
    yield f"result: {describe_result(found)}"


def describe_result(found: ComparisonOfSides) -> str:
    """Return the verdict in a sentence: the odd one out, and where it differs first."""
    if found.same:
        least = min(found.comparisons, key=counts_of)
        return f"the same within the tolerance ({describe_basis(least)})"
    if found.finding == "nothing":
        empty = next(it for it in found.comparisons if it.finding == "nothing")
        lacking = describe_left_out(empty) or "two sides share no output and no computed tensor"
        return f"nothing compared: {lacking}"
    words = []
    for side in sorted({side for row in found.tensors for side in row.odd}):
        first = next(row for row in found.tensors if side in row.odd)
        where = f"first at {name_of(first)}{describe_blame(found, side)}"
        words.append(f"{LETTERS[side]} is the odd one out, {where}")
    return "; ".join(["different", *(words or ["no side is the odd one out"])])


def describe_blame(found: ComparisonOfSides, side: int) -> str:
    """Return the culprits of the odd side, from the comparison with another side."""
    # If the first side is the odd one, any side that differs from it will do.
    differing = [number for number, each in enumerate(found.comparisons, 1) if not each.same]
    against = side or next(iter(differing), 1)
    letters = LETTERS[against], LETTERS[0]
    culprits = describe_culprits(found.comparisons[against - 1].culprits, letters)
    return f" ({culprits})" if culprits else ""
