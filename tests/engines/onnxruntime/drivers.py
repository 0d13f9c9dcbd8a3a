"""Drivers of ONNX Runtime with settings: made, loaded, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lar.engines import engine_named
from lar.engines.onnxruntime.session import SessionDriver
from lar.records.run import RunSpec

MODELS = Path(__file__).resolve().parents[3] / "models"
MOBILENET = MODELS / "mobilenet_v2.onnx"
DIGITS = MODELS / "digits_cnn.onnx"


def make_driver(model: Path, **settings: Any) -> SessionDriver:
    spec = RunSpec(
        model=str(model), engine="onnxruntime", driver="session", settings=dict(settings)
    )
    return SessionDriver(spec, engine_named("onnxruntime").rows)


def load(model: Path = DIGITS, **settings: Any) -> SessionDriver:
    driver = make_driver(model, **settings)
    driver.load()
    return driver


def run(driver: SessionDriver) -> dict[str, Any]:
    """Run a loaded driver once, on numbers that are always the same."""
    numbers = np.random.default_rng(0)
    driver.feed(
        {
            info.name: numbers.random([size or 1 for size in info.shape], np.float32)
            for info in driver.inputs()
        }
    )
    driver.start()
    driver.wait()
    return {name: np.array(value) for name, value in driver.outputs().items()}
