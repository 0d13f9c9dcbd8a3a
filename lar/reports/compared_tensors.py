"""The tensors of a comparison as rows of a table, in all its forms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple, TypeVar

from lar.errors import printable
from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    TensorComparison,
    TensorFacts,
)
from lar.reports.model import ANY_DIGITS, Cell, Column, Table

T = TypeVar("T")

# MegEngine's quantised types, as it stores their integers.
STORED = re.compile(r"Quantized(S?)(\d+)(?:Asymm)?")
NO_TENSOR = TensorFacts(key="", name="", dtype="", shape=())


class Row(NamedTuple):
    """A pair of tensors, and its role for a culprit: an input, a parameter or the output. A tensor
    without a twin is `alone`, and the other side has no name."""

    tensor: TensorComparison
    role: str = ""


def rows_of_culprit(culprit: Culprit) -> list[Row]:
    """Return what goes into a culprit and what comes out."""
    return [
        *(Row(tensor, "input") for tensor in culprit.inputs),
        *(Row(tensor, "parameter") for tensor in culprit.parameters),
        Row(culprit.output, "output"),
    ]


def all_rows_of(comparison: Comparison) -> Iterator[Row]:
    """Yield what a side did not record, all pairs, and the tensors without a twin."""
    for lacking in comparison.left_out:
        yield row_of_one(lacking.side, replace(NO_TENSOR, name=lacking.name), lacking.reason)
    yield from map(Row, comparison.tensors)
    for alone in comparison.unmatched:
        yield row_of_one(alone.side, alone.tensor, alone.reason)


def row_of_one(side: str, tensor: TensorFacts, problem: str) -> Row:
    """Return the row of a tensor that one side alone has."""
    actual, expected = (tensor if side == each else NO_TENSOR for each in ("actual", "expected"))
    pair = TensorComparison(
        actual=actual, expected=expected, matched_by="name", passed=False, problem=problem
    )
    return Row(pair, "alone")


def badness_of(tensor: TensorComparison) -> tuple[bool, float]:
    """Return how far a tensor is from its twin; one that cannot be compared is the worst, and one
    that differs is worse than any that does not."""
    error = number_of(tensor.figures, tensor.over_items)
    return (not tensor.passed, math.inf if error is None else error)


def number_of(figures: Figures | None, items: ErrorsOverItems | None = None) -> float | None:
    """Return an error, None where it is no number."""
    return None if figures and figures.nonfinite_mismatches else finite_error(figures, items)


def error_of(tensor: TensorComparison) -> float | None:
    """Return the error of a pair, 0 where it is equal; of a data set that of all items together."""
    return finite_error(tensor.figures, tensor.over_items)


def finite_error(figures: Figures | None, items: ErrorsOverItems | None = None) -> float | None:
    """Return the length of a difference over that of the expected tensor, None where that is no
    number."""
    if figures is None or items is not None:
        return items.relative_l2 if figures and items else None
    return 0.0 if figures.identical else figures.relative_l2


def merge_alike(tensors: Iterable[TensorComparison]) -> list[TensorComparison]:
    """Return tensors with the worst of those of one name: what an engine makes of one operator may
    be several."""
    kept: dict[str, TensorComparison] = {}
    for tensor in tensors:
        name = format_pair(Row(tensor))
        if name not in kept or badness_of(tensor) > badness_of(kept[name]):
            kept[name] = tensor
    return list(kept.values())


def table_of(
    columns: Iterable[Column[T]],
    rows: Iterable[T],
    is_alike: Callable[[T], bool],
    title: str = "Tensors",
) -> Table[T]:
    """Return a table of tensors; one that differs is red."""
    return Table(
        name="tensors",
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        color=lambda row: "" if is_alike(row) else "red",
    )


def tensor_table(rows: Iterable[Row], columns: Sequence[Column[Row]], title: str) -> Table[Row]:
    """Return a table of pairs, with their roles for a culprit if they have some."""
    rows = tuple(rows)
    roles = [replace(ROLE, title="")] if any(row.role for row in rows) else []
    return table_of((*roles, *columns), rows, lambda row: row.tensor.passed, title)


def columns_for(comparison: Comparison, *, wide: bool) -> tuple[Column[Row], ...]:
    """Return the columns of the text: a few, or all with `wide`.

    Data types are shown where the sides have different ones, errors of operators alone and
    distances from the truth where there are any, and the error that a tolerance is given for.
    """
    rows, has_items = [*map(Row, comparison.tensors)], bool(comparison.items)
    # Of candidates for culprits alone it stands in their proofs.
    run_alone = [it for it in comparison.tensors if it.single is not None or it.single_problem]
    is_shown = {
        **dict.fromkeys(("tensor", "type", "off by"), True),
        **dict.fromkeys(TRUTH_COLUMNS, comparison.truth is not None),
        **dict.fromkeys(ITEM_COLUMNS, has_items),
        "data type": wide or any(format_data_type(it) != it.tensor.expected.dtype for it in rows),
        ALONE: 2 * len(run_alone) > comparison.computed_count,
        "error": wide or comparison.tolerance.max_error is not None,
        "SNR dB": not has_items,
        "RMSE/scale": any(steps_of(it) is not None for it in rows),
    }
    return tuple(it for it in COLUMNS if it.in_text and is_shown.get(it.title, wide))


def format_pair(row: Row) -> str:
    """Return the name of a tensor, both where the sides call it otherwise."""
    names = dict.fromkeys(filter(None, (row.tensor.actual.name, row.tensor.expected.name)))
    return printable(" = ".join(shorten(name) for name in names))


def name_with_form(tensor: TensorFacts) -> str:
    """Return the model's name of a tensor, and the engine's where it is another one."""
    form = f" (run as {shorten(tensor.engine_name)})" if tensor.engine_name else ""
    return shorten(tensor.name) + form


def shorten(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:30]}...{name[-15:]}"


def format_type(row: Row) -> str:
    """Return the type of the operator that gives a pair."""
    expected = row.tensor.expected
    return printable(type_of(expected.operator_type, expected.operator))


def type_of(kind: str, name: str) -> str:
    """Return the type of an operator; MegEngine's elementwise ones have their mode in the name."""
    mode = name.partition("(")[0]
    return f"{kind} {mode}" if kind.startswith("Elemwise") and mode.isupper() else kind


def format_data_type(row: Row) -> str:
    """Return the data type of a pair, both where they differ."""
    types = map(describe_type, (row.tensor.actual, row.tensor.expected))
    return printable(" = ".join(dict.fromkeys(filter(None, types))))


def describe_type(tensor: TensorFacts) -> str:
    """Return a tensor's type with its scale, as `int8 x 0.0231`, and the zero point that is not
    0."""
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


def format_shape(shape: Sequence[int]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"


def format_matched(row: Row) -> str:
    axes = ", in other axes" if row.tensor.axes else ""
    return "" if row.role == "alone" else row.tensor.matched_by + axes


def format_error(row: Row) -> str:
    """Return the error of a pair, `equal`, or why it cannot be compared."""
    if row.tensor.figures is None:
        return printable(row.tensor.problem)
    return format_relative(row.tensor.figures, error_of(row.tensor))


def alone_of(row: Row) -> float | None:
    """Return the error of an operator alone, 0 where it gives the same."""
    return finite_error(row.tensor.single, row.tensor.single_over_items)


def format_alone(row: Row) -> str:
    if row.tensor.single is None:
        return "not run" if row.tensor.single_problem else ""
    return format_relative(row.tensor.single, alone_of(row))


def format_relative(figures: Figures, error: float | None) -> str:
    """Return an error; where it has no number, what it is instead."""
    if figures.nonfinite_mismatches:
        return f"{figures.nonfinite_mismatches} NaN or inf"
    return "equal" if figures.identical else "N/A" if error is None else f"{error:.3g}"


def format_mismatches(row: Row) -> str:
    """Return how many elements are past the tolerance."""
    figures = row.tensor.figures
    if figures is None or figures.identical:
        return ""
    share = f" ({figures.mismatches / figures.elements:.1%})" if figures.mismatches else ""
    return f"{figures.mismatches}{share}{describe_nonfinite(figures)}"


def describe_nonfinite(figures: Figures) -> str:
    """Return how many NaN and infinite numbers each side has, if the sides differ in them."""
    if not figures.nonfinite_mismatches:
        return ""
    nan, inf = ("/".join(map(str, it)) for it in (figures.nan_counts, figures.infinity_counts))
    return f", {figures.nonfinite_mismatches} NaN or infinite on one side (NaN {nan}, inf {inf})"


def steps_of(row: Row) -> float | None:
    """Return the error of a quantised tensor in units of its scale: that of the operator alone
    where it was run alone, else that of the run."""
    errors = row.tensor.single_over_items or row.tensor.over_items
    return errors.rmse_over_scale if errors else None


def describe_element(element: Element) -> str:
    """Return where an element is and what both sides have there."""
    place = f"{format_shape(element.index)}: " if element.index else ""
    return printable(f"{place}{element.actual} in A, {element.expected} in B")


def format_worst(row: Row) -> str:
    figures = row.tensor.figures
    return describe_element(figures.worst) if figures and figures.worst else ""


def figure(name: str, when_equal: float | None = None) -> Callable[[Row], Cell]:
    """Return what takes a figure of a pair, and a number of those that are equal."""

    def take(row: Row) -> Cell:
        figures = row.tensor.figures
        if figures is None or figures.identical:
            return None if figures is None else when_equal
        found: Cell = getattr(figures, name)
        return found if not isinstance(found, float) or math.isfinite(found) else str(found)

    return take


def over_items(name: str) -> Callable[[Row], Cell]:
    """Return what takes a figure over the items of a data set."""
    return lambda row: getattr(row.tensor.over_items, name, None)


def figure_column(
    title: str,
    key: str,
    value: Callable[[Row], Cell],
    text: Callable[[Row], str] | str = ".3g",
    rank: int = 5,
) -> Column[Row]:
    """Return a column of a number; with a form for `text`, 0 and what is not known are empty."""

    def formatted(row: Row) -> str:
        found = value(row)
        return found if isinstance(found, str) else format(found, str(text)) if found else ""

    shown = formatted if isinstance(text, str) else text
    return Column(title, value, shown, key=key, rank=rank, digits=ANY_DIGITS)


def truth_column(title: str, side: str) -> Column[Row]:
    """Return a column of the distance of one side from the truth."""

    def figures(row: Row) -> Figures | None:
        return getattr(row.tensor.truth, side, None)

    def text(row: Row) -> str:
        found = figures(row)
        if found is not None and found.max_absolute == 0.0 and not found.nonfinite_mismatches:
            return "equal"  # in float64 the bits are others
        return "" if found is None else format_relative(found, found.relative_l2)

    key = f"truth_{side}_relative_l2"
    return figure_column(title, key, lambda row: finite_error(figures(row)), text, 1)


def field_column(path: str) -> Column[Row]:
    """Return the column of a field of a pair in CSV."""

    def value(row: Row) -> Cell:
        found: Cell | tuple[int, ...] = attrgetter(path)(row.tensor)
        return "x".join(map(str, found)) if isinstance(found, tuple) else found

    return Column(path.replace(".", "_"), value)


# The columns of the text and of the page, each of which leaves out some.
ROLE = Column[Row]("role", lambda row: row.role or None, rank=0)
ALONE = "alone"
ITEM_COLUMNS = ("SNR worst", "worst item", "RMSE/scale")
TRUTH_COLUMNS = ("A to truth", "B to truth")
COLUMNS: tuple[Column[Row], ...] = (
    Column("tensor", format_pair, format_pair, rank=0),
    Column("type", format_type, format_type, rank=3),
    Column("data type", format_data_type, format_data_type, rank=5),
    Column("shape", lambda row: format_shape(row.tensor.expected.shape), rank=3),
    Column("matched by", format_matched, format_matched, key="matched_by", rank=9),
    Column("problem", lambda row: printable(row.tensor.problem) or None, in_text=False),
    figure_column("off by", "relative_l2", lambda row: error_of(row.tensor), format_error, 0),
    figure_column(ALONE, "single_relative_l2", alone_of, format_alone, 0),
    truth_column(TRUTH_COLUMNS[0], "actual"),
    truth_column(TRUTH_COLUMNS[1], "expected"),
    figure_column("SNR dB", "snr_db", figure("snr_db"), ".1f", 1),
    figure_column("SNR worst", "all_worst_snr_db", over_items("worst_snr_db"), ".1f", 1),
    Column("worst item", over_items("worst_item"), key="all_worst_item", rank=1),
    figure_column("RMSE/scale", "all_rmse_over_scale", steps_of, ".3f", 2),
    figure_column("error", "max_error", figure("max_error", 0), rank=2),
    figure_column("max abs", "max_absolute", figure("max_absolute", 0), rank=4),
    figure_column("max rel", "max_relative", figure("max_relative", 0), rank=6),
    figure_column("cosine", "cosine", figure("cosine"), ".7f", 7),
    figure_column("past tolerance", "mismatches", figure("mismatches", 0), format_mismatches, 1),
    Column("worst element", format_worst, format_worst, key="worst_element"),
)
# What CSV has first, of each pair and of each side.
FIELDS = (
    *("passed", "depth", "constant", "is_output", "actual.name", "actual.dtype", "actual.shape"),
    *("expected.name", "expected.dtype", "expected.shape", "expected.operator_type"),
)
ALL_COLUMNS = (*map(field_column, FIELDS), *COLUMNS)


def table_of_all(comparison: Comparison) -> Table[Row]:
    """Return the table of CSV, without the columns in which no row has a value."""
    rows = [*all_rows_of(comparison)]
    known = (it for it in ALL_COLUMNS if any(it.value(row) is not None for row in rows))
    return table_of(known, rows, lambda row: row.tensor.passed)
