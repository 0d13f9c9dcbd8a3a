"""Elements of less than a byte: several share one, the first in its lowest bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from lar.dumps.binary import ElementType

    Array = np.ndarray[Any, Any]

# Bytes that are unpacked at once.
PIECE = 1 << 20


def bytes_of_row(element: ElementType, shape: tuple[int, ...]) -> int:
    """Return the bytes of a row of an array whose rows begin with a byte of their own."""
    return (shape[-1] * element.bits + 7) // 8


def unpack(stored: Array, element: ElementType, shape: tuple[int, ...]) -> Array:
    """Return the elements of bytes (uint8) that hold several each."""
    import numpy as np

    bits, count = element.bits, math.prod(shape)
    per_byte = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    mask = np.uint8((1 << bits) - 1)
    unpacked: Array = np.empty(len(stored) * per_byte, element.storage)
    for start in range(0, len(stored), PIECE):
        piece = stored[start : start + PIECE, None]
        values = ((piece >> shifts) & mask).reshape(-1).astype(element.storage)
        if element.name == "QuantizedS4":
            values = (values ^ 8) - np.int8(8)  # two's complement
        elif element.step > 1:
            values = values * np.int8(element.step) + np.int8(element.lowest)
        unpacked[start * per_byte : start * per_byte + values.size] = values
    if len(stored) != (count * bits + 7) // 8:  # each row begins with a byte of its own
        row = bytes_of_row(element, shape) * per_byte
        unpacked = unpacked.reshape(-1, row)[:, : shape[-1]].reshape(-1)
    return unpacked[:count]


def pack(values: Array, element: ElementType, shape: tuple[int, ...]) -> Array:
    """Return bytes (uint8) that hold several elements each."""
    import numpy as np

    bits = element.bits
    per_byte = 8 // bits
    codes = (values.astype(np.int16) - element.lowest) // element.step & ((1 << bits) - 1)
    in_rows = element.aligned and shape and codes.size
    rows = codes.reshape(-1, shape[-1]) if in_rows else codes.reshape(1, -1)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % per_byte))).reshape(-1, per_byte)
    packed: Array = (padded << np.arange(0, 8, bits)).sum(axis=1).astype(np.uint8)
    return packed
