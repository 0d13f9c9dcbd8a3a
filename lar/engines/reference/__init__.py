"""The reference evaluator of the package onnx, which is slow but exact (in float64)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lar.engines.engine import DriverEntry, imported
from lar.engines.formats import ONNX
from lar.engines.onnx_file import OnnxFileEngine
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.option_rows import OptionRow

EVALUATOR = partial(imported, ".driver.EvaluatorDriver", __name__)


class Reference(OnnxFileEngine):
    """The engine that uses the reference evaluator of the package onnx."""

    name = "reference"
    title = "ONNX's reference evaluator"
    distribution = "onnx"
    is_exact = True
    formats = (ONNX,)
    drivers = (DriverEntry("evaluator", "onnx.reference, in float64", EVALUATOR),)

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.option_rows import Drivers, LazyModule, dump_rows

        driver = LazyModule(f"{__name__}.driver")
        evaluator = Drivers[Any](("evaluator",), __file__)
        return (
            *evaluator.rows(table.CPU, table.DISABLE_ASSERT_THROW, table.ALLOW_EXTERNAL_DATA),
            evaluator.row(table.VERBOSE, before_run=driver.print_operators),
            *dump_rows(
                evaluator, driver.dump_tensors, driver.dump_outputs, after_run=driver.finish
            ),
        )


ENGINE = Reference()
