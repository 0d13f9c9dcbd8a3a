"""ONNX's own reference evaluator, in float64: what a model should give, not how fast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import DriverEntry, Engine
from lar.engines.formats import ONNX

if TYPE_CHECKING:
    from lar.dumps.facts import DumpFacts
    from lar.engines.driver import Driver
    from lar.engines.option_rows import OptionRow
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.records.run import ModelInfo


def evaluator_driver() -> type[Driver]:
    from lar.engines.reference.driver import EvaluatorDriver

    return EvaluatorDriver


class Reference(Engine):
    """The reference evaluator of the package onnx."""

    name = "reference"
    title = "ONNX's reference evaluator"
    distribution = "onnx"
    is_exact = True
    formats = (ONNX,)
    drivers = (DriverEntry("evaluator", "onnx.reference, in float64", evaluator_driver),)

    @property
    def operator_kinds(self) -> OperatorKinds:
        from lar.engines.onnxruntime.operator_kinds import KINDS

        return KINDS

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.reference.options import ROWS

        return ROWS

    def read_model(self, path: Path) -> ModelInfo:
        from dataclasses import replace

        from lar.engines.onnxruntime.model_file import read_model

        return replace(read_model(path), engine=self.name)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar.engines.onnxruntime.external_data import check_external_data

        allowed = str(settings.get("allow_external_data", ""))
        check_external_data(path, allowed.splitlines())

    def files_beside(self, path: Path) -> tuple[str, ...]:
        from lar.engines.onnxruntime.external_data import files_beside

        return files_beside(path)

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def describe_dump(self, folder: Path) -> DumpFacts:
        from lar.engines.onnxruntime.dumps import describe_dump

        return describe_dump(folder)


ENGINE = Reference()
