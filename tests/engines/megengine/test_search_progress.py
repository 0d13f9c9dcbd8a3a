"""How far a search is, read from a file that is just being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lar.engines.listener import Listener
from lar.engines.megengine.algorithms import count_entries, describe_search
from lar.engines.megengine.cache import cache_of, operators_of
from lar.records.run import RunContext, RunSpec, Setting
from lar.running import isolation
from lar.running.plan import plan_run
from lar.running.steps import make_run
from tests.engines.megengine.programs import CACHE, DIGITS

CONTENT = CACHE.read_bytes()
COUNT = len(operators_of(cache_of(CONTENT)))


def describe(folder: str | Path, **values: Setting) -> str:
    spec = RunSpec(model="m", engine="megengine", driver="lite", settings=values)
    return describe_search(spec, RunContext(work_folder=str(folder)))


def test_a_search_is_told_by_what_it_has_measured(tmp_path: Path) -> None:
    assert describe(tmp_path, fast_run=True) == "searching: 0 operators measured"
    (tmp_path / "engine.cache").write_bytes(CONTENT)
    assert describe(tmp_path, fast_run=True) == f"searching: {COUNT} operators measured"
    assert describe(tmp_path, full_run=True) == describe(tmp_path, fast_run=True)


def test_what_was_known_before_does_not_count(tmp_path: Path) -> None:
    for name in ("engine.cache", "known.cache"):
        (tmp_path / name).write_bytes(CONTENT)
    assert describe(tmp_path, fast_run=True, fast_run_algo_policy=str(CACHE)) == ""


def test_a_run_that_searches_nothing_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "engine.cache").write_bytes(CONTENT)
    assert describe(tmp_path, fast_run_algo_policy="a.cache") == ""
    assert describe("", fast_run=True) == ""  # nowhere to look


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_engine_tells_while_it_searches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_kept: bool
) -> None:
    """What was found is also kept meanwhile, if the search has a cache file."""
    for name in ("PATIENCE_SECONDS", "INTERVAL_SECONDS"):
        monkeypatch.setattr(isolation, name, 0.0)
    cache = tmp_path / "found.cache"
    counts = []

    class Looking(Listener):
        def on_progress(self, text: str, elapsed: float) -> None:
            counts.append((count_entries(cache), int(text.split()[1])))

    policy = {"fast_run_algo_policy": str(cache)} if is_kept else {}
    spec = plan_run(DIGITS, {"iter": 1, "fast_run": True, **policy})
    assert make_run(spec, RunContext(), Looking()).status == "ok"
    kept = [count for count, _ in counts]
    assert any(count > 0 for count in kept) == is_kept
    assert kept == sorted(kept)
    # It is counted from what was known when it began, not from what is kept meanwhile.
    measured = [count for _, count in counts]
    assert measured == sorted(measured)
    assert measured[-1] > 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.integers(0, len(CONTENT)))
def test_a_file_that_is_half_written_counts_as_none(tmp_path: Path, size: int) -> None:
    file = tmp_path / "half.cache"
    file.write_bytes(CONTENT[:size])
    assert count_entries(file) == (COUNT if size == len(CONTENT) else 0)
