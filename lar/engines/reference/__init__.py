"""ONNX's own reference evaluator, in float64: what a model should give, not how fast."""

from __future__ import annotations

from functools import partial

from lar.engines.engine import DriverEntry, Engine, imported, late
from lar.engines.formats import ONNX
from lar.engines.onnx_file.engine import OnnxFileEngine

EVALUATOR = partial(imported, ".driver.EvaluatorDriver", __name__)


class Reference(OnnxFileEngine):
    """The reference evaluator of the package onnx."""

    name = "reference"
    title = "ONNX's reference evaluator"
    distribution = "onnx"
    is_exact = True
    formats = (ONNX,)
    drivers = (DriverEntry("evaluator", "onnx.reference, in float64", EVALUATOR),)
    option_rows = late(Engine.option_rows, ".options.ROWS")


ENGINE = Reference()
