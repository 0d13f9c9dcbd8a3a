"""Runs that go well: a model for one, and what it gives and prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

import lar

if TYPE_CHECKING:
    from tests.conftest import RunLar


def without_hints(text: str) -> list[str]:
    """The lines but for the hint at a defect of the engine that costs speed on this processor."""
    return [line for line in text.splitlines() if not line.startswith("hint: MKL")]


def result_of(run_lar: RunLar, *words: str, **keywords: Any) -> lar.RunResult:
    """The result of a run that ends well, from `--json -`."""
    first = 1 if words[0] == "run" else 0
    done = run_lar(*words[:first], "--json", "-", *words[first:], **keywords)
    assert done.returncode == 0, done.stderr
    return lar.read_result(done.stdout)


def outputs_of(run_lar: RunLar, *words: str, **keywords: Any) -> list[tuple[str, str]]:
    """Name and hash of each output after a single run."""
    result = result_of(run_lar, "--iter", "0", "--warmup-iter", "1", *words, **keywords)
    assert result.outputs
    return [(output.name, output.sha256) for output in result.outputs]


def save_model(
    path: Path, operator: str, shape: list[int] | None, output: Any = None, **attributes: Any
) -> str:
    """Save an ONNX model of one operator, from float32 `data` to `output`."""
    data = onnx.helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, shape)
    if output is None:
        output = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
    node = onnx.helper.make_node(operator, ["data"], ["output"], **attributes)
    graph = onnx.helper.make_graph(
        [node], "model", [data], [onnx.helper.make_value_info("output", output)]
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return str(path)


def lines_of(text: str) -> list[str]:
    """Printed lines with their numbers left out."""
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in text.splitlines()]
