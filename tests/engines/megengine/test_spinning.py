"""Threads of MegEngine that wait for work."""

from __future__ import annotations

import os

import pytest

from lar.engines import engine_named
from lar.engines.megengine.spinning import SPIN_SECONDS, SPIN_VARIABLE, find_spin_seconds


def test_a_thread_spins_unless_it_is_forbidden_or_computes_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
    assert find_spin_seconds({}) == SPIN_SECONDS
    assert find_spin_seconds({"cpu_default": True}) == 0
    assert find_spin_seconds({"no_spinning": True}) == 0
    monkeypatch.setenv(SPIN_VARIABLE, "0")
    assert find_spin_seconds({}) == 0


def test_the_flag_sets_what_the_engine_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    # With MGB_WORKER_MAX_SPIN=0 a thread sleeps at once (`conftest.py` sets it for all tests).
    monkeypatch.setenv(SPIN_VARIABLE, "20000")
    row = engine_named("megengine").rows["no_spinning"]
    assert row.drivers == ("lite", "graph")
    assert row.before_load is not None
    row.before_load(None, True)
    assert os.environ[SPIN_VARIABLE] == "0"
