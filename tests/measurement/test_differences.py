"""Verdicts on differences: as SciPy computes them, and seldom wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from lar.measurement.differences import (
    Ratios,
    Spread,
    centre_of_turn,
    compare_groups,
    compare_pairs,
    compare_turns,
    detectable_errors,
    is_look,
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
SIX = (0.031, 0.012, 0.027, 0.045, 0.022, 0.036)
FOURTEEN = (*SIX, 0.018, 0.029, 0.24, 0.025, -0.01, 0.033, 0.028, 0.030)


def compare_processes(centres: tuple[float, ...], **options: float) -> Difference:
    return known(compare_pairs([[centre] for centre in centres], **options))  # type: ignore[arg-type]


def interval_of(found: Difference) -> tuple[float, float]:
    interval = known(found.interval)
    return interval.low, interval.high


def test_an_interval_is_that_of_scipy() -> None:
    """`scipy.stats.ttest_1samp(SIX, 0).confidence_interval(1 - 0.05 * 0.16)`, SciPy 1.15.3: six
    pairs are judged with what the next look, at seven, may spend."""
    found = compare_processes(SIX)
    scipys = (0.00898234625083811, 0.048684320415828555)
    assert [*map(math.log, interval_of(found))] == pytest.approx(scipys, rel=1e-8)
    assert known(found.interval).confidence == pytest.approx(1 - 0.05 * 0.16)
    assert found.verdict == "slower"


def test_an_interval_without_the_outermost_is_that_of_scipy() -> None:
    """`scipy.stats.mstats.trimmed_mean_ci(FOURTEEN, limits=(1 / 14 + 1e-9,) * 2, alpha=0.05 * 0.2 *
    0.8**3)`, SciPy 1.15.3."""
    found = compare_processes(FOURTEEN)
    assert math.log(found.ratio) == pytest.approx(0.028, rel=1e-8)
    scipys = (0.01697797, 0.03902203)
    assert [*map(math.log, interval_of(found))] == pytest.approx(scipys, abs=1e-8)
    assert found.verdict == "slower"


def test_more_comparisons_need_more_evidence() -> None:
    assert known(compare_processes(SIX, comparisons=2).interval).confidence == pytest.approx(
        1 - 0.004
    )
    assert compare_processes(SIX, comparisons=20).verdict == "no difference shown"
    one, four = compare_processes(SIX), compare_processes(SIX, comparisons=4)
    assert interval_of(four)[0] < interval_of(one)[0]
    assert known(four.smallest_detectable) > known(one.smallest_detectable)


def test_a_process_counts_once_whatever_it_has_of_turns() -> None:
    found = known(compare_pairs([[0.03] * 1000, [0.01], [], [0.02] * 10]))
    assert math.log(found.ratio) == pytest.approx(0.02)
    assert (found.processes, found.pairs) == (3, 1011)
    assert found.verdict == "no difference shown"


def test_a_quarter_of_the_turns_may_be_disturbed() -> None:
    turns = [0.01, 0.011, 0.009, 0.0105, 0.0095, 0.01, 2.0, -3.0]
    assert math.log(known(compare_pairs([turns, turns[::-1], turns])).ratio) == pytest.approx(0.01)


def test_a_side_without_times_has_no_difference() -> None:
    assert compare_pairs([[], []]) is None
    assert compare_groups([], [1.0]) is None
    assert compare_groups([1.0], [0.0]) is None


@each_row("measurement/cases/pairs that are not judged")
def test_few_pairs_and_wild_ones_are_not_judged(log_ratios: list[list[float]], reason: str) -> None:
    found = known(compare_pairs(log_ratios))
    assert (found.verdict, found.reason) == ("not judged", reason)
    assert found.smallest_detectable is None


def test_few_pairs_are_judged_by_how_much_others_differ() -> None:
    usual = known(usual_spread([(0.01, -0.01), (0.02, 0.0), (0.0, -0.02)] * 4))
    assert usual.deviation == pytest.approx(math.sqrt((2 + 2 + 2) * 1e-4 / 3))
    assert usual.degrees == 8
    assert known(compare_pairs([[0.1]], usual=usual)).verdict == "slower"
    assert known(compare_pairs([[-0.1], [0.3]], usual=usual)).verdict == "no difference shown"
    assert usual_spread([[0.1], [0.2], []]) is None


def test_equal_times_are_no_difference() -> None:
    found = compare_processes((0.0,) * 5)
    assert found.verdict == "no difference shown"
    assert (*interval_of(found), found.smallest_detectable) == (1, 1, 0)


def test_a_great_difference_has_an_interval() -> None:
    found = compare_processes(tuple(10 + centre for centre in SIX))
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


def groups(a: list[float], b: list[float], usual: Spread | None = None) -> Difference:
    return known(compare_groups(a, b, usual=usual))


def test_runs_are_compared_as_scipy_does_it() -> None:
    """`scipy.stats.ttest_ind(log(b), log(a)).confidence_interval()`, with `equal_var=False` where
    each side has three, exponentiated; SciPy 1.15.3."""
    welch = groups([1.00, 1.02, 0.99, 1.01, 1.005], [1.03, 1.05, 1.02, 1.045])
    assert interval_of(welch) == pytest.approx((1.01025559, 1.05232796), abs=1e-7)
    assert (welch.verdict, welch.processes) == ("slower", 9)
    pooled = groups([1.0, 1.02], [1.04, 1.05, 1.03])
    assert interval_of(pooled) == pytest.approx((0.99655517, 1.06399206), abs=1e-7)
    assert pooled.verdict == "no difference shown"


def test_a_single_run_is_judged_by_how_much_the_others_differ() -> None:
    """A prediction interval: scipy.stats.t.ppf(0.975, 4) times the others' deviation times
    sqrt(1 + 1 / 5)."""
    base = [1.00, 1.02, 0.99, 1.01, 1.005]
    found = groups(base, [1.03])
    assert interval_of(found) == pytest.approx((0.99082519, 1.06020119), abs=1e-7)
    assert found.verdict == "no difference shown"
    assert found.smallest_detectable == pytest.approx(0.054, abs=0.001)
    assert groups(base, [1.07]).verdict == "slower"


def test_one_run_against_another_is_judged_where_it_is_known_how_much_runs_differ() -> None:
    found = groups([1.0], [9.0])
    assert found.reason == "1 against 1, and two on each side are needed"
    assert found.ratio == pytest.approx(9)
    assert (found.verdict, found.interval) == ("not judged", None)
    assert groups([1.0], [1.1], Spread(0.01, 8)).verdict == "slower"


@pytest.mark.parametrize(
    ("above", "below", "agree"),
    [(5, 0, False), (7, 0, False), (8, 0, True), (9, 1, False), (14, 1, True)],
)
def test_of_disturbed_times_the_signs_decide_too(above: int, below: int, agree: bool) -> None:
    assert signs_agree([[3.0]] * above + [[-3.0]] * below, 0.01) == agree


def ratios_of(times: tuple[float, float], delays: tuple[float, float]) -> Ratios:
    """The ratios of five rounds of the baseline's and the variant's turns, nearly alike."""
    baseline, variant = (
        [turn(r, c, [seconds * (1 + 0.01 * r)], [delay]) for r in range(5) for c in range(3)]
        for seconds, delay in zip(times, delays, strict=True)
    )
    return log_ratios_of(baseline, variant)


@each_row("measurement/cases/waits that explain a difference")
def test_of_few_disturbed_rounds_a_difference_shows_that_no_wait_explains(
    times: tuple[float, float], delays: tuple[float, float], verdict: str
) -> None:
    """Waits of the faster one make it no faster; the slower one may wait for what it has lost."""
    found = ratios_of(times, delays)
    assert not found.are_calm
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
