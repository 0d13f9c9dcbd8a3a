"""MNN, through the sessions of its Python package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lar.engines.engine import Defect, DriverEntry
from lar.engines.formats import MNN, ONNX
from lar.engines.onnx_file.engine import OwnFormatEngine

if TYPE_CHECKING:
    from lar.engines.driver import Driver


def interpreter_driver() -> type[Driver]:
    from lar.engines.mnn.session import InterpreterDriver

    return InterpreterDriver


class Mnn(OwnFormatEngine):
    """MNN 3; it converts `.onnx` models."""

    name = "mnn"
    title = "MNN"
    distribution = "MNN"
    formats = (MNN, ONNX)
    drivers = (DriverEntry("interpreter", "Interpreter.runSession", interpreter_driver),)

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

    def check_property(self, key: str, value: str) -> None:
        from lar.engines.mnn.options import check_property

        check_property(key, value)


ENGINE = Mnn()
