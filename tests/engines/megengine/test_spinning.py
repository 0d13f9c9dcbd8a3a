"""Threads of MegEngine that wait for work."""

from __future__ import annotations

import pytest

from lar.engines.megengine.spinning import SPIN_SECONDS, VARIABLE, find_spin_seconds


def test_a_thread_spins_unless_it_is_forbidden_or_computes_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_spin_seconds({}) == SPIN_SECONDS
    assert find_spin_seconds({"cpu_default": True}) == 0
    monkeypatch.setenv(VARIABLE, "0")
    assert find_spin_seconds({}) == 0
