"""Models as people have them: each is run, dumped, compared, packed and profiled.

It gives what ONNX Runtime gives when it is run directly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import lar
from tests.cli.failures import check_error
from tests.conftest import RunLar

node, value, sequence = (
    helper.make_node,
    helper.make_tensor_value_info,
    helper.make_tensor_sequence_value_info,
)
ML = "ai.onnx.ml"
F = T.FLOAT


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], *, opset: int = 17, **weights: Any
) -> Any:
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 21 else 10)


def decoder() -> Any:
    """The first step of a decoder: nothing is in its cache yet."""
    return model_of(
        [node("Concat", ["past", "x"], ["present"], axis=2)],
        [value("past", F, ["b", 2, "p", 4]), value("x", F, ["b", 2, "s", 4])],
        [value("present", F, ["b", 2, "p+s", 4])],
    )


def window() -> Any:
    """A convolution for whose window an axis of 1 is too small."""
    return model_of(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("GlobalMaxPool", ["c"], ["p"]),
            node("Squeeze", ["p", "last"], ["q"]),
            node("Add", ["q", "z"], ["y"]),
        ],
        [value("x", F, ["batch", 4, "n"]), value("z", F, ["batch", 4])],
        [value("y", F, ["batch", 4])],
        w=np.linspace(-1, 1, 48, dtype="f4").reshape(4, 4, 3),
        last=np.array([2]),
    )


def optional() -> Any:
    weight = np.array([1, 2, 3], "f4")
    inputs = [value("x", F, [3]), value("w", F, [3])]
    return model_of([node("Add", ["x", "w"], ["y"])], inputs, [value("y", F, [3])], w=weight)


def all_optional() -> Any:
    inputs = [value("w", F, [3]), value("b", F, [3])]
    nodes, held = [node("Add", ["w", "b"], ["y"])], np.ones(3, "f4")
    return model_of(nodes, inputs, [value("y", F, [3])], w=held, b=held)


def without_inputs() -> Any:
    constant = numpy_helper.from_array(np.arange(4, dtype="f4"), "c")
    nodes = [node("Constant", [], ["c"], value=constant), node("Relu", ["c"], ["y"])]
    return model_of(nodes, [], [value("y", F, [4])])


def classifier() -> Any:
    """As scikit-learn's are exported: texts in, a label and a map of probabilities out."""
    given = onnx.ValueInfoProto(name="p")
    return model_of(
        [
            node(
                "LabelEncoder",
                ["x"],
                ["n"],
                domain=ML,
                keys_strings=["a", "b"],
                values_floats=[0.2, 0.8],
            ),
            node("Sub", ["one", "n"], ["m"]),
            node("Concat", ["m", "n"], ["rows"], axis=1),
            node("ZipMap", ["rows"], ["p"], domain=ML, classlabels_strings=["cat", "größer"]),
            node("ArgMax", ["rows"], ["best"], axis=1, keepdims=0),
            node(
                "LabelEncoder",
                ["best"],
                ["label"],
                domain=ML,
                keys_int64s=[0, 1],
                values_strings=["cat", "größer"],
            ),
        ],
        [value("x", T.STRING, [None, 1])],
        [onnx.ValueInfoProto(name="label"), given],
        one=np.float32(1),
    )


def through_float(kind: int) -> Any:
    nodes = [
        node("Cast", ["x"], ["f"], to=F),
        node("Relu", ["f"], ["r"]),
        node("Cast", ["r"], ["y"], to=kind),
    ]
    return model_of(nodes, [value("x", kind, ["n", 3])], [value("y", kind, ["n", 3])], opset=21)


def joined() -> Any:
    """A sequence goes in."""
    nodes = [node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    return model_of(nodes, [sequence("s", F, ["n", 3])], [value("y", F, ["m", 3])])


def split() -> Any:
    """A sequence comes out."""
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=0)]
    return model_of(nodes, [value("x", F, ["m", 3])], [sequence("s", F, None)])


def of_any_rank() -> Any:
    return model_of([node("Relu", ["x"], ["y"])], [value("x", F, None)], [value("y", F, None)])


KINDS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "decoder": (decoder, ["--input", "past:{1,2,0,4};x:{1,2,3,4}"]),
    "empty": (lambda: relu([0, 4]), []),
    "window": (window, ["--shape", "batch=3,n=9"]),
    "optional": (optional, ["--input", "x:[1.0,2,3];w:[10.0,10,10]"]),
    "left out": (optional, ["--input", "x:[1.0,2,3]"]),
    "without inputs": (without_inputs, []),
    "all optional": (all_optional, []),
    "classifier": (classifier, ["--input", 'x:[["a"],["b"],["a"]]']),
    "bfloat16": (lambda: through_float(T.BFLOAT16), ["--input", "x:[[1.0,2,3.3],[4,5,6]]"]),
    "float8": (lambda: through_float(T.FLOAT8E4M3FN), ["--shape", "n=2"]),
    "joined": (joined, ["--input", "s:{1,3};s:{2,3}"]),
    "split": (split, ["--shape", "m=3"]),
    "any rank": (of_any_rank, ["--input", "x:{2,3,1}"]),
    "negative": (lambda: relu([-1, 3]), ["--shape", "x[0]=2"]),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def relu(shape: list[Any]) -> Any:
    return model_of([node("Relu", ["x"], ["y"])], [value("x", F, shape)], [value("y", F, shape)])


@pytest.fixture
def made(tmp_path: Path, kind: str) -> tuple[str, list[str]]:
    """A model of a kind, and the flags that feed it."""
    make, flags = (KINDS | WRONG)[kind]
    onnx.save(make(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx"), flags


@each_kind
def test_every_kind_is_compared_with_the_truth(
    run_lar: RunLar, made: tuple[str, list[str]]
) -> None:
    model, flags = made
    done = run_lar("compare", model, model, "--truth", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "result: the same within the tolerance" in done.stdout
    assert "A rounds as it must" in done.stdout


@each_kind
def test_every_kind_is_profiled_and_its_outputs_are_dumped(
    run_lar: RunLar, made: tuple[str, list[str]], tmp_path: Path
) -> None:
    model, flags = made
    written = ["--profile", "p.json", "--bin-out-dump", "out"]
    done = run_lar(model, "--iter", "2", *flags, *written, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {tensor.run for tensor in lar.open_dump(tmp_path / "out")} == {0, 1, 2}
    assert run_lar("report", "p.json", cwd=tmp_path).returncode == 0


@each_kind
def test_every_kind_is_packed_and_judged(
    run_lar: RunLar, made: tuple[str, list[str]], tmp_path: Path
) -> None:
    model, flags = made
    data = ["-d", flags[-1]] if "--input" in flags else ["-d", "#rand(0,1)", *flags]
    done = run_lar("pack", model, *data, "-o", "packed", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for engine in ("onnxruntime", "reference"):
        done = run_lar("packed", "--iter", "1", "--engine", engine, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("decoder", {"past": np.zeros((1, 2, 0, 4), "f4"), "x": np.ones((1, 2, 3, 4), "f4")}),
        ("optional", {"x": np.ones(3, "f4"), "w": np.full(3, 10, "f4")}),
        ("optional", {"x": np.ones(3, "f4")}),
        ("without inputs", {}),
        ("classifier", {"x": np.array([["a"], ["b"]])}),
        ("window", {"x": np.ones((2, 4, 5), "f4"), "z": np.ones((2, 4), "f4")}),
        ("split", {"x": np.arange(6, dtype="f4").reshape(2, 3)}),
        ("any rank", {"x": np.full((2, 1, 3), -1, "f4")}),
    ],
)
def test_every_kind_gives_what_onnx_runtime_gives(
    made: tuple[str, list[str]], given: dict[str, Any]
) -> None:
    model, _ = made
    found = lar.run(model, given or None, iter=2, keep_outputs=True)
    assert found.status == "ok", found.failure
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted: dict[str, Any] = {}
    for output, expected in zip(session.get_outputs(), session.run(None, given), strict=True):
        if not isinstance(expected, list):
            wanted[output.name] = expected
        elif isinstance(expected[0], dict):
            for key in expected[0]:
                wanted[f"{output.name}[{key}]"] = [each[key] for each in expected]
        else:
            wanted |= {f"{output.name}[{at}]": each for at, each in enumerate(expected)}
    assert [*found.arrays] == [*wanted]
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(array, wanted[name])


@pytest.mark.parametrize(
    ("kind", "flags", "pieces"),
    [
        (
            "window",
            [],
            [
                "failed in Conv",
                "lar took batch, n as 1",
                "--shape 'batch=1,n=64'",
                "x:{1,4,64};z:{1,4}",
            ],
        ),
        (
            "window",
            ["--input", "x:{3,4,9};z:{2,4}"],
            ["axis batch of input z is 2, and 3 in input x"],
        ),
        ("window", ["--shape", "batch=3,n=9", "--input", "x:{2,4,9}"], ["is 2, and 3 in --shape"]),
        (
            "window",
            ["--shape", "b=3"],
            ["--shape: b: no input has such an axis", "axes are batch, n"],
        ),
        (
            "window",
            ["--shape", "batch=3,n=9", "--batch-size", "2"],
            ["axis batch of input x is 2, and 3 in --shape"],
        ),
        ("window", ["--shape", "batch=many"], ["'batch=many' gives no sizes of axes"]),
        ("window", ["--input", "x:{2,4}"], ["{2,4} has 2 axes, {batch,4,n} of input x has 3"]),
        ("empty", ["--input", "x:{1,4}"], ["axis 0 must be 0"]),
        (
            "any rank",
            [],
            ["nothing feeds x, which may have any number of axes", "x:{1,64} generates"],
        ),
        ("joined", [], ["nothing feeds s, a sequence", "s:{1,64} generates"]),
        ("without inputs", ["--input", "1,2"], ["the model has no inputs"]),
        ("optional", ["--input", "v:[1,2,3]"], ["no input 'v'", "its inputs are x"]),
        ("classifier", ["--input", "x:[[1],[2]]"], ["holds int64, the model takes string"]),
        ("bfloat16", ["--input", "x:[[1,2,1e39]]"], ["out of the range of bfloat16"]),
        ("rate", ["--input", "rate:[16000]"], ["it takes one number: rate:16000"]),
        (
            "semicolon",
            ["--input", "a;b:[1,2]"],
            ["the name of the input holds a ;", '.json file feeds it: {"a;b"'],
        ),
        ("complex", [], ["it has tensors of complex64, which ONNX Runtime has not"]),
        ("int4", [], ["the model's input x is a tensor(int4), which lar cannot feed"]),
        ("index", [], ["failed in Gather", "out of data bounds"]),
    ],
)
def test_what_is_wrong_with_an_input_is_told_with_what_to_type(
    run_lar: RunLar, made: tuple[str, list[str]], flags: list[str], pieces: list[str]
) -> None:
    done = run_lar(made[0], "--iter", "1", *flags)
    check_error(done, done.returncode, *pieces)
    assert done.returncode in (2, 4)
    assert "try fewer options" not in done.stderr


WRONG: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "rate": (
        lambda: model_of(
            [node("Abs", ["rate"], ["y"])], [value("rate", F, [])], [value("y", F, [])]
        ),
        [],
    ),
    "semicolon": (
        lambda: model_of(
            [node("Abs", ["a;b"], ["y"])], [value("a;b", F, [2])], [value("y", F, [2])]
        ),
        [],
    ),
    "complex": (lambda: identity(T.COMPLEX64), []),
    "int4": (
        lambda: model_of(
            [node("DequantizeLinear", ["x", "k"], ["y"])],
            [value("x", T.INT4, [4])],
            [value("y", F, [4])],
            opset=21,
            k=np.float32(1),
        ),
        [],
    ),
    "index": (
        lambda: model_of(
            [node("Gather", ["table", "x"], ["y"])],
            [value("x", T.INT64, [9])],
            [value("y", F, [9, 2])],
            table=np.ones((1, 2), "f4"),
        ),
        [],
    ),
}


def identity(kind: int) -> Any:
    return model_of(
        [node("Identity", ["x"], ["y"])], [value("x", kind, [3])], [value("y", kind, [3])]
    )


def test_only_what_is_given_must_be_given(run_lar: RunLar, tmp_path: Path) -> None:
    onnx.save(window(), tmp_path / "m.onnx")
    done = run_lar("m.onnx", "--iter", "1", "--input", "x:{3,4,9}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--input: z is not given, and generated: float32 {3,4} (uniform, seed 0)" in done.stderr


def test_what_a_dump_was_fed_with_feeds_the_other_side(run_lar: RunLar, tmp_path: Path) -> None:
    for kind in ("classifier", "joined", "bfloat16", "without inputs", "empty"):
        make, flags = KINDS[kind]
        onnx.save(make(), tmp_path / "m.onnx")
        dump = ["--bin-io-dump", "dump", "--overwrite", "--iter", "1"]
        assert run_lar("m.onnx", *flags, *dump, cwd=tmp_path).returncode == 0
        done = run_lar("compare", "dump", "m.onnx", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "result: the same within the tolerance" in done.stdout


def test_a_shape_is_recorded_and_varies(run_lar: RunLar, tmp_path: Path) -> None:
    onnx.save(window(), tmp_path / "m.onnx")
    vary = ["--vary", "shape={batch=1,n=9},{batch=4,n=9}"]
    done = run_lar("bench", "m.onnx", *vary, "--budget", "0.1", "--json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bench = lar.read_bench((tmp_path / "b.json").read_text())
    specs = [variant.spec for variant in bench.variants]
    assert [spec.shape for spec in specs if spec] == [{"batch": 1, "n": 9}, {"batch": 4, "n": 9}]


def test_info_counts_at_a_shape(run_lar: RunLar, tmp_path: Path) -> None:
    onnx.save(window(), tmp_path / "m.onnx")
    lines = run_lar("info", "m.onnx", cwd=tmp_path).stdout
    assert "input   x     float32  {batch,4,n}" in lines
    assert "FLOPs: N/A" in lines
    for flags in (["--shape", "batch=2,n=9"], ["--input", "x:{2,4,9}"]):
        lines = run_lar("info", "m.onnx", *flags, cwd=tmp_path).stdout
        assert "FLOPs: 1,408;" in lines
        assert "memory: inputs 320 B, outputs 32 B, between operators 288 B" in lines
        assert "at: x {2,4,9}, z {2,4}" in lines
    onnx.save(optional(), tmp_path / "m.onnx")
    assert "optional input  w " in run_lar("info", "m.onnx", cwd=tmp_path).stdout
    onnx.save(relu([-1, 3]), tmp_path / "m.onnx")
    assert "{?,3}" in run_lar("info", "m.onnx", cwd=tmp_path).stdout
