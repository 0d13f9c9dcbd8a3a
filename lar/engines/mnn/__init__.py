"""The engine MNN, which lar calls through the sessions of the Python package MNN."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lar.engines.engine import DriverEntry, Engine, imported, late
from lar.engines.formats import MNN, ONNX, is_onnx
from lar.engines.onnx_file import OnnxFileEngine, OwnFormatEngine, by_format

if TYPE_CHECKING:
    from lar.records.run import RunSpec

INTERPRETER = partial(imported, ".session.InterpreterDriver", __name__)


class Mnn(OwnFormatEngine):
    """The engine MNN 3, which also runs `.onnx` models after converting them."""

    name = "mnn"
    title = "MNN"
    distribution = "MNN"
    formats = (MNN, ONNX)
    drivers = (DriverEntry("interpreter", "Interpreter.runSession", INTERPRETER),)
    read_model = by_format(OnnxFileEngine.read_model, ".session.read_model")
    check_property = late(Engine.check_property, ".options.check_property")

    def leaves_files(self, spec: RunSpec) -> bool:
        from pathlib import Path  # slow to import

        return is_onnx(Path(spec.model))  # converted into a file


ENGINE = Mnn()
