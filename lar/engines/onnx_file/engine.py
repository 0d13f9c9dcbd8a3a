"""What engines that take `.onnx` files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import Engine

if TYPE_CHECKING:
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.records.run import ModelInfo


class OnnxFileEngine(Engine):
    """An engine that takes `.onnx` files; its dumps have facts beside them."""

    @property
    def operator_kinds(self) -> OperatorKinds:
        from lar.engines.onnx_file.operator_kinds import KINDS

        return KINDS

    def read_model(self, path: Path) -> ModelInfo:
        return self.read_model_at(path, {})

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        from lar.engines.onnx_file.contents import read_model

        return read_model(path, shapes, self.name)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar.engines.onnx_file.external_data import check_external_data

        allowed = str(settings.get("allow_external_data", ""))
        check_external_data(path, allowed.splitlines())

    def files_beside(self, path: Path) -> tuple[str, ...]:
        from lar.engines.onnx_file.external_data import files_beside

        return files_beside(path)

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        from lar.engines.onnx_file.bodies import open_operators
        from lar.graphs.origins import ModelOperator

        graph, operators = open_operators(path)
        held = {each.name for each in graph.initializer}
        fed = (each.name for each in graph.input if each.name not in held)
        nodes = (each.node for each in operators)
        return (
            *(ModelOperator("Input", name, (), (name,)) for name in fed),
            *(ModelOperator(it.operator, it.name, it.inputs, it.outputs) for it in nodes),
        )
