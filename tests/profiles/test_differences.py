"""The difference of a figure between two runs."""

from __future__ import annotations

import pytest

from lar.profiles.differences import Change


def test_a_difference_and_its_percentage() -> None:
    change = Change(12, 6)
    assert change.delta == -6
    assert change.percent == pytest.approx(-50)
    assert change.verdict == "not judged"


def test_from_nothing_there_is_no_percentage() -> None:
    assert Change(0, 2).percent is None
