"""Computes the largest difference between two tensors that rounding can explain.

An operator adds its own rounding error to the errors of its inputs. The operator's own rounding
error depends on the coarser of the two sides' types. A floating-point type has the relative
rounding u, and a quantised type has the step s.

If an output is stored in a type with the relative rounding u, the error of each element is u times
this element. If an output is stored in a quantised type with the step s, the error of an element is
s / 2 at most, and s / sqrt(12) on average.

A sum of K products that is computed with the relative rounding u has an error of about sqrt(K) u.
lar assumes that every sum has as many products (K) as a usual convolution. If only the factors of
the products are rounded, as in TF32, the error of the sum is the relative rounding u of the
factors, and storing the sum adds no error. Weights that are stored in the coarse type add a
rounding error too.

An operator also passes on the errors of its inputs. An addition or a maximum adds up the errors of
its inputs, and other operators may make the errors several times as large. An error is the length
(L2 norm) of the difference, divided by the length of the tensor. An operator is at fault if its
error is much larger than the rounding error that the rules in this module allow.

The rules for rounding apply to sides that compute in a type coarser than float32. Two float32 runs
are compared with a fixed tolerance, which is smaller than the error of a cast to any coarser type.
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

# The relative rounding of types to which the factors of float32 products may be rounded.
OF_FACTORS = {"tf32": 2.0**-11}

# The error of float32 factors that an operator rounds to 8 bits, by a scale for each row or block.
OF_8_BITS = 0.01

# The largest error that rounding to float32 explains.
FINE = 1e-5

# A side computes in a coarse type as a whole if at least this part of its tensors have that type.
# If fewer tensors have it, casts between float32 operators are a fault.
COARSE_SHARE = 0.25

# If two sides round equal numbers in different ways, some numbers differ by a step, but few enough
# that the mean difference is below this part of a step.
OF_A_STEP = 0.75

# Two steps that differ by less than this part are equal.
SAME_STEP = 0.01

# Fewer weights than this may be float16 numbers by chance.
LEAST_WEIGHTS = 32

# Rounding explains an error up to this many times the expected error.
SLACK = 4.0

# Rounding never explains an error above this part of the tensor's length.
MOST_EXPLAINED = 0.7

# The factor by which an operator enlarges the errors of its inputs. In a sum of similar numbers,
# the numbers cancel out, but their errors do not: the factor is large. In other sums it is small.
GROWTH = 3.0
LEAST_GROWTH, MOST_GROWTH = 1.25, 6.0

# The number of products that a convolution or a matrix product usually adds up.
USUAL_SUM = 1000

# The error that rounded weights usually add. Weights of 4 bits have a scale for each block.
OF_WEIGHTS = {"int4": 0.1, "int8": 0.02, "int16": 1e-4}

# Channels with fewer elements than this are not measured.
LEAST_ELEMENTS = 4

# For dumps without operators: the rounding error that adds up in a deep network.
WITHOUT_GRAPH = dict.fromkeys(("tf32", "float16", "int16"), 0.03)
WITHOUT_GRAPH |= {"bfloat16": 0.1, "int8": 0.3, "int4": 1.0}

# The largest error of an element that counts as rounding, in units of the error of the whole.
PEAK = 2.0
# An element's error may be up to this many times the largest error of an element of the inputs.
PEAK_GROWTH = 12.0

# Operators that add up the errors of their inputs, or keep the largest.
KEEPING = {
    *("add", "sum", "sub", "move", "cast", "concat", "pool", "input"),
    *("tanh", "sigmoid", "leakyrelu", "hardsigmoid", "identity", "split", "slice", "pad", "gather"),
    *GROUPS["activation"],
}


class Explained(NamedTuple):
    """The difference that rounding explains.

    `precision` is the coarse type, `error` the error of the whole tensor, and `step` the step of a
    quantised type. If `stored` is true, both sides compute in the same way, and only the results
    are rounded.
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
        """The largest error of a whole tensor that counts as rounding."""
        usual = DEFAULT_RTOL.get(self.precision, 0.0 if self.step else DEFAULT_RTOL["float32"])
        return max(min(SLACK * self.error, MOST_EXPLAINED), usual)

    def passes(
        self, figures: Figures, sources: Sequence[Figures], worst_channel: Callable[[], float]
    ) -> bool:
        """Return whether rounding explains a tensor's error, given the errors of its inputs.

        `worst_channel` returns the error of the tensor's worst channel.
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
        stands_out = figures.mismatches and (figures.peak or 0.0) > PEAK_GROWTH * before
        return not stands_out and worst_channel() <= self.limit


class Step(NamedTuple):
    """The step between neighbouring values of a quantised type, its bits, and its range.

    `ends` has the lowest and the highest value, each divided by the step.
    """

    size: float
    bits: int
    ends: tuple[int, int] = (0, 0)


# A function that takes the size and the elements of an expected tensor.
Explain = Callable[[Size, Elements], "Explained | None"]


def worst_channel_of(one: Elements, other: Elements, fill: float) -> float:
    """Return the largest relative error of a channel.

    The error of a channel is divided by the length (L2 norm) of the channel, or by the usual length
    of a channel if the usual length is larger. The largest error of a channel shows a single wrong
    channel, even if the error of the whole tensor is small. Numbers that are not finite on one side
    are left out, and so are fills (huge numbers such as -1e9 in a mask).
    """
    shape = other.shape
    axis = channel_axis(len(shape))
    if len(shape) < 2 or shape[axis] < 2 or other.size < LEAST_ELEMENTS * shape[axis]:
        return 0.0
    channels, behind = shape[axis], prod(shape[axis + 1 :])
    errors, mine, theirs = np.zeros((3, channels))
    for number, (left, right) in enumerate(zip(one.blocks(), other.blocks(), strict=True)):
        places = np.arange(number * BLOCK, number * BLOCK + right.size) // behind % channels
        counted = np.isfinite(left) & (np.abs(right) < fill)
        sides = [np.where(counted, side, 0.0).astype(np.float64) for side in (left, right)]
        for sums, values in ((errors, sides[0] - sides[1]), (mine, sides[0]), (theirs, sides[1])):
            sums += np.bincount(places, np.square(values), channels)
    lengths = np.maximum(mine, theirs)
    usual = max(float(mine.mean()), float(theirs.mean()))
    return math.sqrt(float((errors / np.maximum(lengths, usual)).max())) if usual else 0.0


def coarsest(precisions: Iterable[str]) -> str:
    """Return the coarsest of some types; empty if no coarse type is among them."""
    found = {*precisions}
    order = ("int4", "int8", "bfloat16", "float16", "int16", "tf32")
    return next((each for each in order if each in found), "")


class Rounding:
    """The differences that rounding explains in two graphs.

    `by_node` has the pair of each node.
    """

    def __init__(self, graphs: tuple[Graph, Graph], values: tuple[Values, Values]) -> None:
        self.graphs, self.values = graphs, values
        self.by_node: Mapping[Node, Pair] = {}
        self.whole = precision_of_sides(graphs)
        self.one_model = len({graph.dump.index.model_sha256 for graph in graphs}) == 1

    def among(self, pairs: Iterable[Pair]) -> Rounding:
        """Return a copy of this object with only the given pairs."""
        other = copy(self)
        other.by_node = {node: pair for pair in pairs for node in pair[:2]}
        return other

    def explain(
        self, pair: Pair, sources: Sequence[TensorComparison], size: Size, _: Elements
    ) -> Explained | None:
        """Return the largest difference that rounding explains between the two tensors of a pair.

        The result is None if all types are as fine as float32. `size` is the `Size` of the expected
        tensor.
        """
        regions = [region_of(node, self.by_node) for node in pair[:2]]
        types = (it.tensor.dtype.lower() for it in pair[:2] if it.tensor)
        by_side = [*map(self.steps_of, (0, 1), regions)]
        steps = [*by_side[0], *by_side[1]]
        weights = [*map(self.quantised_weights, (0, 1), regions)]
        # If the quantised weights of one side are not known, the weights count as equal, provided
        # that both sides are quantised, or none.
        is_known = all(weights) or not any([*weights, *by_side])
        alike = weights[0] == weights[1] if is_known else all(by_side)
        taken = {bits for side in weights for bits, _ in side}
        quantised = [f"int{bits}" for bits in (*(it.bits for it in steps), *taken) if bits <= 16]
        # For factors that are quantised tensors, their steps give the error.
        rounding = [*map(self.rounding_of, (0, 1), regions)]
        rounded = not steps and "8-bit-factors" in {what for what, _ in rounding[0] ^ rounding[1]}
        before = ["int8"] * rounded + [it.precision for it in sources]
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
        added = [unit, inherited(sources, kinds, size.scale, growth), OF_8_BITS * rounded]
        if size.scale:
            added.append(step / math.sqrt(12) / size.scale)
        if summed:
            added.append(OF_FACTORS.get(precision, unit * math.sqrt(USUAL_SUM)))
        stored = alike or not (summed or taken)
        if precision.startswith("int") and not stored:
            added.append(OF_WEIGHTS[precision])
        return Explained(precision, math.hypot(*added), step, stored)

    def rounded_within(self, pair: Pair) -> Iterator[tuple[int, DumpedTensor, DumpedTensor]]:
        """Yield the tensors that are rounded to integers between a pair and its sources.

        Each yielded item has the side, the tensor of integers, and the tensor before rounding.
        """
        for side, end in enumerate(pair[:2]):
            for node in region_of(end, self.by_node):
                before = node.parents[0].tensor if node.is_cast else None
                if node is end or not (node.tensor and before):
                    continue
                if self.step_of(side, node.tensor) and not self.step_of(side, before):
                    yield side, node.tensor, before

    def round_alike(self, pair: Pair) -> bool:
        """Return whether both sides round in the same way between a pair and its sources.

        The result is true if the weights of both sides have equal scales, and the tensors between
        the pair and its sources have equal quantisation steps. The steps of the sources themselves
        are not compared.
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
        """Return the bits and the scales of the quantised weights of a region's operators.

        Weights that are packed for an operator, or that have a scale for each block, have no known
        scales. Packed weights are left out if
        both sides ran the same model, since the weights are then equal.
        """
        graph, known = self.graphs[side], self.values[side].quantizations
        constants = {key for node in region for _, key in node.constants}
        keys = {*map(graph.integers_of, constants)}
        found = [(graph.dump.tensor(key).dtype, known[key].scale) for key in keys & known.keys()]
        packed = () if self.one_model else self.rounding_of(side, region)
        weights = {(BITS[dtype], scale) for dtype, scale in found if dtype in BITS}
        weights |= {(bits, ()) for key in constants if (bits := self.bits_behind(side, key))}
        return weights or {(int(what[0]), ()) for what, _ in packed if "weights" in what}

    def bits_behind(self, side: int, key: str) -> int:
        """Return the bits of a dequantised constant's integers if the dump lacks their scales.

        The result is 0 for other constants.
        """
        graph = self.graphs[side]
        maker = graph.makers.get(key)
        if maker is None or key in graph.dequantized or "dequantize" not in maker.type.lower():
            return 0
        return int(maker.parameters.get("bits", 8))

    def explain_constant(
        self, pair: ConstantPair, size: Size, elements: Elements
    ) -> Explained | None:
        """Return the largest difference that rounding explains between two constants.

        The result is None if neither constant has a coarse type.
        """
        steps = [step for step in map(self.step_of, (0, 1), pair[:2]) if step]
        makers = [graph.makers.get(it.key) for graph, it in zip(self.graphs, pair[:2], strict=True)]
        if not steps and not any(it and "dequantize" in it.type.lower() for it in makers):
            # The weights of one side may be rounded to a coarse type, and stored in another one.
            unit = UNITS.get(self.whole)
            return Explained(self.whole, unit) if unit else None
        low, high = extent_of(elements)
        # If the dump lacks the integers, their scale is not known.
        known = steps or [Step((high - low) / 2.0**8, 8)]
        step = max(it.size for it in known)
        error = step / math.sqrt(12) / size.scale if size.scale else 0.0
        return Explained(f"int{min(it.bits for it in known)}", error, step)

    def learn_from_weights(self, pairs: Sequence[ConstantPair]) -> None:
        """Detect a side whose weights were rounded to float16, and stored in a wider type.

        The side is detected only if it has several large weights, and all of them are rounded. If
        only one of several weights was rounded, the rounding is a fault of an operator.
        """
        large = [pair for pair in pairs if pair.expected.dtype == "float32"]
        large = [pair for pair in large if prod(pair.expected.shape) >= LEAST_WEIGHTS]
        rounded = [
            all(is_rounded(values.elements(pair[:2][side])) for pair in large)
            for side, values in enumerate(self.values)
        ]
        if len(large) > 1 and rounded[0] != rounded[1]:
            self.whole = coarsest([self.whole, "float16"])

    def rounding_of(self, side: int, region: Sequence[Node]) -> set[tuple[str, str]]:
        """Return what the operators of a region round to integers (`OperatorKinds.rounding`)."""
        operators, kinds = (it.operator for it in region), self.graphs[side].kinds
        return {(what, it.type) for it in operators if it for what in kinds.rounding_of(it)}

    def steps_of(self, side: int, nodes: Iterable[Node]) -> list[Step]:
        """Return the steps of the quantised tensors among some nodes."""
        found = (self.step_of(side, node.tensor) for node in nodes if node.tensor)
        return [step for step in found if step]

    def step_of(self, side: int, tensor: DumpedTensor | TensorFacts) -> Step | None:
        """Return the step of a quantised tensor by its largest scale, or None for other tensors."""
        quantization = self.values[side].quantization_of(tensor)
        if quantization is None:
            return None
        bits, lowest = bits_of(tensor.dtype)
        least = lowest - quantization.zero_point[0]
        return Step(max(quantization.scale), bits, (least, least + 2**bits - 1))

    def growth_of(self, pair: Pair) -> float:
        """Return the factor by which a sum of products enlarges the errors of its inputs.

        The more similar the numbers in an input are to each other, the larger the factor is.
        """
        found = [LEAST_GROWTH]
        for tensor in [it.tensor for it in sources_of(pair.expected, self.by_node) if it.tensor]:
            sums = np.zeros(3)
            for block in self.values[1].elements(tensor).blocks():
                finite = block[np.isfinite(block)].astype(np.float64)
                sums += finite.size, finite.sum(), finite @ finite
            count, total, square = map(float, sums)
            varying = square - total**2 / count if count else 0.0
            found.append(LEAST_GROWTH * math.sqrt(square / varying) if varying > 0 else MOST_GROWTH)
        return min(max(found), MOST_GROWTH)


def precision_of_sides(graphs: Sequence[Graph]) -> str:
    """Return the type coarser than float32 in which a side computes, or to which it rounds factors.

    If both sides compute the same graph in a type wider than the model's type, the model's type is
    not returned, because both sides use the same rounded weights. If the graphs differ, lar assumes
    that an engine has fused operators and rounded the weights again.
    """
    stored = coarsest(map(stored_type_of, graphs))
    named = [
        coarsest(graph.kinds.rounded_type_of(it.name) for it in graph.dump) for graph in graphs
    ]
    alike = named[0] == named[1] and len(graphs[0].nodes) == len(graphs[1].nodes)
    factors = coarsest(graph.dump.index.products for graph in graphs)
    return stored or ("" if alike else coarsest(named)) or factors


def stored_type_of(graph: Graph) -> str:
    """Return the coarse type that many tensors of a side have; empty if few have a coarse type."""
    types = [node.tensor.dtype.lower() for node in graph.nodes if node.tensor]
    floats = [name for name in types if "float" in name]
    least = max(COARSE_SHARE * len(floats), 1)
    return next((name for name in UNITS if floats.count(name) >= least), "")


def is_rounded(elements: Elements) -> bool:
    """Return whether float16 can hold all elements without an error."""
    with np.errstate(over="ignore"):
        return all(np.array_equal(it.astype(np.float16), it) for it in elements.blocks())


def inherited(
    sources: Sequence[TensorComparison], kinds: set[str], scale: float, growth: float
) -> float:
    """Return the error that a tensor gets from the errors of its inputs.

    `scale` is the root mean square of the tensor. If an input differs by more than rounding
    explains, only the part that rounding explains is passed on, and this part is not multiplied by
    `growth`. If the whole error were passed on, a fault would excuse the errors of later operators.
    """
    errors, failed = [], [0.0]
    for source, figures in ((it, it.figures) for it in sources if it.figures):
        if source.passed:
            errors.append((figures.relative_l2 or 0.0, figures.scale or 0.0))
        else:
            failed.append(source.explained or 0.0)
    growing = growth * max((error for error, _ in errors), default=0.0)
    if kinds <= KEEPING and scale:
        added = math.hypot(*(error * size for error, size in errors)) / scale
        growing = min(added, 4 * growing)
    return math.hypot(growing, max(failed))
