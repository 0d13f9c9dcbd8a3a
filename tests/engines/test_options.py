"""What options set in the drivers of several engines: threads, their cores, and no other number."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from lar.engines import engine_named
from tests.engines.megengine.probed import Probed, probe
from tests.engines.onnx_models import MODELS
from tests.tables import each_row


def probed(driver: str, name: str, settings: dict[str, Any], attempt: int = 0) -> Probed:
    """What a driver gives of a model in the format of its engine."""
    engine, suffix = ("onnxruntime", "onnx") if driver == "session" else ("megengine", "mge")
    if not engine_named(engine).is_installed:
        pytest.skip(f"{engine} is not installed")
    return probe(driver, MODELS / f"{name}.{suffix}", settings, attempt=attempt)


@each_row("engines/numbers/same")
def test_numbers_stay_those_of_the_default(
    driver: str, model: str, settings: dict[str, Any]
) -> None:
    found, expected = (probed(driver, model, it).outputs[-1] for it in (settings, {}))
    assert expected.keys() == found.keys()
    for name, numbers in expected.items():
        np.testing.assert_allclose(found[name], numbers, rtol=1e-4, atol=1e-4)


@each_row("engines/threads/counts")
def test_an_engine_starts_the_threads_asked_for(
    driver: str, settings: dict[str, Any], threads: int
) -> None:
    """ONNX Runtime computes in the calling one too."""
    assert len(probed(driver, "digits_cnn", settings).new_threads) == threads


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@each_row("engines/threads/cores")
def test_threads_are_bound_to_the_cores_in_their_order(
    driver: str, settings: dict[str, Any], cores: list[int], binds_caller: bool
) -> None:
    """Two may share one. A thread that the engine starts binds itself, in its own time."""
    usable = [*map(str, sorted(os.sched_getaffinity(0)))]
    expected = [usable[place] for place in cores]
    settings = {**settings, "multi_thread_core_ids": ",".join(expected)}
    attempts = (probed(driver, "digits_cnn", settings, attempt=it) for it in range(20))
    found = ([it.calling_thread] * binds_caller + it.new_threads for it in attempts)
    if driver == "lite":  # whose calling thread is the last
        assert any(sorted(it) == sorted(expected) for it in found)
    else:
        assert expected in found
