"""What a build may go on with: the exit code and the sentence for each kind of outcome."""

from __future__ import annotations

import pytest

from lar.cli.gates import Outcome, decide, failed
from lar.records.run import Failure
from lar.records.summary import Difference, Interval
from tests.tables import each_row

SLOWER = Difference(
    ratio=1.1, interval=Interval(1.05, 1.15), verdict="slower", smallest_detectable=0.02
)
SLOW = Outcome("b", SLOWER)
SAME = Outcome("b", Difference(ratio=1.0, verdict="no difference shown", smallest_detectable=0.04))
WHY = "1 pair of processes, and 3 are needed"
OPEN = [Outcome(name, Difference(ratio=1.0, reason=WHY)) for name in "bc"]
FAILED = Outcome("c", None, "c: why")
TIMELESS = Outcome("c", None, reason="it has no times")
UNSEEN = "not judged: b: a change below 4.0% cannot be seen"


@pytest.mark.parametrize(
    ("outcomes", "percent", "unjudged", "code", "sentence"),
    [
        ([SLOW], 0.0, False, 1, "slower: b by 10.0% (5.0 to 15.0)"),
        ([SLOW], 9.0, False, 1, "slower: b by 10.0% (5.0 to 15.0)"),
        ([SLOW], 11.0, True, 0, "passed: 1 slower"),
        ([SLOW], None, True, 0, "passed: 1 slower"),
        ([SLOW, FAILED], 0.0, True, 4, "failed: c: why"),
        ([SAME], 0.0, True, 0, "passed: 1 no difference shown"),
        ([SAME], 5.0, True, 0, "passed: 1 no difference shown"),
        ([SAME], 3.0, True, 5, UNSEEN),
        (OPEN, 0.0, False, 0, f"nothing judged: {WHY}"),
        ([SAME, TIMELESS], 0.0, False, 0, "passed: 1 no difference shown, 1 not judged"),
        ([TIMELESS], 0.0, True, 5, "not judged: c: it has no times"),
        ([], 0.0, True, 5, "nothing judged: there are no two sides to compare"),
        ([], 0.0, False, 5, "nothing judged: there are no two sides to compare"),
        ([Outcome(str(n), SLOWER) for n in range(5)], 0.0, False, 1, "and 2 more"),
    ],
)
def test_a_gate(
    outcomes: list[Outcome], percent: float | None, unjudged: bool, code: int, sentence: str
) -> None:
    found, said = decide(outcomes, percent=percent, fail_if_unjudged=unjudged)
    assert found == code
    assert said.endswith(sentence)


@each_row("cli/cases/gates named once")
def test_what_failed_is_named_once(name: str, subject: str, said: str) -> None:
    failure = Failure(problem="is damaged", subject=subject)
    assert failed(name, "failed", failure).failure == said
