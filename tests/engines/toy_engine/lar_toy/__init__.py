"""A toy engine for ONNX models: onnx's own reference evaluator, which computes with NumPy.

It has a format of its own too, `.toy`: a line and an ONNX model behind it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.caches import AnyCacheFiles
from lar.engines.engine import DriverEntry, Engine
from lar.engines.formats import ONNX, Format
from lar.errors import UsageError
from lar.options.table import ENGINE_OPTION, FAST_RUN

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import Site
    from lar.engines.option_rows import OptionRow
    from lar.records.choices import Dimension
    from lar.records.profile import Profile
    from lar.records.run import ModelInfo

TOY = Format("Toy", (".toy",), lambda head: head.startswith(b"toy model\n"))
RAW_KEY = b'"toy_profile"'
# The opsets that its property `opset` may convert a model to.
OPSETS = range(17, 21)


def reference_driver() -> type[Driver]:
    from .reference import ReferenceDriver

    return ReferenceDriver


class Toy(Engine):
    name = "toy"
    title = "Toy"
    distribution = "lar_toy"
    formats = (ONNX, TOY)
    drivers = (DriverEntry("reference", "onnx.reference", reference_driver),)
    searches = (FAST_RUN,)

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from .reference import ROWS

        return ROWS

    def read_model(self, path: Path) -> ModelInfo:
        from .reference import read_model

        return read_model(path)

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def check_property(self, key: str, value: str) -> None:
        if key != "opset":
            raise UsageError(f"Toy has no property {key!r}", "it has opset", flag="--engine-option")
        if value not in map(str, OPSETS):
            raise UsageError(f"Toy knows no opset {value}", flag="--engine-option opset")

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.records.choices import Choice, Dimension

        choices = (
            Choice(name=f"opset {it}", options={ENGINE_OPTION.key: (f"opset={it}",)})
            for it in (OPSETS[0], OPSETS[-1])
        )
        return (Dimension(name="opset", choices=tuple(choices)),)

    @property
    def cache(self) -> AnyCacheFiles:
        from .cache import CACHES

        return CACHES

    def writes_profile(self, data: bytes) -> bool:
        return RAW_KEY in data

    def read_profile(self, data: bytes, name: str) -> Profile:
        from .profile import profile_of_raw

        return profile_of_raw(data)


ENGINE = Toy()
