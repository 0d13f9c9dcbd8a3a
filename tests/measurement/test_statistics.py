"""Statistics of samples agree with NumPy's, and say nothing that the samples do not support."""

from __future__ import annotations

import math
import random
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.measurement import statistics
from lar.measurement.statistics import (
    causes_of,
    disturbed_of,
    median_interval,
    percentile_of,
    quantile_of_t,
    slowed_of,
    statistics_of,
)
from lar.records.run import Samples
from lar.records.summary import Interval
from lar.worker.execution import GROWTH, NARROW_LOOKS
from tests.known import known
from tests.measurement.played_noise import Noise
from tests.tables import each_row

TIMES = st.floats(min_value=1e-9, max_value=1e4)


@given(st.lists(TIMES, min_size=2, max_size=150))
def test_statistics_agree_with_numpy(values: list[float]) -> None:
    found = known(statistics_of(values))
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values))
    spread = float(np.std(values, ddof=1))
    assert found.standard_deviation == pytest.approx(spread, abs=1e-9 * max(values))
    assert (found.minimum, found.maximum) == (min(values), max(values))
    assert found.median == pytest.approx(np.median(values))
    for rank, value in found.percentiles.items():
        assert value == pytest.approx(np.percentile(values, rank))


@given(st.lists(TIMES, min_size=1, max_size=30), st.floats(min_value=0, max_value=100))
def test_any_percentile_agrees_with_numpy(values: list[float], rank: float) -> None:
    ordered = sorted(values)
    found = percentile_of(ordered, rank)
    assert found == pytest.approx(np.percentile(ordered, rank))
    assert ordered[0] <= found <= ordered[-1] * (1 + 1e-12)


def test_no_samples_have_no_statistics() -> None:
    assert statistics_of([]) is None


def test_one_sample_has_no_deviation() -> None:
    found = known(statistics_of([0.25]))
    assert found.standard_deviation is None
    assert (found.minimum, found.median, found.mean, found.maximum) == (0.25, 0.25, 0.25, 0.25)


@each_row("measurement/cases/percentiles")
def test_a_percentile_is_told_only_with_enough_samples(count: int, ranks: list[int]) -> None:
    found = known(statistics_of([float(number) for number in range(1, count + 1)]))
    assert list(found.percentiles) == ranks


def test_disturbed_samples_waited_for_a_notable_part_of_their_time() -> None:
    end_to_end = [0.1, 0.1, 0.1, 0.1, 0.1]
    assert disturbed_of(end_to_end, [0.0, 0.004, 0.006, None, 0.2]) == (2, 4)
    assert disturbed_of([], []) == ()
    assert disturbed_of([0.1], []) == ()  # nobody looked


@given(st.lists(st.none() | st.floats(0, 1) | st.sampled_from((0.25, 0.75))))
def test_values_are_put_in_order_however_many_are_equal(values: list[float | None]) -> None:
    wanted = sorted(value for value in values if value is not None)
    for count in (1, 4, 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statistics, "LOOKED_AT", count)
            patch.setattr(statistics, "FEWEST_OF_VALUE", 1)
            assert [*statistics.in_order(values)] == wanted


def test_samples_without_their_delays_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 waits for 2 samples"):
        disturbed_of([0.1, 0.1], [0.1])


def test_a_wait_at_the_bounds_is_none_yet() -> None:
    assert disturbed_of([0.25] * 2, [0.0125, 0.012501]) == (1,)  # a twentieth of the time
    assert disturbed_of([1e-6] * 2, [1e-4, 1.01e-4]) == (1,)  # 100 us at the least


QUICK, SLOW = 2e-6, 3e-6


def test_samples_beside_a_slow_probe_are_disturbed() -> None:
    probes = [1.3 * QUICK, *[QUICK, QUICK, SLOW, QUICK, SLOW] * 8]
    times = [1.5 if probe == SLOW else 1.0 for probe in probes]
    slow = tuple(index for index, probe in enumerate(probes) if probe == SLOW)
    assert slowed_of(times, probes) == slow
    assert slowed_of(times, [*probes[:-1], None]) == slow[:-1]
    samples = Samples(end_to_end=tuple(times), probe=tuple(probes))
    assert causes_of(samples) == {"slow core": slow}


def test_what_the_fastest_tenth_of_the_probes_take_is_usual() -> None:
    probes = [QUICK] * 5 + [SLOW] * 36
    assert slowed_of([1.0] * 5 + [1.5] * 36, probes) == tuple(range(5, 41))
    # One quick probe in many is an accident.
    assert slowed_of([1.0] + [1.5] * 39, [QUICK] + [SLOW] * 39) == ()


@each_row("measurement/cases/slow probes")
def test_samples_beside_slow_probes_are_slower(groups: list[list[float]], is_slow: bool) -> None:
    """Each group has samples of a time and a probe, and how many there are."""
    samples = [(time, probe) for time, probe, count in groups for _ in range(int(count))]
    assert bool(slowed_of(*zip(*samples, strict=True))) == is_slow


def test_slow_probes_that_have_nothing_to_do_with_the_samples_are_seldom_taken_for_a_cause() -> (
    None
):
    chance = random.Random(1)
    found = 0
    for _ in range(400):
        count = chance.choice([6, 10, 30, 200])
        times = [chance.gauss(1.0, 0.1) for _ in range(count)]
        found += bool(slowed_of(times, [chance.choice((QUICK, SLOW)) for _ in range(count)]))
    assert found <= 4


def test_without_probes_no_core_is_slow() -> None:
    assert slowed_of([1.0, 2.0], []) == ()
    assert slowed_of([1.0, 2.0], [None, None]) == ()
    assert slowed_of([1.0] * 9, [SLOW] * 9) == ()


PROBABILITIES = (0.6, 0.975, 0.999, 1 - 1e-6)


@each_row("measurement/cases/quantiles of t")
def test_quantiles_agree_with_scipy(degrees: float, quantiles: list[float]) -> None:
    for probability, expected in zip(PROBABILITIES, quantiles, strict=True):
        assert quantile_of_t(probability, degrees) == pytest.approx(expected, rel=1e-8)
        assert quantile_of_t(1 - probability, degrees) == pytest.approx(-expected, rel=1e-8)
    assert quantile_of_t(0.5, degrees) == 0


@pytest.mark.parametrize(("probability", "degrees"), [(0, 5), (1, 5), (math.nan, 5), (0.5, 0)])
def test_what_has_no_quantile(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile_of_t(probability, degrees)


INDEPENDENT = Noise()
DRIFT = Noise(correlation=0.9)
BURSTS = Noise(quiet=40, burst=20)


def samples_of(noise: Noise, count: int, seed: int = 0) -> list[float]:
    return list(islice(noise.play(seed), count))


# What is played, how many samples one process has, and how many processes.
PLAYED = (
    (INDEPENDENT, 20, 300),
    (INDEPENDENT, 60, 200),
    (INDEPENDENT, 600, 100),
    (Noise(correlation=0.5), 100, 200),
    (DRIFT, 250, 150),
    (DRIFT, 1000, 100),
    (BURSTS, 800, 100),
    (Noise(correlation=0.5, quiet=90, burst=10), 500, 100),
)


def test_the_median_lies_in_the_interval_as_often_as_it_says() -> None:
    rights = givens = 0
    for noise, count, processes in PLAYED:
        found = [median_interval(samples_of(noise, count, seed)) for seed in range(processes)]
        given = [interval for interval in found if interval]
        right = sum(interval.low <= noise.median <= interval.high for interval in given)
        assert len(given) > 0.9 * processes
        chance = math.sqrt(0.95 * 0.05 / len(given))
        assert abs(right / len(given) - 0.95) < 3 * chance, (noise, count)
        rights, givens = rights + right, givens + len(given)
    assert 0.94 < rights / givens < 0.97


def test_an_interval_that_ends_the_measuring_holds_what_it_says() -> None:
    """Two looks, one after the other, must find it narrow: the first is too often a lucky one."""
    right = 0
    for seed, noise in product(range(50), (INDEPENDENT, Noise(correlation=0.7))):
        times = samples_of(noise, 1300, seed)
        count, narrow = 50, 0
        while narrow < NARROW_LOOKS:
            interval = median_interval(times[:count])
            narrow = narrow + 1 if interval and interval.high - interval.low < 0.06 else 0
            count, looked_at = math.ceil(count * GROWTH), count
        assert interval is not None
        assert looked_at <= len(times)
        right += interval.low <= noise.median <= interval.high
    assert 90 <= right <= 99


@each_row("measurement/cases/intervals")
def test_an_interval_has_the_ends_that_its_models_give(
    noise: dict[str, float], count: int, confidence: float, ends: list[float]
) -> None:
    found = known(median_interval(samples_of(Noise(**noise), count, 3), confidence))
    assert [found.low, found.high] == pytest.approx(ends, rel=1e-9)
    assert found.confidence == confidence


def test_few_samples_have_no_interval() -> None:
    assert median_interval([]) is None
    assert median_interval([1.0, 2.0, 3.0]) is None
    assert median_interval(samples_of(INDEPENDENT, 19)) is None
    assert median_interval(samples_of(INDEPENDENT, 20)) is not None


def test_samples_that_rise_all_the_time_have_no_interval() -> None:
    assert median_interval([float(number) for number in range(500)]) is None
    assert median_interval([1.0] * 50 + [2.0] * 50) is None


def test_a_coarse_clock_gives_an_interval_of_its_ticks() -> None:
    times = [round(time, 1) for time in samples_of(INDEPENDENT, 200)]
    assert median_interval(times) == Interval(1.0, 1.0)
    assert median_interval([0.5, *[1.0] * 30]) == Interval(1.0, 1.0)


def test_outliers_do_not_widen_an_interval() -> None:
    times = samples_of(INDEPENDENT, 200)
    largest = max(times)
    assert median_interval([time * 1e6 if time == largest else time for time in times]) == (
        median_interval(times)
    )
