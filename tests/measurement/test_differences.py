"""Verdicts on differences: as SciPy computes them, and seldom wrong."""

from __future__ import annotations

import math
import random

import pytest

from lar.measurement.differences import (
    Spread,
    alpha_of_look,
    compare_groups,
    compare_pairs,
    detectable_errors,
    spread_between_runs,
)
from lar.records.summary import Difference, Interval

LOOKS = (5, 7, 10, 14, 20, 28, 40)
SIX = (0.031, 0.012, 0.027, 0.045, 0.022, 0.036)
FOURTEEN = (*SIX, 0.018, 0.029, 0.24, 0.025, -0.01, 0.033, 0.028, 0.030)


def compare_processes(centres: tuple[float, ...], **options: float) -> Difference:
    found = compare_pairs([[centre] for centre in centres], **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def interval_of(found: Difference) -> Interval:
    assert found.interval is not None
    return found.interval


def detectable_of(found: Difference) -> float:
    assert found.smallest_detectable is not None
    return found.smallest_detectable


def test_an_interval_is_that_of_scipy() -> None:
    """`scipy.stats.ttest_1samp(SIX, 0).confidence_interval(1 - 0.05 * 0.16)`, SciPy 1.15.3: six
    pairs are judged with what the next look, at seven, may spend."""
    found = compare_processes(SIX)
    assert math.log(interval_of(found).low) == pytest.approx(0.00898234625083811, rel=1e-8)
    assert math.log(interval_of(found).high) == pytest.approx(0.048684320415828555, rel=1e-8)
    assert interval_of(found).confidence == pytest.approx(1 - 0.05 * 0.16)
    assert found.verdict == "slower"


def test_an_interval_without_the_outermost_is_that_of_scipy() -> None:
    """`scipy.stats.mstats.trimmed_mean_ci(FOURTEEN, limits=(1 / 14 + 1e-9,) * 2, alpha=0.05 * 0.2 *
    0.8**3)`, SciPy 1.15.3."""
    found = compare_processes(FOURTEEN)
    assert math.log(found.ratio) == pytest.approx(0.028, rel=1e-8)
    assert math.log(interval_of(found).low) == pytest.approx(0.01697797, abs=1e-8)
    assert math.log(interval_of(found).high) == pytest.approx(0.03902203, abs=1e-8)
    assert found.verdict == "slower"


def test_the_other_way_round_it_is_faster() -> None:
    found = compare_processes(tuple(-centre for centre in FOURTEEN))
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(math.exp(-0.028))
    assert interval_of(found).low < found.ratio < interval_of(found).high < 1


def test_more_comparisons_need_more_evidence() -> None:
    assert interval_of(compare_processes(SIX, comparisons=2)).confidence == pytest.approx(1 - 0.004)
    assert compare_processes(SIX, comparisons=20).verdict == "no difference shown"
    one, four = compare_processes(SIX), compare_processes(SIX, comparisons=4)
    assert interval_of(four).low < interval_of(one).low
    assert detectable_of(four) > detectable_of(one)


def test_a_process_counts_once_whatever_it_has_of_turns() -> None:
    found = compare_pairs([[0.03] * 1000, [0.01], [], [0.02] * 10])
    assert found is not None
    assert math.log(found.ratio) == pytest.approx(0.02)
    assert (found.processes, found.pairs) == (3, 1011)
    assert found.verdict == "no difference shown"


def test_a_quarter_of_the_turns_may_be_disturbed() -> None:
    turns = [0.01, 0.011, 0.009, 0.0105, 0.0095, 0.01, 2.0, -3.0]
    found = compare_pairs([turns, turns[::-1], turns])
    assert found is not None
    assert math.log(found.ratio) == pytest.approx(0.01)


def test_one_pair_shows_nothing() -> None:
    assert compare_pairs([]) is None
    assert compare_pairs([[0.1, 0.2], []]) is None


def test_equal_times_are_no_difference() -> None:
    found = compare_processes((0.0,) * 5)
    assert found.verdict == "no difference shown"
    assert (interval_of(found).low, interval_of(found).high, found.smallest_detectable) == (1, 1, 0)


def test_an_interval_that_holds_any_ratio_is_none() -> None:
    found = compare_processes((-4.0, 5.0))
    assert found.verdict == "no difference shown"
    assert (found.interval, found.smallest_detectable) == (None, None)


def test_a_great_difference_has_an_interval() -> None:
    found = compare_processes(tuple(10 + centre for centre in SIX))
    assert found.verdict == "slower"
    assert interval_of(found).high == pytest.approx(math.exp(10) * 1.05, rel=0.01)
    assert detectable_of(found) < 0.1


def test_the_looks_spend_no_more_than_alpha() -> None:
    spent = {number: alpha_of_look(number, 0.05) for number in range(1, 3000)}
    assert tuple(number for number, part in spent.items() if part)[:7] == LOOKS
    assert spent[5] == pytest.approx(0.01)
    assert 0.04 < math.fsum(part for part in spent.values() if part) < 0.05


@pytest.mark.parametrize(
    ("degrees", "bound", "errors"),
    [
        (4, 4.6, 6.763303972863405),
        (9, 3.25, 4.774389988923505),
        (13, 3.0, 4.42930422096195),
        (27, 2.05, 3.361439324576011),
    ],
)
def test_the_power_is_that_of_scipy(degrees: int, bound: float, errors: float) -> None:
    """`scipy.optimize.brentq(lambda d: scipy.stats.nct.sf(bound, degrees, d) - 0.9, 0, 60)`."""
    assert detectable_errors(bound, degrees) == pytest.approx(errors, rel=0.01)


def played_verdict(seed: int, change: float, outliers: float = 0.0, comparisons: int = 1) -> str:
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
        if alpha_of_look(len(turns)) is not None:
            found = compare_pairs(turns, comparisons=comparisons)
            assert found is not None
            if found.verdict != "no difference shown":
                return f"{found.verdict} by {'14' if len(turns) <= 14 else 'later'}"
    return "no difference shown"


@pytest.mark.parametrize("outliers", [0, 0.1])
def test_equal_programs_are_seldom_found_different(outliers: float) -> None:
    found = [played_verdict(seed, 0, outliers) for seed in range(100)]
    assert found.count("no difference shown") >= 95


def test_a_change_of_3_percent_is_shown_within_14_pairs() -> None:
    found = [played_verdict(seed, 0.03) for seed in range(100)]
    assert found.count("slower by 14") >= 90
    disturbed = [played_verdict(seed, 0.03, 0.05) for seed in range(100)]
    assert disturbed.count("slower by 14") >= 80
    assert disturbed.count("slower by 14") + disturbed.count("slower by later") >= 97


def runs_of(medians: list[float]) -> list[list[float]]:
    return [[median * 0.99, median, median * 1.01] for median in medians]


def test_runs_are_compared_as_scipy_does_it() -> None:
    """`scipy.stats.ttest_ind(log(b), log(a)).confidence_interval()`, and with `equal_var=False`
    where that is wider, exponentiated; SciPy 1.15.3."""
    a, b = [1.00, 1.02, 0.99, 1.01, 1.005], [1.03, 1.05, 1.02, 1.045]
    welch = compare_groups(runs_of(a), runs_of(b))
    assert welch is not None
    assert (interval_of(welch).low, interval_of(welch).high) == pytest.approx(
        (1.01025559, 1.05232796), abs=1e-7
    )
    assert (welch.verdict, welch.processes, welch.pairs) == ("slower", 9, 27)
    pooled = compare_groups(runs_of([1.0, 1.02]), runs_of([1.04, 1.05, 1.03]))
    assert pooled is not None
    assert (interval_of(pooled).low, interval_of(pooled).high) == pytest.approx(
        (0.99655517, 1.06399206), abs=1e-7
    )
    assert pooled.verdict == "no difference shown"


def test_a_single_run_is_judged_by_how_much_the_others_differ() -> None:
    """A prediction interval: scipy.stats.t.ppf(0.975, 4) times the others' deviation times
    sqrt(1 + 1 / 5)."""
    found = compare_groups(runs_of([1.00, 1.02, 0.99, 1.01, 1.005]), runs_of([1.03]))
    assert found is not None
    assert (interval_of(found).low, interval_of(found).high) == pytest.approx(
        (0.99082519, 1.06020119), abs=1e-7
    )
    assert found.verdict == "no difference shown"
    assert found.smallest_detectable == pytest.approx(0.054, abs=0.001)
    slower = compare_groups(runs_of([1.00, 1.02, 0.99, 1.01, 1.005]), runs_of([1.07]))
    assert slower is not None
    assert slower.verdict == "slower"


def test_one_run_against_another_shows_nothing() -> None:
    found = compare_groups(runs_of([1.0]), runs_of([9.0]))
    assert found is not None
    assert found.verdict == "no difference shown"
    assert found.ratio == pytest.approx(9)
    assert (found.interval, found.smallest_detectable) == (None, None)


def test_one_run_against_another_where_it_is_known_how_much_runs_differ() -> None:
    found = compare_groups(runs_of([1.0]), runs_of([1.1]), between=Spread(0.01, 8))
    assert found is not None
    assert found.verdict == "slower"
    assert found.smallest_detectable == pytest.approx(0.054, abs=0.001)


def test_a_run_of_few_samples_counts_as_less_sure() -> None:
    source = random.Random(2)
    runs = [[source.lognormvariate(0, 0.1) for _ in range(400)] for _ in range(5)]
    long, short = compare_groups(runs[:4], runs[4:]), compare_groups(runs[:4], [runs[4][:5]])
    assert long is not None
    assert short is not None
    assert detectable_of(short) > 2 * detectable_of(long)


def test_runs_without_samples_show_nothing() -> None:
    assert compare_groups([], runs_of([1.0])) is None
    assert compare_groups(runs_of([1.0]), [[]]) is None
    assert compare_groups(runs_of([1.0]), [[0.0, 0.0]]) is None


def test_the_spread_between_runs_is_pooled() -> None:
    found = spread_between_runs([runs_of([1.0, 1.1]), runs_of([2.0]), runs_of([5.0, 5.1, 5.2])])
    assert found is not None
    squares = math.log(1.1) ** 2 / 2
    logs = [math.log(value) for value in (5.0, 5.1, 5.2)]
    squares += sum((value - sum(logs) / 3) ** 2 for value in logs)
    assert found.degrees == 3
    assert found.deviation == pytest.approx(math.sqrt(squares / 3))
    assert spread_between_runs([runs_of([1.0]), [[]], []]) is None
