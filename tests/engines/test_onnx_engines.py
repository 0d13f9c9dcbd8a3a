"""What OpenVINO and MNN both do with `.onnx` models, and with models of their own formats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest

import lar
from lar.engines import engine_named
from lar.records.run import RunResult
from tests.conftest import RunLar
from tests.engines.onnx_models import (
    DIGITS,
    MOBILENET,
    MODELS,
    drawn,
    model_of,
    needs,
    save_named,
    text_of,
    with_fault,
    write_attention,
    write_lstm,
    write_optional,
    write_residual,
)
from tests.engines.runs import failure_of, run_ok

NAMES = ("openvino", "mnn")
ENGINES = ("megengine", "onnxruntime", *NAMES)
INPUTS = MODELS.parent / "inputs"


def each_engine(*values: Any) -> list[Any]:
    """Return a parameter for each engine: its name, with one of the values if there are some."""
    rows = zip(NAMES, *([values] if values else []), strict=True)
    return [pytest.param(*row, marks=needs(row[0])) for row in rows]


each = pytest.mark.parametrize("engine", each_engine())


def run(engine: str, model: Path, inputs: Any = None, **options: Any) -> RunResult:
    return run_ok(model, inputs, engine=engine, **{"iter": 1, **options})


def hashes(result: RunResult) -> dict[str, str]:
    return {output.name: output.sha256 for output in result.outputs}


def sides(engine: str, first: Path, second: Path) -> tuple[str, str]:
    """Return the sides of a comparison with ONNX Runtime."""
    return f"{first} --engine onnxruntime", f"{second} --engine {engine}"


# Runs


@each
def test_tensors_without_elements_are_fed(engine: str, tmp_path: Path) -> None:
    ends = "(float[1,n,2] past, float[1,1,2] x) => (float[1,m,2] y)"
    model = save_named(tmp_path / "joined.onnx", f"{ends} {{ y = Concat<axis = 1>(past, x) }}")
    (output,) = run(engine, model, "past:{1,0,2};x:[[[1,2]]]").outputs
    assert (output.shape, output.mean) == ((1, 1, 2), 1.5)


@each
def test_axes_have_their_names_and_optional_inputs_their_values(
    engine: str, tmp_path: Path
) -> None:
    model = write_optional(tmp_path / "optional.onnx")
    result = run(engine, model, "x:[[1,1,1]]")
    assert result.outputs[0].mean == 2
    assert [info.name for info in result.inputs] == ["x"]
    assert run(engine, model, shape="batch=4").outputs[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        *each_engine("OpenVINO has no own.Foo", "MNN's converter has no Foo"),
        ("reference", "cannot compute own.Foo of opset 1"),
    ],
)
def test_an_operator_that_it_lacks_is_named(engine: str, words: str, tmp_path: Path) -> None:
    model = save_named(tmp_path / "foo.onnx", "(float[2] x) => (float[2] y) { y = own.Foo(x) }")
    message = failure_of(lar.run(model, engine=engine)).message
    assert message.startswith(f"{model}: ")
    assert words in message


@pytest.mark.parametrize("engine", [*each_engine(), "onnxruntime"])
def test_a_model_without_inputs_may_give_other_sizes_each_time(engine: str, tmp_path: Path) -> None:
    model = save_named(tmp_path / "drawn.onnx", text_of("drawn"))
    run(engine, model, iter=20)
    run(engine, model, bin_io_dump=str(tmp_path / "dump"))
    assert "y" in {tensor.name for tensor in lar.open_dump(tmp_path / "dump")}


# Their own formats


def own_model(engine: str, model: Path, folder: Path) -> Path:
    """Write a model in an engine's own format."""
    if engine == "mnn":
        path = folder / f"{model.stem}.mnn"
        run(engine, model, model_dump=str(path))
        return path
    from lar.engines.openvino.driver import import_openvino

    openvino, path = import_openvino(), folder / f"{model.stem}.xml"
    openvino.save_model(openvino.Core().read_model(model), path, compress_to_fp16=False)
    return path


@each
def test_its_own_format_gives_what_the_onnx_file_gives(engine: str, tmp_path: Path) -> None:
    result = lar.run(own_model(engine, DIGITS, tmp_path), iter=1)
    assert result.spec.engine == engine
    assert hashes(result) == hashes(run(engine, DIGITS))


def test_weights_beside_its_own_format_are_no_link_out_of_the_folder(
    run_lar: RunLar, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    model = own_model("openvino", DIGITS, tmp_path / "a")
    weights = model.with_suffix(".bin")
    weights.rename(tmp_path / "b.bin")
    weights.symlink_to("../b.bin")
    done = run_lar(str(model), "--iter", "1", code=2)
    assert "its data is in 'digits_cnn.bin', outside the model's folder" in done.stderr
    run_lar(str(model), "--iter", "1", "--allow-external-data", str(tmp_path), code=0)


@pytest.mark.parametrize(("engine", "batch"), each_engine(None, 1))
def test_what_its_own_format_holds_is_told(
    engine: str, batch: int | None, run_lar: RunLar, tmp_path: Path
) -> None:
    model = own_model(engine, DIGITS, tmp_path)
    info, original = lar.read_info(model), lar.read_info(DIGITS)
    (data,), (logits,) = info.inputs, info.outputs
    assert (data.name, data.dtype, data.shape) == ("data", "float32", (batch, 1, 8, 8))
    assert (logits.name, logits.shape) == ("logits", (batch, 10))
    assert info.parameter_count == pytest.approx(original.parameter_count, rel=0.001)
    # A bias counts, or an activation does not, that is part of another operator.
    assert info.flops == pytest.approx(original.flops, rel=0.01)
    assert info.operators["Convolution"] >= 3
    refused = run_lar("info", str(model), "--input", "{2,1,8,8}").stderr
    assert "counts FLOPs only for the shapes in the model file" in refused


# Dumps


def test_layers_have_twins_on_any_two_engines_and_no_culprit(tmp_path: Path) -> None:
    names = [it for it in ENGINES if engine_named(it).is_installed]
    for name in names:
        model = MOBILENET.with_suffix(".mge") if name == "megengine" else MOBILENET
        run(name, model, INPUTS / "cat.npy", bin_io_dump=str(tmp_path / name))
    for one, other in combinations(names, 2):
        found = lar.compare(tmp_path / one, tmp_path / other)
        assert found.finding == "same", (one, other)
        assert not found.culprits
        assert [it.expected.name for it in found.tensors if not it.passed] == []
        # Of what either side fused into another operator, or merely moved, the other has nothing.
        paired = [it for it in found.tensors if not it.constant]
        known = [it.constant or it.fused or "data" in it.reason for it in found.unmatched]
        assert len(paired) > 20
        assert known.count(False) <= 0.05 * len(paired), (one, other)


@pytest.mark.parametrize("write", [write_attention, write_lstm, write_residual])
@each
def test_other_networks_are_compared(
    engine: str, write: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = write(tmp_path / "network.onnx")
    isolates = bool(engine_named(engine).isolating_driver)
    found = lar.compare(*sides(engine, model, model), isolate=isolates)
    assert found.finding == "same"
    assert any(it.is_output for it in found.tensors)
    assert not found.left_out


@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*pair, marks=[needs(it) for it in pair]) for pair in combinations(ENGINES, 2)],
)
def test_a_fault_is_named_between_any_two_engines(one: str, other: str, tmp_path: Path) -> None:
    model = MODELS / f"digits_cnn.{'mge' if one == 'megengine' else 'onnx'}"
    wrong = with_fault(DIGITS, "conv2.weight", tmp_path / "wrong.onnx")
    found = lar.compare(
        f"{model} --engine {one}", f"{wrong} --engine {other}", input=INPUTS / "digit_7.npy"
    )
    (culprit,) = found.culprits
    assert culprit.output.expected.name in ("conv2", "relu2")  # which may be in one operator
    assert culprit.proven == (other != "mnn")


@each
def test_a_dump_has_the_names_of_the_model(engine: str, tmp_path: Path) -> None:
    run(engine, DIGITS, "data:{2,1,8,8}", bin_io_dump=str(tmp_path / "dump"))
    dump = lar.open_dump(tmp_path / "dump")
    shapes = {it.name: dump.read(it.key).shape for it in dump}
    expected = {
        **{"data": (2, 1, 8, 8), "relu1": (2, 16, 8, 8), "relu2": (2, 32, 8, 8)},
        **{"pool2": (2, 32, 4, 4), "relu3": (2, 32, 4, 4), "pool3": (2, 32, 2, 2)},
        **{"features": (2, 128), "logits": (2, 10)},
    }
    assert {name: shape for name, shape in shapes.items() if name in expected} == expected
    # Conversions of layouts and what is computed of shapes are left out.
    assert not any("Convert" in name or "Shape" in name for name in shapes)


@pytest.mark.parametrize("engine", [*each_engine(), "onnxruntime", "reference"])
def test_layers_are_written_to_all_places_at_once(engine: str, tmp_path: Path) -> None:
    together = {"bin_io_dump": tmp_path / "layers", "io_dump": tmp_path / "layers.txt"}
    run(engine, DIGITS, **together)
    for option, place in together.items():
        alone = tmp_path / "alone" / place.name
        alone.parent.mkdir(exist_ok=True)
        run(engine, DIGITS, **{option: alone})
        found, wanted = lar.open_dump(place), lar.open_dump(alone)
        assert found.index.tensors == wanted.index.tensors
        assert len(found) > 3


# Profiles


@each
def test_each_iteration_has_each_operator_once(engine: str, tmp_path: Path) -> None:
    place = tmp_path / "digits.json"
    run(engine, DIGITS, iter=3, warmup_iter=2, profile=str(place))
    profile = lar.read_profile(place)
    assert profile.facts.times == ("mean" if engine == "openvino" else "each")
    assert sorted(step.number for step in profile.steps) == [-2, -1, 0, 1, 2]
    for step in profile.steps:
        own = [it for it in profile.executions if it.step == step.number]
        assert sorted(it.operator for it in own) == [*range(len(profile.operators))]
        assert all(step.start_ns <= it.start_ns <= it.end_ns <= step.end_ns for it in own)
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(own))


@each
def test_copies_and_other_shapes_are_profiled(engine: str, tmp_path: Path) -> None:
    place = tmp_path / "copies.json"
    run(engine, MODELS / "dynamic_batch.onnx", "data:{5,16}", thread=2, iter=2, profile=str(place))
    found = lar.read_profile(place)
    assert {step.copy for step in found.steps} == {0, 1}
    assert any(it.outputs[0].shape == (5, 8) for it in found.operators if it.outputs)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_fused_operator_belongs_to_the_layer_of_its_convolution(
    engine: str, tmp_path: Path
) -> None:
    text = "(float[1,16,8,8] x) => (float[1,16,8,8] y) { a = Conv(x, w) y = Relu(a) }"
    model, place = model_of(text, {"w": drawn(16, 16, 1, 1)}), tmp_path / "p.json"
    for node in model.graph.node:
        node.name = f"/stage/{node.op_type.lower()}/{node.op_type}"
    onnx.save(model, tmp_path / "m.onnx")
    run(engine, tmp_path / "m.onnx", profile=str(place))
    modules = {it.type[:4]: it.module for it in lar.read_profile(place).operators}
    assert modules["Conv"] == "stage/conv"
