"""ONNX's own reference evaluator, in float64: what a model should give, not how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.engine import DriverEntry
from lar.engines.formats import ONNX
from lar.engines.onnx_file.engine import OnnxFileEngine

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.option_rows import OptionRow


def evaluator_driver() -> type[Driver]:
    from lar.engines.reference.driver import EvaluatorDriver

    return EvaluatorDriver


class Reference(OnnxFileEngine):
    """The reference evaluator of the package onnx."""

    name = "reference"
    title = "ONNX's reference evaluator"
    distribution = "onnx"
    is_exact = True
    formats = (ONNX,)
    drivers = (DriverEntry("evaluator", "onnx.reference, in float64", evaluator_driver),)

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.reference.options import ROWS

        return ROWS

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)


ENGINE = Reference()
