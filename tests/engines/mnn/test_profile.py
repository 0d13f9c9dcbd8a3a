"""Profiles of MNN: a time for each operator of each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lar
from tests.engines.onnx_models import DIGITS, MOBILENET, needs

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs("mnn")


def test_operators_have_names_shapes_and_work(tmp_path: Path) -> None:
    place = tmp_path / "mobilenet.json"
    result = lar.run(MOBILENET, engine="mnn", iter=1, profile=str(place))
    assert result.status == "ok", result.failure
    profile = lar.read_profile(place)
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
