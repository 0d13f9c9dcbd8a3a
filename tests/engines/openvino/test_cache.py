"""The compiled model that --fast-run-algo-policy keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engines.onnx_models import DIGITS, needs

if TYPE_CHECKING:
    from tests.command_lines import Done
    from tests.conftest import RunLar

pytestmark = needs("openvino")


@pytest.fixture
def cache(run_lar: RunLar, tmp_path: Path) -> Path:
    place = tmp_path / "digits.cache"
    done = run_cached(run_lar, place, "--fast-run")
    assert done.returncode == 0, done.stderr
    return place


def run_cached(run_lar: RunLar, place: Path, *words: str) -> Done:
    flags = ["--engine", "openvino", "--iter", "1", "--fast-run-algo-policy", str(place)]
    return run_lar(str(DIGITS), *flags, *words)


def test_a_cache_is_loaded_where_it_fits_and_built_where_it_does_not(
    run_lar: RunLar, cache: Path
) -> None:
    made = cache.read_bytes()
    assert run_cached(run_lar, cache).returncode == 0
    assert cache.read_bytes() == made
    done = run_cached(run_lar, cache, "--multithread", "1")
    assert "was made for a run that differs in config: it is built again" in done.stderr
    assert cache.read_bytes() != made


def test_a_dump_of_a_cached_model_is_that_of_the_model(
    run_lar: RunLar, cache: Path, tmp_path: Path
) -> None:
    folders = [str(tmp_path / "cached"), str(tmp_path / "plain")]
    assert run_cached(run_lar, cache, "--bin-io-dump", folders[0]).returncode == 0
    run_lar(str(DIGITS), "--engine", "openvino", "--iter", "1", "--bin-io-dump", folders[1])
    done = run_lar("compare", *folders)
    assert "16 tensors compared: 16 equal" in done.stdout


@pytest.mark.parametrize("end", [10, 3000])
def test_a_damaged_cache_is_refused(run_lar: RunLar, cache: Path, end: int) -> None:
    cache.write_bytes(cache.read_bytes()[:end])
    done = run_cached(run_lar, cache)
    assert done.returncode == 2
    assert "is not a cache that lar made for OpenVINO, or is damaged" in done.stderr


def test_a_cache_that_is_not_there_is_made_on_demand_alone(run_lar: RunLar, tmp_path: Path) -> None:
    done = run_cached(run_lar, tmp_path / "none")
    assert done.returncode == 2
    assert "make it with --fast-run" in done.stderr
    alone = run_lar(str(DIGITS), "--engine", "openvino", "--fast-run")
    assert "OpenVINO measures no algorithms" in alone.stderr


def test_lar_cache_shows_what_it_was_made_for(run_lar: RunLar, cache: Path) -> None:
    shown = run_lar("cache", "show", str(cache)).stdout
    assert "INFERENCE_PRECISION_HINT=f32" in shown
    assert "the same: 6" in run_lar("cache", "diff", str(cache), str(cache)).stdout
    merged = run_lar("cache", "merge", str(cache), str(cache), "-o", str(cache) + "2")
    assert "such a cache holds one model and no algorithms to merge" in merged.stderr
