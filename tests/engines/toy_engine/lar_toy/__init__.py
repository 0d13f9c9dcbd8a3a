"""A toy engine for ONNX models: onnx's own reference evaluator, which computes with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import DriverEntry, Engine
from lar.engines.formats import ONNX

if TYPE_CHECKING:
    from lar.dumps.facts import DumpFacts
    from lar.engines.driver import Driver
    from lar.engines.option_rows import OptionRow
    from lar.records.run import ModelInfo


def reference_driver() -> type[Driver]:
    from .reference import ReferenceDriver

    return ReferenceDriver


class Toy(Engine):
    name = "toy"
    title = "Toy"
    distribution = "lar_toy"
    formats = (ONNX,)
    drivers = (DriverEntry("reference", "onnx.reference", reference_driver),)

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from .reference import ROWS

        return ROWS

    def read_model(self, path: Path) -> ModelInfo:
        from .reference import read_model

        return read_model(path)

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def describe_dump(self, folder: Path) -> DumpFacts:
        from lar.dumps.facts import DumpFacts

        return DumpFacts(iteration=0)


ENGINE = Toy()
