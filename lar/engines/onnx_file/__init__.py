"""Readers of `.onnx` files, and the base classes of the engines that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lar.engines.engine import ONE_BLAS_THREAD, Defect, Engine, Method, late, late_value
from lar.engines.formats import ONNX, format_in, is_onnx, read_head

if TYPE_CHECKING:
    from pathlib import Path

    from lar.engines.choices import Site
    from lar.records.run import ModelInfo
    from lar.records.tuning import Dimension


HERE = "lar.engines.onnx_file"


class OnnxFileEngine(Engine):
    """An engine that reads `.onnx` files."""

    operator_kinds = late_value(f"{HERE}.operators.KINDS")
    files_beside = late(Engine.files_beside, f"{HERE}.fields.files_beside")
    read_operators = late(Engine.read_operators, f"{HERE}.bodies.read_operators")

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def read_model(self, path: Path) -> ModelInfo:
        return self.read_model_at(path, {})

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        from lar.engines.onnx_file.contents import read_model

        return read_model(path, shapes, self.name)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar.engines.onnx_file.fields import check_external_data

        check_external_data(path, allowed_in(settings))


def allowed_in(settings: Mapping[str, Any]) -> list[str]:
    """Return the folders outside the model's folder from which weights may be read."""
    return str(settings.get("allow_external_data", "")).splitlines()


def by_format(of_onnx: Method, place: str) -> Method:
    """Return a method for an engine that reads `.onnx` files and files in its own format.

    The method calls `of_onnx` for `.onnx` files. For files in the engine's own format, the method
    calls the function at `place` in the engine's package.
    """
    of_own = late(of_onnx, place)

    def method(self: Engine, path: Path) -> Any:
        return (of_onnx if is_onnx(path) else of_own)(self, path)

    return cast(Method, method)


class OwnFormatEngine(OnnxFileEngine):
    """An engine that reads `.onnx` files and files in its own format.

    The engine's package contains the module `options` with `ROWS`, the module `model_file` with
    `KINDS`, and the files `dimensions.json` and `defects.json`. For the engine's own format,
    `model_file` also contains `read_model`, `read_operators` and `files_beside`.
    """

    environment = ONE_BLAS_THREAD
    option_rows = late(Engine.option_rows, ".options.ROWS")
    operator_kinds = late_value(".model_file.KINDS")
    read_model = by_format(OnnxFileEngine.read_model, ".model_file.read_model")
    files_beside = by_format(OnnxFileEngine.files_beside, ".model_file.files_beside")
    read_operators = by_format(OnnxFileEngine.read_operators, ".model_file.read_operators")

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from pathlib import Path

        from lar.engines.choices import dimensions_in

        return dimensions_in(Path(__file__).parents[1] / self.name, site)

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        import json
        from pathlib import Path

        rows = json.loads((Path(__file__).parents[1] / self.name / "defects.json").read_text())
        return tuple(Defect(**row, is_here=self.version == version) for version, row in rows)

    @property
    def install_hint(self) -> str:
        return f"pip install 'lar[{self.name}]'"

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        return (OnnxFileEngine if is_onnx(path) else Engine).read_model_at(self, path, shapes)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar.engines.onnx_file.fields import Place, check_folder

        for name in () if is_onnx(path) else self.files_beside(path):  # it may be a link
            check_folder(Place("", name, 0, 0), path, allowed_in(settings))
        # The engine may read a file as ONNX even if its name has the suffix of the own format.
        if format_in(read_head(path)) in (None, ONNX):
            super().check_model(path, settings)
