"""The lines of a run over testcases: each test ends with its own figures."""

from __future__ import annotations

import pytest

from lar.measurement.rows import NAN, SampleRows
from lar.records.events import Judged
from lar.records.run import RunResult, RunSpec
from lar.records.testcase import Case
from lar.reports.run_text import CaseLines


def lines_of(warmups: int, iterations: int, rows: int) -> tuple[CaseLines, list[str], RunResult]:
    """The lines of a run over two testcases that took so many rows, of 1 s, 2 s, ..."""
    spec = RunSpec(
        model="m",
        engine="fake",
        driver="script",
        iterations=iterations,
        warmup_iterations=warmups,
        cases=(Case(name="first"), Case(name="second")),
    )
    table = SampleRows.anonymous(rows)
    for index in range(rows):
        table.append(index + 1.0, 0.5, NAN, NAN)
    lines = CaseLines(spec)
    lines.add(table, 0, rows)
    taken = [line for _ in range(rows) for line in lines.take(Judged(0, "", ()))]
    result = RunResult(spec=spec, status="ok", phase="iterations", lar_version="", started_at="")
    return lines, [line for line in taken if line], result


@pytest.mark.parametrize(
    ("warmups", "iterations", "rows", "averages", "total"),
    [
        (0, 1, 2, ["1000.000", "2000.000"], 3),
        (1, 1, 3, ["2000.000", "3000.000"], 5),
        (1, 2, 5, ["2500.000", "4500.000"], 14),
        (2, 1, 2, [], 0),  # the warm-up alone
        (1, 2, 4, ["2500.000", "4000.000"], 9),  # the second was not ended
    ],
)
def test_each_test_ends_after_its_iterations(
    warmups: int, iterations: int, rows: int, averages: list[str], total: int
) -> None:
    lines, taken, result = lines_of(warmups, iterations, rows)
    whole = [*taken, *lines.finish(result)]
    ends = [line for line in whole if line.startswith("=== finished test")]
    assert [f"#{number}: " in line for number, line in enumerate(ends)] == [True] * len(averages)
    assert [line.partition("avg_time=")[2].partition("ms")[0] for line in ends] == averages
    assert whole[-1] == f"=== total time: {1000 * total}.000ms"
    assert sum(line.startswith("warmup ") for line in whole) == warmups
    assert sum(line.startswith("iter ") for line in whole) == rows - warmups
