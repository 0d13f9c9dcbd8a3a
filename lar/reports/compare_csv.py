"""A comparison as CSV: a row a pair of tensors, then a row a tensor without a twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    OperatorFacts,
    TensorComparison,
    TensorFacts,
    TruthErrors,
    UnmatchedTensor,
)
from lar.reports.csv import format_table
from lar.reports.model import Cell, Column, Table

Side = Literal["actual", "expected"]
T = TypeVar("T")
V = TypeVar("V")


class Row(NamedTuple):
    """A pair, with its culprit if it is the output of one; or a tensor without a twin."""

    pair: TensorComparison | None = None
    culprit: Culprit | None = None
    unmatched: UnmatchedTensor | None = None


def format_csv(comparison: Comparison) -> str:
    """Return a comparison as CSV; unknown values are empty.

    The algorithms are those of a culprit's operators, in the row of what they give.
    """
    return format_table(table_of(comparison))


def table_of(comparison: Comparison) -> Table[Row]:
    """Return the table of all tensors."""
    culprits = {(it.output.actual.key, it.output.expected.key): it for it in comparison.culprits}
    listed = {(it.actual.key, it.expected.key) for it in comparison.tensors}
    # What a culprit gives may be no twins, but what two fused operators compute within.
    within = [culprits[keys].output for keys in culprits if keys not in listed]
    pairs = (
        Row(pair=pair, culprit=culprits.get((pair.actual.key, pair.expected.key)))
        for pair in (*comparison.tensors, *within)
    )
    unmatched = (Row(unmatched=tensor) for tensor in comparison.unmatched)
    columns = COLUMNS
    if any(tensor.single or tensor.single_problem for tensor in comparison.tensors):
        columns += SINGLE_COLUMNS
    if comparison.items:
        columns += ITEM_COLUMNS
    return Table(name="tensors", title="Tensors", columns=columns, rows=(*pairs, *unmatched))


def facts_of(row: Row, side: Side) -> TensorFacts | None:
    """Return the tensor of one side; None if that side has no twin."""
    if row.pair is not None:
        return row.pair.actual if side == "actual" else row.pair.expected
    if row.unmatched is not None and row.unmatched.side == side:
        return row.unmatched.tensor
    return None


def main_facts_of(row: Row) -> TensorFacts | None:
    """Return the expected tensor, or the one without a twin."""
    return facts_of(row, "expected") or facts_of(row, "actual")


def within(outer: Callable[[Row], T | None], inner: Callable[[T], V]) -> Callable[[Row], V | None]:
    """Return what takes a value from a part of a row, None if the row does not have the part."""
    return lambda row: None if (part := outer(row)) is None else inner(part)


def fact_column(
    key: str, value: Callable[[TensorFacts], Cell], side: Side | None = None
) -> Column[Row]:
    """Return a column of one fact of a tensor; without a side, of the expected one."""
    return Column(
        key, within(lambda row: facts_of(row, side) if side else main_facts_of(row), value)
    )


def pair_column(key: str, value: Callable[[TensorComparison], Cell]) -> Column[Row]:
    """Return a column of pairs alone."""
    return Column(key, within(lambda row: row.pair, value))


def figures_of(row: Row) -> Figures | None:
    return None if row.pair is None else row.pair.figures


def figure_column(key: str, value: Callable[[Figures], Cell]) -> Column[Row]:
    """Return a column of one figure, of pairs that could be compared."""
    return Column(key, within(figures_of, value))


def truth_column(key: str, figures_of: Callable[[TruthErrors], Figures | None]) -> Column[Row]:
    """Return a column of the distance of one side from the truth, empty where that is unknown."""

    def value(row: Row) -> Cell:
        truth = None if row.pair is None else row.pair.truth
        figures = None if truth is None else figures_of(truth)
        return None if figures is None else figures.relative_l2

    return Column(key, value)


def element_columns(
    name: str, element_of: Callable[[Figures], Element | None]
) -> tuple[Column[Row], ...]:
    """Return the columns of one element: its place and its two values."""

    element = within(figures_of, element_of)
    return (
        Column(f"{name}_index", within(element, lambda it: format_index(it.index))),
        Column(f"{name}_actual", within(element, lambda it: it.actual)),
        Column(f"{name}_expected", within(element, lambda it: it.expected)),
    )


def problem_of(row: Row) -> Cell:
    """Return why a pair could not be compared, or why a tensor has no twin."""
    if row.unmatched is not None:
        return row.unmatched.reason
    return None if row.pair is None else row.pair.problem


def algorithms_of(operators: Iterable[OperatorFacts]) -> str:
    """Return the algorithms of operators, empty where none is known."""
    return " + ".join(operator.algorithm for operator in operators if operator.algorithm)


def format_index(index: Sequence[int]) -> str:
    return "x".join(map(str, index))


CULPRIT: Callable[[Row], Culprit | None] = attrgetter("culprit")
COLUMNS: tuple[Column[Row], ...] = (
    fact_column("actual", lambda it: it.name, "actual"),
    fact_column("expected", lambda it: it.name, "expected"),
    fact_column("operator", lambda it: it.operator_type),
    fact_column("dtype", lambda it: it.dtype),
    fact_column("shape", lambda it: format_index(it.shape)),
    fact_column("layout_actual", lambda it: it.layout, "actual"),
    fact_column("layout_expected", lambda it: it.layout, "expected"),
    pair_column("matched_by", lambda it: it.matched_by),
    pair_column("apart_by_bias", lambda it: it.apart_by_bias),
    pair_column("constant", lambda it: it.constant),
    pair_column("depth", lambda it: it.depth),
    pair_column("passed", lambda it: it.passed),
    Column("culprit", lambda row: None if row.pair is None else row.culprit is not None),
    Column("problem", problem_of),
    figure_column("elements", lambda it: it.elements),
    figure_column("identical", lambda it: it.identical),
    figure_column("max_error", lambda it: it.max_error),
    figure_column("max_absolute", lambda it: it.max_absolute),
    figure_column("mean_absolute", lambda it: it.mean_absolute),
    figure_column("max_relative", lambda it: it.max_relative),
    figure_column("mean_relative", lambda it: it.mean_relative),
    figure_column("relative_l2", lambda it: it.relative_l2),
    figure_column("scale", lambda it: it.scale),
    figure_column("max_ulp", lambda it: it.max_ulp),
    figure_column("cosine", lambda it: it.cosine),
    figure_column("snr_db", lambda it: it.snr_db),
    figure_column("mismatches", lambda it: it.mismatches),
    figure_column("nonfinite_mismatches", lambda it: it.nonfinite_mismatches),
    figure_column("nan_actual", lambda it: it.nan_counts[0]),
    figure_column("nan_expected", lambda it: it.nan_counts[1]),
    figure_column("inf_actual", lambda it: it.infinity_counts[0]),
    figure_column("inf_expected", lambda it: it.infinity_counts[1]),
    *element_columns("first", lambda it: it.first),
    *element_columns("worst", lambda it: it.worst),
    Column("algorithm_actual", within(CULPRIT, lambda it: algorithms_of(it.actual))),
    Column("algorithm_expected", within(CULPRIT, lambda it: algorithms_of(it.expected))),
    truth_column("truth_relative_l2_actual", lambda it: it.actual),
    truth_column("truth_relative_l2_expected", lambda it: it.expected),
    fact_column("engine_name_actual", lambda it: it.engine_name, "actual"),
    fact_column("engine_name_expected", lambda it: it.engine_name, "expected"),
)


# Of operators that were run alone.
SINGLE = within(lambda row: row.pair, lambda pair: pair.single)
SINGLE_COLUMNS: tuple[Column[Row], ...] = (
    Column("single_identical", within(SINGLE, lambda it: it.identical)),
    Column("single_max_absolute", within(SINGLE, lambda it: it.max_absolute)),
    Column("single_relative_l2", within(SINGLE, lambda it: it.relative_l2)),
    Column("single_snr_db", within(SINGLE, lambda it: it.snr_db)),
    Column("single_mismatches", within(SINGLE, lambda it: it.mismatches)),
    pair_column("single_problem", lambda it: it.single_problem or None),
)


def items_columns(
    prefix: str, errors_of: Callable[[TensorComparison], ErrorsOverItems | None]
) -> tuple[Column[Row], ...]:
    """Return the columns of the errors over the items of a data set."""
    errors = within(lambda row: row.pair, errors_of)

    def column(key: str, value: Callable[[ErrorsOverItems], Cell]) -> Column[Row]:
        return Column(
            f"{prefix}{key}", lambda row: value(found) if (found := errors(row)) else None
        )

    return (
        column("items", lambda it: it.items),
        column("worst_item", lambda it: it.worst_item),
        column("items_relative_l2", lambda it: it.relative_l2),
        column("worst_snr_db", lambda it: it.worst_snr_db),
        column("p99_snr_db", lambda it: it.p99_snr_db),
        column("mean_snr_db", lambda it: it.mean_snr_db),
        column("rmse_over_scale", lambda it: it.rmse_over_scale),
    )


# Of data sets.
ITEM_COLUMNS: tuple[Column[Row], ...] = (
    *items_columns("", lambda it: it.over_items),
    *items_columns("single_", lambda it: it.single_over_items),
)
