"""A comparison as text: the culprits first, then what differs, then a summary; and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lar.errors import printable
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    Figures,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
)
from lar.records.run import record_to_json
from lar.reports.model import ANY_DIGITS, INDENTED, AnyTable, Cell, Column, Table
from lar.reports.report import Report
from lar.reports.text import PAPER, Screen

# More of a side's unmatched tensors are counted, not named, without --all.
MOST_UNMATCHED = 8


def format_json(comparison: Comparison) -> str:
    """Return a comparison as JSON, one line."""
    return record_to_json(comparison).decode() + "\n"


def format_comparison(
    comparison: Comparison, screen: Screen = PAPER, *, everything: bool = False
) -> list[str]:
    """Return the lines of a comparison; `everything` has each tensor's."""
    body: list[str | AnyTable] = [
        f"A: {describe_side(comparison.actual)}",
        f"B: {describe_side(comparison.expected)}",
    ]
    for number, culprit in enumerate(comparison.culprits, 1):
        of = f" {number} of {len(comparison.culprits)}" if len(comparison.culprits) > 1 else ""
        body += ["", f"culprit{of}: {describe_culprit(culprit)}", *body_of_culprit(culprit)]
    shown = [it for it in comparison.tensors if everything or not it.passed]
    if shown:
        title = "tensors:" if everything else "tensors that differ:"
        body += ["", title, tensor_table(map(Row, shown))]
    body += format_unmatched(comparison, everything)
    body += ["", *format_summary(comparison)]
    lines = Report(style="comparison", body=tuple(body)).lines_for(screen)
    return [line if len(line) <= 2000 else line[:2000] + " ..." for line in lines]


def describe_side(side: SideFacts) -> str:
    """Return where a side comes from, in a line."""
    run = " ".join(filter(None, (side.engine, side.engine_version, side.driver, side.device)))
    settings = " ".join(
        flag_of(key) if value is True else f"{flag_of(key)} {value}"
        for key, value in side.settings.items()
        if not (key in BY_KEY and BY_KEY[key].writes)
    )
    facts = ", ".join(filter(None, (f"{side.tensors} tensors", run, settings)))
    return printable(f"{side.model or side.source} ({facts})")


def describe_culprit(culprit: Culprit) -> str:
    """Return the operators of a culprit in a few words."""
    sides = [culprit.actual, culprit.expected]
    if not culprit.actual or not culprit.expected:
        here, there = ("B", "A") if not culprit.actual else ("A", "B")
        return f"{describe_operators(sides[0] or sides[1])} of {here}, which {there} lacks"
    texts = list(dict.fromkeys(map(describe_operators, sides)))
    return " in A, ".join(texts) + (" in B" if len(texts) > 1 else "")


def describe_operators(operators: Sequence[OperatorFacts]) -> str:
    return " + ".join(printable(f"{type_of(it.type, it.name)} {it.output}") for it in operators)


def type_of(kind: str, name: str) -> str:
    """Return the type of an operator; MegEngine's elementwise ones have their mode in the name."""
    mode = name.partition("(")[0]
    return f"{kind} {mode}" if kind.startswith("Elemwise") and mode.isupper() else kind


def body_of_culprit(culprit: Culprit) -> Iterator[str | AnyTable]:
    """Yield what stands below a culprit: its operators in full, what goes in and what comes out."""
    for side, operators, others in (
        ("A", culprit.actual, culprit.expected),
        ("B", culprit.expected, culprit.actual),
    ):
        for operator in operators:
            yield f"  {side}: {describe_operator(operator, others)}"
    yield replace(tensor_table(rows_of_culprit(culprit)), layout=INDENTED)


def rows_of_culprit(culprit: Culprit) -> list[Row]:
    """Return what goes into a culprit and what comes out."""
    return [
        *(Row(tensor, "input") for tensor in culprit.inputs),
        *(Row(tensor, "parameter") for tensor in culprit.parameters),
        Row(culprit.output, "output"),
    ]


def describe_operator(operator: OperatorFacts, others: Sequence[OperatorFacts]) -> str:
    """Return the facts of an operator; of its parameters, only those that its twin has
    otherwise."""
    twin = next((it for it in others if it.type == operator.type), None)
    parameters = {
        key: value
        for key, value in operator.parameters.items()
        if twin is None or key not in twin.parameters or twin.parameters[key] != value
    }
    facts = [f"{key}={format_value(value)}" for key, value in parameters.items()]
    if twin is not None and operator.parameters and not parameters:
        facts.append("parameters as on the other side")
    facts += [f"algorithm {operator.algorithm}"] if operator.algorithm else []
    facts += [f"layout {operator.layout}"] if operator.layout else []
    text = f"{operator.type} {operator.name} gives {operator.output}"
    return printable(f"{text}; {', '.join(facts)}" if facts else text)


def format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Row(NamedTuple):
    """A pair of tensors, and its role for a culprit: an input, a parameter or the output."""

    tensor: TensorComparison
    role: str = ""


def tensor_table(rows: Iterable[Row]) -> Table[Row]:
    """Return a table of tensors; one that differs is red on a terminal with colours."""
    rows = tuple(rows)
    columns = (ROLE_IN_TEXT, *TENSOR_COLUMNS) if any(row.role for row in rows) else TENSOR_COLUMNS
    return Table(
        name="tensors",
        title="Tensors",
        columns=columns,
        rows=rows,
        color=lambda row: "" if row.tensor.passed else "red",
    )


def figure_column(
    title: str,
    value: Callable[[Figures], Cell],
    text: Callable[[Figures], str],
    rank: int,
    when_equal: float | None = None,
) -> Column[Row]:
    """Return a column of one figure.

    Its text is empty where the tensors are equal or cannot be compared; its value is
    `when_equal` for equal ones.
    """

    def cell(row: Row) -> Cell:
        figures = row.tensor.figures
        if figures is None:
            return None
        found = when_equal if figures.identical else value(figures)
        return found if not isinstance(found, float) or math.isfinite(found) else str(found)

    def format_cell(row: Row) -> str:
        figures = row.tensor.figures
        return "" if figures is None or figures.identical else text(figures)

    return Column(title, cell, format_cell, rank=rank, digits=ANY_DIGITS)


def number_column(title: str, value: Callable[[Figures], float | None], rank: int) -> Column[Row]:
    return figure_column(title, value, lambda it: format_number(value(it)), rank, 0)


def element_column(title: str, value: Callable[[Element], str]) -> Column[Row]:
    """Return a column of the element with the greatest error."""

    def text(figures: Figures) -> str:
        return "" if figures.worst is None else value(figures.worst)

    def cell(row: Row) -> Cell:
        figures = row.tensor.figures
        if figures is None or figures.identical or figures.worst is None:
            return None
        return value(figures.worst)

    return replace(figure_column(title, text, text, 5), value=cell, digits=None)


def format_error(row: Row) -> str:
    """Return the error of a pair, `equal`, or why it cannot be compared."""
    figures = row.tensor.figures
    if figures is None:
        return row.tensor.problem
    return "equal" if figures.identical else format_number(figures.max_error)


def format_matched(row: Row) -> str:
    return row.tensor.matched_by + (", but for a bias" if row.tensor.apart_by_bias else "")


def format_operator(row: Row) -> str:
    expected = row.tensor.expected
    return printable(type_of(expected.operator_type, expected.operator))


def format_pair(row: Row) -> str:
    return name_of_pair(row.tensor.actual, row.tensor.expected)


def format_expected_shape(row: Row) -> str:
    return format_shape(row.tensor.expected.shape)


# The columns of the text and of the page, each of which leaves out some.
ROLE = Column[Row]("role", lambda row: row.role or None, rank=0)
COLUMNS: tuple[Column[Row], ...] = (
    ROLE,
    Column("tensor", format_pair, format_pair, rank=0),
    Column("operator", format_operator, format_operator, rank=2),
    Column("shape", format_expected_shape, format_expected_shape, rank=3),
    Column("matched by", format_matched, format_matched, rank=9),
    Column("problem", lambda row: printable(row.tensor.problem) or None, in_text=False),
    replace(number_column("error", lambda it: it.max_error, 0), text=format_error),
    number_column("max abs", lambda it: it.max_absolute, 4),
    number_column("max rel", lambda it: it.max_relative, 6),
    number_column("rel l2", lambda it: it.relative_l2, 3),
    figure_column(
        "ulp", lambda it: it.max_ulp, lambda it: "" if it.max_ulp is None else str(it.max_ulp), 7, 0
    ),
    figure_column(
        "cosine",
        lambda it: it.cosine,
        lambda it: "" if it.cosine is None else f"{it.cosine:.7f}",
        7,
    ),
    figure_column(
        "SNR dB",
        lambda it: it.snr_db,
        lambda it: "" if it.snr_db is None else f"{it.snr_db:.1f}",
        8,
    ),
    figure_column(
        "past tolerance", lambda it: it.mismatches, lambda it: format_mismatches(it), 1, 0
    ),
    replace(
        figure_column(
            "NaN or inf on one side", lambda it: it.nonfinite_mismatches or None, lambda it: "", 1
        ),
        in_text=False,
    ),
    element_column("worst at", lambda it: format_shape(it.index)),
    element_column("actual", lambda it: it.actual),
    element_column("expected", lambda it: it.expected),
)
TENSOR_COLUMNS = tuple(it for it in COLUMNS if it.in_text and it is not ROLE)
ROLE_IN_TEXT = replace(ROLE, title="")  # the text has no heading above it


def name_of_pair(actual: TensorFacts, expected: TensorFacts) -> str:
    """Return the name of a tensor, both where the sides call it otherwise."""
    names = dict.fromkeys((actual.name, expected.name))
    return printable(" = ".join(shorten(name) for name in names))


def shorten(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:30]}...{name[-15:]}"


def format_shape(shape: Sequence[int]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"


def format_mismatches(figures: Figures) -> str:
    """Return how many elements are past the tolerance."""
    share = f" ({figures.mismatches / figures.elements:.1%})" if figures.mismatches else ""
    return f"{figures.mismatches}{share}{describe_nonfinite(figures)}"


def describe_nonfinite(figures: Figures) -> str:
    """Return how many NaN and infinite numbers each side has, if the sides differ in them."""
    if not figures.nonfinite_mismatches:
        return ""
    return (
        f", {figures.nonfinite_mismatches} NaN or infinite on one side "
        f"(NaN {figures.nan_counts[0]}/{figures.nan_counts[1]}, "
        f"inf {figures.infinity_counts[0]}/{figures.infinity_counts[1]})"
    )


def format_number(number: float | None) -> str:
    return "N/A" if number is None else f"{number:.3g}"


def format_unmatched(comparison: Comparison, everything: bool) -> Iterator[str]:
    """Yield the lines about tensors without a twin: those that nothing explains come first."""
    for side, letter, other in (("actual", "A", "B"), ("expected", "B", "A")):
        listed = [it for it in comparison.unmatched if it.side == side]
        if not listed:
            continue
        yield ""
        yield f"without a twin in {other}: {len(listed)} of {letter}"
        computed = [it for it in listed if not it.constant]
        shown = sorted(computed, key=lambda it: it.fused)
        shown = shown if everything else shown[:MOST_UNMATCHED]
        yield from (f"  {printable(f'{shorten(it.tensor.name)}: {it.reason}')}" for it in shown)
        if len(shown) < len(computed):
            yield f"  and {len(computed) - len(shown)} more, which --all lists"
        constants = [shorten(it.tensor.name) for it in listed if it.constant]
        if constants:
            names = ", ".join(constants if everything else constants[:MOST_UNMATCHED])
            more = "" if everything or len(constants) <= MOST_UNMATCHED else ", ..."
            of_them = f"{len(constants)} constants that are in another form there, or not at all"
            yield f"  {of_them}: {printable(names)}{more}"


def format_summary(comparison: Comparison) -> Iterator[str]:
    """Yield the last lines: how many tensors differ, how they were matched, and the result."""
    tensors = comparison.tensors
    differing = [tensor for tensor in tensors if not tensor.passed]
    equal = sum(tensor.figures is not None and tensor.figures.identical for tensor in tensors)
    by = Counter(tensor.matched_by for tensor in tensors)
    ways = ", ".join(f"{by[way]} by {way}" for way in ("name", "graph", "content") if by[way])
    yield (
        f"{len(tensors)} tensors compared ({ways or 'none matched'}): {equal} equal, "
        f"{len(tensors) - equal - len(differing)} within the tolerance, {len(differing)} differ; "
        f"{len(comparison.unmatched)} without a twin"
    )
    yield from (printable(f"note: {note}") for note in comparison.notes)
    yield (
        "result: "
        + {
            "same": "the same within the tolerance",
            "fault": "different; " + "; ".join(map(describe_culprit, comparison.culprits)),
            "rounding": "different; no operator stands out, the errors grow gradually",
            "different": "different",
        }[comparison.finding]
    )
