"""Layouts of weights: the shapes that MegEngine's convolutions have them in."""

from __future__ import annotations

import pytest

from lar.dumps.dump import DumpedOperator, DumpedTensor
from lar.dumps.tensor_layouts import layout_of_weight, layouts_of_operator

SHAPES = [
    ("nchw44", "nchw44", False, (4, 2, 3, 3, 4, 4), "OIhw4i4o"),
    ("nchw44", "nchw44", False, (4, 1, 1, 4, 4, 4), "OIhw4i4o"),
    ("nchw44", "nchw44", True, (4, 1, 1, 4, 4, 4), "Goihw4g"),
    ("nchw44", "nchw44", False, (4, 1, 1, 3, 3, 4), "Goihw4g"),
    ("nchw44", "nchw44", True, (2, 4, 2, 3, 3, 4, 4), "gOIhw4i4o"),
    ("nchw44", "nchw44", False, (4, 3, 3, 3, 4), "Ohwi4o"),
    ("nchw44_dot", "nchw44_dot", False, (4, 2, 3, 3, 4, 4), "OIhw4o4i"),
    ("nchw88", "nchw88", False, (4, 2, 3, 3, 8, 8), "OIhw8i8o"),
    ("nchw88", "nchw88", True, (4, 1, 1, 3, 3, 8), "Goihw8g"),
    ("nchw4", "nchw4", False, (16, 2, 3, 3, 4), "oIhw4i"),
    ("nchw4", "nchw32", False, (64, 2, 3, 3, 4), "oIhw4i"),
    ("nchw32", "nchw32", False, (64, 2, 3, 3, 32), "oIhw32i"),
    ("nchw4", "nchw4", True, (2, 8, 2, 3, 3, 4), "goIhw4i"),
    ("chwn4", "chwn4", False, (2, 3, 3, 16, 4), "Ihwo4i"),
    ("nchw", "nchw", False, (16, 8, 3, 3), ""),
    ("nchw44", "nchw44", False, (16, 8, 3, 3), ""),
    ("nhwcd4", "nhwcd4", False, (4, 3, 3, 2, 16), ""),
    ("", "", False, (4, 2, 3, 3, 4, 4), ""),
]


@pytest.mark.parametrize(("before", "after", "group", "shape", "layout"), SHAPES)
def test_the_layout_of_weights(
    before: str, after: str, group: bool, shape: tuple[int, ...], layout: str
) -> None:
    assert layout_of_weight(shape, before, after, group) == layout


# What a convolution over two axes gives, and its weights: their shapes say the layout.
CONVOLUTIONS = [
    ((1, 4, 5, 5, 4), (4, 2, 3, 3, 4, 4), "nchw44"),
    ((1, 4, 5, 5, 4), (16, 2, 3, 3, 4), "nchw4"),
    ((4, 5, 5, 2, 4), (2, 3, 3, 16, 4), "chwn4"),
    ((1, 2, 5, 5, 8), (2, 1, 3, 3, 8, 8), "nchw88"),
    ((1, 2, 5, 5, 32), (64, 2, 3, 3, 32), "nchw32"),
    ((1, 2, 5, 5, 64), (128, 1, 3, 3, 64), "nchw64"),
    ((1, 2, 5, 5, 65), (130, 1, 3, 3, 65), ""),
    ((1, 2, 5, 5), (2, 1, 3, 3), ""),
]


@pytest.mark.parametrize(("given", "weight", "layout"), CONVOLUTIONS)
def test_a_convolution_without_a_format_has_that_of_its_shapes(
    given: tuple[int, ...], weight: tuple[int, ...], layout: str
) -> None:
    operator = DumpedOperator(
        key="conv", name="conv", type="ConvolutionForward", inputs=("x", "w"), outputs=("y",)
    )
    tensors = {
        key: DumpedTensor(key=key, name=key, dtype="float32", shape=shape)
        for key, shape in (("x", given), ("w", weight), ("y", given))
    }
    assert layouts_of_operator(operator, tensors) == (layout, layout)
    without = DumpedOperator(key="conv", name="conv", type="Elemwise", inputs=("x", "w"))
    assert layouts_of_operator(without, tensors) == ("", "")
