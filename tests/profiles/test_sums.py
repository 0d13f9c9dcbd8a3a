"""What a report says of a step adds up to the step, on real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import lar
from lar.profiles.breakdown import CPU_EXEC, breakdown_of
from lar.profiles.costs import fit_to_plain
from lar.profiles.rows import rows_of
from lar.profiles.times import self_times_of
from tests.cli.marks import needs_megengine
from tests.comparison.exported_models import FLOAT, Models, body_of, draw, model_of, node
from tests.conftest import RunLar

MODELS = [
    pytest.param("int8.mge", (), marks=needs_megengine),
    ("int8.onnx", ()),
    ("digits_cnn.onnx", ("--thread", "2")),
    ("loop", ()),
]


@pytest.fixture(scope="module")
def loop_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop of 20 products."""
    square = [256, 256]
    products = [node("MatMul", "a weights", "product"), node("Identity", "going", "on")]
    carried: dict[str, tuple[int, list[int] | None]]
    carried = {"i": (TensorProto.INT64, []), "going": (TensorProto.BOOL, []), "a": (FLOAT, square)}
    loop = node("Loop", "count start x", "y", body=body_of(products, "on product", carried))
    weights = {"count": np.int64(20), "start": np.True_, "weights": np.eye(256, dtype=np.float32)}
    network = model_of([loop], {"x": draw(*square)}, {"y": FLOAT}, weights)
    return Models(tmp_path_factory.mktemp("loop")).write(network).path


@pytest.mark.parametrize(("model", "flags"), MODELS)
def test_operators_and_the_rest_are_the_step(
    model: str,
    flags: tuple[str, ...],
    run_lar: RunLar,
    root: Path,
    loop_model: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.json"
    place = loop_model if model == "loop" else root / "models" / model
    run_lar(str(place), "--iter", "8", "--profile", str(path), *flags, code=0)
    profile = fit_to_plain(lar.read_profile(path))
    own: dict[int, int] = {}
    for each, ns in zip(profile.timed_executions, self_times_of(profile), strict=True):
        own[each.step] = own.get(each.step, 0) + ns
    for step in breakdown_of(profile):
        rest = sum(ns for name, ns in step.buckets_ns.items() if name != CPU_EXEC)
        assert own[step.number] + rest == pytest.approx(step.total_ns, rel=0.01)
    if model == "loop":
        products, *others = rows_of(profile)
        assert products.name == "product"
        assert next(row for row in others if row.name == "y").total_ns >= products.times.total_ns
        assert sum(row.share for row in (products, *others)) == pytest.approx(1)
