"""Drivers of ONNX Runtime with settings: made, loaded, run; the models that they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from lar.dumps import Dump, DumpedOperator
from lar.engines import engine_named
from lar.engines.onnxruntime.session import SessionDriver
from lar.records.run import RunContext, RunSpec

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
MOBILENET = MODELS / "mobilenet_v2.onnx"
DIGITS = MODELS / "digits_cnn.onnx"
EACH = sorted(MODELS.glob("*.onnx"))
LEVELS = ("disable", "basic", "extended", "all")
# The optimisers that no level and no option leaves out.
ALWAYS = {
    *("CastFloat16Transformer", "EnsureUniqueDQForNodeUnit", "MemcpyTransformer"),
    "RemoveDuplicateCastTransformer",
}

Outputs = dict[str, np.ndarray[Any, Any]]
MakeDriver = Callable[..., SessionDriver]


def operator_of(dump: Dump, key: str) -> DumpedOperator:
    """Return the entry of an operator."""
    return next(each for each in dump.index.operators if each.key == key)


def make_driver(model: Path, context: RunContext | None = None, **settings: Any) -> SessionDriver:
    spec = RunSpec(model=str(model), engine="onnxruntime", driver="session", settings=settings)
    return SessionDriver(spec, engine_named("onnxruntime").rows, context)


def load(model: Path = DIGITS, make: MakeDriver = make_driver, **settings: Any) -> SessionDriver:
    driver = make(model, **settings)
    driver.load()
    return driver


def feed_driver(driver: SessionDriver) -> None:
    """Feed a driver with numbers that are always the same; axes of any size are 2."""
    numbers = np.random.default_rng(0)
    driver.feed(
        {
            info.name: (numbers.random([size or 2 for size in info.shape]) * 3).astype(info.dtype)
            for info in driver.inputs()
        }
    )


def run(driver: SessionDriver) -> Outputs:
    """Feed a loaded driver, run it once and return its outputs."""
    feed_driver(driver)
    driver.start()
    driver.wait()
    return {name: np.array(value) for name, value in driver.outputs().items()}


def bits_of(outputs: Outputs) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def save_external(model: Path, path: Path) -> Path:
    """Save a model with all its weights in a file beside it, `weights.bin`."""
    whole = onnx.load(model)
    outside: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save(whole, path, location="weights.bin", **outside)
    return path
