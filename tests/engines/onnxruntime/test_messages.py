"""What ONNX Runtime says is put into the user's words."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model
from tests.engines.onnxruntime.drivers import save_external
from tests.tables import each_row


@pytest.mark.parametrize("command", ["run", "info"])
def test_a_file_of_weights_that_is_missing_is_named(
    run_lar: RunLar, root: Path, tmp_path: Path, command: str
) -> None:
    path = save_external(root / "models/digits_cnn.onnx", tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    for model, cwd in ((str(path), None), ("model.onnx", tmp_path)):
        done = run_lar(command, model, cwd=cwd)
        file = "weights.bin" if cwd else str(tmp_path / "weights.bin")
        check_error(done, 2, f"its weights file {file}: no such file", "keep it beside")


@each_row("engines/onnxruntime/messages/invalid")
def test_why_a_model_is_not_valid_stands_in_the_hint(
    run_lar: RunLar, tmp_path: Path, node: str, problem: str, reason: str
) -> None:
    text = f"(float[1,1,4,4] x) => (float[] y) {{ y = {node}(x) }}"
    save_model(tmp_path / "m.onnx", text, domains={})
    done = run_lar("m.onnx", cwd=tmp_path)
    check_error(done, 2, f"m.onnx: {problem}", f"export the model again (ONNX Runtime: {reason}")


@each_row("engines/onnxruntime/messages/lacking")
def test_an_operator_that_the_engine_lacks_is_named(
    run_lar: RunLar, tmp_path: Path, node: str, opset: int, named: str, hint: str
) -> None:
    text = f"(float[1,1,4,4] x) => (float[] y) {{ y = {node}(x) }}"
    path = save_model(tmp_path / "lacking.onnx", text, opset=opset, domains={"my.domain": 3})
    done = run_lar(str(path))
    check_error(done, 4, f"{path}: ONNX Runtime {onnxruntime.__version__} has no {named}", hint)
    assert "damaged" not in done.stderr
