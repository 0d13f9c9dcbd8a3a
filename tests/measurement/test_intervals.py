"""Intervals of medians hold what they say, also where the samples resemble their neighbours."""

from __future__ import annotations

import math
from itertools import islice, product

from lar.measurement.intervals import median_interval
from lar.measurement.statistics import percentile_of
from lar.records.summary import Interval
from lar.worker.measuring import GROWTH, NARROW_LOOKS
from tests.known import known
from tests.measurement.played_noise import Noise

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


def test_an_interval_of_other_confidence() -> None:
    times = samples_of(INDEPENDENT, 200)
    half, most = (known(median_interval(times, part)) for part in (0.5, 0.99))
    assert most.low < half.low < percentile_of(sorted(times), 50) < half.high < most.high
    assert (half.confidence, most.confidence) == (0.5, 0.99)


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


def test_outliers_do_not_widen_an_interval() -> None:
    times = samples_of(INDEPENDENT, 200)
    largest = max(times)
    assert median_interval([time * 1e6 if time == largest else time for time in times]) == (
        median_interval(times)
    )


def test_the_unit_of_the_samples_does_not_matter() -> None:
    times = samples_of(DRIFT, 300)
    found = known(median_interval(times))
    scaled = median_interval([time * 1024 for time in times])
    assert scaled == Interval(found.low * 1024, found.high * 1024)


def test_slow_and_fast_in_turn_have_an_interval() -> None:
    found = known(median_interval([1.0, 2.0] * 50))
    assert found.low <= 1.5 <= found.high


def test_an_interval_of_many_samples_takes_no_memory_of_their_square() -> None:
    times = samples_of(INDEPENDENT, 20_000)
    found = known(median_interval(times))
    assert 0.997 < found.low < 1 < found.high < 1.003
