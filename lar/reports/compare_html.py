"""A comparison as an HTML page: culprits, errors over depth, tables of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from lar.errors import printable
from lar.records.comparison import (
    Comparison,
    Culprit,
    TensorComparison,
    UnmatchedTensor,
)
from lar.reports.compare_text import (
    COLUMNS,
    Row,
    describe_culprit,
    describe_machine,
    describe_operator,
    describe_side,
    entire_of,
    format_summary,
    name_of_pair,
    name_with_form,
    rows_of_culprit,
)
from lar.reports.model import Cell, Column
from lar.reports.pages import Section, format_facts, format_page, read_resource
from lar.reports.pages.tables import PageTable, page_table

Keys = set[tuple[str, str]]


def format_html(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    verdict = "same" if comparison.same else "different"
    sections = [Section("result", "Result", words=format_result(comparison))]
    outputs = {(it.output.actual.key, it.output.expected.key) for it in comparison.culprits}
    sections += [
        Section(f"culprit{number}", f"Culprit {number}", words=format_culprit(culprit))
        for number, culprit in enumerate(comparison.culprits, 1)
    ]
    figures: dict[str, Any] = {
        "culprits": [
            tensor_table(rows_of_culprit(culprit), outputs).figures()
            for culprit in comparison.culprits
        ]
    }
    if points := points_of(comparison.tensors, outputs):
        sections.append(
            Section(
                "depth",
                "Error over depth",
                "Length of the difference over that of the expected tensor. Blue: within the "
                "tolerance; orange: differs; red: the output of a culprit.",
            )
        )
        figures["depth"] = points
    tables = {
        "differing": ("Tensors that differ", [it for it in comparison.tensors if not it.passed]),
        "all": ("All tensors", comparison.tensors),
    }
    for name, (title, tensors) in tables.items():
        if tensors:
            sections.append(Section(name, title))
            figures[name] = tensor_table(map(Row, tensors), outputs).figures()
    if comparison.unmatched:
        sections.append(Section("unmatched", "Without a twin"))
        figures["unmatched"] = page_table(
            "unmatched", UNMATCHED_COLUMNS, comparison.unmatched
        ).figures()
    script = read_resource("lar.reports.pages", "comparison.js")
    return format_page(f"lar compare: {verdict}", "Comparison", sections, figures, [script])


def format_result(comparison: Comparison) -> str:
    """Return the verdict, what was compared, and the notes about it."""
    verdict = "same" if comparison.same else "different"
    *notes, result = format_summary(comparison)
    machines = (
        ("A ran on", describe_machine(comparison.actual)),
        ("B ran on", describe_machine(comparison.expected)),
    )
    facts = (
        ("A, actual", describe_side(comparison.actual)),
        ("B, expected", describe_side(comparison.expected)),
        *((("truth", describe_side(comparison.truth.side)),) if comparison.truth else ()),
        *((name, machine) for name, machine in machines if machine),
        ("tolerance", describe_tolerance(comparison)),
    )
    return (
        f'<p class="result {verdict}">{escape(result.partition(": ")[2])}</p>'
        + format_facts(facts)
        + "".join(f"<p>{escape(note)}</p>" for note in notes)
    )


def format_culprit(culprit: Culprit) -> str:
    """Return the operators of a culprit."""
    same = all(it.passed for it in culprit.parameters)
    items = "".join(
        f"<li>{letter}: "
        f"<code>{escape(describe_operator(operator, others, same_weights=same))}</code></li>"
        for letter, operators, others in (
            ("A", culprit.actual, culprit.expected),
            ("B", culprit.expected, culprit.actual),
        )
        for operator in operators
    )
    what = escape(describe_culprit(culprit))
    kind = f"<p>{escape(culprit.kind)}</p>" if culprit.kind else ""
    return f"<div class=culprit><p><strong>{what}</strong></p>{kind}<ul>{items}</ul></div>"


def describe_tolerance(comparison: Comparison) -> str:
    """Return the tolerance in words."""
    tolerance = comparison.tolerance
    if tolerance.max_error is not None:
        return f"|a-e| / max(|a|, |e|, 1) up to {tolerance.max_error:g}"
    rtol = "the default of each type" if tolerance.rtol is None else f"{tolerance.rtol:g}"
    atol = "that share of the root mean square" if tolerance.atol is None else f"{tolerance.atol:g}"
    return f"relative: {rtol}; absolute: {atol}"


UNMATCHED_COLUMNS: tuple[Column[UnmatchedTensor], ...] = (
    Column("side", lambda it: "A" if it.side == "actual" else "B"),
    Column("tensor", lambda it: printable(name_with_form(it.tensor))),
    Column("why", lambda it: printable(it.reason)),
)


def tensor_table(rows: Iterable[Row], outputs: Keys) -> PageTable:
    """Return a table of tensors, in which the outputs of culprits and what differs stand out."""
    rows = tuple(rows)
    marks = tuple(mark_of(row.tensor, outputs) for row in rows)
    table = page_table("tensors", COLUMNS, rows, order="place")
    return table._replace(marks=marks, missing=())


def mark_of(tensor: TensorComparison, outputs: Keys) -> str:
    if (tensor.actual.key, tensor.expected.key) in outputs:
        return "fault"
    return "" if tensor.passed else "differs"


def points_of(tensors: Sequence[TensorComparison], outputs: Keys) -> list[list[Cell]]:
    """Return `[depth, error, name, mark]` of each computed tensor, an error that is not a number as
    None."""
    return [
        [
            tensor.depth,
            None if math.isinf(error := error_of(tensor)) or math.isnan(error) else error,
            name_of_pair(tensor.actual, tensor.expected),
            mark_of(tensor, outputs),
        ]
        for tensor in sorted(tensors, key=lambda it: it.depth)
        if not tensor.constant
    ]


def error_of(tensor: TensorComparison) -> float:
    figures = tensor.figures
    if figures is None or figures.relative_l2 is None or figures.nonfinite_mismatches:
        return math.inf
    return entire_of(Row(tensor)) or 0.0
