"""A toy engine for ONNX models: onnx's own reference evaluator, which computes with NumPy.

It has a format of its own too, `.toy`: a line and an ONNX model behind it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lar.engines.engine import DriverEntry, Engine, imported, late, late_value
from lar.engines.formats import ONNX, Format
from lar.errors import UsageError
from lar.options.table import ENGINE_OPTION, FAST_RUN

if TYPE_CHECKING:
    from lar.engines.choices import Site
    from lar.records.tuning import Dimension

TOY = Format("Toy", (".toy",), lambda head: head.startswith(b"toy model\n"))
RAW_KEY = b'"toy_profile"'
# The opsets that its property `opset` may convert a model to.
OPSETS = range(17, 21)


REFERENCE = partial(imported, ".reference.ReferenceDriver", __name__)


class Toy(Engine):
    name = "toy"
    title = "Toy"
    distribution = "lar_toy"
    formats = (ONNX, TOY)
    drivers = (DriverEntry("reference", "onnx.reference", REFERENCE),)
    searches = (FAST_RUN,)

    option_rows = late(Engine.option_rows, ".reference.ROWS")
    read_model = late(Engine.read_model, ".reference.read_model")
    cache = late_value(".cache.CACHES")
    read_profile = late(Engine.read_profile, ".profile.profile_of_raw")

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def check_property(self, key: str, value: str) -> None:
        if key != "opset":
            raise UsageError(f"Toy has no property {key!r}", "it has opset", flag="--engine-option")
        if value not in map(str, OPSETS):
            raise UsageError(f"Toy knows no opset {value}", flag="--engine-option opset")

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.records.tuning import Choice, Dimension

        choices = (
            Choice(name=f"opset {it}", options={ENGINE_OPTION.key: (f"opset={it}",)})
            for it in (OPSETS[0], OPSETS[-1])
        )
        return (Dimension(name="opset", choices=tuple(choices)),)

    def writes_profile(self, data: bytes) -> bool:
        return RAW_KEY in data


ENGINE = Toy()
