"""What engines that take `.onnx` files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, Engine
from lar.engines.formats import is_onnx

if TYPE_CHECKING:
    from lar.engines.engine import Site
    from lar.engines.option_rows import OptionRow
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.options.rules import Rule
    from lar.records.choices import Dimension
    from lar.records.run import ModelInfo


class OnnxFileEngine(Engine):
    """An engine that takes `.onnx` files; its dumps have facts beside them."""

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

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


class OwnFormatEngine(OnnxFileEngine):
    """An engine that takes `.onnx` files and those of a format of its own.

    What it does stands in modules of its package that have the same names for each such engine:
    `options` (`ROWS`, and `RULES` if it has some), `operator_kinds` (`KINDS`), `dimensions`
    (`dimensions_of`) and, for its own format, `model_file` (`read_model`, `read_operators`,
    `files_beside`).
    """

    environment = ONE_BLAS_THREAD

    @property
    def install_hint(self) -> str:
        return f"pip install 'lar[{self.name}]'"

    @classmethod
    def module(cls, name: str) -> Any:
        """Import a module of its package."""
        return import_module(f"{cls.__module__}.{name}")

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        rows: tuple[OptionRow[Any, Any], ...] = self.module("options").ROWS
        return rows

    def option_rules(self) -> tuple[Rule, ...]:
        rules: tuple[Rule, ...] = getattr(self.module("options"), "RULES", ())
        return rules

    @property
    def operator_kinds(self) -> OperatorKinds:
        kinds: OperatorKinds = self.module("operator_kinds").KINDS
        return kinds

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        dimensions: tuple[Dimension, ...] = self.module("dimensions").dimensions_of(site)
        return dimensions

    def read_model(self, path: Path) -> ModelInfo:
        if is_onnx(path):
            return super().read_model(path)
        info: ModelInfo = self.module("model_file").read_model(path)
        return info

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        if is_onnx(path):
            return super().read_model_at(path, shapes)
        return Engine.read_model_at(self, path, shapes)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        if is_onnx(path):
            super().check_model(path, settings)
        else:
            self.files_beside(path)

    def files_beside(self, path: Path) -> tuple[str, ...]:
        if is_onnx(path):
            return super().files_beside(path)
        names: tuple[str, ...] = self.module("model_file").files_beside(path)
        return names

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        if is_onnx(path):
            return super().read_operators(path)
        operators: tuple[ModelOperator, ...] = self.module("model_file").read_operators(path)
        return operators
