"""A comparison as CSV: what a side did not record, pairs of tensors, tensors without a twin.

The columns are the fields of the records, with what they are a part of before their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    TensorComparison,
    TensorFacts,
)
from lar.reports.csv import format_table
from lar.reports.model import Cell, Column, Table

# The records of a row by their names.
Row = Mapping[str, object]

# What stands before the names of columns, the way to the record that they are the fields of, and
# its class. `all_` is of all items of a data set.
PARTS: tuple[tuple[str, str, type[Any]], ...] = (
    ("actual_", "actual", TensorFacts),
    ("expected_", "expected", TensorFacts),
    ("", "pair", TensorComparison),
    ("culprit_", "culprit", Culprit),
    ("alone_", "culprit.alone", Figures),
    ("", "pair.figures", Figures),
    ("first_", "pair.figures.first", Element),
    ("worst_", "pair.figures.worst", Element),
    ("single_", "pair.single", Figures),
    ("truth_actual_", "pair.truth.actual", Figures),
    ("truth_expected_", "pair.truth.expected", Figures),
    ("all_", "pair.over_items", ErrorsOverItems),
    ("single_all_", "pair.single_over_items", ErrorsOverItems),
)
SIDES = ("actual", "expected")
# Fields that are records themselves, of which an element's sides are none; and the column that all
# rows have.
RECORDS = frozenset(
    {"figures", "first", "worst", "single", "over_items", "single_over_items", "truth", "alone"}
    | {"quantization", "inputs", "output", "parameters", "problem", *SIDES}
)


def format_csv(comparison: Comparison) -> str:
    """Return a comparison as CSV; unknown values are empty.

    Columns of what no row has are left out. The algorithms are those of a culprit's operators, in
    the row of what they give.
    """
    rows = tuple(rows_of(comparison))
    columns = [Column[Row]("problem", lambda row: str(row["problem"]))]
    for prefix, path, record in PARTS:
        if any(value_at(row, path) is not None for row in rows):
            names = (it.name for it in fields(record))
            plain = [name for name in names if name not in RECORDS or record is Element]
            columns += [column_of(f"{prefix}{name}", f"{path}.{name}") for name in plain]
    columns += [column_of(f"algorithm_{side}", f"algorithm_{side}") for side in SIDES]
    table = Table(name="tensors", title="Tensors", columns=tuple(columns), rows=rows)
    return format_table(table)


def rows_of(comparison: Comparison) -> Iterator[Row]:
    """Yield the records of each row; what a side did not record comes first."""
    for lacking in comparison.left_out:
        yield {lacking.side: lacking, "problem": lacking.reason}
    culprits = {(it.output.actual.key, it.output.expected.key): it for it in comparison.culprits}
    listed = {(it.actual.key, it.expected.key) for it in comparison.tensors}
    # What a culprit gives may be no twins, but what two fused operators compute within.
    within = [culprits[keys].output for keys in culprits if keys not in listed]
    for pair in (*comparison.tensors, *within):
        sides = {side: getattr(pair, side) for side in SIDES}
        row: dict[str, object] = {"pair": pair, "problem": pair.problem, **sides}
        if culprit := culprits.get((pair.actual.key, pair.expected.key)):
            row["culprit"] = culprit
            for side in SIDES:
                known = (it.algorithm for it in getattr(culprit, side) if it.algorithm)
                row[f"algorithm_{side}"] = " + ".join(known)
        yield row
    for alone in comparison.unmatched:
        yield {alone.side: alone.tensor, "problem": alone.reason}


def column_of(title: str, path: str) -> Column[Row]:
    def cell(row: Row) -> Cell:
        value = value_at(row, path)
        if isinstance(value, tuple):
            return "x".join(map(str, value))
        return value if isinstance(value, (str, int, float)) else None

    return Column(title, cell)


def value_at(row: Row, path: str) -> object:
    """Return what is at the end of a path of names, None where a record on it is not there."""
    first, *names = path.split(".")
    value = row.get(first)
    for name in names:
        value = getattr(value, name, None)
    return value
