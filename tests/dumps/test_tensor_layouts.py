"""Layouts of weights: the shapes that MegEngine's convolutions have them in."""

from __future__ import annotations

from lar.dumps.tensor_layouts import layout_of_weight
from tests.tables import each_row


@each_row("dumps/layouts/weights")
def test_the_layout_of_weights(
    before: str, after: str, group: bool, shape: list[int], layout: str
) -> None:
    assert layout_of_weight(tuple(shape), before, after, group) == layout
