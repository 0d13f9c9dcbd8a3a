"""What a report says of a step adds up to the step, on real models."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.profiles.breakdown import CPU_EXEC, breakdown_of
from lar.profiles.costs import fit_to_plain
from lar.profiles.rows import rows_of
from lar.profiles.times import self_times_of

needs_megengine = pytest.mark.skipif(
    find_spec("megengine") is None, reason="MegEngine is not installed"
)
MODELS = [
    pytest.param("digits_cnn.mge", (), marks=needs_megengine),
    pytest.param("int8.mge", (), marks=needs_megengine),
    ("digits_cnn.onnx", ()),
    ("int8.onnx", ()),
    ("digits_cnn.onnx", ("--thread", "2")),
    ("loop", ()),
]


@pytest.fixture(scope="session")
def loop_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop of 20 products."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, type: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, type, shape)

    square = (256, 256)
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "weights"], ["b"], "body_mm"),
            helper.make_node("Identity", ["go_in"], ["go"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64),
            value("go_in", TensorProto.BOOL),
            value("a", TensorProto.FLOAT, *square),
        ],
        [value("go", TensorProto.BOOL), value("b", TensorProto.FLOAT, *square)],
    )
    weights = np.eye(256, dtype=np.float32)
    constants = {"count": np.array(20), "start": np.array(True), "weights": weights}
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "start", "x"], ["y"], "loop", body=body)],
        "graph",
        [value("x", TensorProto.FLOAT, *square)],
        [value("y", TensorProto.FLOAT, *square)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path_factory.mktemp("loop") / "loop.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(("model", "flags"), MODELS)
def test_operators_and_the_rest_are_the_step(
    model: str,
    flags: tuple[str, ...],
    run_lar: Callable[..., Any],
    root: Path,
    loop_model: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.json"
    place = loop_model if model == "loop" else root / "models" / model
    done = run_lar(str(place), "--iter", "8", "--profile", str(path), *flags)
    assert done.returncode == 0, done.stderr
    profile = fit_to_plain(lar.read_profile(path))
    own: dict[int, int] = {}
    for each, ns in zip(profile.timed_executions, self_times_of(profile), strict=True):
        own[each.step] = own.get(each.step, 0) + ns
    for step in breakdown_of(profile):
        rest = sum(ns for name, ns in step.buckets_ns.items() if name != CPU_EXEC)
        assert own[step.number] + rest == pytest.approx(step.total_ns, rel=0.01)
    if model == "loop":
        products, *others = rows_of(profile)
        assert products.name == "body_mm"
        loop = next(row for row in others if row.name == "loop")
        assert loop.total_ns >= products.times.total_ns
        assert sum(row.share for row in (products, *others)) == pytest.approx(1)
