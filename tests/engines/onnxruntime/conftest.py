"""Drivers of ONNX Runtime in the tests' own process, what they give, and their caches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lar.engines.onnxruntime.session import SessionDriver
from lar.measurement.machine import read_model_file
from lar.records.run import RunContext
from tests.engines.onnxruntime import drivers
from tests.engines.onnxruntime.drivers import DIGITS, MakeDriver


@pytest.fixture
def make_driver(tmp_path: Path) -> MakeDriver:
    """Make a driver with a work folder, as the parent of a run gives one: not loaded yet."""

    def make(model: Path, **settings: Any) -> SessionDriver:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        given = [key for key in ("profile", "profile_raw") if key in settings]
        context = RunContext(
            work_folder=str(folder),
            written={key: str(settings.get(key, "")) for key in ("model_dump", *given)},
            model=read_model_file(model),
        )
        driver = drivers.make_driver(model, context, **settings)
        # Threads that wait for work without a pause take the CPUs of all other tests.
        driver.options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return driver

    return make


@pytest.fixture
def load_driver(make_driver: MakeDriver) -> MakeDriver:
    """Make a driver and load its model."""
    return functools.partial(drivers.load, make=make_driver)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a cache goes: a folder with nothing else in it."""
    (tmp_path / "caches").mkdir()
    return tmp_path / "caches" / "model.cache"


@pytest.fixture
def build(load_driver: MakeDriver, place: Path) -> Callable[..., Any]:
    """Load a model with --fast-run and the cache file."""

    def build(model: Path = DIGITS, **settings: Any) -> Any:
        return load_driver(model, fast_run=True, fast_run_algo_policy=str(place), **settings)

    return build
