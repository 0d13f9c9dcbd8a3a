"""The engine `reference`: ONNX's reference evaluator in float64, run and dumped as others are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lar
from lar.engines import engine_named
from lar.engines.reference.driver import NO_TIMES
from lar.engines.reference.evaluator import names_after_last_use
from lar.errors import EngineMissing
from lar.records.run import RunSpec
from lar.running.plan import require_engine
from tests.engines.reference.models import save

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]
Array = np.ndarray[Any, np.dtype[Any]]

MODELS = Path(__file__).resolve().parents[3] / "models"
SEVEN = str(MODELS.parent / "inputs" / "digit_7.npy")


def run(path: Path, x: Array) -> Array:
    """Return what the engine gives."""
    spec = RunSpec(model=str(path), engine="reference", driver="evaluator")
    driver = engine_named("reference").make_driver(spec)
    driver.load()
    driver.feed({"x": x})
    driver.start()
    output = driver.outputs()["y"]
    assert isinstance(output, np.ndarray)
    return output


X = np.array([1.0, 2.7, -3.2, 1 / 3], np.float32)


def test_a_run_says_that_its_times_mean_nothing_and_gives_float64(
    run_lar: RunLar, tmp_path: Path
) -> None:
    dump, text = str(tmp_path / "dump"), str(tmp_path / "dump.txt")
    flags = ["--iter", "1", "--verbose", "--bin-io-dump", dump, "--io-dump", text]
    done = run_lar(str(MODELS / "int8.onnx"), "--engine", "reference", "--input", SEVEN, *flags)
    assert done.returncode == 0, done.stderr
    assert NO_TIMES in done.stderr
    found = lar.open_dump(dump)
    index = found.index
    assert (index.complete, index.engine, index.iteration) == (True, "reference", 0)
    types = {operator.type: operator for operator in index.operators}
    quantised = found.tensor(types["QuantizeLinear"].outputs[0])
    assert quantised.dtype in ("int8", "uint8")
    assert quantised.quantization is not None
    real = found.tensor(types["DequantizeLinear"].outputs[0])
    assert real.dtype == "float64"
    assert {tensor.name for tensor in found} >= {"data", "logits"}
    produced = re.findall(r"^var(\d+) produced: name=(.*?) layout=", Path(text).read_text(), re.M)
    constants = {
        key for operator in index.operators if operator.constant for key in operator.outputs
    }
    computed = [tensor for tensor in found if tensor.key not in constants]
    assert produced == [(str(int(tensor.key, 16)), tensor.name) for tensor in computed]
    weight = next(tensor for tensor in found if tensor.name == "conv1.weight")
    assert (weight.key in constants, weight.dtype) == (True, "int8")
    assert weight.quantization is not None


def test_testcases_for_other_types_are_judged_by_their_values(tmp_path: Path) -> None:
    """They expect float32, as the model says."""
    save(tmp_path, "(float[4] x) => (float[4] y) { y = Mul(x, w) }", w=np.array([0.1], "f4"))
    case = tmp_path / "test_data_set_0"
    case.mkdir()
    for name, array in {"input_0": X, "output_0": X * np.float32(0.1)}.items():
        (case / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    result = lar.run(tmp_path, engine="reference", iter=1)
    assert result.status == "ok", result.failure
    wrong = numpy_helper.from_array(X * np.float32(0.11))
    (case / "output_0.pb").write_bytes(wrong.SerializeToString())
    result = lar.run(tmp_path, engine="reference", iter=1)
    assert result.failure is not None
    assert result.failure.exit_code == 1


def test_casts_between_floating_point_types_are_exact_and_those_to_integers_are_not(
    tmp_path: Path,
) -> None:
    text = """(float[4] x) => (y) {
        half = Cast <to = 10> (x)
        back = Cast <to = 1> (half)
        whole = Cast <to = 6> (back)
        number = Cast <to = 1> (whole)
        y = Sub(back, number)
    }"""
    wide = X.astype(np.float64)
    found = run(save(tmp_path, text), X)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, wide - np.trunc(wide))


def test_weights_of_half_precision_constants_and_branches_are_computed_in_float64(
    tmp_path: Path,
) -> None:
    """The branch takes a tensor from around it, which must still be there."""
    text = """(float[4] x) => (y) {
        third = Constant <value_float = 0.33333334> ()
        early = Mul(x, third)
        sum = ReduceSum <keepdims = 0> (early)
        less = Less(sum, third)
        y = If (less) <
            then_branch = t () => (float[4] more) { more = Add(early, w) },
            else_branch = e () => (float[4] less) { less = Sub(early, w) }
        >
    }"""
    half = np.array([0.1], np.float16)
    found = run(save(tmp_path, text, w=half), X)
    third = np.float64(np.float32(1 / 3))
    np.testing.assert_array_equal(found, X.astype(np.float64) * third + half.astype(np.float64))


def test_a_tensor_is_dropped_after_its_last_use() -> None:
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["c", "unused"]),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    spent = [sorted(names) for names in names_after_last_use(nodes, {"y", ""})]
    assert spent == [["w", "x"], [], ["a", "b", "unused"], ["c"]]


def test_weights_in_a_file_of_their_own_are_read(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { y = Add(x, w) }", w=X)
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load(path), path, **options)
    assert (tmp_path / "w.bin").stat().st_size >= X.nbytes
    np.testing.assert_array_equal(run(path, X), 2 * X.astype(np.float64))


def test_an_operator_that_it_lacks_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { y = com.microsoft.Attention(x) }")
    result = lar.run(path, engine="reference")
    assert result.failure is not None
    assert result.failure.exit_code == 2
    assert "cannot compute com.microsoft.Attention of opset 1" in result.failure.message


def test_an_operator_that_cannot_take_its_inputs_is_named(tmp_path: Path) -> None:
    text = "(float[4] x) => (y) { [product] y = MatMul(x, w) }"
    path = save(tmp_path, text, w=np.ones((3, 3), np.float32))
    result = lar.run(path, engine="reference")
    assert result.failure is not None
    assert result.failure.exit_code == 2
    assert "cannot compute MatMul of opset 17" in result.failure.message
    assert "it says: with (4,), (3, 3): Unable to multiply" in result.failure.hint


def test_an_output_that_is_left_out_is_no_input_that_is_left_out(tmp_path: Path) -> None:
    text = """(float[4] x) => (y) {
        "", places = TopK(x, one)
        most = Cast <to = 1> (places)
        y = Clip(x, "", most)
    }"""
    found = run(save(tmp_path, text, one=np.array([1])), X)
    np.testing.assert_array_equal(found, np.minimum(X.astype(np.float64), 1))


def test_without_onnx_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(EngineMissing) as caught:
        require_engine(engine_named("reference"), "a.onnx")
    assert "which is not installed" in caught.value.message
    assert caught.value.hint == "pip install onnx"


def test_the_domain_of_onnx_has_two_names(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { y = ai.onnx.Neg(x) }")
    model = onnx.load(path)
    model.opset_import[0].domain = "ai.onnx"
    onnx.save(model, path)
    np.testing.assert_array_equal(run(path, X), -X.astype(np.float64))


def test_functions_of_a_model_are_computed(tmp_path: Path) -> None:
    text = """(float[4] x) => (y) { y = mine.Twice(x) }
    <domain: "mine", opset_import: ["": 17]>
    Twice (a) => (b) { two = Constant <value_float = 2.0> () b = Mul(a, two) }"""
    found = run(save(tmp_path, text), X)
    np.testing.assert_array_equal(found, 2 * X.astype(np.float64))
