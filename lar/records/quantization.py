"""How integers of a quantized tensor stand for real numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """The real numbers that integers stand for: (integer - zero point) * scale.

    There is one scale and one zero point for the whole tensor, or one for each index of `axis`,
    which counts the axes of the plain shape.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None
