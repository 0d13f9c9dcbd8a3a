"""OpenVINO, through its Python API."""

from __future__ import annotations

from functools import partial

from lar.engines.engine import DriverEntry, Engine, imported, late, late_value
from lar.engines.formats import ONNX, OPENVINO
from lar.engines.onnx_file.engine import OwnFormatEngine

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
    option_rules = late(Engine.option_rules, ".rules.RULES")
    check_property = late(Engine.check_property, ".options.check_property")
    find_devices = late(Engine.find_devices, ".driver.find_devices")
    isolation = late(Engine.isolation, ".dumps.ModelIsolation")


ENGINE = OpenVino()
