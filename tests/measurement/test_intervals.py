"""Intervals of medians."""

from __future__ import annotations

from lar.measurement.intervals import effective_count, median_interval


def test_few_samples_have_no_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0]) is None


def test_samples_in_turn_are_all_effective() -> None:
    values = [1.0, 2.0] * 50
    assert effective_count(values) == 100
    found = median_interval(values)
    assert found is not None
    assert found.low <= 1.5 <= found.high
