"""Layouts of weights: the shapes that MegEngine's convolutions have them in."""

from __future__ import annotations

import pytest

from lar.dumps.tensor_layouts import layout_of_weight

SHAPES = [
    ("nchw44", "nchw44", False, (4, 1, 1, 4, 4, 4), "OIhw4i4o"),
    ("nchw44", "nchw44", True, (4, 1, 1, 4, 4, 4), "Goihw4g"),
    ("nchw44", "nchw44", True, (2, 4, 2, 3, 3, 4, 4), "gOIhw4i4o"),
    ("nchw44_dot", "nchw44_dot", False, (4, 2, 3, 3, 4, 4), "OIhw4o4i"),
    ("nchw88", "nchw88", True, (4, 1, 1, 3, 3, 8), "Goihw8g"),
    ("nchw4", "nchw4", False, (16, 2, 3, 3, 4), "oIhw4i"),
    ("nchw4", "nchw32", False, (64, 2, 3, 3, 4), "oIhw4i"),
    ("nchw32", "nchw32", False, (64, 2, 3, 3, 32), "oIhw32i"),
    ("nchw4", "nchw4", True, (2, 8, 2, 3, 3, 4), "goIhw4i"),
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
