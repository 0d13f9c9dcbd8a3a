"""MNN, through the sessions of its Python package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lar.engines.engine import Defect, DriverEntry, Engine, imported, late
from lar.engines.formats import MNN, ONNX, is_onnx
from lar.engines.onnx_file import OnnxFileEngine, OwnFormatEngine, by_format

if TYPE_CHECKING:
    from lar.records.run import RunSpec

INTERPRETER = partial(imported, ".session.InterpreterDriver", __name__)


class Mnn(OwnFormatEngine):
    """MNN 3; it converts `.onnx` models."""

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

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        import json
        from pathlib import Path

        rows = json.loads(Path(__file__).with_name("defects.json").read_text())
        return tuple(Defect(**row, is_here=self.version == version) for version, row in rows)


ENGINE = Mnn()
