"""Profiles of OpenVINO: the mean time of each node, and what it works on."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lar
from lar.records.profile import Profile
from tests.engines.openvino.models import DIGITS, MOBILENET, needs_openvino, write_attention

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs_openvino


def profiled(model: Path, place: Path, **options: Any) -> Profile:
    result = lar.run(model, engine="openvino", profile=str(place), **{"iter": 4, **options})
    assert result.status == "ok", result.failure
    return lar.read_profile(place)


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profile") / "profile.json"
    profiled(MOBILENET, place)
    return place


def test_times_are_means_that_fill_no_more_than_the_iteration(mobilenet: Path) -> None:
    profile = lar.read_profile(mobilenet)
    assert profile.facts.times == "mean"
    for step in profile.steps:
        own = [
            it for it in profile.executions if (it.step, it.warmup) == (step.number, step.warmup)
        ]
        assert len(own) == len(profile.operators)
        assert all(step.start_ns <= it.start_ns <= it.end_ns <= step.end_ns for it in own)
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(own))
    convolutions = [it for it in profile.operators if it.type == "Convolution"]
    assert len(convolutions) == 52
    assert all("conv" in (it.algorithm or "") for it in convolutions)


def test_work_is_that_of_the_model(tmp_path: Path, run_lar: RunLar) -> None:
    profile = profiled(DIGITS, tmp_path / "profile.json")
    counted = sum(operator.flops or 0 for operator in profile.operators)
    info = json.loads(run_lar("info", str(DIGITS), "--json", "-").stdout)
    assert counted == pytest.approx(info["flops"], rel=1e-3)
    conv = next(it for it in profile.operators if it.name == "conv2")
    assert conv.weights == ("conv2.weight", "conv2.bias")
    assert (conv.reads[0], conv.writes) == ("relu1", ("relu2",))
    assert (conv.inputs[0].shape, conv.outputs[0].layout) == ((1, 16, 8, 8), "acdb")


def test_reports_say_that_times_are_means(mobilenet: Path, run_lar: RunLar) -> None:
    text = run_lar("report", str(mobilenet)).stdout
    assert "Operators have mean times of all iterations" in text
    assert "not recorded: when operators begin" in text


def test_open_axes_have_the_sizes_that_were_fed(tmp_path: Path) -> None:
    model = write_attention(tmp_path / "attention.onnx")
    profile = profiled(model, tmp_path / "profile.json", input="x:{3,6,16}", thread=2)
    product = next(it for it in profile.operators if it.name == "q")
    assert product.outputs[0].shape == (3, 6, 16)
    assert product.flops == 2 * 3 * 6 * 16 * 16
    assert {step.copy for step in profile.steps} == {0, 1}
