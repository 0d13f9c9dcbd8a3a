"""The ratios of neighbouring turns: which count, and what disturbed ones may show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from lar.measurement.turns import (
    Ratios,
    centre_of_turn,
    compare_turns,
    kept_of,
    log_ratios_of,
    part_not_lost,
    signs_agree,
)
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
    busy = turn(0, 0, [0.05], [0.04])
    assert centre_of_turn(busy, is_calm=True) is None


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


@pytest.mark.parametrize(
    ("above", "below", "agree"),
    [(5, 0, False), (7, 0, False), (8, 0, True), (9, 1, False), (14, 1, True)],
)
def test_of_disturbed_times_the_signs_decide_too(above: int, below: int, agree: bool) -> None:
    ratios = [[3.0]] * above + [[-3.0]] * below
    assert signs_agree(Ratios(ratios, are_calm=False), 0.01) == agree
    assert signs_agree(Ratios(ratios, are_calm=True), 0.01)


def ratios_of(times: tuple[float, float], delays: tuple[float, float]) -> Ratios:
    """The ratios of five rounds of the baseline's and the variant's turns, nearly alike."""
    baseline, variant = (
        [turn(r, c, [seconds * (1 + 0.01 * r)], [delay]) for r in range(5) for c in range(3)]
        for seconds, delay in zip(times, delays, strict=True)
    )
    return log_ratios_of(baseline, variant)


@pytest.mark.parametrize(
    ("times", "delays", "verdict"),
    [
        # The threads of the faster one wait for each other's CPUs: that makes it no faster.
        ((0.110, 0.030), (0.0001, 0.011), "faster"),
        ((0.030, 0.110), (0.011, 0.0001), "slower"),
        # The slower one waits for what it may have lost.
        ((0.110, 0.030), (0.040, 0.0), "no difference shown"),
        ((0.030, 0.110), (0.0, 0.040), "no difference shown"),
        ((0.110, 0.030), (0.110, 0.011), "no difference shown"),
        # It waits, but not so long.
        ((0.110, 0.030), (0.010, 0.011), "faster"),
    ],
)
def test_of_few_disturbed_rounds_a_difference_shows_that_no_wait_explains(
    times: tuple[float, float], delays: tuple[float, float], verdict: str
) -> None:
    found = ratios_of(times, delays)
    assert not found.are_calm
    difference = compare_turns(found)
    assert difference is not None
    assert difference.verdict == verdict


def test_what_the_machine_took_away_is_lost_as_waits_are() -> None:
    samples = Samples(
        end_to_end=(0.1, 0.1), queue_delay=(0.01, None), steal=(0.02, 0.0), throttled=(0.0, 0.06)
    )
    assert part_not_lost(Turn(round=0, cycle=0, began=0.0, samples=samples)) == pytest.approx(0.5)


def test_columns_that_were_not_measured_are_not_kept() -> None:
    samples = Samples(end_to_end=(1.0,), host=(0.5,), cpu=(None,), queue_delay=(0.0,))
    assert kept_of(samples) == Samples(end_to_end=(1.0,), queue_delay=(0.0,))
