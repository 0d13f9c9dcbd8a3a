"""The printed lines of a run over testcases, in load_and_run's order.

What an iteration's outputs are found to be stands before its times, so these wait for it.
"""

from __future__ import annotations

from lar.measurement.rows import SampleRows
from lar.measurement.statistics import statistics_of
from lar.records.events import Judged
from lar.records.run import RunResult, RunSpec
from lar.records.testcase import Verdict, error_of
from lar.reports.run_text import format_finished, format_ms, format_row

Row = tuple[float, float, float, float]


class CaseLines:
    """Makes the lines of the iterations as they are judged."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.waiting: list[tuple[int, Row]] = []
        self.times: list[list[float]] = [[] for _ in spec.cases]

    def add(self, rows: SampleRows, first: int, last: int) -> None:
        """Take the rows from `first` up to, not including, `last`."""
        self.waiting += [(index, rows.row(index)) for index in range(first, last)]

    def take(self, judged: Judged) -> list[str]:
        """Return the lines of the iteration that was judged; the last of a test ends it."""
        lines = [format_verdict(verdict) for verdict in judged.verdicts if verdict.shown]
        return lines + (self.take_row() if self.waiting else [])

    def take_row(self) -> list[str]:
        """Return the line of the first row that waits, and what ends its test."""
        index, row = self.waiting.pop(0)
        lines = [format_row(index, row, self.spec)]
        iteration = index - self.spec.warmup_iterations
        if iteration >= 0:
            number = iteration // self.spec.iterations
            self.times[number].append(row[0])
            if len(self.times[number]) == self.spec.iterations:
                lines += self.end_test(number)
        return lines

    def end_test(self, number: int) -> list[str]:
        """Return the line that ends a test; an empty one follows it."""
        statistics = statistics_of(self.times[number])
        return [format_finished(number, statistics), ""] if statistics else []

    def finish(self, result: RunResult) -> list[str]:
        """Return what is left when the run has ended: rows that nobody judged, and the sums."""
        lines = []
        while self.waiting:
            lines += self.take_row()
        if result.status in ("ok", "interrupted"):
            for number, times in enumerate(self.times):
                if 0 < len(times) < self.spec.iterations:
                    lines += self.end_test(number)
            total = sum(sum(times) for times in self.times)
            lines.append(f"=== total time: {format_ms(total)}ms")
        return lines + format_cases(result)


def format_verdict(verdict: Verdict) -> str:
    """Return load_and_run's line of an assertion."""
    return f"assertequal: err={error_of(verdict):g} (name={verdict.name} id={verdict.id})"


def format_cases(result: RunResult) -> list[str]:
    """Return how many testcases came out as expected, none where nothing was compared."""
    judged = [case for case in result.cases if case.passed is not None]
    if not judged:
        return []
    passed, left = sum(bool(case.passed) for case in judged), len(result.spec.cases) - len(judged)
    largest = max(error_of(verdict) for case in judged for verdict in case.verdicts)
    return [
        f"testcases: {passed} of {len(judged)} as expected, largest err={largest:g}"
        + (f"; {left} not compared" if left else "")
    ]
