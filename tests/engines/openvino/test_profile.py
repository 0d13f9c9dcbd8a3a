"""Profiles of OpenVINO: the mean time of each node, and what it works on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lar
from lar.records.profile import Profile
from tests.engines.onnx_models import DIGITS, needs, write_attention

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs("openvino")


def profiled(model: Path, place: Path, **options: Any) -> Profile:
    result = lar.run(model, engine="openvino", profile=str(place), **{"iter": 4, **options})
    assert result.status == "ok", result.failure
    return lar.read_profile(place)


def test_work_is_that_of_the_model(tmp_path: Path, run_lar: RunLar) -> None:
    profile = profiled(DIGITS, tmp_path / "profile.json")
    counted = sum(operator.flops or 0 for operator in profile.operators)
    info = json.loads(run_lar("info", str(DIGITS), "--json", "-").stdout)
    assert counted == pytest.approx(info["flops"], rel=1e-3)
    conv = next(it for it in profile.operators if it.name == "conv2")
    assert conv.weights == ("conv2.weight", "conv2.bias")
    assert (conv.reads[0], conv.writes) == ("relu1", ("relu2",))
    assert (conv.inputs[0].shape, conv.outputs[0].layout) == ((1, 16, 8, 8), "acdb")
    assert "conv" in (conv.algorithm or "")
    text = run_lar("report", str(tmp_path / "profile.json")).stdout
    assert "Operators have mean times of all iterations" in text
    assert "not recorded: when operators begin" in text


def test_open_axes_have_the_sizes_that_were_fed(tmp_path: Path) -> None:
    model = write_attention(tmp_path / "attention.onnx")
    profile = profiled(model, tmp_path / "profile.json", input="x:{3,6,16}", thread=2)
    product = next(it for it in profile.operators if it.name == "q")
    assert product.outputs[0].shape == (3, 6, 16)
    assert product.flops == 2 * 3 * 6 * 16 * 16
