"""Models of a few nodes that tests of the reference engine make, and what is dumped of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import lar
from lar.dumps import Dump
from tests.engines.onnx_models import save_model


def save(folder: Path, text: str, **weights: Any) -> Path:
    """Write a model, as `onnx_models.model_of` makes it, into a folder; return its path."""
    return save_model(folder / "model.onnx", text, weights)


def dump(path: Path, engine: str, **options: Any) -> Dump:
    place = path.with_name(engine)
    result = lar.run(path, engine=engine, iter=1, bin_io_dump=str(place), **options)
    assert result.status == "ok", result.failure
    return lar.open_dump(place)


def compare_dumps(path: Path, without: str = "", **options: Any) -> Dump:
    """Check that both engines dump tensors of the same names and values, but for one that ONNX
    Runtime alone has; return the evaluator's."""
    ours = dump(path, "reference", **options)
    theirs = dump(path, "onnxruntime", graph_optimization_level="disable", **options)
    names = {each.name: each.key for each in theirs}
    assert {each.name for each in ours} == names.keys() - {without}
    assert ours.index.outputs == theirs.index.outputs
    for each in ours:
        np.testing.assert_allclose(ours.read(each.key), theirs.read(names[each.name]), 1e-5)
    return ours
