"""Measures the errors of matching tensors, and compares these errors with rounding errors.

Tensors are compared in plain axes and as real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from math import inf, prod
from typing import Any, TypeVar

import numpy as np

from lar.comparison.apart import work_apart
from lar.comparison.metrics import Bounds, bounds_of, measure, size_beside
from lar.comparison.rounding import Explain, Rounding, worst_channel_of
from lar.dumps import Array, DumpedTensor, Stored
from lar.dumps.excerpts import STATISTICS, as_printed
from lar.graphs import UNKNOWN_STEPS
from lar.graphs.graph import LOOPS, Graph, Node, is_end, name_of, region_of, results_of, sources_of
from lar.graphs.matching import BITS, ConstantPair, Pair, Twins
from lar.graphs.signatures import (
    Elements,
    Values,
    elements_of,
    learn_of_twins,
    sample_places,
    squeezed,
    whole,
)
from lar.records.comparison import (
    MatchedBy,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Tolerance,
)

Facts = TypeVar("Facts", TensorFacts, OperatorFacts, SideFacts)
Names = tuple[str, str]  # the names of the two sides
Tensors = tuple[DumpedTensor, DumpedTensor]

# Two tensors in different axes are one quantity if their cosine is above this.
SAME_QUANTITY = 0.99

# If a tensor has more axes than this, other orders of its axes are not tried.
MOST_AXES = 6

# Constants with no more than MANY elements together are compared faster than a process is copied.
# The copy holds a pair of tensors beside the pair in this process. So the process is copied only
# if every constant has fewer than LARGEST elements.
MANY, LARGEST = 1 << 22, 1 << 24

# If clipping changes a tensor by more than this part of its length, the range is wrong.
MOST_CLIPPED = 0.05

# These operators round as if their results were near 1. If results are far smaller, two float32
# implementations may differ by NEAR_ONE_ROUNDING: for -16, ONNX Runtime's sigmoid is 0 or 1.5e-7.
NEAR_ONE = {"sigmoid", "hardsigmoid", "softmax", "tanh"}
NEAR_ONE_ROUNDING = 4 * 2.0**-23
# A tensor within that tolerance holds only numbers far below 1 if its relative error is above this.
FAINT = 1e-3


@dataclass
class Measure:
    """Compares pairs of tensors of two dumps.

    `graphs` and `values` have one entry for each side.

    If the user gave no tolerance, a difference that rounding explains counts as equal.
    """

    graphs: tuple[Graph, Graph]
    values: tuple[Values, Values]
    tolerance: Tolerance
    rounding: Rounding

    @property
    def by_default(self) -> bool:
        """Whether the user gave no tolerance."""
        return self.tolerance == Tolerance()

    @property
    def excerpts(self) -> bool:
        """Whether the dumps hold only a few numbers of each tensor."""
        return self.values[0].dump.excerpts

    def measure_constants(self, pairs: Sequence[ConstantPair]) -> dict[str, TensorComparison]:
        """Compare pairs of constants; return the comparisons by the key of the actual constant."""
        found = {}
        for pair in pairs:
            explain = partial(self.rounding.explain_constant, pair) if self.by_default else None
            compared = self.compare((pair.actual, pair.expected), pair.by, explain)
            found[pair.actual.key] = replace(compared, constant=True)
        return found

    def measure_alone(
        self,
        pair: Pair,
        array: Array,
        fed: Mapping[Pair, Array],
        compared: Mapping[Node, TensorComparison],
    ) -> TensorComparison:
        """Compare the expected tensor with the output of an operator that was run alone.

        `array` is the output, in the form in which the actual side stores tensors. `fed` has the
        values that the operator was fed with. The fed values are rounded to the types of the actual
        side, and the error of this rounding does not count as a fault.
        """
        sources = []
        for each, value in fed.items():
            lost = self.with_actual(each, value).compare(tensors_of(each), each.by)
            sources.append(replace(lost, passed=True, precision=compared[each.actual].precision))
        rounding = self.rounding.among((*fed, pair))
        found = self.with_actual(pair, array).measure_pair(pair, sources, rounding)
        return replace(found, is_output=compared[pair.actual].is_output)

    def measure_pair(
        self, pair: Pair, sources: Sequence[TensorComparison], rounding: Rounding
    ) -> TensorComparison:
        """Compare a pair of computed tensors; by default, rounding may explain the difference.

        `sources` are the comparisons of the nearest pairs before this pair. A tensor that is
        rounded to integers between a source and the pair counts as a further source.
        """
        known, explain = known_side(pair), None
        if self.by_default and not self.excerpts:
            sources = [*sources, *self.measure_rounded(pair, rounding)]
            explain = partial(rounding.explain, pair, sources)
        faint = faint_bounds(pair, sources) if self.by_default else None
        # An engine may reshape a tensor inside the model in another way. Outputs keep their shape.
        inside = all(
            node.is_move and node not in graph.outputs
            for node, graph in zip(pair[:2], self.graphs, strict=True)
        )
        found = self.compare(tensors_of(pair), pair.by, explain, sources, faint, inside)
        return replace(found, depth=known.depth, is_input=known.is_input)

    def measure_rounded(self, pair: Pair, rounding: Rounding) -> Iterator[TensorComparison]:
        """Yield the errors that quantisation makes between a pair and its sources.

        Quantisation rounds numbers to integers, and clips them. Each error is a comparison of the
        integers with the numbers before rounding.
        """
        for side, integers, numbers in rounding.rounded_within(pair):
            values = self.values[side]
            one, other = values.elements(integers), values.elements(numbers)
            if squeezed(one.shape) == squeezed(other.shape):
                figures = measure(one._replace(shape=other.shape), other, Bounds(inf))
                error = min(figures.relative_l2 or 0.0, MOST_CLIPPED)
                yield TensorComparison(
                    actual=self.facts_of(side, integers),
                    expected=self.facts_of(side, numbers),
                    matched_by="graph",
                    passed=True,
                    precision=f"int{BITS.get(integers.dtype.partition('(')[0], 8)}",
                    figures=replace(figures, relative_l2=error),
                )

    def with_actual(self, pair: Pair, array: Array) -> Measure:
        """Return a `Measure` with an array in place of a pair's actual tensor."""
        alone = self.values[0].with_array(tensor_of(pair.actual).key, array)
        return replace(self, values=(alone, self.values[1]))

    def compare(
        self,
        tensors: Tensors,
        by: MatchedBy,
        explain: Explain | None = None,
        sources: Sequence[TensorComparison] = (),
        faint: Bounds | None = None,
        any_shape: bool = False,
    ) -> TensorComparison:
        """Compare two tensors; with `explain`, tolerate an error that rounding can cause.

        `faint` is the least tolerance, for tensors that hold numbers far below 1. If `any_shape` is
        true, tensors of different shapes are compared too, element by element in their order, if
        both have the same number of elements.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        if self.excerpts:
            return self.compare_excerpts(tensors, by)
        learn_of_twins(self.values, tensors)
        quantizations = [*map(Values.quantization_of, self.values, tensors)]
        # If a side does not say what its integers stand for, only the integers can be compared.
        as_integers = None in quantizations and tensors[0].dtype == tensors[1].dtype
        read = partial(Values.elements, integers=as_integers)
        one, other = map(read, self.values, tensors)
        if tensors[0].dtype == tensors[1].dtype == "string":
            one, other = padded(one, other), padded(other, one)
        fits = squeezed(one.shape) == squeezed(other.shape)
        axes = () if fits else axes_between(one, other)
        if not fits and not axes and not (any_shape and one.size == other.size):
            return self.unlike(tensors, by)
        one = (permuted(one, axes) if axes else one)._replace(shape=other.shape)
        scales = [] if as_integers else [max(it.scale) for it in quantizations if it]
        dtypes = (it.dtype for it in tensors)
        bounds = bounds_of(self.tolerance, *dtypes, step=max(scales, default=None))
        if faint and bounds.scaled:
            bounds = bounds._replace(atol=max(bounds.atol, faint.atol), least=faint.least)
        size = size_beside(one, other)
        plain = not (as_integers and any(quantizations))
        explained = explain(size, other) if explain and plain else None
        figures = measure(one, other, explained.bounds if explained else bounds, size)
        passed = not figures.mismatches
        if explained:
            before = [it.figures for it in sources if it.figures]
            passed = explained.passes(
                figures, before, lambda: worst_channel_of(one, other, size.fill)
            )
        if not (fits or passed) and (figures.cosine or 0.0) <= SAME_QUANTITY:
            return self.unlike(tensors, by)
        return self.record_of(
            *(tensors, by),
            passed=passed,
            axes=axes,
            precision=explained.precision if explained else "",
            explained=explained.error if explained else None,
            figures=figures,
        )

    def unlike(self, tensors: Tensors, by: MatchedBy) -> TensorComparison:
        """Return the comparison of two tensors whose shapes differ."""
        shapes = " and ".join(map(str, map(Values.shape_of, self.values, tensors)))
        return self.record_of(tensors, by, passed=False, problem=f"shapes differ: {shapes}")

    def record_of(self, tensors: Tensors, by: MatchedBy, **found: Any) -> TensorComparison:
        """Return the comparison of two tensors.

        `found` has all fields of the comparison except the two tensors and the rule that matched
        them.
        """
        actual, expected = map(self.facts_of, (0, 1), tensors)
        return TensorComparison(actual=actual, expected=expected, matched_by=by, **found)

    def compare_excerpts(self, tensors: Tensors, by: MatchedBy) -> TensorComparison:
        """Compare two excerpts: the statistics and, if the layouts are equal, the first values."""
        found = self.unlike(tensors, by)
        if squeezed(found.actual.shape) != squeezed(found.expected.shape):
            return found
        one, other = (side.dump.read(it.key) for side, it in zip(self.values, tensors, strict=True))
        if tensors[0].layout != tensors[1].layout or one.size != other.size:
            one, other = (side[: len(STATISTICS)] for side in (one, other))
        bounds = bounds_of(self.tolerance, tensors[1].dtype)
        figures = measure(as_printed(one, other), other, bounds)
        figures = replace(figures, first=None, worst=None)  # excerpts have no places in the tensor
        return replace(found, passed=not figures.mismatches, figures=figures, problem="")

    def facts_of(self, side: int, tensor: DumpedTensor) -> TensorFacts:
        """Return the record of a tensor of one side."""
        maker = self.graphs[side].makers.get(tensor.key)
        return facts_from(
            TensorFacts,
            tensor,
            name=name_of(tensor),
            shape=self.values[side].shape_of(tensor),
            engine_name=tensor.name if tensor.origin else "",
            operator=maker.name if maker else "",
            operator_type=maker.type if maker else "",
            quantization=self.values[side].quantization_of(tensor) or tensor.quantization,
        )


class Paired:
    """Two graphs, their pairs of matching tensors (twins), and the comparisons of all pairs.

    `compared` maps the actual node of each pair of computed tensors to the pair's comparison.
    `constants` maps the key of each actual constant to the constant's comparison. `drawn` are pairs
    that differ because of random operators; they are not among the `pairs`. `outputs` are the
    actual nodes of the models' outputs. `names` are the names of the two sides.
    """

    def __init__(self, measure: Measure, twins: Twins, names: Names) -> None:
        self.measure, self.twins, self.names = measure, twins, names
        self.graphs, self.values = measure.graphs, measure.values
        self.by_node = measure.rounding.by_node = {
            node: pair for pair in in_order(twins.pairs) for node in pair[:2]
        }
        self.outputs = self.find_outputs()
        self.compared: dict[Node, TensorComparison] = {}
        self.constants: dict[str, TensorComparison] = {}
        self.drawn: list[Pair] = []

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, in the order that the expected tensors have in their graph."""
        return [pair for node, pair in self.by_node.items() if node is pair.actual]

    @cached_property
    def loops(self) -> list[Pair]:
        """The pairs whose operators are loops, which run a subgraph in each iteration."""
        return [pair for pair in self.pairs if type_of(pair) in LOOPS]

    def find_outputs(self) -> set[Node]:
        """Return the actual nodes of the models' outputs.

        An output of the actual model that has no matching tensor is included. If an output is only
        a copy of another tensor, the pair of the copied tensor stands for the output. If a dump
        does not name its outputs, the tensors that no operator reads count as outputs.
        """
        found: set[Node] = set()
        for side, graph in enumerate(self.graphs):
            for node in graph.outputs or filter(is_end, graph.present):
                pair = self.pair_of(node)
                if pair is not None:
                    found.add(pair.actual)
                elif side == 0 and graph.outputs:
                    found.add(node)
        return found

    def pair_of(self, node: Node) -> Pair | None:
        """Return the pair of a tensor; a copy that has no pair gets the pair of its original."""
        return self.by_node.get(node) or self.by_node.get(self.twins.originals.get(node, node))

    def measure_all(self, progress: Callable[[str], None]) -> None:
        """Measure every pair; put pairs that differ because of random operators into `drawn`."""
        constants, is_whole = self.twins.constants, not self.measure.excerpts
        if is_whole and self.measure.by_default:
            self.measure.rounding.learn_from_weights(constants)
        for pair in constants if is_whole else ():
            learn_of_twins(self.values, pair[:2])
        sizes = [prod(it.expected.shape) for it in constants]
        beside = work_apart if sum(sizes) > MANY and max(sizes) < LARGEST else nullcontext
        with beside(partial(self.measure.measure_constants, constants)) as measured:
            self.measure_computed(progress)
            self.constants = measured()

    def measure_computed(self, progress: Callable[[str], None]) -> None:
        """Measure every pair that the models compute, one at a time."""
        pairs = self.pairs
        for number, pair in enumerate(pairs):
            progress(f"{number} of {len(pairs)} tensors compared")
            sources = [self.found(it) for it in self.sources(pair) if it.actual in self.compared]
            found = self.measure.measure_pair(pair, sources, self.measure.rounding)
            if not found.passed and self.is_drawn(pair):
                self.drawn.append(pair)
            else:
                self.compared[pair.actual] = replace(found, is_output=pair.actual in self.outputs)
        for node in (node for pair in self.drawn for node in pair[:2]):
            del self.by_node[node]

    def is_drawn(self, pair: Pair) -> bool:
        """Return whether the random numbers of a side may be why a pair differs.

        Random numbers are not the reason if the operators between the pair and its sources draw no
        numbers, and if all sources are equal.
        """
        random = (graph.random for graph in self.graphs)
        if not any(map(set.__contains__, random, pair[:2])):
            return False
        before = [self.compared.get(it.actual) for it in self.sources(pair)]
        draws = any(
            not graph.drawing.isdisjoint(region_of(node, self.by_node))
            for node, graph in zip(pair[:2], self.graphs, strict=True)
        )
        return draws or not all(it and it.figures and it.figures.identical for it in before)

    def found(self, pair: Pair) -> TensorComparison:
        return self.compared[pair.actual]

    def around(self, pair: Pair, near: Callable[..., list[Node]]) -> list[Pair]:
        """Return the pairs that are nearest to a pair in the graph of either side.

        `near` is a function that returns the nearest nodes before or behind a node.
        """
        nodes = (node for side in pair[:2] for node in near(side, self.by_node))
        return [*dict.fromkeys(map(self.by_node.__getitem__, nodes))]

    def sources(self, pair: Pair) -> list[Pair]:
        return self.around(pair, sources_of)

    def results(self, pair: Pair) -> list[Pair]:
        return self.around(pair, results_of)

    def grow_gradually(self) -> bool:
        """Return whether any operator enlarges errors that its inputs already have."""
        found = ((self.found(pair), self.sources(pair)) for pair in self.pairs)
        return any(1 < growth_of(it, map(self.found, sources)) < inf for it, sources in found)

    def wrong_inputs(self) -> Iterator[TensorComparison]:
        """Yield the comparisons of the model's inputs that differ."""
        return (it for it in self.compared.values() if it.is_input and not it.passed)

    def constants_of(self, nodes: Iterable[Node]) -> list[TensorComparison]:
        """Return the comparisons of the constants that the operators of actual nodes read."""
        integers_of = self.graphs[0].integers_of
        taken = dict.fromkeys(integers_of(key) for node in nodes for _, key in node.constants)
        return [self.constants[key] for key in taken if key in self.constants]


def facts_from(kind: type[Facts], source: object, /, **own: Any) -> Facts:
    """Return a record whose fields are copied from the attributes of an object.

    Each attribute is copied to the field of the same name. `own` has the values of all fields that
    are not copied.
    """
    known = vars(source)
    names = (kind.__dataclass_fields__.keys() & known.keys()) - own.keys()
    return kind(**own, **{name: known[name] for name in names})


def axes_between(one: Elements, other: Elements) -> tuple[int, ...]:
    """Return the order of axes in which one tensor's values are nearest to another tensor's values.

    The result is empty if no order of axes makes the shapes equal. Axes of size 1 are left out.
    """
    array, wanted = (whole(it).reshape(squeezed(it.shape)) for it in (one, other))
    orders = permutations(range(array.ndim)) if array.ndim <= MOST_AXES else ()
    fitting = [axes for axes in orders if array.transpose(axes).shape == wanted.shape]
    spots = np.unravel_index(sample_places(other.size), wanted.shape) if fitting else ()

    def distance(axes: tuple[int, ...]) -> float:
        apart = np.subtract(array.transpose(axes)[spots], wanted[spots], dtype=np.float64)
        return float(np.abs(np.nan_to_num(apart)).sum())

    return min(fitting, key=distance, default=())


def padded(text: Elements, other: Elements) -> Elements:
    """Pad the last axis of encoded strings with zeros, up to the width on the other side."""
    more = (other.shape or (0,))[-1] - (text.shape or (0,))[-1]
    if more <= 0:
        return text
    widths = [(0, 0)] * (len(text.shape) - 1) + [(0, more)]
    return elements_of(Stored(np.pad(whole(text), widths)))


def permuted(elements: Elements, axes: tuple[int, ...]) -> Elements:
    """Return the elements of a tensor in another order of axes, without axes of size 1."""
    array = whole(elements).reshape(squeezed(elements.shape)).transpose(axes)
    return elements_of(Stored(np.ascontiguousarray(array)))


def faint_bounds(pair: Pair, sources: Iterable[TensorComparison]) -> Bounds:
    """Return the least tolerance of a pair whose numbers may be far below 1.

    For example, a sigmoid rounds as if its results were near 1, even if they are far smaller. The
    tolerance is also larger for numbers that are computed from the results of a sigmoid.
    """
    steps = {step for node in pair[:2] for step in node.steps}
    peaks = (
        it.figures.peak or 0.0
        for it in sources
        if it.passed and it.figures and not it.precision and (it.figures.relative_l2 or 0) > FAINT
    )
    least = 0.0 if steps.isdisjoint(NEAR_ONE) else NEAR_ONE_ROUNDING
    return Bounds(atol=4 * sum(peaks), least=least)


def known_side(pair: Pair) -> Node:
    """Return the expected node of a pair; the actual node if the expected dump has no operators."""
    return pair.actual if pair.expected.steps == UNKNOWN_STEPS else pair.expected


def type_of(pair: Pair) -> str:
    """Return the type of the operator that computes a pair; empty if the type is unknown."""
    operator = known_side(pair).operator
    return operator.type if operator else ""


def tensor_of(node: Node) -> DumpedTensor:
    assert node.tensor
    return node.tensor


def tensors_of(pair: Pair) -> Tensors:
    return tensor_of(pair.actual), tensor_of(pair.expected)


def in_order(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs in the order that the expected tensors have in their graph."""
    yield from sorted(pairs, key=lambda pair: known_side(pair).place)


def error_of(found: TensorComparison) -> tuple[float, float]:
    """Return the relative errors of the whole tensor and of its worst element."""
    figures = found.figures
    if figures is None or figures.nonfinite_mismatches or figures.relative_l2 is None:
        return (0.0, 0.0) if found.passed else (inf, inf)
    return figures.relative_l2, figures.peak or 0.0


def growth_of(found: TensorComparison, sources: Iterable[TensorComparison]) -> float:
    """Return the factor by which a tensor's error exceeds the errors of its inputs.

    The factor is infinite if the tensor has an error, but its inputs have no errors. One factor is
    computed for the error of the whole tensor, and one for the error of the worst element. The
    result is the larger of the factors for the whole tensor and for its worst element, since a
    fault may concern only one element.
    """
    before = [error_of(source) for source in sources]
    growths = [0.0]
    for place, error in enumerate(error_of(found)):
        most = max((each[place] for each in before), default=0.0)
        if error > 0:
            growths.append(error / most if most > 0 else inf)
    return max(growths)
