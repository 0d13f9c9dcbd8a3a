"""The axes of an ONNX model's inputs and outputs: their sizes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What exporters write for an axis that they have no name for.
NO_NAME = re.compile(r"(?i)none|unk__\d+|[\W\d_]*")


def axes_of(axes: Iterable[int | str | None]) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the sizes of axes, None for any size, and their names; without any name, ()."""
    sizes, names = [], []
    for axis in axes:
        sizes.append(axis if isinstance(axis, int) and axis >= 0 else None)
        is_name = isinstance(axis, str) and not NO_NAME.fullmatch(axis)
        names.append(str(axis).replace(" ", "") if is_name else "")
    return tuple(sizes), tuple(names) if any(names) else ()
