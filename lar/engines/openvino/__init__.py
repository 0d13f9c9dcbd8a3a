"""OpenVINO, through its Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lar.engines.engine import DriverEntry
from lar.engines.formats import ONNX, OPENVINO
from lar.engines.onnx_file.engine import OwnFormatEngine

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import CacheFiles, Isolation
    from lar.records.run import RunContext, RunSpec


def compiled_driver() -> type[Driver]:
    from lar.engines.openvino.driver import CompiledDriver

    return CompiledDriver


class OpenVino(OwnFormatEngine):
    """OpenVINO 2025.4 and later."""

    name = "openvino"
    title = "OpenVINO"
    distribution = "openvino"
    formats = (ONNX, OPENVINO)
    variable_prefixes = ("OV_", "OPENVINO_")
    drivers = (DriverEntry("compiled", "InferRequest", compiled_driver),)
    isolating_driver = "compiled"

    @property
    def cache(self) -> CacheFiles:
        from lar.engines.openvino.cache import CACHES

        return CACHES

    def check_property(self, key: str, value: str) -> None:
        from lar.engines.openvino.config import check_property

        check_property(key)

    def find_devices(self) -> tuple[str, ...]:
        from lar.engines.openvino.driver import find_devices

        return find_devices()

    def open_isolation(self, spec: RunSpec, context: RunContext) -> Isolation:
        from lar.engines.openvino.driver import CompiledDriver
        from lar.engines.openvino.isolation import ModelIsolation

        return ModelIsolation(CompiledDriver(spec, self.rows, context))


ENGINE = OpenVino()
