"""What a build may go on with: the exit code and the sentence for each kind of outcome."""

from __future__ import annotations

from lar.cli.gates import Outcome, decide, failed
from lar.records.run import Failure
from lar.records.summary import Difference, Interval
from tests.tables import each_row

SLOWER = Difference(
    ratio=1.1, interval=Interval(1.05, 1.15), verdict="slower", smallest_detectable=0.02
)
SAME = Difference(ratio=1.0, verdict="no difference shown", smallest_detectable=0.04)
OPEN = Difference(ratio=1.0, reason="1 pair of processes, and 3 are needed")
OUTCOMES = {
    "slow": Outcome("b", SLOWER),
    "same": Outcome("b", SAME),
    "open": Outcome("b", OPEN),
    "failed": Outcome("c", None, "c: why"),
    "timeless": Outcome("c", None, reason="it has no times"),
}


@each_row("cli/cases/gates")
def test_a_gate(
    outcomes: list[str], percent: float | None, unjudged: bool, code: int, sentence: str
) -> None:
    found, said = decide(
        [OUTCOMES[it] for it in outcomes], percent=percent, fail_if_unjudged=unjudged
    )
    assert found == code
    assert said.endswith(sentence)


@each_row("cli/cases/gates named once")
def test_what_failed_is_named_once(name: str, subject: str, said: str) -> None:
    assert failed(name, "failed", Failure(problem="is damaged", subject=subject)).failure == said
