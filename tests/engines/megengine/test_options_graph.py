"""What the options that change the graph of MegEngine do to its operators, layouts and memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from tests.engines.megengine.probed import difference, probe
from tests.engines.runs import failure_of, run_ok
from tests.tables import each_row


def test_inference_optimisation_leaves_fewer_operators() -> None:
    plain = probe("graph", "digits_cnn", {})
    optimized = probe("graph", "digits_cnn", {"optimize_for_inference": True})
    assert optimized.types["Elemwise"] < plain.types["Elemwise"]
    assert optimized.types["ConvolutionForward"] == plain.types["ConvolutionForward"] == 3
    assert difference(optimized, plain) < 1e-4


@pytest.mark.parametrize(
    "key",
    # A sum to fuse (z) needs quantised tensors, which the models have none of.
    ["enable_fuse_conv_bias_nonlinearity", "enable_fuse_conv_bias_with_z"],
)
def test_bias_and_activation_are_fused_into_the_convolution(key: str) -> None:
    fused, plain = probe("graph", "digits_cnn", {key: True}), probe("graph", "digits_cnn")
    assert fused.types["ConvBiasForward"] == plain.types["ConvolutionForward"] == 3
    assert fused.types["ConvolutionForward"] == plain.types["ConvBiasForward"] == 0
    found = {each["nonlinearity"] for each in fused.operators if each["nonlinearity"]}
    assert found == {"RELU"}
    assert difference(fused, plain) < 1e-4


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_a_preprocessed_input_gives_the_same_numbers(driver: str) -> None:
    """It fuses the cast, padding and transposition of a quantised image, which no model has; the
    graph driver optimises the graph for inference with it."""
    fused = probe(driver, "uint8_input", {"enable_fuse_preprocess": True})
    plain = probe(driver, "uint8_input")
    assert difference(fused, plain) < 1e-3
    if driver == "graph":
        assert fused.types["Elemwise"] < plain.types["Elemwise"]


def test_floats_are_halved() -> None:
    """Its numbers are wrong on a CPU, where the engine's max-pooling of float16 is."""
    probed = probe("graph", "digits_cnn", {"enable_ioc16": True})
    for kind in ("ConvolutionForward", "MatrixMul", "PoolingForward"):
        found = {each["dtype"] for each in probed.operators if each["type"] == kind}
        assert found == {"float16"}
    (output,) = probed.outputs[-1].values()
    assert np.shape(output) == (1, 10)
    assert probe("graph", "digits_cnn").operators[-1]["dtype"] == "float32"


def occupied(chunks: Sequence[tuple[int, int]]) -> int:
    """Return how many bytes the chunks take, those that share a place counted once."""
    total, end = 0, 0
    for place, size in sorted(chunks):
        total += max(0, place + size - max(place, end))
        end = max(end, place + size)
    return total


def test_without_memory_optimisation_operators_share_none() -> None:
    plain = probe("graph", "digits_cnn")
    spread = probe("graph", "digits_cnn", {"disable_mem_opt": True})
    assert occupied(spread.memory) == sum(size for _, size in spread.memory)
    assert occupied(plain.memory) < sum(size for _, size in plain.memory)
    assert occupied(spread.memory) > occupied(plain.memory)
    assert difference(spread, plain) < 1e-4


# Layouts


@each_row("engines/megengine/layouts/shapes")
def test_a_layout_blocks_the_channels_of_convolutions(
    model: str, layout: str, shape: list[int]
) -> None:
    """nchw4 and nchw32 give wrong numbers for int8.mge: the engine's own defect. nchw64 takes
    4-bit numbers; for 8 bits it falls back to nchw32 and nchw4."""
    probed = probe("lite", model, {f"enable_{layout}": True}, dump=True)
    assert tuple(shape) in probed.shapes("ConvBiasForward")
    plain = probe("lite", model, dump=True)
    convolutions = plain.shapes("ConvolutionForward") + plain.shapes("ConvBiasForward")
    assert {len(shape) for shape in convolutions} == {4}
    if layout.startswith("nchw44"):
        assert difference(probed, plain) < 1e-4


@pytest.mark.parametrize("layout", ["nchw4", "nchw32", "nchw64"])
def test_a_layout_for_integers_leaves_floats_as_they_are(layout: str) -> None:
    probed = probe("lite", "digits_cnn", {f"enable_{layout}": True}, dump=True)
    # Every layout has bias and activation fused, and this one nothing more.
    assert "ConvolutionForward" not in probed.dumped()
    assert {len(shape) for shape in probed.shapes("ConvBiasForward")} == {4}
    assert difference(probed, probe("lite", "digits_cnn", dump=True)) < 1e-4


@pytest.mark.parametrize("model", ["digits_cnn", "int8"])
def test_nhwcd4_makes_images_of_the_tensors(model: str) -> None:
    probed = probe("lite", model, {"enable_nhwcd4": True}, dump=True)
    plain = probe("lite", model, dump=True)
    assert all("I2D" in layout for layout, _ in probed.dumped()["ConvBiasForward"])
    assert "RelayoutFormat" in probed.dumped()
    assert "I2D" not in plain.dump
    assert difference(probed, plain) < 1e-4


@each_row("engines/megengine/layouts/formats")
def test_the_graph_drivers_operators_have_the_layout(
    model: str, layout: str, formats: list[str]
) -> None:
    """Only a GPU runs chwn4 of integers; a CPU refuses at the first iteration."""
    probed = probe("graph", model, {f"enable_{layout}": True}, iterations=0)
    assert probed.formats("ConvBiasForward") == {*formats}
    assert "ConvolutionForward" not in probed.types


# --get-static-mem-info: the files are whole, and tell of the graph that runs


DIGITS = Path(__file__).resolve().parents[3] / "models" / "digits_cnn.mge"


def read_plan(folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a model, and return what is in the two files."""
    run_ok(DIGITS, iter=1, get_static_mem_info=folder, **options)
    assert {path.name for path in folder.iterdir()} == {"graph.json", "StaticMemoryInfo.json"}
    graph = json.loads((folder / "graph.json").read_text())
    return graph, json.loads((folder / "StaticMemoryInfo.json").read_text())


def test_the_plan_has_all_operators_and_their_memory(tmp_path: Path) -> None:
    read_plan(tmp_path / "plan with space")
    graph, plan = read_plan(tmp_path / "plan with space", overwrite=True)
    kinds = [operator["type"] for operator in graph["operator"].values()]
    assert kinds.count("ConvolutionForward") == 3
    names = {graph["operator"][number]["name"] for number in graph["comp_seq"]}
    assert names == {operator["name"] for operator in plan["opr"].values()}
    shares = [variable["mem_plan"] for variable in graph["var"].values() if variable["mem_plan"]]
    assert {share["mem_chunk_id"] for share in shares} == graph["mem_chunk"].keys()
    chunks = plan["chunk"].values()
    assert {chunk["type"] for chunk in chunks} == {"static_mem", "weight_mem"}
    for chunk in chunks:
        assert 0 <= int(chunk["time_begin"]) < int(chunk["time_end"]) <= len(plan["opr"])
        assert 0 <= int(chunk["logic_addr_begin"]) < int(chunk["logic_addr_end"])
    weights = {chunk["overwrite_dest_id"] for chunk in chunks if chunk["type"] == "weight_mem"}
    assert weights == {"-1"}


def test_it_is_of_the_optimised_graph(tmp_path: Path) -> None:
    graph, _ = read_plan(tmp_path / "plan", enable_fuse_conv_bias_nonlinearity=True)
    kinds = [operator["type"] for operator in graph["operator"].values()]
    assert kinds.count("ConvBiasForward") == 3


def test_a_run_that_plans_nothing_leaves_nothing(tmp_path: Path) -> None:
    result = lar.run(DIGITS, get_static_mem_info=tmp_path / "plan", iter=1, input=["{1,1,1,1}"])
    assert "MegEngine cannot run the model" in failure_of(result).message
    assert list(tmp_path.iterdir()) == []
