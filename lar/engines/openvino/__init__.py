"""The engine OpenVINO, which lar calls through the Python API."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lar.engines.engine import DriverEntry, Engine, imported, late, late_value
from lar.engines.formats import ONNX, OPENVINO
from lar.engines.onnx_file import OwnFormatEngine

if TYPE_CHECKING:
    from lar.options.rules import Rule

COMPILED = partial(imported, ".driver.CompiledDriver", __name__)


class OpenVino(OwnFormatEngine):
    """OpenVINO 2025.4 and later."""

    name = "openvino"
    title = "OpenVINO"
    distribution = "openvino"
    formats = (ONNX, OPENVINO)
    variable_prefixes = ("OV_", "OPENVINO_")
    drivers = (DriverEntry("compiled", "InferRequest", COMPILED),)
    isolating_driver = "compiled"

    cache = late_value(".cache.CACHES")
    check_property = late(Engine.check_property, ".options.check_property")
    find_devices = late(Engine.find_devices, ".driver.find_devices")
    isolation = late(Engine.isolation, ".dumps.ModelIsolation")

    def option_rules(self) -> tuple[Rule, ...]:
        from lar.options.rules import read_rules

        return read_rules({"__file__": __file__})


ENGINE = OpenVino()
