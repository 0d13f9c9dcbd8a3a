"""What rounding explains of the difference between two tensors.

The error that an operator adds to those of its inputs depends on the coarser of the two
computations: on the relative rounding u of a floating-point type or the step s of a quantised one:

- storing adds u of each element, or s / 2 at most and s / sqrt(12) on average;
- a sum of K products in precision u adds about sqrt(K) u, with the K of a usual convolution;
  if only its factors are rounded, as to TF32, it adds u, and storing adds nothing;
- weights that are stored in the type add as much of their own.

Errors of the inputs are passed on: an addition or a maximum adds them up, other operators may
enlarge them several times. An error is the length of the difference over that of the tensor. An
operator with a much larger error is at fault.

This measure is for sides that compute in a type coarser than float32. Between two float32 runs a
fixed tolerance shows errors that are smaller than those of any cast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from math import prod
from typing import NamedTuple

import numpy as np

from lar.comparison.metrics import DEFAULT_RTOL, SLIGHTLY_MORE, Bounds, Size
from lar.dumps import DumpedTensor
from lar.graphs import GROUPS, HEAVY
from lar.graphs.graph import Graph, Node, region_of, sources_of
from lar.graphs.matching import BITS, ConstantPair, Pair, bits_of
from lar.graphs.signatures import BLOCK, Elements, Values, channel_axis, extent_of
from lar.records.comparison import Figures, TensorComparison, TensorFacts

# The relative rounding of coarse floating-point types.
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
FINE_UNIT = 2.0**-24

# The relative rounding of types for the factors of float32 products.
OF_FACTORS = {"tf32": 2.0**-11}

# An error that float32 explains.
FINE = 1e-5

# A side as a whole computes in a coarse type if this part of its tensors are of that type; fewer
# casts between float32 operators are a fault.
COARSE_SHARE = 0.25

# Rounding equal numbers in another way changes some by a step, but not nearly all of them.
OF_A_STEP = 0.75

# Steps that differ by less than this are the same.
SAME_STEP = 0.01

# So few numbers may be float16 numbers by chance.
LEAST_WEIGHTS = 32

# An error may be so many times the expected rounding.
SLACK = 4.0

# Rounding leaves no error above this part of a tensor.
MOST_EXPLAINED = 0.7

# The factor by which an operator enlarges its inputs' errors. Sums of similar numbers cancel out,
# but their errors do not; for sums of other numbers the factor is least.
GROWTH = 3.0
LEAST_GROWTH, MOST_GROWTH = 1.25, 6.0

# A convolution or a matrix product usually adds up so many products.
USUAL_SUM = 1000

# The error that 8-bit weights with one scale usually add; each bit less doubles it.
WEIGHTS_OF_8_BITS = 0.02

# Channels of fewer elements are not measured.
LEAST_ELEMENTS = 4

# Without a graph: the rounding that adds up in a deep network.
WITHOUT_GRAPH = dict.fromkeys(("tf32", "float16", "int16"), 0.03)
WITHOUT_GRAPH |= {"bfloat16": 0.1, "int8": 0.3, "int4": 1.0}

# The largest error of elements, in units of the error of the whole.
PEAK = 2.0
# An element's error may be so many times the largest one of the inputs.
PEAK_GROWTH = 12.0

# Operators that add up the errors of their inputs, or keep the largest.
KEEPING = {
    *("add", "sum", "sub", "move", "cast", "concat", "pool", "input"),
    *("tanh", "sigmoid", "leakyrelu", "hardsigmoid", "identity", "split", "slice", "pad", "gather"),
    *GROUPS["activation"],
}


class Explained(NamedTuple):
    """The difference that rounding explains.

    It has the type, the error of the whole, and the step of a quantised type. With `stored` both
    sides compute alike, and only the results are rounded.
    """

    precision: str
    error: float
    step: float = 0.0
    stored: bool = True

    @property
    def bounds(self) -> Bounds:
        """The tolerance of an element."""
        limit = PEAK * self.limit
        least = self.step * SLIGHTLY_MORE
        return Bounds(limit, limit, scaled=True, symmetric=True, least=least, masks=True)

    @property
    def limit(self) -> float:
        """The largest error of the whole that counts as rounding."""
        usual = DEFAULT_RTOL.get(self.precision, 0.0)
        return max(min(SLACK * self.error, MOST_EXPLAINED), usual)

    def passes(
        self, figures: Figures, sources: Sequence[Figures], worst_channel: Callable[[], float]
    ) -> bool:
        """Return whether rounding explains a tensor's error, given the errors of its inputs.

        `worst_channel` measures the tensor's channels.
        """
        if figures.nonfinite_mismatches:
            return False
        equal = self.step and self.stored and sources and all(each.identical for each in sources)
        if equal and (figures.mean_absolute or 0.0) > OF_A_STEP * self.step:
            return False
        if (figures.max_absolute or 0.0) <= self.step * SLIGHTLY_MORE:
            return True
        if figures.relative_l2 is None or figures.relative_l2 > self.limit:
            return False
        before = max((each.peak or 0.0 for each in sources), default=0.0)
        if figures.mismatches and (figures.peak or 0.0) > PEAK_GROWTH * before:
            return False
        return worst_channel() <= self.limit


class Step(NamedTuple):
    """The step between neighbours of a quantised type, its bits, and its limits in steps."""

    size: float
    bits: int
    ends: tuple[int, int] = (0, 0)


# Takes the size of an expected tensor, and the tensor.
Explain = Callable[[Size, Elements], "Explained | None"]


def worst_channel_of(one: Elements, other: Elements, fill: float) -> float:
    """Return the largest error of a channel over its length, or over a usual channel's length.

    If one of many channels is wrong, the error of the whole is small. Numbers that are not finite
    on both sides, or as large as a fill, are left out.
    """
    shape = other.shape
    axis = channel_axis(len(shape))
    if len(shape) < 2 or shape[axis] < 2 or other.size < LEAST_ELEMENTS * shape[axis]:
        return 0.0
    channels, behind = shape[axis], prod(shape[axis + 1 :])
    errors, mine, theirs = np.zeros((3, channels))
    for number, (left, right) in enumerate(zip(one.blocks(), other.blocks(), strict=True)):
        places = np.arange(number * BLOCK, number * BLOCK + right.size) // behind % channels
        sides = left.astype(np.float64), right.astype(np.float64)
        counted = np.isfinite(sides[0]) & (np.abs(sides[1]) < fill)
        for sums, values in ((errors, sides[0] - sides[1]), (mine, sides[0]), (theirs, sides[1])):
            sums += np.bincount(places, np.square(np.where(counted, values, 0.0)), channels)
    lengths = np.maximum(mine, theirs)
    usual = max(float(mine.mean()), float(theirs.mean()))
    return math.sqrt(float((errors / np.maximum(lengths, usual)).max())) if usual else 0.0


def coarsest(precisions: Iterable[str]) -> str:
    """Return the coarsest of some types, empty if no coarse type is among them."""
    found = {*precisions}
    order = ("int4", "int8", "bfloat16", "float16", "int16", "tf32")
    return next((each for each in order if each in found), "")


class Rounding:
    """What rounding explains of two graphs' pairs; `by_node` has them by nodes of both sides."""

    def __init__(self, graphs: tuple[Graph, Graph], values: tuple[Values, Values]) -> None:
        self.graphs, self.values = graphs, values
        self.by_node: Mapping[Node, Pair] = {}
        self.whole = precision_of_sides(graphs)

    def among(self, pairs: Iterable[Pair]) -> Rounding:
        """Return a copy that knows only these pairs."""
        other = copy(self)
        other.by_node = {node: pair for pair in pairs for node in pair[:2]}
        return other

    def explain(
        self, pair: Pair, sources: Sequence[TensorComparison], size: Size, _: Elements
    ) -> Explained | None:
        """Return what rounding explains of a pair, None if the types are as fine as float32.

        `size` is the expected tensor's.
        """
        regions = [region_of(node, self.by_node) for node in pair[:2]]
        types = (it.tensor.dtype.lower() for it in pair[:2] if it.tensor)
        by_side = [*map(self.steps_of, (0, 1), regions)]
        steps = [*by_side[0], *by_side[1]]
        weights = [*map(self.quantised_weights, (0, 1), regions)]
        # If one side's weights are not known, they count as equal if both sides are quantised.
        alike = weights[0] == weights[1] if all(weights) else all(by_side)
        taken = {bits for side in weights for bits, _ in side}
        quantised = [f"int{bits}" for bits in (*(it.bits for it in steps), *taken) if bits <= 16]
        before = [it.precision for it in sources]
        kinds = {step for region in regions for node in region for step in node.steps}
        summed = not kinds.isdisjoint(HEAVY)
        lonely = not any(graph.makers for graph in self.graphs)
        whole = self.whole if summed or lonely or self.whole not in OF_FACTORS else ""
        precision = coarsest([*filter(UNITS.get, types), *quantised, *before, whole])
        if not precision:
            return None
        if lonely:
            return Explained(precision, WITHOUT_GRAPH[precision] / SLACK)
        step = max((it.size for it in steps), default=0.0)
        unit = UNITS.get(precision, FINE_UNIT)
        growth = self.growth_of(pair) if summed else GROWTH
        added = [unit, inherited(sources, kinds, size.scale, growth)]
        if size.scale:
            added.append(step / math.sqrt(12) / size.scale)
        if summed:
            added.append(OF_FACTORS.get(precision, unit * math.sqrt(USUAL_SUM)))
        stored = alike or not (summed or taken)
        if precision.startswith("int") and not stored:
            added.append(WEIGHTS_OF_8_BITS * 2.0 ** (8 - int(precision[3:])))
        return Explained(precision, math.hypot(*added), step, stored)

    def rounded_within(self, pair: Pair) -> Iterator[tuple[int, DumpedTensor, DumpedTensor]]:
        """Yield what is rounded to integers between a pair and its sources.

        Each has the side, the integers and the numbers before rounding.
        """
        for side, end in enumerate(pair[:2]):
            for node in region_of(end, self.by_node):
                before = node.parents[0].tensor if node.is_cast else None
                if node is end or not (node.tensor and before):
                    continue
                if self.step_of(side, node.tensor) and not self.step_of(side, before):
                    yield side, node.tensor, before

    def round_alike(self, pair: Pair) -> bool:
        """Return whether both sides round alike between a pair and its sources, or do not round.

        They must have the same steps, apart from those of the sources, and the same scales of
        weights.
        """
        sides = 0, 1
        regions = [region_of(node, self.by_node) for node in pair[:2]]
        sources = [sources_of(node, self.by_node) for node in pair[:2]]
        known = [step.size for found in map(self.steps_of, sides, sources) for step in found]
        new = [
            {it.size for it in found if all(abs(it.size - own) > SAME_STEP * own for own in known)}
            for found in map(self.steps_of, sides, regions)
        ]
        weights = [*map(self.quantised_weights, sides, regions)]
        return new[0] == new[1] and weights[0] == weights[1]

    def quantised_weights(
        self, side: int, region: Sequence[Node]
    ) -> set[tuple[int, tuple[float, ...]]]:
        """Return the bits and the scales of the quantised weights that some operators take."""
        graph, known = self.graphs[side], self.values[side].quantizations
        keys = {graph.integers_of(key) for node in region for _, key in node.constants}
        found = [(graph.dump.tensor(key).dtype, known[key].scale) for key in keys & known.keys()]
        return {(BITS[dtype], scales) for dtype, scales in found if dtype in BITS}

    def explain_constant(
        self, pair: ConstantPair, size: Size, elements: Elements
    ) -> Explained | None:
        """Return what rounding explains of two constants, None if neither is of a coarse type."""
        steps = [step for step in map(self.step_of, (0, 1), pair[:2]) if step]
        makers = [graph.makers.get(it.key) for graph, it in zip(self.graphs, pair[:2], strict=True)]
        if not steps and not any(it and "dequantize" in it.type.lower() for it in makers):
            # One side may have them in a coarse type, although the engine stores another.
            unit = UNITS.get(self.whole)
            return Explained(self.whole, unit) if unit else None
        low, high = extent_of(elements)
        # If the dump lacks the integers, their scale is not known.
        known = steps or [Step((high - low) / 2.0**8, 8)]
        step = max(it.size for it in known)
        error = step / math.sqrt(12) / size.scale if size.scale else 0.0
        return Explained(f"int{min(it.bits for it in known)}", error, step)

    def learn_from_weights(self, pairs: Sequence[ConstantPair]) -> None:
        """Detect a side whose weights were rounded to float16 and are stored in a wider type.

        All of several weights must be so: a single one is an operator at fault.
        """
        large = [pair for pair in pairs if pair.expected.dtype == "float32"]
        large = [pair for pair in large if prod(pair.expected.shape) >= LEAST_WEIGHTS]
        rounded = [
            all(is_rounded(values.elements(pair[:2][side])) for pair in large)
            for side, values in enumerate(self.values)
        ]
        if len(large) > 1 and rounded[0] != rounded[1]:
            self.whole = coarsest([self.whole, "float16"])

    def steps_of(self, side: int, nodes: Iterable[Node]) -> list[Step]:
        """Return the steps of those tensors that are quantised."""
        found = (self.step_of(side, node.tensor) for node in nodes if node.tensor)
        return [step for step in found if step]

    def step_of(self, side: int, tensor: DumpedTensor | TensorFacts) -> Step | None:
        """Return the largest step of a quantised tensor, None for any other tensor."""
        quantization = self.values[side].quantization_of(tensor)
        if quantization is None:
            return None
        bits, lowest = bits_of(tensor.dtype)
        least = lowest - quantization.zero_point[0]
        return Step(max(quantization.scale), bits, (least, least + 2**bits - 1))

    def growth_of(self, pair: Pair) -> float:
        """Return the factor by which a sum of products enlarges its inputs' errors.

        It is larger for numbers that are much alike.
        """
        found = [LEAST_GROWTH]
        for node in sources_of(pair.expected, self.by_node):
            if node.tensor is None:
                continue
            sums = np.zeros(3)
            for block in self.values[1].elements(node.tensor).blocks():
                finite = block[np.isfinite(block)].astype(np.float64)
                sums += finite.size, finite.sum(), finite @ finite
            count, total, square = map(float, sums)
            varying = square - total**2 / count if count else 0.0
            found.append(LEAST_GROWTH * math.sqrt(square / varying) if varying > 0 else MOST_GROWTH)
        return min(max(found), MOST_GROWTH)


def precision_of_sides(graphs: Sequence[Graph]) -> str:
    """Return the coarse type that one of two sides computes in, or rounds factors to.

    If both sides have its weights and compute the same graph in a wider type, these are rounded
    only once; a fusion rounds weights again.
    """
    stored = coarsest(map(stored_type_of, graphs))
    named = [
        coarsest(graph.kinds.rounded_type_of(it.name) for it in graph.dump) for graph in graphs
    ]
    alike = named[0] == named[1] and len(graphs[0].nodes) == len(graphs[1].nodes)
    factors = coarsest(graph.dump.index.products for graph in graphs)
    return stored or ("" if alike else coarsest(named)) or factors


def stored_type_of(graph: Graph) -> str:
    """Return the coarse type that many of a side's tensors have, else empty."""
    types = [node.tensor.dtype.lower() for node in graph.nodes if node.tensor]
    floats = [name for name in types if "float" in name]
    for name in UNITS:
        if floats and floats.count(name) >= COARSE_SHARE * len(floats):
            return name
    return ""


def is_rounded(elements: Elements) -> bool:
    """Return whether all elements are float16 numbers."""
    with np.errstate(over="ignore"):
        return all(np.array_equal(it.astype(np.float16), it) for it in elements.blocks())


def inherited(
    sources: Sequence[TensorComparison], kinds: set[str], scale: float, growth: float
) -> float:
    """Return the error that a tensor gets from its inputs' errors; `scale` is the tensor's size.

    If an input differs by more than rounding, only the explained part is passed on and does not
    grow: a fault must not explain itself.
    """
    errors, failed = [], [0.0]
    for source in sources:
        figures = source.figures
        if figures is None:
            continue
        if source.passed:
            errors.append((figures.relative_l2 or 0.0, figures.scale or 0.0))
        else:
            failed.append(source.explained or 0.0)
    growing = growth * max((error for error, _ in errors), default=0.0)
    if kinds <= KEEPING and scale:
        added = math.hypot(*(error * size for error, size in errors)) / scale
        growing = min(added, 4 * growing)
    return math.hypot(growing, max(failed))
