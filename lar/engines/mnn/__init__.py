"""MNN, through the sessions of its Python package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, Defect, DriverEntry
from lar.engines.formats import MNN, ONNX, is_onnx
from lar.engines.onnx_file.engine import OnnxFileEngine

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import Site
    from lar.engines.option_rows import OptionRow
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.records.choices import Dimension
    from lar.records.run import ModelInfo


def interpreter_driver() -> type[Driver]:
    from lar.engines.mnn.session import InterpreterDriver

    return InterpreterDriver


class Mnn(OnnxFileEngine):
    """MNN 3; it converts `.onnx` models."""

    name = "mnn"
    title = "MNN"
    distribution = "MNN"
    formats = (MNN, ONNX)
    environment = ONE_BLAS_THREAD
    drivers = (DriverEntry("interpreter", "Interpreter.runSession", interpreter_driver),)

    @property
    def operator_kinds(self) -> OperatorKinds:
        from lar.engines.mnn.operator_kinds import KINDS

        return KINDS

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.mnn.options import ROWS

        return ROWS

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

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        if is_onnx(path):
            super().check_model(path, settings)

    def files_beside(self, path: Path) -> tuple[str, ...]:
        if is_onnx(path):
            return super().files_beside(path)
        weights = path.name + ".weight"  # where the converter puts them when it is asked to
        return (weights,) if path.with_name(weights).exists() else ()

    def read_model(self, path: Path) -> ModelInfo:
        if is_onnx(path):
            return super().read_model(path)
        from lar.engines.mnn.contents import read_model

        return read_model(path)

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        if is_onnx(path):
            return super().read_operators(path)
        from lar.engines.mnn.net import read_net
        from lar.graphs.origins import ModelOperator

        return tuple(
            ModelOperator(it.type, it.name, it.inputs, it.outputs)
            for it in read_net(path).operators
        )

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.engines.mnn.dimensions import dimensions_of

        return dimensions_of(site)


ENGINE = Mnn()
