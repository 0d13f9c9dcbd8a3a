"""What an assertion of MegEngine allows is found by trying values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lar.engines.megengine import testcases

LARGEST = float(np.finfo(np.float32).max)


def find_first_refused(limit: float, values: np.ndarray[Any, Any]) -> int | None:
    """Return what the engine would: the first value that is not below the limit."""
    refused = np.flatnonzero(values >= np.float32(limit))
    return int(refused[0]) if refused.size else None


@pytest.mark.parametrize(
    "limit", [0.0, 1e-45, 4e-41, 4.6e-41, 1e-6, 1e-3, 1.0, 3.3e38, 3.4e38, LARGEST]
)
def test_the_limit_is_found_to_the_bit(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testcases, "first_refused", find_first_refused)
    check = testcases.read_check(limit)
    assert check.limit == np.float32(limit)
    assert not check.shown


def test_an_assertion_that_allows_all_has_the_largest_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(testcases, "first_refused", find_first_refused)
    assert testcases.read_check(float("inf")).limit == LARGEST
