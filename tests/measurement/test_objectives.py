"""Objectives as numbers of turns and processes, and what pairs of processes show of them."""

from __future__ import annotations

import math

import pytest

from lar.measurement.objectives import (
    kept_for,
    log_ratios_for,
    score_of_process,
    score_of_turn,
)
from lar.measurement.turns import Ratios
from lar.records.bench import Turn
from lar.records.choices import Objective
from lar.records.run import Samples
from lar.records.tuning import Candidate, TrialRow

COPIES = Samples(
    end_to_end=(1.0, 1.0, 1.5, 1.5),
    began=(0.0, 1.0, 0.1, 1.6),
    runner=(0, 0, 1, 1),
    queue_delay=(0.0,) * 4,
    device=(1.0,) * 4,
)


def turn(cycle: int, times: tuple[float, ...], delay: float = 0.0, number: int = 0) -> Turn:
    samples = Samples(end_to_end=times, queue_delay=(delay,) * len(times))
    return Turn(round=number, cycle=cycle, began=0.0, samples=samples)


def row(*turns: Turn, memory: int | None = None) -> TrialRow:
    return TrialRow(candidate=Candidate(), turns=turns, peak_memory_bytes=memory)


def test_copies_that_overlap_count_together() -> None:
    together = Turn(round=0, cycle=0, began=0.0, samples=COPIES)
    assert score_of_turn("throughput", together, is_calm=True) == pytest.approx(3.1 / 4)
    assert score_of_turn("latency", together, is_calm=True) == 1.25
    without_starts = Turn(
        round=0,
        cycle=0,
        began=0.0,
        samples=Samples(end_to_end=COPIES.end_to_end, runner=COPIES.runner),
    )
    assert score_of_turn("throughput", without_starts, is_calm=True) == 3.0 / 4
    assert score_of_turn("throughput", turn(0, (1.0, 2.0, 6.0)), is_calm=True) == 3.0


def test_a_disturbed_turn_of_copies_is_not_calm() -> None:
    samples = Samples(
        end_to_end=(1.0, 1.0), began=(0.0, 0.0), runner=(0, 1), queue_delay=(0.0, 0.5)
    )
    disturbed = Turn(round=0, cycle=0, began=0.0, samples=samples)
    assert score_of_turn("throughput", disturbed, is_calm=True) is None
    assert score_of_turn("throughput", disturbed, is_calm=False) == 0.5


@pytest.mark.parametrize(
    ("objective", "expected"),
    [("latency", 2.0), ("throughput", 7 / 3), ("p99", 4.98), ("memory", 5e6)],
)
def test_scores_of_a_process(objective: Objective, expected: float) -> None:
    process = row(*(turn(cycle, (1.0, 2.0, 4.0)) for cycle in range(2)), memory=5_000_000)
    if objective == "p99":
        process = row(turn(0, tuple(map(float, range(1, 4)))), turn(1, (4.0, 5.0)))
        expected = 4.96
    assert score_of_process(objective, process) == pytest.approx(expected)
    assert score_of_process(objective, row()) is None


def test_columns_that_an_objective_needs_are_kept() -> None:
    assert kept_for("throughput", COPIES).runner == COPIES.runner
    assert kept_for("throughput", COPIES).device == ()
    assert kept_for("latency", COPIES) == Samples(
        end_to_end=COPIES.end_to_end, queue_delay=COPIES.queue_delay
    )


def test_ratios_are_those_of_neighbouring_turns() -> None:
    first = row(turn(0, (1.0,)), turn(1, (2.0,)), turn(-1, (9.0,)))
    second = row(turn(0, (2.0,)), turn(1, (4.0,)), turn(2, (9.0,)))
    found = log_ratios_for("latency", [(first, second)])
    assert found == Ratios([[math.log(2)] * 2], True, [[math.log(2)] * 2])


def test_memory_and_p99_have_one_ratio_for_each_pair_of_processes() -> None:
    first, second = row(turn(0, (1.0, 2.0)), memory=100), row(turn(0, (2.0, 1.0)), memory=50)
    assert log_ratios_for("memory", [(first, second)] * 3).rounds == [[math.log(0.5)]] * 3
    assert log_ratios_for("memory", [(row(), second)]).rounds == []
    assert log_ratios_for("p99", [(first, second)]) == Ratios([[0.0]], are_calm=True)
    disturbed = row(turn(0, (2.0, 1.0), delay=0.5))
    assert not log_ratios_for("p99", [(first, disturbed)]).are_calm
