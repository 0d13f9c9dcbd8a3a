"""Tensors in blocked layouts, as engines store them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lar.dumps.layouts import axes_of


def to_blocked(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """Return a tensor of plain axes in a blocked layout, the last blocks filled up with zeros.

    Raises:
        ValueError: the tensor has another number of axes, or the layout is none.
    """
    axes = axes_of(layout)
    if array.ndim != len(axes.plain):
        raise ValueError(f"{array.shape} cannot be brought into the layout {layout!r}")
    sizes = dict(axes.blocks)
    missing = [
        -size % sizes.get(letter, 1) for letter, size in zip(axes.plain, array.shape, strict=True)
    ]
    padded = np.pad(array, [(0, count) for count in missing])
    parts = [
        part
        for letter, size in zip(axes.plain, padded.shape, strict=True)
        for part in ((size // sizes[letter], sizes[letter]) if letter in sizes else (size,))
    ]
    return padded.reshape(parts).transpose(np.argsort(axes.places))
