"""When a warm-up has settled, and when a median is known well enough."""

from __future__ import annotations

import random

import pytest

from lar.measurement import stopping
from lar.measurement.stopping import precision_of, relative_half_width, windows_agree
from lar.records.run import Samples
from tests.known import known
from tests.tables import each_row


def drawn(count: int, seed: int = 0, spread: float = 0.05) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(1.0, spread) for _ in range(count)]


@each_row("measurement/cases/windows")
def test_windows_agree_where_each_has_its_median_well_within_the_other(
    case: str, earlier: list[float], later: list[float], agree: bool
) -> None:
    assert windows_agree(earlier, later) is agree, case


def test_windows_of_one_distribution_mostly_agree() -> None:
    agreed = sum(windows_agree(drawn(5, seed), drawn(5, seed + 1000)) for seed in range(200))
    assert agreed > 120


def test_the_half_width_of_the_interval_shrinks_with_the_samples() -> None:
    narrow, wide = (known(relative_half_width(drawn(count))) for count in (6400, 400))
    # 1.96 standard errors of a median, each 1.2533 of that of the mean.
    assert wide == pytest.approx(1.96 * 1.2533 * 0.05 / 20, rel=0.3)
    assert narrow == pytest.approx(wide / 4, rel=0.35)


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0, 3.0]])
def test_too_few_samples_have_no_interval(times: list[float]) -> None:
    assert relative_half_width(times) is None


def test_the_samples_of_several_runners_are_taken_in_turn() -> None:
    first, second = drawn(301, 1), [2 * each for each in drawn(300, 2)]
    mixed = [each for pair in zip(first, second, strict=False) for each in pair] + [first[-1]]
    runner = (0,) * 301 + (1,) * 300
    together = Samples(end_to_end=(*first, *second), runner=runner)
    assert precision_of(together) == (relative_half_width(mixed), False)


def test_where_some_were_disturbed_the_median_of_the_others_is_looked_at() -> None:
    calm, slow = drawn(200), [9.0 + 7 * each for each in drawn(100, 5)]
    times, delays = [], []
    for index, time in enumerate(calm):
        times += [time, slow[index // 2]] if index % 2 else [time]
        delays += [0.0, 8.0] if index % 2 else [0.0]
    disturbed = Samples(end_to_end=tuple(times), queue_delay=tuple(delays))
    assert precision_of(disturbed) == (relative_half_width(calm), True)
    plain = Samples(end_to_end=tuple(times), queue_delay=(None,) * len(times))
    assert precision_of(plain) == (relative_half_width(times), False)


def test_where_nearly_all_were_disturbed_all_are_looked_at() -> None:
    """As where a model runs on more threads than there are CPUs."""
    times = drawn(200)
    delays = tuple(0.5 if index > 10 else 0.0 for index in range(200))
    found = precision_of(Samples(end_to_end=tuple(times), queue_delay=delays))
    assert found == (relative_half_width(times), False)


def test_of_many_samples_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "MOST_LOOKED_AT", 500)
    times = drawn(1001)
    assert relative_half_width(times) == relative_half_width(times[::3])
    assert relative_half_width(times[:499]) != relative_half_width(times[:499:2])
