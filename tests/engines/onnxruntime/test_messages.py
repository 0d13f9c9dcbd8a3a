"""What ONNX Runtime says is put into the user's words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from tests.cli.failures import check_error

if TYPE_CHECKING:
    from tests.conftest import RunLar


@pytest.mark.parametrize("command", ["run", "info"])
def test_a_file_of_weights_that_is_missing_is_named(
    run_lar: RunLar, root: Path, tmp_path: Path, command: str
) -> None:
    shutil.copy(root / "models/digits_cnn.onnx", tmp_path / "whole.onnx")
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.load(tmp_path / "whole.onnx"),
        path,
        save_as_external_data=True,
        location="gone.data",
        size_threshold=0,
    )
    (tmp_path / "gone.data").unlink()
    for model, cwd in ((str(path), None), ("model.onnx", tmp_path)):
        done = run_lar(command, model, cwd=cwd)
        file = "gone.data" if cwd else str(tmp_path / "gone.data")
        check_error(done, 2, f"model.onnx: its weights file {file} is missing", "keep it beside")
