"""Tensors in blocked layouts, as engines store them."""

from __future__ import annotations

from lar.dumps import Array, layouts
from lar.dumps.layouts import axes_of


def to_blocked(array: Array, layout: str) -> Array:
    """Return a tensor of plain axes in a blocked layout, the last blocks filled up with zeros."""
    axes = axes_of(layout)
    sizes = dict(zip(axes.plain, array.shape, strict=True))
    blocks = dict(axes.blocks)
    shape = [-(-sizes[letter] // blocks.get(letter, 1)) for letter in axes.outer]
    return layouts.to_blocked(array, layout, (*shape, *(size for _, size in axes.blocks)))
