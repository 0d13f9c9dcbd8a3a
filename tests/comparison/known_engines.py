"""Comparisons of dumps with what lar's engines say of their operators."""

from __future__ import annotations

from collections.abc import Mapping

from lar.comparison import compare
from lar.comparison.isolation import OperatorsOf
from lar.dumps.dump import Dump
from lar.engines import operator_kinds_of
from lar.graphs import graph
from lar.records.comparison import Comparison, Only, Tolerance


def compare_dumps(
    actual: Dump,
    expected: Dump,
    tolerance: Tolerance | None = None,
    *,
    raw: bool = False,
    only: Only = "outputs",
    name_map: Mapping[str, str] | None = None,
    operators_of: OperatorsOf = compare.run_nothing,
    isolate: bool = False,
) -> Comparison:
    return compare.compare_dumps(
        actual,
        expected,
        tolerance,
        kinds_of=operator_kinds_of,
        raw=raw,
        only=only,
        name_map=name_map,
        operators_of=operators_of,
        isolate=isolate,
    )


class Graph(graph.Graph):
    def __init__(self, dump: Dump) -> None:
        super().__init__(dump, operator_kinds_of(dump.index.engine))
