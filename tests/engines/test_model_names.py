"""The model's names and graph for dumps and arrays that lack them: `lar compare --model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps.index import dump_of_arrays, open_dump
from lar.engines import read_operators
from lar.engines.model_names import give_model, parse_models
from lar.reports.comparison_report import describe_culprit
from tests.command_lines import ROOT
from tests.engines.onnx_models import save_model, text_of

MODELS = ROOT / "models"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of three operators, one of them without a name."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    return str(save_model(path, text_of("block"), {"weight": np.zeros((8, 3, 3, 3), np.float32)}))


RANDOM = np.random.default_rng(0)
CONV = RANDOM.standard_normal((1, 8, 6, 6))
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "data": RANDOM.standard_normal((1, 3, 6, 6)),
    "block1_conv": CONV,
    "block1_relu": np.maximum(CONV, 0),
    "last": np.maximum(CONV, 0).mean((2, 3), keepdims=True),
}


def test_arrays_get_the_graph_of_their_model(model: str) -> None:
    wrong = {**ARRAYS, "block1_relu": CONV, "last": CONV.mean((2, 3), keepdims=True)}
    (culprit,) = lar.compare(wrong, ARRAYS, models=model).culprits
    assert describe_culprit(culprit) == "Relu r1 (tensor block1/relu)"
    assert [it.expected.name for it in culprit.inputs] == ["block1/conv"]
    assert lar.compare(wrong, ARRAYS).culprits == ()
    # One side's graph is enough.
    (culprit,) = lar.compare(wrong, ARRAYS, models={"B": model}).culprits
    assert describe_culprit(culprit) == "Relu r1 (tensor block1/relu)"


def test_arrays_that_lack_some_layers_are_gone_through(model: str) -> None:
    part = {name: array for name, array in ARRAYS.items() if name != "block1_conv"}
    index = give_model(dump_of_arrays(part), "A", model)[0].index
    assert [each.type for each in index.operators] == ["Input", "Conv", "Relu", "GlobalAveragePool"]
    assert {each.name: each.origin for each in index.tensors if each.origin} == {
        "block1_relu": "block1/relu"
    }
    assert lar.compare(part, ARRAYS, models=model).same


@pytest.mark.parametrize("suffix", [".mge", ".onnx"])
def test_operators_are_read_without_an_engine(suffix: str) -> None:
    operators = read_operators(MODELS / f"digits_cnn{suffix}")
    makers = {name: each for each in operators for name in each.outputs}
    assert makers["data"].inputs == ()
    assert "relu2" in makers["pool2"].inputs
    assert "conv2" in makers["relu2"].inputs
    assert set(makers["logits"].inputs) >= {"logits.bias"}


def test_damaged_models_of_megengine_are_value_errors(tmp_path: Path) -> None:
    data = (MODELS / "digits_cnn.mge").read_bytes()
    path = tmp_path / "cut.mge"
    for size in range(12, len(data), 1499):
        path.write_bytes(data[:size])
        try:
            read_operators(path)
        except ValueError:
            continue


def test_a_file_is_for_one_side_or_for_all() -> None:
    assert parse_models(["m.onnx"]) == {"": "m.onnx"}
    assert parse_models(["A=m.onnx", "B=a=b.mge"]) == {"A": "m.onnx", "B": "a=b.mge"}
    assert parse_models(["./A=m.onnx"]) == {"": "./A=m.onnx"}


def test_a_model_that_shares_a_name_or_two_is_doubted(model: str) -> None:
    others = {f"stage{number}": CONV + number for number in range(4)}
    arrays = {"data": ARRAYS["data"], **others}
    found = lar.compare(arrays, arrays, models={"B": model})
    assert found.notes == (f"{model} has 1 of the 5 tensors of B: it may be another model",)
    assert lar.compare(ARRAYS, ARRAYS, models=model).notes == ()
    dump = open_dump(MODELS.parent / "tests" / "data" / "aarch64" / "digits_cnn")
    assert lar.compare(dump, dump, models=str(MODELS / "digits_cnn.onnx")).notes == ()
    (note,) = lar.compare(dump, dump, models={"A": str(MODELS / "mobilenet_v2.onnx")}).notes
    assert note.endswith("tensors of A: it may be another model")
