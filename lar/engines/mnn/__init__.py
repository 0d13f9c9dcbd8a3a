"""MNN, through the sessions of its Python package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lar.engines.engine import Defect, DriverEntry, Engine, imported, late
from lar.engines.formats import MNN, ONNX
from lar.engines.onnx_file.engine import OwnFormatEngine

INTERPRETER = partial(imported, ".session.InterpreterDriver", __name__)


class Mnn(OwnFormatEngine):
    """MNN 3; it converts `.onnx` models."""

    name = "mnn"
    title = "MNN"
    distribution = "MNN"
    formats = (MNN, ONNX)
    drivers = (DriverEntry("interpreter", "Interpreter.runSession", INTERPRETER),)
    check_property = late(Engine.check_property, ".options.check_property")

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        return (
            Defect(
                name="mnn-backward-rnn",
                effect="an LSTM backwards, and a GRU's state both ways, come out wrong",
                detection="lar compare with another engine names the operator",
                way_round="run such a model on another engine",
                is_here=self.version == "3.6.1",
            ),
        )


ENGINE = Mnn()
