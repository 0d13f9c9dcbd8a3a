"""Quantised tensors whose range is far too wide for their values.

What a coarse scale loses is rounding, so it does not show in an error alone. The values of the side
with the finer numbers say what the range has to hold.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import NamedTuple

from lar.comparison.rounding import BITS
from lar.graphs.elements import extent_of
from lar.graphs.graph import Graph, Node, region_of, sources_of
from lar.graphs.matching import Pair
from lar.graphs.signatures import Values
from lar.records.quantization import Quantization

# A scale that is this many times what the values need, and so many times more than any before it
# is, is wrong. Data that fills a fifth of the range it was calibrated for is usual.
TOO_COARSE = 8.0

# Where an operator's results lie, whatever it is fed with: a range may be chosen for all of them.
BOUNDED = {
    "softmax": (0.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "relu6": (0.0, 6.0),
    "tanh": (-1.0, 1.0),
}


class Coarse(NamedTuple):
    """A scale, of the actual side (0) or the expected one, that is so many times what the values
    need."""

    side: int
    times: float


class Range(NamedTuple):
    """The numbers that a quantised type holds: multiples of a step, from `low` to `high` times
    that."""

    step: float
    low: int
    high: int

    @classmethod
    def of(cls, dtype: str, quantization: Quantization) -> Range:
        """Return the range of a type; of several scales the largest."""
        bits, zero = BITS[dtype], quantization.zero_point[0]
        low = 0 if dtype.startswith("uint") or "Asymm" in dtype else -(2 ** (bits - 1))
        return cls(max(quantization.scale), low - zero, low + 2**bits - 1 - zero)

    def step_for(self, low: float, high: float) -> float:
        """Return the least step with which numbers between two ends could be held."""
        return max(
            high / self.high if self.high > 0 else 0.0, low / self.low if self.low < 0 else 0.0
        )


class Ranges:
    """The ranges of the quantised tensors of two graphs."""

    def __init__(self, graphs: tuple[Graph, Graph], values: tuple[Values, Values]) -> None:
        self.values = values
        self.quantized = [
            {node for node in graph.nodes if self.range_of(side, node)}
            for side, graph in enumerate(graphs)
        ]

    def find_coarse(self, pair: Pair, twins: Container[Node]) -> Coarse | None:
        """Detect a scale that is far coarser than the values need; `twins` are the nodes of all
        pairs.

        What is computed from data that fills its own range as little, or has the scale of what it
        is computed from, is not to blame; nor is an input of the model.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        nodes = pair.actual, pair.expected
        steps = [self.step_of(side, node) for side, node in enumerate(nodes)]
        side = 0 if steps[0] > steps[1] else 1
        node, twin = nodes[side], nodes[1 - side].tensor
        found = self.range_of(side, node)
        if found is None or twin is None or steps[0] == steps[1] or is_given(node):
            return None
        low, high = extent_of(self.values[1 - side].elements(twin))
        for bound in bounds_of_results(node):
            low, high = min(low, bound[0]), max(high, bound[1])
        needed = max(found.step_for(low, high), steps[1 - side])
        times = found.step / needed if needed else 0.0
        if times < TOO_COARSE:
            return None
        stops = {it for it in self.quantized[side] if it in twins or is_given(it)}
        sources = sources_of(node, stops)
        if any(self.step_of(side, each) == found.step for each in sources):
            return None
        behind = {*sources, *(each for source in sources for each in region_of(source, ()))}
        most = max(
            (self.times_of(side, each) for each in behind & self.quantized[side]), default=1.0
        )
        return Coarse(side, times) if times >= TOO_COARSE * max(most, 1.0) else None

    def range_of(self, side: int, node: Node) -> Range | None:
        """Return the range of a tensor of eight bits or so; None for any other, and for a scale
        that is no positive number."""
        tensor = node.tensor
        quantization = self.values[side].quantizations.get(tensor.key) if tensor else None
        if tensor is None or quantization is None or not max(quantization.scale) > 0:
            return None
        dtype = tensor.dtype.partition("(")[0]
        return Range.of(dtype, quantization) if dtype in BITS else None

    def step_of(self, side: int, node: Node) -> float:
        found = self.range_of(side, node)
        return found.step if found else 0.0

    def times_of(self, side: int, node: Node) -> float:
        """Return how many times what a tensor's own values need its scale is."""
        found = self.range_of(side, node)
        assert found
        assert node.tensor
        needed = found.step_for(*extent_of(self.values[side].elements(node.tensor)))
        return found.step / needed if needed else math.inf


def is_given(node: Node) -> bool:
    """Return whether a tensor is an input of the model, in whatever type."""
    while node.steps == ("cast",) and len(node.parents) == 1:
        (node,) = node.parents
    return node.is_input


def bounds_of_results(node: Node) -> Iterator[tuple[float, float]]:
    """Yield where the results of what gives a tensor lie."""
    for each in (node, *(node.parents if node.steps == ("cast",) else ())):
        for step in each.steps:
            yield from (ends for name, ends in BOUNDED.items() if name in step)
