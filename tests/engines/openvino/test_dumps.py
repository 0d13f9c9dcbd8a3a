"""Dumps of OpenVINO: the tensors of the executed graph, and their twins on other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines import engine_named
from lar.engines.openvino.driver import CompiledDriver
from lar.records.run import RunContext, RunSpec
from tests.engines.onnx_models import DIGITS, MODELS, needs, save_named, text_of
from tests.engines.test_onnx_engines import sides

pytestmark = needs("openvino")


def test_the_graph_is_that_which_runs_without_a_dump(resnet18: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    dumped = lar.run(resnet18, engine="openvino", iter=1, bin_io_dump=str(folder))
    assert dumped.outputs == lar.run(resnet18, engine="openvino", iter=1).outputs
    dump = lar.open_dump(folder)
    operators = {it.key: it for it in dump.index.operators}
    sums = [
        operators[tensor.operator].parameters["steps"]
        for tensor in dump
        if tensor.name.startswith("layer") and tensor.name.endswith(".relu")
    ]
    # Sums are computed by the convolution before them, which no added result has undone.
    assert len(sums) == 8
    assert all(steps.split(",")[0] == "conv" and "sum" in steps for steps in sums)
    assert [tensor.name for tensor in dump].count("logits") == 1


def test_a_residual_network_takes_few_models(
    resnet18: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    spec = RunSpec(
        model=str(resnet18), engine="openvino", driver="compiled", settings={"bin_io_dump": "dump"}
    )
    folder = tmp_path / "dump"
    context = RunContext(written={"bin_io_dump": str(folder)})
    driver = CompiledDriver(spec, engine_named("openvino").rows, context)
    compile_one = driver.compile

    def compile_noted(model: Any) -> Any:
        compiled.append(model)
        return compile_one(model)

    monkeypatch.setattr(driver, "compile", compile_noted)
    driver.load()
    driver.feed({"data": np.ones((1, 3, 224, 224), np.float32)})
    # That of the run, one with all tensors, one with those that are taken alone, one cut at others.
    assert len(compiled) == 4
    assert sum(b"relu" in path.read_bytes()[:4000] for path in folder.iterdir()) > 16


def test_what_cannot_be_taken_out_is_said(tmp_path: Path) -> None:
    lar.run(MODELS / "int8.onnx", engine="openvino", iter=1, bin_io_dump=str(tmp_path / "dump"))
    dump = lar.open_dump(tmp_path / "dump")
    names = {tensor.name for tensor in dump}
    assert {"conv1", "conv2", "conv3", "logits"} <= names
    assert not names & dump.index.left_out.keys()
    reasons = dump.index.left_out.values()
    assert all("OpenVINO executes other operators" in reason for reason in reasons)


def test_integers_of_64_bits_are_dumped(tmp_path: Path) -> None:
    """OpenVINO computes them in 32 bits, and calls what gives them otherwise."""
    model = save_named(tmp_path / "integers.onnx", text_of("integers"))
    found = lar.compare(*sides("openvino", model, model))
    names = {it.expected.name for it in found.tensors if it.passed}
    assert names == {"x", "f", "a", "y", "whole", "b", "found"}


def test_integers_have_their_scales(root: Path) -> None:
    image, quantised = f"{root}/inputs/digit_7.npy", MODELS / "int8.onnx"
    alike = lar.compare(*sides("openvino", quantised, quantised), input=image)
    # Without VNNI, x86 CPUs cut sums of products of 8 bits to 16 bits.
    assert alike.finding == "same" or "vnni" not in Path("/proc/cpuinfo").read_text()
    lone = {it.tensor.operator_type for it in alike.unmatched if it.side == "expected"}
    # Parameters of a model have twins too; these are what operators compute.
    assert lone <= {"Initializer"}
    rounded = lar.compare(*sides("openvino", DIGITS, quantised), input=image)
    assert (rounded.finding, rounded.precision) == ("same", "int8")
