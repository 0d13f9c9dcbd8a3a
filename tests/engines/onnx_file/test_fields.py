"""What a run reads of an ONNX file without decoding it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.engines.onnx_file.fields import (
    inputs_without_rank,
    is_ort_format,
    nodes_in,
    output_names,
    weights_files,
)

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]
MODELS = Path(__file__).resolve().parents[3] / "models"
EACH = sorted(MODELS.glob("*.onnx"))
FLOAT = TensorProto.FLOAT


def value(name: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


@pytest.mark.parametrize("path", EACH, ids=lambda path: path.stem)
def test_nodes_and_outputs_are_those_of_the_model(path: Path) -> None:
    data, graph = path.read_bytes(), onnx.load(path).graph
    expected = [
        (node.name, node.op_type, node.domain, tuple(node.input), tuple(node.output))
        for node in graph.node
    ]
    assert list(map(tuple, nodes_in(data))) == expected
    assert output_names(data) == [info.name for info in graph.output]
    assert not inputs_without_rank(data)
    assert not weights_files(data)
    assert not is_ort_format(data)


def test_weights_files_are_found_wherever_tensors_are() -> None:
    def tensor(file: str) -> Any:
        found = numpy_helper.from_array(np.zeros(3, np.float32), file)
        found.data_location = TensorProto.EXTERNAL
        for key, text in (("offset", "0"), ("location", file)):
            found.external_data.add(key=key, value=text)
        return found

    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor("in_a_node.bin"))],
        "inner",
        [],
        [value("c", None)],
        [tensor("sub/in_a_branch.bin")],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph([node], "g", [], [value("y", None)], [tensor("weights.bin")])
    data = helper.make_model(graph).SerializeToString()
    assert weights_files(data) == ("in_a_node.bin", "sub/in_a_branch.bin", "weights.bin")


def write_model(path: Path, shape: Any) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", shape)], [value("y", None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def test_an_input_of_any_number_of_axes_is_not_a_single_number(
    run_lar: RunLar, tmp_path: Path
) -> None:
    for name, shape in (("number", []), ("any", None), ("open", ["batch", 3])):
        write_model(tmp_path / f"{name}.onnx", shape)
        unknown = inputs_without_rank((tmp_path / f"{name}.onnx").read_bytes())
        assert unknown == ({"x"} if name == "any" else set())
    ended = run_lar(str(tmp_path / "number.onnx"), "--iter", "1")
    assert ended.returncode == 0, ended.stderr
    ended = run_lar(str(tmp_path / "any.onnx"), "--iter", "1")
    assert ended.returncode == 2
    assert "nothing feeds x, which may have any number of axes" in ended.stderr
    assert "Traceback" not in ended.stderr
