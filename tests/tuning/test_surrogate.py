"""What is expected of candidates from those that were measured."""

from __future__ import annotations

import pytest

from lar.records.tuning import Candidate
from lar.tuning.surrogate import Look, Surrogate


def test_choices_that_all_help_are_not_taken_for_a_disturbed_plain_run() -> None:
    looks = [
        Look((0, 0), Candidate(choices=(name,)), value)
        for name, value in (("a", -0.22), ("b", -0.51), ("c", -2.3))
    ]
    found = Surrogate(looks).means_of([look.candidate for look in looks])
    assert list(found) == pytest.approx([-0.22, -0.51, -2.3], abs=0.05)
