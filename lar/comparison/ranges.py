"""Finds quantised tensors with a wrong scale, even if its error is only rounding.

What a coarse scale loses is rounding, so the error alone does not show it. The values of the side
with the finer numbers show what the range has to hold. A bias shows which scale it was made for: an
engine may read its integers by the scale of its operator's input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from lar.comparison.culprits import Blame, blame_of
from lar.comparison.isolation import Alone
from lar.comparison.pairs import Paired
from lar.graphs.elements import extent_of
from lar.graphs.graph import Node, region_of, sources_of
from lar.graphs.matching import Pair

# A scale is wrong if it is so many times what the values need, and so many times more than any
# scale before it. Data that fills a fifth of its calibrated range is usual.
TOO_COARSE = 8.0

# Factors that differ by less are the same. Multiples of a tensor have a cosine this near to 1.
SAME_FACTOR = 0.01
ONE_DIRECTION = 1 - 1e-5

# Types of more bits hold sums, and are as good as floating-point numbers.
MOST_BITS = 16

# The limits of an operator's results, whatever its inputs: a range may be chosen for all of them.
BOUNDED = {"softmax": (0.0, 1.0), "sigmoid": (0.0, 1.0), "relu6": (0.0, 6.0), "tanh": (-1.0, 1.0)}


def find_coarse(paired: Paired) -> Iterator[Blame]:
    """Yield the operators whose results have a wrong scale.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    ranges = Ranges(paired)
    for pair in paired.pairs:
        found = paired.found(pair)
        misread = ranges.describe_misread(pair) if found.figures else ""
        if text := misread or (ranges.describe(pair) if found.figures else ""):
            blame = blame_of(pair, paired, Alone(found))
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
        """Return how much coarser a scale is than the values need, empty if it is not.

        An input of the model is not to blame, nor is a tensor that has the scale of its source or
        whose source fills as little of its own range.
        """
        nodes = pair.actual, pair.expected
        steps = [*map(self.step_of, (0, 1), nodes)]
        side = 0 if steps[0] > steps[1] else 1
        node, twin = nodes[side], nodes[1 - side].tensor
        if twin is None or steps[0] == steps[1] or is_given(node):
            return ""
        low, high = extent_of(self.paired.values[1 - side].elements(twin))
        for bounds in bounds_of_results(node):
            low, high = min(low, bounds[0]), max(high, bounds[1])
        needed = max(self.step_for(side, node, low, high), steps[1 - side])
        times = steps[side] / needed if needed else 0.0
        if times < TOO_COARSE or times < TOO_COARSE * self.times_before(side, node):
            return ""
        name = self.paired.names[side]
        return f"that of {name} is {times:.0f} times coarser than the values need"

    def describe_misread(self, pair: Pair) -> str:
        """Return which bias an engine reads by a scale that it was not made for, else empty.

        The scale is that of the actual tensor of a pair.
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
        """Return how many times too coarse the scales before a tensor are, at least 1.

        It is infinite if one of the nearest is the same scale.
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
        """Return the step of a tensor of at most 16 bits, 0 for any other."""
        step = self.rounding.step_of(side, node.tensor) if node.tensor else None
        return step.size if step and step.size > 0 and step.bits <= MOST_BITS else 0.0

    def step_for(self, side: int, node: Node, low: float, high: float) -> float:
        """Return the least step with which a tensor holds all numbers from `low` to `high`."""
        assert node.tensor
        step = self.rounding.step_of(side, node.tensor)
        assert step
        least, most = step.ends
        return max(high / most if most > 0 else 0.0, low / least if least < 0 else 0.0)


def is_given(node: Node) -> bool:
    """Return whether a tensor is an input of the model, in whatever type."""
    while node.is_cast:
        (node,) = node.parents
    return node.is_input


def bounds_of_results(node: Node) -> Iterator[tuple[float, float]]:
    """Yield the limits of the results of the operator that gives a tensor."""
    for each in (node, *(node.parents if node.is_cast else ())):
        for step in each.steps:
            yield from (ends for name, ends in BOUNDED.items() if name in step)
