"""Describes operators at fault: which of their weights differ, and in words what is wrong.

The elements of two tensors may show the cause of their difference, such as a wrong scale or a wrong
zero point. Each kind of difference is a change that turns the elements of one side into the
elements of the other side. A kind of difference is reported only if it explains nearly all of the
difference between two tensors. The remaining small part of the difference may come from rounding
and from other errors.

This module also finds quantised tensors with a wrong scale, even if the only error is rounding.

A scale that is too coarse causes only larger rounding errors, so the error alone does not show the
fault. The values of the more exact side show which range the scale must cover. An engine may
multiply the integers of a bias by the scale of the operator's input. If the scale of the operator's
input is wrong, the values of the bias are wrong by the same factor as this scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lar.comparison.culprits import Alone, Blame, blame_of
from lar.comparison.pairs import Names, Paired, error_of, facts_from
from lar.dumps import Array
from lar.graphs.graph import Node, region_of, sources_of
from lar.graphs.matching import Pair
from lar.graphs.signatures import Values, channel_axis, extent_of, whole
from lar.records.comparison import Culprit, OperatorFacts, TensorComparison

# A scale is wrong if it is at least this many times coarser than the values need, and if no scale
# before it is nearly as coarse. Data often fills only a fifth of its calibrated range.
TOO_COARSE = 8.0

# Two factors that differ by less than this are equal. If the cosine of two tensors is above the
# second limit, one tensor is a multiple of the other.
SAME_FACTOR = 0.01
ONE_DIRECTION = 1 - 1e-5

# Integers with more bits than this hold sums. They are as exact as floating-point numbers.
MOST_BITS = 16

# The limits, except 0, of an operator's results. A calibrated range may reach these limits.
BOUNDED = {"softmax": (1.0,), "sigmoid": (1.0,), "relu6": (6.0,), "tanh": (-1.0, 1.0)}


def find_coarse(paired: Paired) -> Iterator[Blame]:
    """Yield the operators whose results have a wrong scale.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    ranges = Ranges(paired)
    for pair in [it for it in paired.pairs if paired.found(it).figures]:
        misread = ranges.describe_misread(pair)
        if text := misread or ranges.describe(pair):
            blame = blame_of(pair, paired, Alone(paired.found(pair)))
            yield blame._replace(scale=f"scale: {text}", is_coarse=True, is_misread=bool(misread))


class Ranges:
    """The ranges of the quantised tensors of two graphs."""

    def __init__(self, paired: Paired) -> None:
        self.paired, self.rounding = paired, paired.measure.rounding
        self.quantized = [
            {node for node in graph.nodes if self.step_of(side, node)}
            for side, graph in enumerate(paired.graphs)
        ]

    def describe(self, pair: Pair) -> str:
        """Say in words how much coarser a scale is than the values need; empty for a right scale.

        For an input of the model, the text is empty. The text is also empty if the scale of a
        source (a tensor from which this tensor is computed) is equal to this tensor's scale. The
        text is also empty if the scale of a source is too coarse by nearly the same factor as this
        tensor's scale.
        """
        nodes = pair.actual, pair.expected
        steps = [*map(self.step_of, (0, 1), nodes)]
        side = 0 if steps[0] > steps[1] else 1
        node, twin = nodes[side], nodes[1 - side].tensor
        if twin is None or steps[0] == steps[1] or is_given(node):
            return ""
        low, high = extent_of(self.paired.values[1 - side].elements(twin))
        for end in ends_of_results(node):
            low, high = min(low, end), max(high, end)
        needed = max(self.step_for(side, node, low, high), steps[1 - side])
        times = steps[side] / needed if needed else 0.0
        if times < TOO_COARSE or times < TOO_COARSE * self.times_before(side, node):
            return ""
        return f"in {self.paired.names[side]} it is {times:.0f} times coarser than the values need"

    def describe_misread(self, pair: Pair) -> str:
        """Say in words which bias an engine multiplies by a wrong scale; empty if scales are right.

        An operator that reads the actual tensor of the pair multiplies the integers of its bias by
        the scale of this tensor. If the scale of an operator's input is wrong, the values of the
        operator's bias are wrong too.
        """
        steps = [*map(self.step_of, (0, 1), pair[:2])]
        taken = self.paired.constants_of(pair.actual.children) if steps[0] else []
        wrong = [it for it in taken if not it.passed]
        for found in wrong if len(wrong) == 1 else ():  # a bias has the scale of its weights too
            figures = found.figures
            if figures is None or (figures.cosine or 0.0) < ONE_DIRECTION:
                continue
            factor, step = figures.gain or 1.0, self.rounding.step_of(0, found.actual)
            ratio = steps[0] / steps[1] if steps[1] else factor
            if step and step.bits > MOST_BITS and abs(ratio / factor - 1) < SAME_FACTOR:
                names = self.paired.names
                times = f"{factor:.3g} times as large in {names[0]} as in {names[1]}"
                reader = f"since it is read by the scale of {pair.expected.name}"
                return f"{found.expected.name} is {times}, {reader}"
        return ""

    def times_before(self, side: int, node: Node) -> float:
        """Return the largest factor by which an earlier tensor's scale is too coarse, at least 1.

        Earlier tensors are all tensors from which the given tensor is computed.

        The result is infinite if one of the tensor's sources has the same scale as the tensor.
        """
        quantized = self.quantized[side]
        known = {it for it in quantized if it in self.paired.by_node or is_given(it)}
        sources = sources_of(node, known)
        if any(self.step_of(side, each) == self.step_of(side, node) for each in sources):
            return math.inf
        behind = {*sources, *(each for source in sources for each in region_of(source, ()))}
        return max([1.0, *(self.times_of(side, each) for each in behind & quantized)])

    def times_of(self, side: int, node: Node) -> float:
        """Return how many times coarser a tensor's scale is than its own values need."""
        assert node.tensor
        low, high = extent_of(self.paired.values[side].elements(node.tensor))
        needed = self.step_for(side, node, low, high)
        return self.step_of(side, node) / needed if needed else math.inf

    def step_of(self, side: int, node: Node) -> float:
        """Return the step of a quantised tensor of at most 16 bits; 0 for any other tensor."""
        step = self.rounding.step_of(side, node.tensor) if node.tensor else None
        return step.size if step and step.size > 0 and step.bits <= MOST_BITS else 0.0

    def step_for(self, side: int, node: Node, low: float, high: float) -> float:
        """Return the smallest step at which a tensor's integers reach from `low` to `high`."""
        assert node.tensor
        step = self.rounding.step_of(side, node.tensor)
        assert step
        least, most = step.ends
        return max(high / most if most > 0 else 0.0, low / least if least < 0 else 0.0)


def is_given(node: Node) -> bool:
    """Return whether a tensor is an input of the model, or a cast of an input to another type."""
    while node.is_cast:
        (node,) = node.parents
    return node.is_input


def ends_of_results(node: Node) -> Iterator[float]:
    """Yield the limits of a tensor's values, if the operator that computes the tensor sets limits.

    For example, the results of tanh lie between -1 and 1. A limit of 0 is left out.
    """
    for each in (node, *(node.parents if node.is_cast else ())):
        for step in each.steps:
            yield from (end for name, ends in BOUNDED.items() if name in step for end in ends)


# The part of the difference's energy that may stay unexplained if a kind is named.
LEFT = 0.05

# A factor that differs from 1 by no more than this counts as 1.
SAME = 0.02

# If the factors of all channels differ by less than this, they are one factor.
SAME_FACTORS = 1e-3

# A channel is wrong if the energy of its error is more than this many times that of any other.
OUTSTANDING = 20

# A number of steps counts as whole if it is nearer than this to a whole number.
WHOLE = 0.1
NONFINITE = (("infinite", "overflow to infinity", np.isinf), ("NaN", "no number", np.isnan))


def culprit_of(blame: Blame, paired: Paired) -> Culprit:
    """Return the record of the operators at fault, with their differing weights."""
    taken = [(it, it.figures) for it in paired.constants_of(blame.actual)]
    parameters = [it for it, found in taken if not found or found.max_absolute not in (0.0, None)]
    alone = blame.alone.found
    return Culprit(
        actual=tuple(operator_facts(paired, 0, node) for node in blame.actual),
        expected=tuple(operator_facts(paired, 1, node) for node in blame.expected),
        inputs=tuple(map(paired.found, blame.inputs)),
        output=blame.output,
        parameters=tuple(parameters),
        proven=blame.proven,
        alone=alone.figures if alone else None,
        doubt=blame.alone.doubt,
        is_coarse=blame.is_coarse,
        kind=blame.scale or kind_of_weights(parameters, paired) or kind_of(blame.output, paired),
    )


def kind_of_weights(parameters: Sequence[TensorComparison], paired: Paired) -> str:
    """Say in words which weights differ most, where and how; empty if all weights agree."""
    wrong = [it for it in parameters if not it.passed and it.figures]
    if not wrong:
        return ""
    found = max(wrong, key=error_of)
    texts = describe_difference(found, paired.names), kind_of(found, paired)
    return f"weights: {'; '.join(filter(None, texts))}"


def kind_of(output: TensorComparison, paired: Paired) -> str:
    """Say in words what is wrong with a tensor; empty if the elements do not show what is wrong.

    The tensor is the output or the weights of an operator at fault.
    """
    is_text = output.expected.dtype == "string"
    if output.figures is None or output.axes or is_text or paired.measure.excerpts:
        return ""
    keys = output.actual.key, output.expected.key
    tensors = [it.dump.tensor(key) for it, key in zip(paired.values, keys, strict=True)]
    arrays = map(whole, map(Values.elements, paired.values, tensors))
    one, other = (it.astype(np.float64).reshape(output.expected.shape) for it in arrays)
    found = map(Values.quantization_of, paired.values, tensors)
    step = max((max(it.scale) for it in found if it), default=0.0)
    # The first axis of weights counts the output's channels.
    return find_kind(Sides(one, other, step, 0 if output.constant else None, paired.names))


def describe_difference(found: TensorComparison, names: Names) -> str:
    """Say in words which tensor differs, and by how much."""
    figures = found.figures
    text = found.expected.name or found.actual.name
    if figures is None or figures.relative_l2 is None:
        return f"{text} differs"
    text += f" differs by {figures.relative_l2:.2%} of its length"
    if figures.worst is None:
        return text
    worst = figures.worst
    place = "{" + ",".join(map(str, worst.index)) + "}"
    return f"{text}, most at {place}: {worst.actual} in {names[0]}, {worst.expected} in {names[1]}"


def operator_facts(paired: Paired, side: int, node: Node) -> OperatorFacts:
    operator = node.operator
    assert operator
    layout = node.tensor.layout if node.tensor else ""
    opaque = operator.type.lower() in paired.graphs[side].kinds.opaque
    return facts_from(OperatorFacts, operator, output=node.name, layout=layout, opaque=opaque)


class Sides(NamedTuple):
    """The elements of a tensor on both sides, as float64, in plain axes and with equal shapes.

    `step` is the step of a quantised type, 0 for any other type. `axis` is the axis of the
    channels, None if unknown. `names` are the names of the two sides.
    """

    one: Array
    other: Array
    step: float = 0.0
    axis: int | None = None
    names: Names = ("A", "B")

    @property
    def difference(self) -> Array:
        return self.one - self.other

    def explain(self, rest: Array) -> bool:
        """Return whether a kind of difference explains nearly the whole difference of the sides.

        `rest` is the part of the difference that this kind of difference does not explain.
        """
        return energy_of(rest) <= LEFT * energy_of(self.difference)

    def both_ways(self) -> Iterator[tuple[str, Array, Array]]:
        """Yield for each side its name, its elements and the other side's elements."""
        yield self.names[0], self.one, self.other
        yield self.names[1], self.other, self.one


def find_kind(sides: Sides) -> str:
    """Say in words what kind of difference two sides have; empty if no known kind fits."""
    if text := find_nonfinite(sides):
        return text
    energy = energy_of(sides.difference)
    if not energy or not np.isfinite(energy):
        return ""
    return next(filter(None, (find(sides) for find in KINDS)), "")


def find_nonfinite(sides: Sides) -> str:
    """Detect elements that are infinite or NaN on one side only."""
    for name, side, twin in sides.both_ways():
        for what, kind, is_bad in NONFINITE:
            if count := int(np.count_nonzero(is_bad(side) & np.isfinite(twin))):
                return f"{kind}: {count} of {side.size} elements are {what} in {name}"
    return ""


def find_scale(sides: Sides) -> str:
    """Detect that one tensor is a multiple of the other."""
    one, other = sides.one, sides.other
    square = energy_of(other)
    factor = float((one * other).sum()) / square if square else 1.0
    if abs(factor - 1) > SAME and sides.explain(one - factor * other):
        return f"scale: {sides.names[0]} is {factor:.4g} times {sides.names[1]}"
    return ""


def find_zero_point(sides: Sides) -> str:
    """Detect a number that one side adds to all elements, except to clipped elements."""
    inside = is_inside(sides.one) & is_inside(sides.other)
    difference = sides.difference
    share = np.count_nonzero(inside) / difference.size
    if share < 1 / 8:
        return ""
    shift = float(np.median(difference[inside]))
    energy, rest = energy_of(difference[inside]), energy_of(difference[inside] - shift)
    # An added number changes clipped elements less than other elements, never more.
    if energy < energy_of(difference) * share / 2 or rest > LEFT * energy:
        return ""
    steps = abs(shift / sides.step) if sides.step else 0.0
    number = f", {steps:.0f} steps" if steps and abs(steps - round(steps)) < WHOLE else ""
    sign = "plus" if shift > 0 else "minus"
    return f"zero point: {sides.names[0]} is {sides.names[1]} {sign} {abs(shift):.4g}{number}"


def find_saturation(sides: Sides) -> str:
    """Detect that one side clips its elements at a number, and the other side does not.

    If one side clips at 0, the other side probably lacks an activation such as Relu.
    """
    for name, side, twin in sides.both_ways():
        low, high = float(side.min()), float(side.max())
        clipped = ((side == high) & (twin > high)) | ((side == low) & (twin < low))
        reached = [end for end in (low, high) if np.count_nonzero(clipped & (side == end)) > 1]
        ends = [f"{end:.4g}" for end in reached]
        if ends and low < high and sides.explain(sides.difference[~clipped]):
            kind = "activation" if ends == ["0"] else "saturation"
            count = np.count_nonzero(clipped)
            return f"{kind}: {count} elements of {name} end at {' and '.join(ends)}"
    return ""


def find_border(sides: Sides) -> str:
    """Detect that images differ only at their borders, probably since the sides pad differently."""
    difference = sides.difference
    has_inside = difference.ndim == 4 and min(difference.shape[2:]) >= 5
    if has_inside and sides.explain(difference[:, :, 1:-1, 1:-1]):
        return f"padding: {sides.names[0]} and {sides.names[1]} differ only at the border"
    return ""


def find_channels(sides: Sides) -> str:
    """Detect one wrong channel, or a wrong factor for each channel.

    Factors of channels are wrong if, for example, an engine applies the scales of channels along a
    wrong axis.
    """
    shape = sides.one.shape
    axis = channel_axis(len(shape)) if sides.axis is None else sides.axis
    if len(shape) < 2 or shape[axis] < 2:
        return ""
    moved = (np.moveaxis(side, axis, 0) for side in (sides.one, sides.other))
    one, other = (side.reshape(shape[axis], -1) for side in moved)
    energies = np.square(one - other).sum(axis=1)
    worst = int(energies.argmax())
    if one.shape[1] > 1 and energies[worst] > OUTSTANDING * np.delete(energies, worst).max():
        return f"one wrong channel: number {worst} of axis {axis}"
    squares = np.square(other).sum(axis=1)
    products = (one * other).sum(axis=1)
    factors = np.divide(products, squares, out=np.ones_like(products), where=squares > 0)
    if one.shape[1] < 4 or not sides.explain(one - factors[:, None] * other):
        return ""
    known = factors[squares > 0]
    if float(np.ptp(known)) <= SAME_FACTORS:
        return f"scale: {sides.names[0]} is {known.mean():.4g} times {sides.names[1]}"
    times = f"{known.min():.3g} to {known.max():.3g} times {sides.names[1]} along axis {axis}"
    return f"scales of channels: {sides.names[0]} is {times}"


KINDS = (find_scale, find_zero_point, find_saturation, find_border, find_channels)


def energy_of(array: Array) -> float:
    return float(np.square(array).sum())


def is_inside(side: Array) -> Array:
    """Return a mask of the elements that are neither the smallest nor the largest element."""
    inside: Array = (side > side.min()) & (side < side.max())
    return inside
