"""OpenVINO, through its Python API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, DriverEntry
from lar.engines.formats import ONNX, OPENVINO
from lar.engines.onnx_file.engine import OnnxFileEngine

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import CacheFiles, Isolation, Site
    from lar.engines.option_rows import OptionRow
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.options.rules import Rule
    from lar.records.choices import Dimension
    from lar.records.run import ModelInfo, RunContext, RunSpec


def compiled_driver() -> type[Driver]:
    from lar.engines.openvino.driver import CompiledDriver

    return CompiledDriver


class OpenVino(OnnxFileEngine):
    """OpenVINO 2025.4 and later."""

    name = "openvino"
    title = "OpenVINO"
    distribution = "openvino"
    formats = (ONNX, OPENVINO)
    environment = ONE_BLAS_THREAD
    variable_prefixes = ("OV_", "OPENVINO_")
    drivers = (DriverEntry("compiled", "InferRequest", compiled_driver),)
    isolating_driver = "compiled"

    @property
    def install_hint(self) -> str:
        return "pip install 'lar[openvino]'"

    @property
    def operator_kinds(self) -> OperatorKinds:
        from lar.engines.openvino.operator_kinds import KINDS

        return KINDS

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.openvino.options import ROWS

        return ROWS

    def option_rules(self) -> tuple[Rule, ...]:
        from lar.engines.openvino.options import RULES

        return RULES

    @property
    def cache(self) -> CacheFiles:
        from lar.engines.openvino.cache import CACHES

        return CACHES

    def check_property(self, key: str, value: str) -> None:
        from lar.engines.openvino.config import check_property

        check_property(key)

    def read_model(self, path: Path) -> ModelInfo:
        from lar.engines.openvino.model_files import is_onnx

        if is_onnx(path):
            return super().read_model(path)
        from lar.engines.openvino.driver import read_model

        return read_model(path)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar.engines.openvino.model_files import is_onnx, require_weights

        if is_onnx(path):
            super().check_model(path, settings)
        else:
            require_weights(path)

    def files_beside(self, path: Path) -> tuple[str, ...]:
        from lar.engines.openvino.model_files import files_beside

        return files_beside(path)

    def find_devices(self) -> tuple[str, ...]:
        from lar.engines.openvino.driver import find_devices

        return find_devices()

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.engines.openvino.dimensions import dimensions_of

        return dimensions_of(site)

    def open_isolation(self, spec: RunSpec, context: RunContext) -> Isolation:
        from lar.engines.openvino.driver import CompiledDriver
        from lar.engines.openvino.isolation import ModelIsolation

        return ModelIsolation(CompiledDriver(spec, self.rows, context))


ENGINE = OpenVino()
