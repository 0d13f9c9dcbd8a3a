"""A comparison as an HTML page: culprits, errors over depth, tables of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from lar.records.comparison import Comparison, Culprit, TensorComparison
from lar.reports.compare_text import (
    UNMATCHED_COLUMNS,
    by_word,
    describe_culprit,
    describe_head,
    describe_proof,
    describe_sides_of,
    format_summary,
)
from lar.reports.compared_tensors import COLUMNS, Row, error_of, format_pair, rows_of_culprit
from lar.reports.model import Cell, Column
from lar.reports.pages import Section, format_facts, format_list, format_page, read_resource
from lar.reports.pages.tables import page_table

# A section, and what a script draws in it.
Part = tuple[Section, Mapping[str, Any]]


def format_html(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    head = [*describe_head(comparison), f"tolerance: {describe_tolerance(comparison)}"]
    parts = [*culprit_parts(comparison)]
    outputs = outputs_of_culprits(comparison)
    if points := [*points_of(comparison)]:
        about = (
            "Length of the difference over that of the expected tensor. Blue: within the "
            "tolerance; orange: differs; red: the output of a culprit or suspect."
        )
        parts.append(depth_part(about, [{"name": "", "points": points}]))
    differing = [it for it in comparison.tensors if not it.passed]
    for title, tensors in (("Tensors that differ", differing), ("All tensors", comparison.tensors)):
        marks = [mark_of(it, outputs) for it in tensors]
        parts += table_part(title, COLUMNS, [*map(Row, tensors)], marks)
    parts += table_part("Without a twin", UNMATCHED_COLUMNS, comparison.unmatched)
    summary = format_summary(comparison)
    return format_parts("Comparison", comparison.finding, head, summary, parts)


def format_parts(
    title: str, finding: str, head: Iterable[str], summary: Iterable[str], parts: Sequence[Part]
) -> str:
    """Return the page of a comparison of two or more sides: the result, what is said of the sides
    and the other lines of the summary, then the parts."""
    *notes, result = summary
    verdict = {"same": "same", "nothing": "nothing compared"}.get(finding, "different")
    words = (
        f'<p class="result {"same" if finding == "same" else "different"}">'
        f"{escape(result.partition(': ')[2])}</p>"
        + format_facts((name, text) for name, _, text in (it.partition(": ") for it in head))
        + format_list(notes)
    )
    sections = [Section("result", "Result", words=words), *(section for section, _ in parts)]
    figures = {"parts": [{"section": section.name, **drawn} for section, drawn in parts]}
    script = read_resource("lar.reports.pages", "comparison.js")
    return format_page(f"lar compare: {verdict}", title, sections, figures, [script])


def culprit_parts(comparison: Comparison) -> Iterator[Part]:
    """Yield a part for each culprit and suspect: its proof, its operators, what goes in and out."""
    outputs = outputs_of_culprits(comparison)
    for word, culprits in by_word(comparison.culprits).items():
        for number, culprit in enumerate(culprits, 1):
            rows = rows_of_culprit(culprit)
            marks = [mark_of(row.tensor, outputs) for row in rows]
            title = f"{word.capitalize()} {number}"
            yield from table_part(title, COLUMNS, rows, marks, format_culprit(culprit))


def table_part(
    title: str,
    columns: Sequence[Column[Any]],
    rows: Sequence[Any],
    marks: Iterable[str] = (),
    words: str = "",
) -> Iterator[Part]:
    """Yield the part of a table, if it has rows; `marks` say which of them stand out."""
    if rows:
        table = page_table("tensors", columns, rows, order="place")
        table = table._replace(marks=tuple(marks), missing=())
        name = title.lower().replace(" ", "-")
        yield Section(name, title, words=words), {"table": table.figures()}


def depth_part(about: str, curves: Sequence[Mapping[str, Any]]) -> Part:
    """Return the part of a plot of errors over the number of operators before a tensor."""
    return Section("depth", "Error over depth", about), {"curves": curves}


def format_culprit(culprit: Culprit) -> str:
    """Return what a culprit is, what proves it, and its operators."""
    what = escape(describe_culprit(culprit))
    proof = "".join(f"<p>{escape(line.strip())}</p>" for line in describe_proof(culprit))
    operators = format_list(line.strip() for line in describe_sides_of(culprit))
    return f"<div class=culprit><p><strong>{what}</strong></p>{proof}{operators}</div>"


def describe_tolerance(comparison: Comparison) -> str:
    """Return the tolerance in words."""
    tolerance = comparison.tolerance
    if tolerance.max_error is not None:
        return f"|a-e| / max(|a|, |e|, 1) up to {tolerance.max_error:g}"
    rtol = "the default of each type" if tolerance.rtol is None else f"{tolerance.rtol:g}"
    atol = "that share of the root mean square" if tolerance.atol is None else f"{tolerance.atol:g}"
    return f"relative: {rtol}; absolute: {atol}"


def outputs_of_culprits(comparison: Comparison) -> set[tuple[str, str]]:
    return {(it.output.actual.key, it.output.expected.key) for it in comparison.culprits}


def mark_of(tensor: TensorComparison, outputs: set[tuple[str, str]]) -> str:
    """Return how a tensor stands out: as the output of a culprit, as one that differs, or not."""
    if (tensor.actual.key, tensor.expected.key) in outputs:
        return "fault"
    return "" if tensor.passed else "differs"


def points_of(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    """Yield `[depth, error, name, mark]` of each computed tensor, an error that is not a number as
    None."""
    outputs = outputs_of_culprits(comparison)
    for tensor in sorted(comparison.tensors, key=lambda it: it.depth):
        if not tensor.constant:
            figures, name = tensor.figures, format_pair(Row(tensor))
            error = None if figures and figures.nonfinite_mismatches else error_of(tensor)
            yield tensor.depth, error, name, mark_of(tensor, outputs)
