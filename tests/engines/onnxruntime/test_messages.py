"""What ONNX Runtime says is put into the user's words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime
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
        check_error(done, 2, f"its weights file {file}: no such file", "keep it beside")


def save_model(path: Path, operator: str, opset: int, domain: str = "", **attributes: Any) -> None:
    """Save a model of one operator, which the engine may lack."""
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    graph = onnx.helper.make_graph(
        [node], "lacking", [value("x", kind, [1, 1, 4, 4])], [value("y", kind, None)]
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    opsets += [onnx.helper.make_opsetid(domain, 1)] if domain else []
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets), path)


@pytest.mark.parametrize(
    ("attributes", "domain", "problem", "reason"),
    [
        ({"nope": 1}, "", "it is not a valid model", "Unrecognized attribute: nope for operator"),
        ({}, "a.b", "it uses operators of the domain 'a.b' and does not say", "No opset import"),
    ],
)
def test_why_a_model_is_not_valid_stands_in_the_hint(
    run_lar: RunLar,
    tmp_path: Path,
    attributes: dict[str, int],
    domain: str,
    problem: str,
    reason: str,
) -> None:
    save_model(tmp_path / "m.onnx", "Relu", 17, domain, **attributes)
    model = onnx.load(tmp_path / "m.onnx")
    del model.opset_import[1:]
    onnx.save(model, tmp_path / "m.onnx")
    done = run_lar("m.onnx", cwd=tmp_path)
    check_error(done, 2, f"m.onnx: {problem}", f"export it again (ONNX Runtime: {reason}")


@pytest.mark.parametrize(
    ("operator", "opset", "domain", "named", "hint"),
    [
        ("AveragePool", 1, "", "AveragePool-1", "another opset"),
        ("NoSuchOperator", 17, "", "NoSuchOperator-17", "another opset"),
        ("Own", 17, "my.domain", "my.domain:Own", "--c-opr-lib FILE"),
    ],
)
def test_an_operator_that_the_engine_lacks_is_named(
    run_lar: RunLar, tmp_path: Path, operator: str, opset: int, domain: str, named: str, hint: str
) -> None:
    attributes = {"kernel_shape": [2, 2]} if operator == "AveragePool" else {}
    path = tmp_path / "lacking.onnx"
    save_model(path, operator, opset, domain, **attributes)
    done = run_lar(str(path))
    version = onnxruntime.__version__
    check_error(done, 4, f"{path}: ONNX Runtime {version} has no {named}", hint)
    assert "damaged" not in done.stderr
