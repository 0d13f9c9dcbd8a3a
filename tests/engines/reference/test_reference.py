"""The engine `reference`: ONNX's reference evaluator in float64, run and dumped as others are."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lar
from lar.engines import engine_named
from lar.engines.reference.driver import NO_TIMES, names_after_last_use
from lar.errors import EngineMissing
from lar.records.run import RunSpec
from lar.running.plan import plan_run
from tests.conftest import RunLar
from tests.engines.onnx_models import text_of
from tests.engines.reference.models import compare_dumps, dump, save
from tests.engines.runs import failure_of, run_ok

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
    done = run_lar(
        str(MODELS / "int8.onnx"), "--engine", "reference", "--input", SEVEN, *flags, code=0
    )
    assert NO_TIMES in done.stderr
    found = lar.open_dump(dump)
    index = found.index
    assert (index.complete, index.engine, index.iteration) == (True, "reference", 0)
    types = {operator.type: operator for operator in index.operators}
    quantised = found.tensor(types["QuantizeLinear"].outputs[0])
    assert quantised.dtype in ("int8", "uint8")
    assert quantised.quantization is not None
    assert found.tensor(types["DequantizeLinear"].outputs[0]).dtype == "float64"
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
    result = run_ok(tmp_path, engine="reference", iter=1)
    wrong = numpy_helper.from_array(X * np.float32(0.11))
    (case / "output_0.pb").write_bytes(wrong.SerializeToString())
    result = lar.run(tmp_path, engine="reference", iter=1)
    failure_of(result, 1)


def test_casts_between_floating_point_types_are_exact_and_those_to_integers_are_not(
    tmp_path: Path,
) -> None:
    wide = X.astype(np.float64)
    found = run(save(tmp_path, text_of("casts")), X)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, wide - np.trunc(wide))


def test_weights_of_half_precision_constants_and_branches_are_computed_in_float64(
    tmp_path: Path,
) -> None:
    """The branch takes a tensor from around it, which must still be there."""
    half = np.array([0.1], np.float16)
    found = run(save(tmp_path, text_of("half_precision"), w=half), X)
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


def test_an_operator_that_cannot_take_its_inputs_is_named(tmp_path: Path) -> None:
    text = "(float[4] x) => (y) { [product] y = MatMul(x, w) }"
    path = save(tmp_path, text, w=np.ones((3, 3), np.float32))
    message = failure_of(lar.run(path, engine="reference"), 2).message
    assert "cannot compute MatMul of opset 17 with (4,), (3, 3): Unable to multiply" in message


def test_an_output_that_is_left_out_is_no_input_that_is_left_out(tmp_path: Path) -> None:
    found = run(save(tmp_path, text_of("output_left_out"), one=np.array([1])), X)
    np.testing.assert_array_equal(found, np.minimum(X.astype(np.float64), 1))


def test_without_onnx_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { y = Neg(x) }")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(EngineMissing) as caught:
        plan_run(str(path), {"engine": "reference"})
    assert "which is not installed" in caught.value.message
    assert caught.value.hint == "pip install onnx"


def test_the_domain_of_onnx_has_two_names(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { y = ai.onnx.Neg(x) }")
    model = onnx.load(path)
    model.opset_import[0].domain = "ai.onnx"
    onnx.save(model, path)
    np.testing.assert_array_equal(run(path, X), -X.astype(np.float64))


def test_functions_of_a_model_are_computed(tmp_path: Path) -> None:
    text = """(float[4] x) => (y) { y = own.Twice(x) }
    <domain: "own", opset_import: ["": 17]>
    Twice (a) => (b) { two = Constant <value_float = 2.0> () b = Mul(a, two) }"""
    np.testing.assert_array_equal(run(save(tmp_path, text), X), 2 * X.astype(np.float64))


# What the evaluator cannot compute, and the values that are more than one tensor


def test_what_cannot_be_computed_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = save(tmp_path, text_of("random_and_plain"))
    found = dump(path, "reference")
    assert {each.name for each in found} == {"x", "plain"}
    assert found.index.outputs == ("noisy", "plain")
    assert found.index.left_out == {
        "noise": "no truth for RandomNormalLike of opset 17: it draws random numbers",
        "noisy": "computed from noise, which has no truth",
    }
    result = lar.run(path, engine="reference", iter=1)
    assert [each.shape for each in result.outputs if each.name == "plain"] == [(4,)]


def test_a_model_of_which_no_output_can_be_computed_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[4] x) => (y) { n = RandomNormalLike(x) y = Neg(n) }")
    result = lar.run(path, engine="reference", iter=1)
    assert "cannot compute RandomNormalLike of opset 17" in failure_of(result, 2).message
    assert dump(path, "reference").index.left_out.keys() == {"n", "y"}  # the rest is of use


def test_a_loop_without_a_trip_gives_what_it_is_fed_with(tmp_path: Path) -> None:
    found = compare_dumps(save(tmp_path, text_of("loop_without_trips", kept="float[4]")))
    values = {each.name: found.read(each.key) for each in found}
    np.testing.assert_array_equal(values["y"], values["x"])
    assert values["all"].shape == (0, 4)


def test_a_loop_without_a_trip_gives_no_tensor_another_ones_place(tmp_path: Path) -> None:
    """Of an output whose shape the body does not state nothing is known then."""
    found = dump(save(tmp_path, text_of("loop_without_trips", kept="float[]")), "reference")
    assert "all" not in {each.name for each in found}
    assert found.index.left_out.keys() >= {"all", "sizes"}


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_scan_goes_along_other_axes_and_backwards(tmp_path: Path, side: str) -> None:
    attributes = f"scan_{side}_axes = [1], scan_{side}_directions = [1],"
    text = text_of("scan", sizes="2, 5" if side == "input" else "5, 2", attributes=attributes)
    compare_dumps(save(tmp_path, text, s0=np.ones(2, "f4")))


def test_the_weights_of_a_body_may_be_sparse(tmp_path: Path) -> None:
    """Their indices count elements, or have a column for each axis."""
    elements, places = np.array([1.5, -2], "f4"), {"w": [1, 6], "v": [[0, 1], [3, 2]]}
    path = save(tmp_path, text_of("branches_of_products"), yes=np.array(True))
    model = onnx.load(path)
    for attribute, (name, it) in itertools.product(model.graph.node[0].attribute, places.items()):
        arrays = numpy_helper.from_array(elements, name), numpy_helper.from_array(np.array(it))
        attribute.g.sparse_initializer.append(helper.make_sparse_tensor(*arrays, (4, 4)))
    onnx.save(model, path)
    found = lar.compare(path, path, truth=True, graph_optimization_level="disable")
    assert found.truth
    assert (found.truth.actual.finding, found.truth.expected.finding) == ("same", "same")
    judged = {it.actual.name for it in found.tensors if it.truth and it.truth.actual}
    assert {"If_0/then/a", "If_0/then/b", "y"} <= judged


def test_sequences_maps_and_texts_are_dumped_by_parts(tmp_path: Path) -> None:
    text = text_of("parts")
    texts = np.array(["one", "two", "three"], object)
    path = save(tmp_path, text, parts=np.array([1, 2]), names=texts)
    shapes = {each.name: each.shape for each in compare_dumps(path)}
    assert (shapes["s[0]"], shapes["s[1]"], shapes["p[b]"]) == ((2, 1), (2, 2), (2,))
    assert shapes["text"][0] == 2
