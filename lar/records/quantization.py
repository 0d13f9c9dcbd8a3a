"""How integers of a quantized tensor stand for real numbers."""

from __future__ import annotations

from lar.records.record import Record


class Quantization(Record):
    """The real numbers that integers stand for: (integer - zero point) * scale.

    There is one scale and one zero point for the whole tensor, or one for each index of `axis`,
    which counts the axes of the plain shape.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None
