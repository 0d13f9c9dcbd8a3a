"""What each layout does to the operators of a MegEngine run, and to its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engines.megengine.probed import difference, probe
from tests.engines.megengine.programs import INT8

if TYPE_CHECKING:
    from tests.conftest import RunLar


@pytest.mark.parametrize(
    ("model", "layout", "shape"),
    [
        ("digits_cnn", "nchw44", (1, 4, 8, 8, 4)),
        ("digits_cnn", "nchw44_dot", (1, 4, 8, 8, 4)),
        ("int8", "nchw44", (1, 4, 8, 8, 4)),
        ("int8", "nchw44_dot", (1, 4, 8, 8, 4)),
        # These two give wrong numbers for int8.mge: the engine's own defect.
        ("int8", "nchw4", (1, 4, 8, 8, 4)),
        ("int8", "nchw32", (1, 1, 4, 4, 32)),
        # nchw64 takes 4-bit numbers; for 8 bits it falls back to nchw32 and nchw4.
        ("int8", "nchw64", (1, 1, 4, 4, 32)),
    ],
)
def test_a_layout_blocks_the_channels_of_convolutions(
    model: str, layout: str, shape: tuple[int, ...]
) -> None:
    probed = probe("lite", model, {f"enable_{layout}": True}, dump=True)
    assert shape in probed.shapes("ConvBiasForward")
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


@pytest.mark.parametrize(
    ("model", "layout", "formats"),
    [
        ("digits_cnn", "nchw44", {"NCHW44"}),
        ("digits_cnn", "nchw44_dot", {"NCHW44"}),
        ("int8", "nchw44_dot", {"NCHW44_DOT"}),
        ("int8", "nchw4", {"NCHW4"}),
        ("int8", "nchw32", {"NCHW4", "NCHW32"}),
        ("int8", "nchw64", {"NCHW4", "NCHW32"}),
        # Only a GPU runs it; a CPU refuses at the first iteration.
        ("int8", "chwn4", {"CHWN4"}),
        ("digits_cnn", "chwn4", {"NCHW"}),
    ],
)
def test_the_graph_drivers_operators_have_the_layout(
    model: str, layout: str, formats: set[str]
) -> None:
    probed = probe("graph", model, {f"enable_{layout}": True}, iterations=0)
    assert probed.formats("ConvBiasForward") == formats
    assert "ConvolutionForward" not in probed.types


@pytest.mark.parametrize("layout", ["nchw44", "nchw44_dot"])
def test_the_graph_driver_computes_the_same_in_a_layout(layout: str) -> None:
    probed = probe("graph", "digits_cnn", {f"enable_{layout}": True})
    assert difference(probed, probe("graph", "digits_cnn")) < 1e-4


def test_a_layout_that_the_processor_cannot_run_is_refused_by_name(run_lar: RunLar) -> None:
    done = run_lar("run", INT8, "--enable-chwn4")
    assert done.returncode == 2
    assert "--enable-chwn4" in done.stderr
