"""The layers that most of the error at the output comes from, by what each is off by itself.

Errors of layers are taken to be independent of each other, and to be handed on as they are: then
the squares of the single errors, each relative to its tensor, add up to that of the output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lar.records.comparison import ErrorsOverItems, Figures, TensorComparison

# The layers are listed that make so much of the loss together.
MOST_OF_IT = 0.9


class Layer(NamedTuple):
    """A layer by the tensor that it gives, and its share of the loss."""

    tensor: TensorComparison
    share: float


def layers_of_loss(tensors: Iterable[TensorComparison], part: float = MOST_OF_IT) -> list[Layer]:
    """Return the fewest layers whose single errors make that part of the loss, the greatest first;
    empty where no operator was run alone or none is off."""
    squares = [
        (tensor, error**2)
        for tensor in tensors
        if not tensor.constant and (error := single_error_of(tensor))
    ]
    endless = [tensor for tensor, square in squares if math.isinf(square)]
    if endless:  # NaN and infinite numbers are all of the loss
        return [Layer(tensor, 1 / len(endless)) for tensor in endless]
    total = math.fsum(square for _, square in squares)
    layers: list[Layer] = []
    left = part * total
    for tensor, square in sorted(squares, key=lambda it: it[1], reverse=True):
        if left <= 0:
            break
        layers.append(Layer(tensor, square / total))
        left -= square
    return layers


def loss_of(tensors: Sequence[TensorComparison]) -> tuple[float, float] | None:
    """Return the error of the last tensor, and that which all single errors would make there; None
    where nothing is known of either."""
    computed = [it for it in tensors if not it.constant and it.figures]
    singles = [single_error_of(it) for it in computed if it.single]
    if not singles:
        return None
    last = max(computed, key=lambda it: (it.is_output, it.depth))
    return entire_error_of(last), math.hypot(*singles)


def entire_error_of(tensor: TensorComparison) -> float:
    """Return the error of a tensor with all that those before it add, of all items together."""
    return error_over(tensor.over_items, tensor.figures)


def single_error_of(tensor: TensorComparison) -> float:
    """Return the error of an operator by itself, of all items together."""
    return error_over(tensor.single_over_items, tensor.single)


def error_over(items: ErrorsOverItems | None, worst: Figures | None) -> float:
    """Return the error of all items, or of the only one."""
    error = error_of(worst)
    if items is None or items.relative_l2 is None or math.isinf(error):
        return error
    return items.relative_l2


def error_of(figures: Figures | None) -> float:
    """Return an error relative to the tensor: 0 if there is none, infinite if it is not finite."""
    if figures is None or figures.identical:
        return 0.0
    if figures.nonfinite_mismatches or figures.relative_l2 is None:
        return math.inf
    return figures.relative_l2
