"""Tensor files of MegEngine's own types, which lar reads and never writes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from lar.dumps.binary import BY_DTYPE, ElementType, encode_name, head_of

Array = np.ndarray[Any, Any]


def write_typed(path: Path, array: Array, name: str, dtype: str) -> None:
    """Write integers, or of BFloat16 float32, as elements of a type."""
    element, encoded = BY_DTYPE[dtype], encode_name(name)
    values = np.ascontiguousarray(array, element.storage)
    if element.name == "BFloat16":
        values = (values.view("<u4") >> 16).astype("<u2")
    elif element.bits:
        values = pack(values, element)
    path.write_bytes(head_of(array.shape, element, len(encoded)) + encoded + values.tobytes())


def pack(values: Array, element: ElementType) -> Array:
    """Return bytes (uint8) that hold several elements each."""
    bits = element.bits
    per_byte = 8 // bits
    codes = (values.astype(np.int16) - element.lowest) // element.step & ((1 << bits) - 1)
    in_rows = element.name.startswith("Quantized") and values.ndim and codes.size
    rows = codes.reshape(-1, values.shape[-1]) if in_rows else codes.reshape(1, -1)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % per_byte))).reshape(-1, per_byte)
    packed: Array = (padded << np.arange(0, 8, bits)).sum(axis=1).astype(np.uint8)
    return packed


def read_by_megengine(paths: list[Path]) -> list[tuple[Array, str]]:
    """Read tensors with MegEngine's own reader."""
    reader = importlib.import_module("megengine.tools.compare_binary_iodump")
    return [reader.load_tensor_binary(str(path)) for path in paths]
