"""Verdicts on differences: as SciPy computes them, and seldom wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from lar.measurement import differences
from lar.measurement.differences import (
    Ratios,
    Spread,
    centre_of_turn,
    compare_groups,
    compare_pairs,
    compare_turns,
    detectable_errors,
    is_look,
    iterations_in_turn,
    kept_of,
    log_ratios_of,
    look_from,
    part_not_lost,
    signs_agree,
    usual_spread,
)
from lar.records.bench import Turn
from lar.records.run import Samples
from lar.records.summary import Difference
from tests.known import known
from tests.tables import each_row

LOOKS = (5, 7, 10, 14, 20, 28, 40)


def interval_of(found: Difference) -> tuple[float, float]:
    interval = known(found.interval)
    return interval.low, interval.high


@each_row("measurement/cases/differences")
def test_a_difference_has_the_figures_of_scipy(
    function: str,
    times: list[Any],
    options: dict[str, Any],
    verdict: str,
    reason: str,
    counts: list[int],
    figures: list[float],
) -> None:
    """The ratio, the ends and the confidence of its interval, the smallest detectable change.

    Pairs: `scipy.stats.mstats.trimmed_mean_ci(ratios, limits=(cut / len(ratios) + 1e-9,) * 2,
    alpha=1 - confidence)`. Groups: `scipy.stats.ttest_ind(log(b), log(a)).confidence_interval()`,
    with `equal_var=False` where each side has three. SciPy 1.15.3.
    """
    usual = {"usual": Spread(*options["usual"])} if "usual" in options else {}
    found = known(getattr(differences, function)(*times, **(options | usual)))
    assert (found.verdict, found.reason) == (verdict, reason)
    assert [found.processes, found.pairs] == counts
    interval, detectable = found.interval, found.smallest_detectable
    ends = [interval.low, interval.high, interval.confidence] if interval else []
    own = [found.ratio, *ends, *([] if detectable is None else [detectable])]
    assert own == pytest.approx(figures, rel=1e-8)


@each_row("measurement/cases/iterations in a turn")
def test_a_turn_takes_10_ms_after_some_that_are_not_timed(
    seconds: float, untimed: int, timed: int
) -> None:
    assert iterations_in_turn(seconds) == (untimed, timed)


def test_a_quarter_of_the_turns_may_be_disturbed() -> None:
    turns = [0.01, 0.011, 0.009, 0.0105, 0.0095, 0.01, 2.0, -3.0]
    assert math.log(known(compare_pairs([turns, turns[::-1], turns])).ratio) == pytest.approx(0.01)


def test_a_side_without_times_has_no_difference() -> None:
    assert compare_pairs([[], []]) is None
    assert compare_groups([], [1.0]) is None
    assert compare_groups([1.0], [0.0]) is None


def test_few_pairs_are_judged_by_how_much_others_differ() -> None:
    usual = known(usual_spread([(0.01, -0.01), (0.02, 0.0), (0.0, -0.02)] * 4))
    assert usual.deviation == pytest.approx(math.sqrt((2 + 2 + 2) * 1e-4 / 3))
    assert usual.degrees == 8
    assert usual_spread([[0.1], [0.2], []]) is None


def test_a_great_difference_has_an_interval() -> None:
    found = known(compare_pairs([[10 + centre] for centre in (0.031, 0.012, 0.027, 0.045, 0.022)]))
    assert found.verdict == "slower"
    assert interval_of(found)[1] == pytest.approx(math.exp(10) * 1.05, rel=0.01)
    assert known(found.smallest_detectable) < 0.1


def test_the_looks_spend_no_more_than_alpha() -> None:
    at = [number for number in range(1, 3000) if is_look(number)]
    assert tuple(at[:7]) == LOOKS
    assert 0.8 < math.fsum(look_from(number)[1] for number in at) < 1


@each_row("measurement/cases/power")
def test_the_power_is_that_of_scipy(degrees: int, bound: float, errors: float) -> None:
    """`scipy.optimize.brentq(lambda d: scipy.stats.nct.sf(bound, degrees, d) - 0.9, 0, 60)`."""
    assert detectable_errors(bound, degrees) == pytest.approx(errors, rel=0.01)


def played_verdict(seed: int, change: float, outliers: float = 0.0) -> str:
    """The verdict on two programs whose processes differ by 1.5 % and whose turns are noisy."""
    source = random.Random(seed)

    def place() -> float:
        disturbed = source.random() < outliers
        return source.gauss(0, 0.0106) + (source.uniform(0, 0.2) if disturbed else 0)

    turns: list[list[float]] = []
    for _ in range(LOOKS[-1]):
        centre = change + place() - place()
        noisy = [centre + source.gauss(0, 0.02) for _ in range(5)]
        turns.append([*noisy, centre + source.gauss(0, 0.5)])
        if is_look(len(turns)):
            found = known(compare_pairs(turns))
            if found.verdict != "no difference shown":
                return f"{found.verdict} by {'14' if len(turns) <= 14 else 'later'}"
    return "no difference shown"


@pytest.mark.parametrize("outliers", [0, 0.1])
def test_equal_programs_are_seldom_found_different(outliers: float) -> None:
    found = [played_verdict(seed, 0, outliers) for seed in range(100)]
    assert found.count("no difference shown") >= 95


def test_a_change_of_3_percent_is_shown_within_14_pairs() -> None:
    assert [played_verdict(seed, 0.03) for seed in range(100)].count("slower by 14") >= 90
    disturbed = [played_verdict(seed, 0.03, 0.05) for seed in range(100)]
    assert disturbed.count("slower by 14") >= 80
    assert disturbed.count("slower by 14") + disturbed.count("slower by later") >= 97


@pytest.mark.parametrize(
    ("above", "below", "agree"),
    [(5, 0, False), (7, 0, False), (8, 0, True), (9, 1, False), (12, 1, True)],
)
def test_of_disturbed_times_the_signs_decide_too(above: int, below: int, agree: bool) -> None:
    assert signs_agree([[3.0]] * above + [[-3.0]] * below, 2**-7) == agree


def ratios_of(times: tuple[float, float], delays: tuple[float, float]) -> Ratios:
    """The ratios of five rounds of the baseline's and the variant's turns, nearly alike."""
    baseline, variant = (
        [turn(r, c, [seconds * (1 + 0.01 * r)], [delay]) for r in range(5) for c in range(2)]
        for seconds, delay in zip(times, delays, strict=True)
    )
    return log_ratios_of(baseline, variant)


@each_row("measurement/cases/waits that explain a difference")
def test_of_few_disturbed_rounds_a_difference_shows_that_no_wait_explains(
    times: tuple[float, float], delays: tuple[float, float], verdict: str
) -> None:
    """Waits of the faster one make it no faster; the slower one may wait for what it has lost."""
    found = ratios_of(times, delays)
    assert found.are_calm == (max(delays) <= 0.0001)
    assert known(compare_turns(found)).verdict == verdict


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
    alone = log_ratios_of(baseline, [turn(7, 0, [1.0])])
    assert (alone.rounds, compare_turns(alone)) == ([], None)


def test_disturbed_turns_have_no_say_among_calm_ones() -> None:
    """A process that shares its CPU takes a hundred times as long."""
    baseline = [turn(r, c, [0.01]) for r in range(4) for c in range(4)]
    variant = [
        turn(r, c, [1.0], [0.9]) if r > 1 or c > 1 else turn(r, c, [0.01])
        for r in range(4)
        for c in range(4)
    ]
    found = log_ratios_of(baseline, variant)
    assert (found.rounds, found.are_calm) == ([[0.0] * 2] * 2, True)


def test_where_most_is_disturbed_all_count() -> None:
    baseline = [turn(r, c, [0.01]) for r in range(3) for c in range(3)]
    variant = [turn(r, c, [0.02], [0.0] if r == 0 else [0.01]) for r in range(3) for c in range(3)]
    found = log_ratios_of(baseline, variant)
    assert not found.are_calm
    assert found.rounds == [pytest.approx([math.log(2)] * 3)] * 3


def test_what_the_machine_took_away_is_lost_as_waits_are() -> None:
    samples = Samples(
        end_to_end=(0.1, 0.1), queue_delay=(0.01, None), steal=(0.02, 0.0), throttled=(0.0, 0.06)
    )
    assert part_not_lost(Turn(round=0, cycle=0, began=0.0, samples=samples)) == pytest.approx(0.5)


def test_columns_that_were_not_measured_are_not_kept() -> None:
    samples = Samples(end_to_end=(1.0,), host=(0.5,), cpu=(None,), queue_delay=(0.0,))
    assert kept_of(samples) == Samples(end_to_end=(1.0,), queue_delay=(0.0,))
