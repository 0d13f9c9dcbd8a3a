"""A comparison as CSV: a row a pair of tensors, then a row a tensor without a twin."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from lar.records.comparison import Comparison, OperatorFacts, TensorComparison

COLUMNS = (
    *("actual", "expected", "operator", "dtype", "shape", "layout_actual", "layout_expected"),
    *("matched_by", "apart_by_bias", "constant", "depth", "passed", "culprit", "problem"),
    *("elements", "identical", "max_error", "max_absolute", "mean_absolute", "max_relative"),
    *("mean_relative", "relative_l2", "scale", "max_ulp", "cosine", "snr_db", "mismatches"),
    *("nonfinite_mismatches", "nan_actual", "nan_expected", "inf_actual", "inf_expected"),
    *("first_index", "first_actual", "first_expected"),
    *("worst_index", "worst_actual", "worst_expected"),
    *("algorithm_actual", "algorithm_expected"),
)
FIGURES = (
    *("elements", "identical", "max_error", "max_absolute", "mean_absolute", "max_relative"),
    *("mean_relative", "relative_l2", "scale", "max_ulp", "cosine", "snr_db", "mismatches"),
    "nonfinite_mismatches",
)


def format_csv(comparison: Comparison) -> str:
    """Return a comparison as CSV; what is not known is empty.

    The algorithms are those of a culprit's operators, in the row of what they give.
    """
    culprits = {(it.output.actual.key, it.output.expected.key): it for it in comparison.culprits}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    listed = {(it.actual.key, it.expected.key) for it in comparison.tensors}
    # What a culprit gives may be no twins, but what two fused operators compute within.
    within = [culprits[keys].output for keys in culprits if keys not in listed]
    for tensor in (*comparison.tensors, *within):
        culprit = culprits.get((tensor.actual.key, tensor.expected.key))
        row = {**row_of(tensor), "culprit": culprit is not None}
        if culprit is not None:
            row["algorithm_actual"] = algorithms_of(culprit.actual)
            row["algorithm_expected"] = algorithms_of(culprit.expected)
        writer.writerow(row)
    for unmatched in comparison.unmatched:
        facts = unmatched.tensor
        writer.writerow(
            {
                unmatched.side: facts.name,
                "operator": facts.operator_type,
                "dtype": facts.dtype,
                "shape": format_index(facts.shape),
                f"layout_{unmatched.side}": facts.layout,
                "problem": unmatched.reason,
            }
        )
    return text.getvalue()


def algorithms_of(operators: Iterable[OperatorFacts]) -> str:
    """Return the algorithms of operators, empty where none is known."""
    return " + ".join(operator.algorithm for operator in operators if operator.algorithm)


def row_of(tensor: TensorComparison) -> dict[str, Any]:
    """Return one pair's cells, by column."""
    row: dict[str, Any] = {
        "actual": tensor.actual.name,
        "expected": tensor.expected.name,
        "operator": tensor.expected.operator_type,
        "dtype": tensor.expected.dtype,
        "shape": format_index(tensor.expected.shape),
        "layout_actual": tensor.actual.layout,
        "layout_expected": tensor.expected.layout,
        "matched_by": tensor.matched_by,
        "apart_by_bias": tensor.apart_by_bias,
        "constant": tensor.constant,
        "depth": tensor.depth,
        "passed": tensor.passed,
        "problem": tensor.problem,
    }
    figures = tensor.figures
    if figures is None:
        return row
    row |= {name: getattr(figures, name) for name in FIGURES}
    row["nan_actual"], row["nan_expected"] = figures.nan_counts
    row["inf_actual"], row["inf_expected"] = figures.infinity_counts
    for name, element in (("first", figures.first), ("worst", figures.worst)):
        if element is not None:
            row[f"{name}_index"] = format_index(element.index)
            row[f"{name}_actual"], row[f"{name}_expected"] = element.actual, element.expected
    return {key: "" if value is None else value for key, value in row.items()}


def format_index(index: tuple[int, ...]) -> str:
    return "x".join(map(str, index))
