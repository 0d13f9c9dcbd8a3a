"""What a build may go on with: the exit code and the sentence for each kind of outcome."""

from __future__ import annotations

import argparse

import pytest

from lar.cli.gates import Outcome, decide, failed, parse_percent
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
    assert (found, said) == (code, sentence)


@each_row("cli/cases/gates named once")
def test_what_failed_is_named_once(name: str, subject: str, said: str) -> None:
    assert failed(name, "failed", Failure(problem="is damaged", subject=subject)).failure == said
    assert failed(name, "crashed", None).failure == f"{name}: crashed"


@each_row("cli/cases/percentages")
def test_a_percentage_is_a_number_from_0(text: str, percent: float | None) -> None:
    if percent is not None:
        assert parse_percent(text) == percent
        return
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse_percent(text)
    assert str(caught.value) == f"{text!r} is no percentage; write --fail-if-slower=0 before a file"
