"""The tensors of a comparison as the rows of a table, in all forms of a report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lar.errors import one_line
from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    TensorComparison,
    TensorFacts,
)
from lar.reports.model import ANY_DIGITS, Cell, Column, Table, no_value, number, value_at

T = TypeVar("T")

# MegEngine's quantised types, by the integers that they store.
STORED = re.compile(r"Quantized(S?)(\d+)(?:Asymm)?")


class Row(NamedTuple):
    """A pair of tensors, and its role for a culprit: an input, a parameter or the output."""

    tensor: TensorComparison
    role: str = ""


def rows_of_culprit(culprit: Culprit) -> list[Row]:
    """Return the rows of what goes into a culprit and what comes out."""
    return [
        *(Row(tensor, "input") for tensor in culprit.inputs),
        *(Row(tensor, "parameter") for tensor in culprit.parameters),
        Row(culprit.output, "output"),
    ]


def badness_of(tensor: TensorComparison) -> tuple[bool, float]:
    """Return whether a tensor differs, and how far it is from its twin: infinite if unknown."""
    error = error_of(tensor.figures, tensor.over_items)
    return (not tensor.passed, math.inf if error is None else error)


def error_of(figures: Figures | None, items: ErrorsOverItems | None = None) -> float | None:
    """Return the length of a difference over that of the expected tensor, None without a number.

    With `items` it is that of all items together.
    """
    if figures is None or figures.nonfinite_mismatches:
        return None
    if items is not None:
        return items.relative_l2
    return 0.0 if figures.identical else figures.relative_l2


def table_of(
    columns: Iterable[Column[T]],
    rows: Iterable[T],
    is_alike: Callable[[T], bool],
    title: str = "Tensors",
    shown: Iterable[Column[T]] = (),
) -> Table[T]:
    """Return a table of tensors; one that differs is red."""
    return Table(
        name="tensors",
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        shown=tuple(shown),
        color=lambda row: "" if is_alike(row) else "red",
    )


def tensor_table(
    rows: Iterable[Row], shown: Sequence[Column[Row]], title: str, more: Sequence[Column[Row]] = ()
) -> Table[Row]:
    """Return a table of pairs with `more` columns first, then all columns that have a value.

    Its text has the `shown` columns. For a culprit both have the roles of the pairs.
    """
    rows = tuple(rows)
    roles = [ROLE] if any(row.role for row in rows) else []
    known = (it for it in (*more, *COLUMNS) if any(it.value(row) is not None for row in rows))
    columns = (*roles, *known)
    return table_of(columns, rows, lambda row: row.tensor.passed, title, (*roles, *shown))


def counts_of(comparison: Comparison) -> tuple[int, int]:
    """Return how many outputs were compared, and how many computed tensors, outputs among them."""
    computed = [it for it in comparison.tensors if not (it.is_input or it.constant)]
    return sum(it.is_output for it in comparison.tensors), len(computed)


def columns_for(comparison: Comparison) -> tuple[Column[Row], ...]:
    """Return the columns of the text in which a tensor has a value.

    Data types are shown if the sides have different ones, the `error` if a tolerance was given for
    it.
    """
    rows = [*map(Row, comparison.tensors)]
    # If only candidates for culprits ran alone, their proofs have this figure.
    run_alone = [it for it in comparison.tensors if it.single is not None or it.single_problem]
    is_shown = {
        "data type": any(format_data_type(it) != it.tensor.expected.dtype for it in rows),
        ALONE: 2 * len(run_alone) > counts_of(comparison)[1],
        "SNR dB": not comparison.items,
        "error": comparison.tolerance.max_error is not None,
    }
    return tuple(
        it
        for it in COLUMNS
        if it.in_text
        and is_shown.get(it.title, True)
        and (it.rank == 0 or any(it.value(row) is not None for row in rows))
    )


def format_pair(row: Row) -> str:
    """Return the name of a tensor, or both names if the sides' names differ."""
    names = dict.fromkeys(filter(None, (row.tensor.actual.name, row.tensor.expected.name)))
    return " = ".join(shorten(name) for name in names)


def shorten(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:30]}...{name[-15:]}"


def format_type(row: Row) -> str:
    """Return the type of the operator that gives a pair."""
    expected = row.tensor.expected
    return type_of(expected.operator_type, expected.operator)


def type_of(kind: str, name: str) -> str:
    """Return the type of an operator; MegEngine's elementwise ones have their mode in the name."""
    mode = name.partition("(")[0]
    return f"{kind} {mode}" if kind.startswith("Elemwise") and mode.isupper() else kind


def format_data_type(row: Row) -> str:
    """Return the data type of a pair, or both types if they differ."""
    types = map(describe_type, (row.tensor.actual, row.tensor.expected))
    return " = ".join(dict.fromkeys(filter(None, types)))


def describe_type(tensor: TensorFacts) -> str:
    """Return a tensor's type with its scale, as `int8 x 0.0231`, and a zero point if not 0."""
    quantization = tensor.quantization
    if quantization is None:
        return tensor.dtype
    scales, zeros = (
        format_range(numbers) for numbers in (quantization.scale, quantization.zero_point)
    )
    found = STORED.fullmatch(tensor.dtype)
    stored = f"{'' if found[1] else 'u'}int{found[2]}" if found else tensor.dtype
    return f"{stored} x {scales}" + (f" (0 at {zeros})" if any(quantization.zero_point) else "")


def format_range(numbers: Sequence[float]) -> str:
    """Return a number, or the smallest and the largest of several."""
    return "..".join(dict.fromkeys(f"{number:.3g}" for number in (min(numbers), max(numbers))))


def format_error(figures: Figures, items: ErrorsOverItems | None = None) -> str:
    """Return an error, or what prevents a number."""
    if figures.nonfinite_mismatches:
        return f"{figures.nonfinite_mismatches} NaN or inf"
    error = error_of(figures, items)
    return "equal" if error == 0.0 else "N/A" if error is None else f"{error:.3g}"


def describe_element(element: Element) -> str:
    """Return where an element is and what both sides have there."""
    place = f"{{{','.join(map(str, element.index))}}}: " if element.index else ""
    return one_line(f"{place}{element.actual} in A, {element.expected} in B")


def worst_of(row: Row) -> str | None:
    figures = row.tensor.figures
    return describe_element(figures.worst) if figures and figures.worst else None


def error_column(
    title: str,
    key: str,
    figures: str,
    items: str = "",
    unknown: Callable[[TensorComparison], str] = lambda tensor: "",
) -> Column[Row]:
    """Return the column of an error, from the figures and the errors over items at these paths.

    `unknown` is its text without them.
    """
    of = value_at(f"tensor.{figures}")
    over: Callable[[Row], Any] = value_at(f"tensor.{items}") if items else no_value

    def value(row: Row) -> float | None:
        return error_of(of(row), over(row))

    def text(row: Row) -> str:
        return format_error(of(row), over(row)) if of(row) else one_line(unknown(row.tensor))

    return Column(title, value, text, key=key, rank=1 if "truth" in key else 0, digits=ANY_DIGITS)


def rounded_column(title: str, path: str, digits: int, key: str, rank: int) -> Column[Row]:
    """Return a column of a number at the end of a path, with so many digits."""
    return number(title, f"tensor.{path}", digits, key=key, unknown="", rank=rank)


def figure_column(title: str, name: str, *, in_text: bool = False) -> Column[Row]:
    """Return a column of a figure with as many digits as it needs, in text with three."""
    value = value_at(f"tensor.figures.{name}")
    return Column(
        title,
        value,
        lambda row: format(value(row) or 0.0, ".3g"),
        key=name,
        in_text=in_text,
        digits=ANY_DIGITS,
    )


def field_column(path: str) -> Column[Row]:
    """Return the column of a field of a pair in CSV."""

    def value(row: Row) -> Cell:
        found: Cell | tuple[int, ...] = attrgetter(path)(row.tensor)
        return "x".join(map(str, found)) if isinstance(found, tuple) else found

    return Column(path.replace(".", "_"), value)


# The columns of the page; the text has those of them that are for it.
ROLE = Column[Row]("", lambda row: row.role or None, key="role", rank=0)
ALONE = "alone"
COLUMNS: tuple[Column[Row], ...] = (
    Column("tensor", format_pair, rank=0),
    Column("type", format_type, rank=3),
    Column("data type", format_data_type, rank=5),
    Column("matched by", value_at("tensor.matched_by"), key="matched_by", in_text=False),
    Column("problem", lambda row: one_line(row.tensor.problem) or None, in_text=False),
    error_column("off by", "relative_l2", "figures", "over_items", lambda it: it.problem),
    error_column(
        *(ALONE, "single_relative_l2", "single", "single_over_items"),
        lambda it: "not run" if it.single_problem else "",
    ),
    error_column("A to truth", "truth_actual_relative_l2", "truth.actual"),
    error_column("B to truth", "truth_expected_relative_l2", "truth.expected"),
    rounded_column("SNR dB", "figures.snr_db", 1, "snr_db", 1),
    rounded_column("SNR worst", "over_items.worst_snr_db", 1, "all_worst_snr_db", 1),
    Column("worst item", value_at("tensor.over_items.worst_item"), key="all_worst_item", rank=1),
    rounded_column("RMSE/scale", "over_items.rmse_over_scale", 3, "all_rmse_over_scale", 2),
    figure_column("error", "max_error", in_text=True),
    figure_column("max abs", "max_absolute"),
    figure_column("max rel", "max_relative"),
    figure_column("cosine", "cosine"),
    figure_column("past tolerance", "mismatches"),
    Column("worst element", worst_of, key="worst_element", in_text=False),
)
# The first columns of CSV, about each pair and each side.
FIELDS = (
    *("passed", "depth", "constant", "is_output", "actual.name", "actual.dtype", "actual.shape"),
    *("expected.name", "expected.dtype", "expected.shape", "expected.operator_type"),
)


def table_of_all(comparison: Comparison) -> Table[Row]:
    """Return the table of CSV, a row a pair."""
    return tensor_table(map(Row, comparison.tensors), (), "Tensors", [*map(field_column, FIELDS)])
