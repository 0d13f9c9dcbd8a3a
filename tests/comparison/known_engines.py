"""Comparisons of dumps with what lar's engines say of their operators."""

from __future__ import annotations

from typing import Any

from lar.comparison import compare
from lar.comparison.culprits import OperatorsOf
from lar.dumps import Dump
from lar.engines import operator_kinds_of
from lar.graphs import graph
from lar.records.comparison import Comparison, Tolerance
from lar.reports.comparison_report import report_comparison


def compare_dumps(
    actual: Dump,
    expected: Dump,
    tolerance: Tolerance | None = None,
    *,
    operators_of: OperatorsOf = lambda side: "its model is not known",
    **wanted: Any,
) -> Comparison:
    request = compare.Request(tolerance=tolerance or Tolerance(), **wanted)
    return compare.compare_dumps(actual, expected, request, operator_kinds_of, operators_of)


def verdict_of(comparison: Comparison) -> str:
    """The last line of the report, without what stands in brackets."""
    return report_comparison(comparison).text.splitlines()[-1].partition(" (")[0]


class Graph(graph.Graph):
    def __init__(self, dump: Dump) -> None:
        super().__init__(dump, operator_kinds_of(dump.index.engine))
