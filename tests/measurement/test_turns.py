"""The ratios of neighbouring turns: which count, and what disturbed ones may show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from lar.measurement.turns import centre_of_turn, kept_of, log_ratios_of, part_not_lost
from lar.records.bench import Turn
from lar.records.run import Samples


def turn(round: int, cycle: int, times: Sequence[float], delays: Sequence[float] = ()) -> Turn:
    delays = delays or [0.0] * len(times)
    samples = Samples(end_to_end=tuple(times), queue_delay=tuple(delays))
    return Turn(round=round, cycle=cycle, began=0.0, samples=samples)


def test_the_centre_of_a_turn_is_the_median_of_what_nothing_disturbed() -> None:
    mixed = turn(0, 0, [0.010, 0.011, 0.050, 0.060], [0.0, 0.0, 0.04, 0.05])
    assert centre_of_turn(mixed, is_calm=True) == pytest.approx(0.0105)
    assert centre_of_turn(mixed, is_calm=False) == pytest.approx(0.0305)
    assert centre_of_turn(turn(0, 0, [0.05], [0.04]), is_calm=True) is None


def test_turns_of_one_cycle_are_neighbours() -> None:
    baseline = [turn(0, 0, [1.0]), turn(0, 1, [2.0]), turn(1, 0, [4.0]), turn(1, 1, [4.0])]
    variant = [turn(0, 1, [4.0]), turn(1, 1, [8.0]), turn(1, 0, [2.0]), turn(0, 0, [3.0])]
    found = log_ratios_of(baseline, variant)
    assert found.are_calm
    expected = [[math.log(2), math.log(3)], [math.log(2), math.log(0.5)]]
    assert [sorted(each) for each in found.rounds] == [
        pytest.approx(sorted(each)) for each in expected
    ]
    assert log_ratios_of(baseline, [turn(7, 0, [1.0])]).rounds == []


def test_disturbed_turns_have_no_say_among_calm_ones() -> None:
    """A process that shares its CPU takes a hundred times as long."""
    baseline = [turn(r, c, [0.01]) for r in range(4) for c in range(4)]
    variant = [
        turn(r, c, [1.0], [0.9]) if r == 3 or c == 0 else turn(r, c, [0.01])
        for r in range(4)
        for c in range(4)
    ]
    found = log_ratios_of(baseline, variant)
    assert (found.rounds, found.are_calm) == ([[0.0] * 3] * 3, True)


def test_where_most_is_disturbed_all_count() -> None:
    baseline = [turn(r, c, [0.01]) for r in range(4) for c in range(3)]
    variant = [turn(r, c, [0.02], [0.0] if r == 0 else [0.01]) for r in range(4) for c in range(3)]
    found = log_ratios_of(baseline, variant)
    assert not found.are_calm
    assert found.rounds == [pytest.approx([math.log(2)] * 3)] * 4


def test_what_the_machine_took_away_is_lost_as_waits_are() -> None:
    samples = Samples(
        end_to_end=(0.1, 0.1), queue_delay=(0.01, None), steal=(0.02, 0.0), throttled=(0.0, 0.06)
    )
    assert part_not_lost(Turn(round=0, cycle=0, began=0.0, samples=samples)) == pytest.approx(0.5)


def test_columns_that_were_not_measured_are_not_kept() -> None:
    samples = Samples(end_to_end=(1.0,), host=(0.5,), cpu=(None,), queue_delay=(0.0,))
    assert kept_of(samples) == Samples(end_to_end=(1.0,), queue_delay=(0.0,))
