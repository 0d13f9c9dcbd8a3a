"""The layers that most of the error at the output comes from, by what each is off by itself.

Errors of layers are taken to be independent of each other: then squares add up. What a single error
does to the outputs is measured, where the engine can do it (`lar.comparison.injection`).

Elsewhere it is estimated. How much of the square of its inputs' errors an operator hands on is seen
in the errors of its output: what its entire error has more than its single error came in. These
factors, multiplied along every way to an output, are what a single error counts there. Errors are
lengths here, not relative ones, as tensors of different sizes are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lar.records.comparison import ErrorsOverItems, Figures, TensorComparison

# The layers are listed that make so much of the loss together.
MOST_OF_IT = 0.9
# Of the square of an output's error at least so much came in, even where the single error is
# greater: errors that cancel each other out do not hide what stands before them.
LEAST_PART = 0.1


class Layer(NamedTuple):
    """A layer by the tensor that it gives, and its share of the loss."""

    tensor: TensorComparison
    share: float

    @property
    def is_measured(self) -> bool:
        """Whether what its error does to the outputs is known, not estimated: NaN and infinite
        numbers are all of the loss."""
        return bool(self.tensor.at_outputs) or math.isinf(single_error_of(self.tensor))


def layers_of_loss(tensors: Iterable[TensorComparison], part: float = MOST_OF_IT) -> list[Layer]:
    """Return the fewest layers whose single errors make that part of the loss, the greatest first;
    empty where no operator was run alone or none is off."""
    squares = squares_of_loss(tensors)
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
    """Return the error of the outputs, and that which all single errors would make there; None
    where nothing is known of either."""
    computed = [it for it in tensors if not it.constant and it.figures]
    if not any(it.single for it in computed):
        return None
    entire = math.hypot(*(entire_error_of(it) for it in ends_of(computed)))
    return entire, math.sqrt(math.fsum(square for _, square in squares_of_loss(tensors)))


def squares_of_loss(tensors: Iterable[TensorComparison]) -> list[tuple[TensorComparison, float]]:
    """Return the operators that are off by themselves, each with the square of the error that this
    makes at the outputs, in units of their lengths."""
    computed = [it for it in tensors if not it.constant and it.figures]
    reaches = reaches_of(computed)
    return [
        (tensor, square_of_loss(tensor, error, reaches.get(tensor.actual.key, 0.0)))
        for tensor in computed
        if (error := single_error_of(tensor))
    ]


def square_of_loss(tensor: TensorComparison, error: float, reach: float) -> float:
    """Return the square of what a single error makes at the outputs, as measured; else as much of
    it as reaches them."""
    if math.isinf(error):
        return error
    measured = measured_at_outputs(tensor)
    return error**2 * reach if measured is None else measured**2


def measured_at_outputs(tensor: TensorComparison) -> float | None:
    """Return what a single error makes of the outputs, in units of their lengths; None where that
    was not measured."""
    if not tensor.at_outputs:
        return None
    return math.hypot(*(it.change / it.length for it in tensor.at_outputs if it.length))


def reaches_of(computed: Sequence[TensorComparison]) -> dict[str, float]:
    """Return by the actual key how much of the square of a tensor's relative error gets to the
    outputs: all of it where nothing is known of what a tensor is computed from."""
    if not any(it.sources for it in computed):
        return {it.actual.key: 1.0 for it in computed}
    by_key = {it.actual.key: it for it in computed}
    reaches = dict.fromkeys(by_key, 0.0)  # of the square of a length, until the end
    for end in ends_of(computed):
        if energy := energy_of(end):
            reaches[end.actual.key] = 1 / energy
    for tensor in sorted(computed, key=lambda it: it.depth, reverse=True):
        sources = [by_key[key] for key in tensor.sources if key in by_key]
        handed = part_handed_on(tensor, sources)
        for source in sources:
            reaches[source.actual.key] += handed * reaches[tensor.actual.key]
    return {key: reach * energy_of(by_key[key]) for key, reach in reaches.items()}


def part_handed_on(tensor: TensorComparison, sources: Iterable[TensorComparison]) -> float:
    """Return how much longer the square of the error of an operator's inputs is at its output; 0
    where they have none."""
    came = math.fsum(entire_error_of(it) ** 2 * energy_of(it) for it in sources)
    entire, single = entire_error_of(tensor) ** 2, single_error_of(tensor) ** 2
    if not came or not all(map(math.isfinite, (came, entire, single))):
        return 0.0
    return max(entire - single, LEAST_PART * entire) * energy_of(tensor) / came


def ends_of(computed: Sequence[TensorComparison]) -> list[TensorComparison]:
    """Return the outputs that no other tensor is computed from, or the last tensor."""
    taken = {key for it in computed for key in it.sources}
    ends = [it for it in computed if it.sources and it.is_output and it.actual.key not in taken]
    return ends or [max(computed, key=lambda it: (it.is_output, it.depth))]


def energy_of(tensor: TensorComparison) -> float:
    """Return the square of the length of the expected tensor."""
    figures = tensor.figures
    return figures.scale**2 * figures.elements if figures and figures.scale else 0.0


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
    """Return the error divided by the tensor's length; infinite if one side has NaN or infinity."""
    if figures is None or figures.identical:
        return 0.0
    if figures.nonfinite_mismatches or figures.relative_l2 is None:
        return math.inf
    return figures.relative_l2
