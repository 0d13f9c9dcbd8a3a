"""Verdicts on differences."""

from __future__ import annotations

import pytest

from lar.measurement.differences import alpha_of_look, compare_groups, compare_pairs


def test_a_clear_difference_is_shown() -> None:
    found = compare_pairs([[0.029, 0.031], [0.030, 0.030], [0.031], [0.028], [0.032]])
    assert found is not None
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.0305, abs=3e-4)
    assert (found.processes, found.pairs) == (5, 7)


def test_the_looks_spend_no_more_than_alpha() -> None:
    spent = [alpha_of_look(processes, 0.05) for processes in range(1, 3000)]
    assert 0.04 < sum(part for part in spent if part) < 0.05


def test_one_run_against_another_shows_nothing() -> None:
    found = compare_groups([[1.0] * 20], [[9.0] * 20])
    assert found is not None
    assert found.verdict == "no difference shown"
