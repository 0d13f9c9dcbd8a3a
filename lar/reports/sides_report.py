"""A comparison of several sides as a report: text, Markdown, CSV, JSON and a page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from string import ascii_uppercase as LETTERS
from typing import Any

from lar.errors import count_of, printable
from lar.records.comparison import (
    ComparisonOfSides,
    Culprit,
    Figures,
    SideFacts,
    TensorFacts,
    TensorOfSides,
)
from lar.reports.compare_text import (
    MOST_ROWS,
    describe_culprits,
    describe_sides,
    format_number,
    shorten,
    type_of,
)
from lar.reports.model import ANY_DIGITS, AnyTable, Cell, Column, Table
from lar.reports.pages import Section, format_facts, format_list, format_page, read_resource
from lar.reports.pages.tables import page_table
from lar.reports.report import Report

TITLE = "Comparison of several sides"


def build_report(
    found: ComparisonOfSides, *, everything: bool = False, with_page: bool = False
) -> Report:
    """Return the report: the sides, the worst tensors or all, and the odd one out; and a page of
    all tensors if that is wanted."""
    columns = columns_of(found)
    body: list[str | AnyTable] = [*describe_sides(sides_of(found))]
    title, shown = rows_to_show(found.tensors, everything)
    if shown:
        body += ["", title, table_of(columns, shown)]
    body += ["", *format_summary(found)]
    return Report(
        style="comparison",
        title=TITLE,
        body=tuple(body),
        tables=(table_of(columns, found.tensors),),
        document=found,
        page=page_of(found, columns) if with_page else "",
    )


def table_of(
    columns: Sequence[Column[TensorOfSides]], rows: Sequence[TensorOfSides]
) -> Table[TensorOfSides]:
    """Return a table of tensors; one that differs is red on a terminal with colours."""
    return Table(
        name="tensors",
        title="Tensors",
        columns=tuple(columns),
        rows=tuple(rows),
        color=lambda row: "" if row.same else "red",
    )


def columns_of(found: ComparisonOfSides) -> list[Column[TensorOfSides]]:
    """Return the columns: the operator, the error of each side against the first, the odd one."""
    return [
        Column("operator", name_of, name_of, rank=0),
        Column("type", lambda row: format_type(row) or None, format_type, rank=3, shortest=10),
        *(column_of_side(side) for side in range(1, len(found.sides))),
        Column("odd one out", describe_odd, describe_odd, rank=0),
    ]


def column_of_side(side: int) -> Column[TensorOfSides]:
    """Return the column of one side's error against the first side."""

    def error(row: TensorOfSides) -> Cell:
        figures = row.figures[side]
        if figures is None:
            return None
        return 0.0 if figures.identical else finite_error(figures)

    def text(row: TensorOfSides) -> str:
        figures = row.figures[side]
        if figures is None:
            return "not comparable" if row.tensors[side] else "no twin"
        if figures.nonfinite_mismatches:
            return f"{figures.nonfinite_mismatches} NaN or inf"
        return "equal" if figures.identical else format_number(figures.relative_l2)

    return Column(
        LETTERS[side], error, text, key=f"error_{LETTERS[side]}", rank=1, digits=ANY_DIGITS
    )


def finite_error(figures: Figures) -> float | None:
    return None if figures.nonfinite_mismatches else figures.relative_l2


def main_facts_of(row: TensorOfSides) -> TensorFacts:
    """Return the tensor of the first side."""
    return next(tensor for tensor in row.tensors if tensor is not None)


def name_of(row: TensorOfSides) -> str:
    """Return the names that a tensor has on any side."""
    names = dict.fromkeys(tensor.name for tensor in row.tensors if tensor)
    return printable(" = ".join(map(shorten, names)))


def format_type(row: TensorOfSides) -> str:
    facts = main_facts_of(row)
    return printable(type_of(facts.operator_type, facts.operator))


def describe_odd(row: TensorOfSides) -> str:
    """Return the letters of the sides that differ from most; where no side is odd, which of them
    agree with each other."""
    if row.same:
        return ""
    if row.odd:
        return " ".join(LETTERS[side] for side in row.odd)
    return describe_groups(row)


def describe_groups(row: TensorOfSides) -> str:
    groups = (" ".join(LETTERS[side] for side in group) for group in row.groups)
    return " | ".join(groups)


def sides_of(found: ComparisonOfSides) -> dict[str, SideFacts]:
    """Return the sides by letter."""
    return dict(zip(LETTERS, found.sides, strict=False))


def rows_to_show(
    tensors: Sequence[TensorOfSides], everything: bool
) -> tuple[str, list[TensorOfSides]]:
    """Return the tensors of the table in the order of execution, and the line above it."""
    if everything:
        return "tensors:", list(tensors)
    found = [it for it in tensors if not it.same]
    worst = sorted(found, key=badness_of, reverse=True)[:MOST_ROWS]
    title = "tensors that differ:"
    if len(worst) < len(found):
        title += f" the {MOST_ROWS} worst of {len(found)}; --all prints every tensor"
    kept = set(map(id, worst))
    return title, [it for it in found if id(it) in kept]


def badness_of(row: TensorOfSides) -> float:
    """Return the largest error of a tensor, infinite where two cannot be compared."""
    errors = [
        math.inf if figures is None or (error := finite_error(figures)) is None else error
        for figures, tensor in zip(row.figures[1:], row.tensors[1:], strict=True)
        if tensor is not None
    ]
    return max(errors, default=0.0)


def format_summary(found: ComparisonOfSides) -> Iterator[str]:
    """Yield the last lines: what was compared, how often each side is the odd one, the result."""
    counts = [
        f"{sum(row.tensors[side] is not None for row in found.tensors)} with {LETTERS[side]}"
        for side in range(1, len(found.sides))
    ]
    differing = sum(not row.same for row in found.tensors)
    yield (
        f"{count_of(len(found.tensors), 'tensor')} of A compared, {', '.join(counts)}: "
        f"{len(found.tensors) - differing} the same on all sides, {differing} differ"
    )
    for letter, each in zip(LETTERS[1:], found.comparisons, strict=False):
        yield from (printable(f"note: {letter} against A: {note}") for note in each.notes)
    yield from (printable(f"note: {note}") for note in found.notes)
    yield f"result: {describe_result(found)}"


def describe_result(found: ComparisonOfSides) -> str:
    """Return the verdict in a sentence: the odd one out, and where it differs first."""
    if found.same:
        return "the same within the tolerance"
    differing = [row for row in found.tensors if not row.same]
    odd = Counter(side for row in differing for side in row.odd)
    if not odd:
        if not differing:
            return "different"
        first = differing[0]
        return (
            "different; no side is the odd one out: "
            f"at {name_of(first)} {describe_groups(first)} differ"
        )
    words = []
    for side, count in odd.most_common():
        first = next(row for row in differing if side in row.odd)
        words.append(
            f"{LETTERS[side]} is the odd one out at {count} of "
            f"{count_of(len(found.tensors), 'tensor')}, first "
            f"at {name_of(first)}{describe_blame(found, side)}"
        )
    return f"different; {'; '.join(words)}"


def describe_blame(found: ComparisonOfSides, side: int) -> str:
    """Return the culprits of a side that is the odd one out, as the comparison with another side
    names them."""
    # Where the first side is the odd one, any other that differs from it will do.
    differing = [number for number, each in enumerate(found.comparisons, 1) if not each.same]
    against = side or next(iter(differing), 1)
    culprits: tuple[Culprit, ...] = found.comparisons[against - 1].culprits
    if not culprits:
        return ""
    return f" ({describe_culprits(culprits, (LETTERS[against], LETTERS[0]))})"


def page_of(found: ComparisonOfSides, columns: Sequence[Column[TensorOfSides]]) -> str:
    """Return a page: the verdict, the errors of each side over depth, and all tensors."""
    verdict = "same" if found.same else "different"
    *notes, result = format_summary(found)
    lines = (line.partition(": ") for line in describe_sides(sides_of(found)))
    facts = [(name, text) for name, _, text in lines]
    words = (
        f'<p class="result {verdict}">{escape(result.partition(": ")[2])}</p>'
        + format_facts(facts)
        + format_list(notes)
    )
    sections = [Section("result", "Result", words=words)]
    figures: dict[str, Any] = {"culprits": []}
    if curves := curves_of(found):
        about = "Length of the difference from A over that of A's tensor, of each other side."
        sections.append(Section("depth", "Error over depth", about))
        figures["curves"] = curves
    differing = [row for row in found.tensors if not row.same]
    for name, title, rows in (
        ("differing", "Tensors that differ", differing),
        ("all", "All tensors", found.tensors),
    ):
        if rows:
            sections.append(Section(name, title))
            marks = tuple("" if row.same else "differs" for row in rows)
            table = page_table("tensors", columns, tuple(rows), order="place")
            figures[name] = table._replace(marks=marks, missing=()).figures()
    script = read_resource("lar.reports.pages", "comparison.js")
    return format_page(f"lar compare: {verdict}", TITLE, sections, figures, [script])


def curves_of(found: ComparisonOfSides) -> list[dict[str, Any]]:
    """Return `{name, points: [depth, error, name]}` of each side but the first, an error that is
    not a number as None."""
    rows = [row for row in found.tensors if not row.constant]
    curves = []
    for side in range(1, len(found.sides)):
        points = [
            [row.depth, 0.0 if figures.identical else finite_error(figures), name_of(row)]
            for row in rows
            if (figures := row.figures[side]) is not None
        ]
        if points:
            curves.append({"name": LETTERS[side], "points": points})
    return curves
