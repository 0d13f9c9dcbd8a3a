"""Drivers of ONNX Runtime in the tests' own process, what they give, and their caches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.engines import engine_named
from lar.engines.onnxruntime.session import SessionDriver
from lar.measurement.machine import read_model_file
from lar.records.run import RunContext, RunSpec

DIGITS = Path(__file__).resolve().parents[3] / "models" / "digits_cnn.onnx"

Outputs = dict[str, np.ndarray[Any, Any]]
MakeDriver = Callable[..., SessionDriver]


@pytest.fixture
def make_driver(tmp_path: Path) -> MakeDriver:
    """Make a driver with a work folder, as the parent of a run gives one: not loaded yet."""

    def make(model: Path, **settings: Any) -> SessionDriver:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        spec = RunSpec(
            model=str(model),
            engine="onnxruntime",
            driver="session",
            settings=settings,
        )
        context = RunContext(
            work_folder=str(folder),
            written={
                "model_dump": str(settings.get("model_dump", "")),
                **{key: settings[key] for key in ("profile", "profile_raw") if key in settings},
            },
            model=read_model_file(model),
        )
        driver = SessionDriver(spec, engine_named("onnxruntime").rows, context)
        # Threads that wait for work without a pause take the CPUs of all other tests.
        driver.options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return driver

    return make


@pytest.fixture
def load_driver(make_driver: MakeDriver) -> MakeDriver:
    """Make a driver and load its model."""

    def load(model: Path, **settings: Any) -> SessionDriver:
        driver = make_driver(model, **settings)
        driver.load()
        return driver

    return load


def feed_driver(driver: SessionDriver) -> None:
    """Feed a driver with numbers that are always the same; axes of any size are 2."""
    numbers = np.random.default_rng(0)
    driver.feed(
        {
            info.name: (numbers.random([size or 2 for size in info.shape]) * 3).astype(info.dtype)
            for info in driver.inputs()
        }
    )


@pytest.fixture
def run_driver() -> Callable[[SessionDriver], Outputs]:
    """Feed a loaded driver, run it once and return its outputs."""

    def run(driver: SessionDriver) -> Outputs:
        feed_driver(driver)
        driver.start()
        driver.wait()
        return {name: np.array(value) for name, value in driver.outputs().items()}

    return run


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


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
