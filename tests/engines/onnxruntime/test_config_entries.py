"""Configuration entries of ONNX Runtime, which `--engine-option` sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.engines.onnxruntime.config_entries import known_entries
from lar.running.variants import make_variants, parse_vary

RunLar = Callable[..., Any]

MODEL = Path(__file__).resolve().parents[3] / "models" / "digits_cnn.onnx"
DENORMALS = "session.set_denormal_as_zero=1"


def test_entries_reach_the_session_and_its_runs(tmp_path: Path) -> None:
    """The engine writes its statistics of memory only where the entry says so, and refuses an
    arena that is not there in each run."""
    place = tmp_path / "partition"
    entry = f"session.collect_node_memory_stats_to_file={place}"
    result = lar.run(MODEL, engine_option=[entry, "gpu_graph_id=-1"], iter=1)
    assert result.status == "ok", result.failure
    assert result.spec.settings == {"engine_option": f"{entry}\ngpu_graph_id=-1"}
    result = lar.run(MODEL, engine_option="memory.enable_memory_arena_shrinkage=tpu:0", iter=1)
    assert result.status == "failed"
    assert result.failure is not None
    assert "shrink" in result.failure.message


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("session.set_denormal_as_zer=1", "did you mean session.set_denormal_as_zero?"),
        ("gpu_graph=1", "did you mean gpu_graph_id?"),
        ("colour=red", "names are as session.disable_prepacking"),
    ],
)
def test_an_entry_that_the_engine_would_ignore_is_refused(
    run_lar: RunLar, entry: str, hint: str
) -> None:
    done = run_lar(str(MODEL), "--engine-option", entry)
    assert done.returncode == 2
    key = entry.partition("=")[0]
    assert f"--engine-option: ONNX Runtime has no configuration entry {key!r}" in done.stderr
    assert f"hint: {hint}\n" in done.stderr


@pytest.mark.parametrize("entry", ["ep.share_ep_contexts=1", "session.disable_prepacking="])
def test_an_entry_of_a_provider_and_an_empty_value_are_taken(entry: str) -> None:
    assert lar.run(MODEL, engine_option=entry, iter=1).status == "ok"


def test_no_name_is_of_both_kinds() -> None:
    of_sessions, of_runs = known_entries()
    assert of_sessions
    assert of_runs
    assert not of_sessions & of_runs


def test_a_cache_is_made_for_the_entries(run_lar: RunLar, tmp_path: Path) -> None:
    cache = ("--fast-run-algo-policy", str(tmp_path / "a.cache"), "--iter", "1")
    assert run_lar(str(MODEL), "--fast-run", *cache).returncode == 0
    done = run_lar(str(MODEL), *cache, "--engine-option", DENORMALS)
    assert "was made for a run that differs in engine option: it is built again" in done.stderr
    assert not run_lar(str(MODEL), *cache, "--engine-option", DENORMALS).stderr.count("differs")


def test_an_optimised_model_is_written_with_the_entries(tmp_path: Path) -> None:
    packed = tmp_path / "packed.onnx"
    done = lar.run(MODEL, model_dump=str(packed), engine_option=[DENORMALS, "ep.x=1"], iter=0)
    assert done.status == "ok"
    assert packed.exists()


def test_variants_differ_in_properties() -> None:
    axis = parse_vary("engine-option=session.disable_prepacking=1,")
    variants = make_variants([str(MODEL)], [axis], {"engine_option": [DENORMALS]})
    assert [variant.spec and variant.spec.settings for variant in variants] == [
        {"engine_option": f"{DENORMALS}\nsession.disable_prepacking=1"},
        {},
    ]
