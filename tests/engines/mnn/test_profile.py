"""Profiles of MNN: a time for each operator of each iteration."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lar
from lar.records.profile import Profile
from tests.engines.mnn.models import DIGITS, MOBILENET, MODELS, needs_mnn

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs_mnn


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    place = tmp_path_factory.mktemp("profile") / "mobilenet.json"
    result = lar.run(MOBILENET, engine="mnn", iter=3, warmup_iter=2, profile=str(place))
    assert result.status == "ok", result.failure
    return lar.read_profile(place)


def test_each_iteration_has_each_operator_once(profile: Profile) -> None:
    steps = [*profile.steps]
    assert sorted(step.number for step in steps) == [-2, -1, 0, 1, 2]
    for step in steps:
        own = [it for it in profile.executions if it.step == step.number]
        assert sorted(it.operator for it in own) == [*range(len(profile.operators))]
        assert all(step.start_ns <= it.start_ns <= it.end_ns <= step.end_ns for it in own)
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(own))


def test_operators_have_names_shapes_and_work(profile: Profile) -> None:
    stem = next(it for it in profile.operators if it.name == "stem")
    assert stem.type == "Convolution"
    assert [it.shape for it in stem.inputs] == [(1, 3, 224, 224)]
    assert [it.shape for it in stem.outputs] == [(1, 16, 112, 112)]
    assert stem.flops == 2 * 16 * 112 * 112 * 27
    assert stem.writes == ("stem.relu",)
    assert stem.size_bytes == 4 * (3 * 224 * 224 + 16 * 112 * 112 + 27 * 16 + 16)
    block = next(it for it in profile.operators if it.name == "block2.sum")
    assert (block.module, block.parameters) == ("block2", {"mode": "add"})
    assert profile.facts.threads in (1, 2, 3, 4)
    assert any("MNN calls lar around each operator" in line for line in profile.facts.dropped)


def test_the_report_and_a_comparison_read_it(run_lar: RunLar, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    for engine, place in {"mnn": ours, "onnxruntime": theirs}.items():
        flags = ["--engine", engine, "--iter", "2", "--profile", str(place)]
        assert run_lar(str(DIGITS), *flags).returncode == 0
    assert "conv2" in run_lar("report", str(ours)).stdout
    assert run_lar("report", str(ours), "--against", str(theirs)).returncode in (0, 1, 2)


def test_copies_and_other_shapes_are_profiled(run_lar: RunLar, tmp_path: Path) -> None:
    place = tmp_path / "copies.json"
    flags = ["--engine", "mnn", "--thread", "2", "--iter", "2", "--profile", str(place)]
    model = MODELS / "dynamic_batch.onnx"
    assert run_lar(str(model), "--input", "{5,16}", *flags).returncode == 0
    found = lar.read_profile(place)
    assert {step.copy for step in found.steps} == {0, 1}
    assert any(it.outputs[0].shape == (5, 8) for it in found.operators if it.outputs)
