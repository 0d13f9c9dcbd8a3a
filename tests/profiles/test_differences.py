"""The difference of a figure between two runs."""

from __future__ import annotations

import pytest

from lar.profiles.differences import Difference


def test_a_difference_and_its_percentage() -> None:
    change = Difference(12, 6)
    assert change.delta == -6
    assert change.percent == pytest.approx(-50)
    assert (change.error, change.exceeds_noise) == (None, None)


def test_from_nothing_there_is_no_percentage() -> None:
    assert Difference(0, 2).percent is None
