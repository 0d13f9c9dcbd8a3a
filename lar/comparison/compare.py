"""The comparison of two dumps: twins are found, each pair is measured, and culprits are named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Literal, TypeAlias

from numpy import unravel_index

from lar.comparison.divergence import (
    Blame,
    Divergence,
    Judge,
    after,
    error_of,
    gain_of,
    in_weight,
    known_side,
    other_side,
)
from lar.comparison.fault_kinds import Names, find_kind
from lar.comparison.isolation import Array, Operators, find_blames, run_alone
from lar.comparison.metrics import Bounds, bounds_of, measure
from lar.comparison.norms import Size
from lar.comparison.permutations import reorder
from lar.comparison.ranges import Ranges
from lar.comparison.rounding import (
    FINE,
    Explain,
    Explained,
    Rounding,
    coarsest,
    worst_channel_of,
)
from lar.dumps.dump import Dump, DumpedTensor
from lar.dumps.excerpts import STATISTICS, as_printed, excerpts_of
from lar.errors import UsageError
from lar.graphs.alignment import Alignment, ConstantPair, align, read
from lar.graphs.elements import whole, with_bias_of
from lar.graphs.graph import (
    Graph,
    Node,
    is_output,
    name_of,
    region_of,
    results_of,
    sources_of,
)
from lar.graphs.matching import Pair
from lar.graphs.operator_kinds import UNKNOWN_STEPS, OperatorKinds
from lar.graphs.signatures import Values, leave_out_padding, share_quantization, squeezed
from lar.options.suggestions import nearest_spelling
from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    Finding,
    MatchedBy,
    Only,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Tolerance,
    UnmatchedTensor,
)
from lar.records.quantization import Quantization

# What takes a few words on what is being done now.
Progress: TypeAlias = Callable[[str], None]


def ignore(text: str) -> None:
    """Take no notice of progress."""


def compare_dumps(
    actual: Dump,
    expected: Dump,
    tolerance: Tolerance | None = None,
    *,
    kinds_of: Callable[[str], OperatorKinds],
    raw: bool = False,
    progress: Progress = ignore,
    operators: Operators | None = None,
    only: Only = "common",
    name_map: Mapping[str, str] | None = None,
    names: Names = ("A", "B"),
) -> Comparison:
    """Compare two dumps; `kinds_of` takes an engine's name and returns what its operators do, and
    `progress` takes what is being done.

    With `operators`, each of the actual side is run alone on the expected values of its inputs too.
    `only` says which of the tensors that both have the finding rests on.
    `name_map` has twins that are known, by their names. `names` are what the sides are called.

    With `raw`, quantised tensors are compared by their integers, else by the real numbers that
    they stand for.

    Raises:
        DumpError: a tensor is missing or damaged.
        UsageError: a side has no tensor of a known twin's name.
    """
    check_name_map(name_map or {}, actual, expected)
    if operators is not None and expected.excerpts:
        raise UsageError(
            "has no whole tensors to feed operators with", flag="--isolate", subject=expected.source
        )
    if actual.excerpts or expected.excerpts:
        actual, expected = excerpts_of(actual), excerpts_of(expected)
    graphs = make_graphs(actual, expected, kinds_of)
    comparison = DumpComparison(
        graphs, tolerance or Tolerance(), only, progress, name_map, raw=raw, names=names
    )
    return comparison.run(operators)


def check_name_map(name_map: Mapping[str, str], actual: Dump, expected: Dump) -> None:
    """Refuse a map with a name that its side does not have.

    Raises:
        UsageError: naming it, and the nearest that there is.
    """
    for letter, dump, wanted in (("A", actual, name_map), ("B", expected, name_map.values())):
        names = set(map(name_of, dump))
        for name in wanted:
            if name not in names:
                near = nearest_spelling(name, names)
                raise UsageError(
                    f"{letter} has no tensor {name!r}",
                    f"did you mean {near!r}?" if near else "--all lists the names",
                    flag="--map",
                )


def make_graphs(
    actual: Dump, expected: Dump, kinds_of: Callable[[str], OperatorKinds]
) -> tuple[Graph, Graph]:
    """Return the graphs of two dumps; in one without operators, what bears the name of a constant
    of the other side is a constant."""
    graphs = [Graph(dump, kinds_of(dump.index.engine)) for dump in (actual, expected)]
    for side, graph in enumerate(graphs):
        other = graphs[1 - side]
        if not graph.has_operators and other.has_operators:
            names = {name_of(it) for it in other.dump if it.key in other.constants}
            graphs[side] = Graph(graph.dump, graph.kinds, names)
    return graphs[0], graphs[1]


# Why a tensor has no twin that an engine made of one that has.
MOVED = "the same data in other axes"


# Factors that are nearer to each other are one.
SAME_FACTOR = 0.01

# So many tensors with clipped elements are named.
MOST_CLIPPED = 3


class DumpComparison:
    """Two dumps, their graphs and what has been found so far."""

    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        tolerance: Tolerance,
        only: Only = "common",
        progress: Progress = ignore,
        name_map: Mapping[str, str] | None = None,
        *,
        raw: bool = False,
        names: Names = ("A", "B"),
    ) -> None:
        self.graphs = graphs
        self.names = names
        self.name_map = name_map
        self.dumps = (graphs[0].dump, graphs[1].dump)
        self.values = (
            Values(self.dumps[0], raw=raw, scales_of=self.dumps[1]),
            Values(self.dumps[1], raw=raw, scales_of=self.dumps[0]),
        )
        self.tolerance = tolerance
        self.progress = progress
        self.only = only
        self.compared: dict[Node, TensorComparison] = {}
        self.originals: Mapping[Node, Node] = {}
        self.rounding = Rounding(graphs, self.values, ())

    def run(self, operators: Operators | None = None) -> Comparison:
        self.progress("matching tensors")
        alignment = align(*self.graphs, self.values, self.name_map)
        self.input_nodes = {pair.actual for pair in alignment.pairs if is_input(pair)}
        self.originals = alignment.originals
        self.compared, constants = self.measure_all(alignment)
        self.find_reordered(alignment, constants)
        alignment = self.without_folded(alignment, constants)
        self.ranges = Ranges(self.graphs, self.values)
        judge = Judge(alignment, self.compared, self.compare_nodes)
        divergence = judge.judge()
        interrupted = none_alone = ""
        if operators is not None:
            divergence, interrupted, none_alone = self.isolate(judge, divergence, operators)
        if not divergence.blames and judge.is_same():
            blames = tuple(self.find_takers(judge, alignment.constants, constants))
            divergence = divergence._replace(blames=blames)
        if self.by_default:
            blames = tuple(self.trace_to_scale(judge, it, constants) for it in divergence.blames)
            divergence = divergence._replace(blames=blames)
            scales = tuple(self.find_coarse_scales(judge, divergence.blames))
            divergence = divergence._replace(blames=(*divergence.blames, *scales))
        pairs = judge.pairs()
        tensors = [self.compared[pair.actual] for pair in pairs]
        unmatched = self.find_unmatched(pairs, alignment.constants)
        tensors += constants.values()
        finding = self.find_finding(tensors, divergence)
        is_rounding = finding == "same" or all(blame.is_coarse for blame in divergence.blames)
        rounded = rounding_of(tensors) if is_rounding else ("", None)
        blames = () if finding == "same" else divergence.blames
        return Comparison(
            actual=side_facts(self.dumps[0]),
            expected=side_facts(self.dumps[1]),
            tolerance=self.tolerance,
            finding=finding,
            only=self.only,
            precision=rounded[0],
            snr_db=rounded[1],
            culprits=tuple(self.culprit_of(blame, constants) for blame in blames),
            tensors=tuple(tensors),
            unmatched=tuple(unmatched),
            notes=(
                *self.find_notes(tensors, divergence),
                *self.describe_clipped(pairs),
                *filter(None, [interrupted, none_alone]),
            ),
            interrupted=bool(interrupted),
        )

    def trace_to_scale(
        self, judge: Judge, blame: Blame, constants: Mapping[str, TensorComparison]
    ) -> Blame:
        """Return a culprit, or the one before it whose scale its bias was not made for.

        An engine may read the integers of a bias by the scales of the input and of the weights,
        whatever they were made with.
        """
        taken = [key for node in blame.actual for _, key in node.constants]
        known = [constants[it] for it in map(self.graphs[0].integers_of, taken) if it in constants]
        wrong = [each for each in known if not each.passed]
        factor = gain_of(wrong[0]) if len(wrong) == 1 else None
        if factor is None:
            return blame
        for side in (0, 1):
            bias = (wrong[0].actual, wrong[0].expected)[side].quantization
            weights = [
                facts.quantization
                for each in known
                if each is not wrong[0] and (facts := (each.actual, each.expected)[side])
            ]
            for pair in blame.inputs:
                step = self.ranges.step_of(side, pair[:2][side])
                other = self.ranges.step_of(1 - side, pair[:2][1 - side])
                found = [
                    scales_are_product(bias, step, weight) for weight in weights if bias and weight
                ]
                ratio = (step / other if side == 0 else other / step) if step and other else factor
                if any(found) and abs(ratio / factor - 1) < SAME_FACTOR:
                    name, names = wrong[0].expected.name, self.names
                    return judge.blame(pair)._replace(
                        scale=f"scale: {name} is {factor:.3g} times as large in {names[0]} as in "
                        f"{names[1]}, since it is read by the scale of {pair.expected.name}"
                    )
        return blame

    def find_coarse_scales(self, judge: Judge, blames: Sequence[Blame]) -> Iterator[Blame]:
        """Yield the operators whose results have a scale that is far coarser than they need; those
        behind other culprits are left out."""
        behind = {node for blame in blames for end in blame.expected for node in after(end)}
        outputs = {blame.output.actual.key for blame in blames}
        for pair in judge.pairs():
            if pair.expected in behind or pair.actual.key in outputs or not self.has_numbers(pair):
                continue
            if found := self.ranges.find_coarse(pair, judge.by_node):
                yield judge.blame(pair)._replace(
                    scale=f"scale: that of {self.names[found.side]} is {found.times:.0f} times "
                    "coarser than the values need",
                    is_coarse=True,
                )

    def describe_clipped(self, pairs: Iterable[Pair]) -> Iterator[str]:
        """Yield a note on tensors that agree, and have elements beyond the range of a type."""
        clipped = [
            (found, pair)
            for pair in pairs
            if self.by_default and self.compared[pair.actual].passed and self.has_numbers(pair)
            if (found := self.ranges.find_clipped(pair))
        ]
        worst = sorted(clipped, key=lambda it: -it[0].steps)
        each = [
            f"{name_of(tensor)} of {self.names[found.side]} ({found.elements} of "
            f"{prod(tensor.shape)} elements, by {found.steps:.0f} steps at most)"
            for found, pair in worst[:MOST_CLIPPED]
            if (tensor := pair[:2][found.side].tensor)
        ]
        more = f", and {len(worst) - len(each)} more" if len(worst) > len(each) else ""
        if each:
            names = f"{', '.join(each)}{more}"
            yield f"a type is too narrow for some elements, which end there: {names}"

    def has_numbers(self, pair: Pair) -> bool:
        """Return whether the elements of a pair are those of one quantity."""
        return self.compared[pair.actual].figures is not None and not pair.apart_by_bias

    def find_takers(
        self,
        judge: Judge,
        pairs: Iterable[ConstantPair],
        constants: Mapping[str, TensorComparison],
    ) -> Iterator[Blame]:
        """Yield the operators that take constants which differ, though all that is computed
        agrees as far as rounding explains."""
        wrong = [pair for pair in pairs if not constants[pair.actual.key].passed]
        keys = {pair.actual.key for pair in wrong}, {pair.expected.key for pair in wrong}
        for pair in judge.pairs() if wrong else ():
            sides = [
                [
                    node
                    for node in region_of(end, judge.by_node)
                    if any(graph.integers_of(key) in known for _, key in node.constants)
                ]
                for end, graph, known in zip(pair[:2], self.graphs, keys, strict=True)
            ]
            if all(sides):
                yield Blame(
                    in_weight(sides[0]),
                    in_weight(sides[1]),
                    judge.inputs_of([*sides[0], *sides[1]]),
                    self.compared[pair.actual],
                )

    def isolate(
        self, judge: Judge, divergence: Divergence, operators: Operators
    ) -> tuple[Divergence, str, str]:
        """Run the operators of the actual side alone, and find those at fault by their single
        errors; return beside them how far it came if it was interrupted, else nothing, and a note
        if there were none."""
        alone, count = run_alone(judge, self.values, operators, self.compare_alone, self.progress)
        for node, run in alone.items():
            self.compared[node] = replace(
                self.compared[node],
                single=run.found.figures if run.found else None,
                single_problem=run.problem or (run.found.problem if run.found else ""),
            )
        blames = tuple(find_blames(judge, alone))
        left = f"interrupted: {len(alone)} of {count} operators were run alone"
        return (
            divergence._replace(
                blames=blames, steepest=None if blames or judge.is_same() else judge.steepest()
            ),
            left if len(alone) < count else "",
            "" if count else "no operator was run alone: none of A gives a tensor that B has too",
        )

    def compare_alone(
        self, pair: Pair, array: Array, fed: Mapping[Pair, Array]
    ) -> TensorComparison:
        """Compare what the operator of a pair gave alone with the expected tensor; all that it was
        fed with is known too, as it was stored.

        What its values lost when they were brought into the actual types is explained.
        """
        there = copy.copy(self)
        there.rounding = Rounding(self.graphs, self.values, (*fed, pair))
        sources = [
            replace(
                self.compare_array(source, value), precision=self.compared[source.actual].precision
            )
            for source, value in fed.items()
        ]
        sources = [replace(source, passed=True) for source in sources]
        return there.compare_array(pair, array, there.explain(pair, sources), sources)

    def compare_array(
        self,
        pair: Pair,
        array: Array,
        explain: Explain | None = None,
        sources: Sequence[TensorComparison] = (),
    ) -> TensorComparison:
        """Compare an array in the place of the actual tensor of a pair, as that is stored."""
        assert pair.actual.tensor
        assert pair.expected.tensor
        actual = Dump(self.dumps[0].source, self.dumps[0].index, lambda _: array)
        there = copy.copy(self)
        there.dumps = (actual, self.dumps[1])
        there.values = (self.values[0].of_other_dump(actual), self.values[1])
        return there.compare_tensors(
            pair.actual.tensor,
            pair.expected.tensor,
            pair.by,
            pair.expected.depth,
            apart_by_bias=pair.apart_by_bias,
            explain=explain,
            sources=sources,
        )

    def measure_all(
        self, alignment: Alignment
    ) -> tuple[dict[Node, TensorComparison], dict[str, TensorComparison]]:
        """Measure every pair, one at a time; return what was found of computed tensors by their
        actual node, and of constants by the actual key."""
        computed: dict[Node, TensorComparison] = {}
        self.rounding = Rounding(self.graphs, self.values, alignment.pairs)
        constants = self.measure_constants(alignment)
        for number, pair in enumerate(sorted(alignment.pairs, key=lambda it: known_side(it).place)):
            self.progress(f"{number} of {len(alignment.pairs)} tensors compared")
            assert pair.actual.tensor
            assert pair.expected.tensor
            sources = self.rounding.sources(pair, computed)
            computed[pair.actual] = self.compare_tensors(
                pair.actual.tensor,
                pair.expected.tensor,
                pair.by,
                known_side(pair).depth,
                apart_by_bias=pair.apart_by_bias,
                is_output=is_output(known_side(pair)) or is_output(other_side(pair)),
                explain=self.explain(pair, sources),
                sources=sources,
            )
        return computed, constants

    def measure_constants(self, alignment: Alignment) -> dict[str, TensorComparison]:
        """Measure the pairs of constants; return what was found by the actual key."""

        def measure_all() -> dict[str, TensorComparison]:
            return {
                pair.actual.key: self.compare_tensors(
                    pair.actual,
                    pair.expected,
                    pair.by,
                    None,
                    explain=self.rounding.explain_constant(pair) if self.by_default else None,
                )
                for pair in alignment.constants
            }

        found = measure_all()
        if self.by_default and self.rounding.learn_from_weights(alignment.constants, found):
            found = measure_all()
        return found

    def find_reordered(self, alignment: Alignment, constants: dict[str, TensorComparison]) -> None:
        """Look for pairs that differ in their order alone, among those behind which all agrees,
        and note what was found in their places."""
        by_node = {node: pair for pair in alignment.pairs for node in pair[:2]}
        for pair in sorted(alignment.pairs, key=lambda it: -it.expected.place):
            if not self.compared[pair.actual].passed:
                following = [it for side in pair[:2] for it in results_of(side, by_node)]
                if following and self.all_agree(following, by_node):
                    tensors = pair.actual.tensor, pair.expected.tensor
                    self.compared[pair.actual] = self.reordered(
                        self.compared[pair.actual], *tensors
                    )
        anywhere = any(each.reordered for each in self.compared.values())
        for constant in alignment.constants:
            key = constant.actual.key
            if not anywhere and not constants[key].precision:
                continue
            if not constants[key].passed and self.goes_unnoticed(key, by_node):
                constants[key] = self.reordered(constants[key], *constant[:2])

    def without_folded(
        self, alignment: Alignment, constants: dict[str, TensorComparison]
    ) -> Alignment:
        """Return an alignment without the constants that were paired by their place, of two graphs,
        and differ though all that is computed from them agrees: one side has folded another one
        into its constant. They go out of `constants` too."""
        by_node = {node: pair for pair in alignment.pairs for node in pair[:2]}
        folded = [
            pair
            for pair in alignment.constants
            if pair.by == "graph"
            and not constants[pair.actual.key].passed
            and form_of(self.graphs[0], pair.actual) != form_of(self.graphs[1], pair.expected)
            and self.goes_unnoticed(pair.actual.key, by_node)
        ]
        for pair in folded:
            del constants[pair.actual.key]
        return alignment._replace(
            constants=[pair for pair in alignment.constants if pair not in folded]
        )

    def goes_unnoticed(self, key: str, by_node: Mapping[Node, Pair]) -> bool:
        """Return whether all agrees that is computed from an actual constant."""
        users = [
            node
            for node in self.graphs[0].nodes
            if any(key == taken for _, taken in node.constants)
        ]
        ends = [
            it
            for node in users
            for it in ([node] if node in by_node else results_of(node, by_node))
        ]
        return bool(ends) and self.all_agree(ends, by_node)

    def all_agree(self, nodes: Iterable[Node], by_node: Mapping[Node, Pair]) -> bool:
        """Return whether the pairs of all nodes are within the tolerance."""
        return all(self.compared[by_node[node].actual].passed for node in nodes)

    def reordered(
        self,
        found: TensorComparison,
        actual: DumpedTensor | None,
        expected: DumpedTensor | None,
    ) -> TensorComparison:
        """Return a comparison as it is with one side in the other's order, if that passes; else as
        it was."""
        if actual is None or expected is None or found.figures is None:
            return found
        shape = found.expected.shape
        one = read(self.values[0], actual, [shape])
        other = read(self.values[1], expected, [shape])
        if one.size != other.size:
            return found
        bounds = bounds_of(self.tolerance, expected.dtype)
        if found.constant and found.explained is not None:
            bounds = Explained(found.precision, found.explained).bounds
        for candidate in reorder(one.reshape(other.shape), other):
            figures = measure(one.reshape(other.shape), candidate, bounds)
            if not figures.mismatches:
                return replace(found, passed=True, reordered=True, figures=figures)
        return found

    @property
    def by_default(self) -> bool:
        """Whether the user gave no tolerance."""
        return self.tolerance == Tolerance()

    def explain(self, pair: Pair, sources: Sequence[TensorComparison]) -> Explain | None:
        """Return what says how much of a pair's difference rounding explains."""
        return self.rounding.explain(pair, sources) if self.by_default else None

    def compare_nodes(self, actual: Node, expected: Node) -> TensorComparison | None:
        """Compare two tensors that are not twins; return None if their values or shapes forbid
        it."""
        if not actual.tensor or not expected.tensor:
            return None
        scaled = self.values[0].is_scaled(actual.tensor), self.values[1].is_scaled(expected.tensor)
        if scaled[0] != scaled[1]:
            return None
        found = self.compare_tensors(actual.tensor, expected.tensor, "graph", expected.depth)
        return found if found.figures else None

    def compare_tensors(
        self,
        actual: DumpedTensor,
        expected: DumpedTensor,
        by: MatchedBy,
        depth: int | None,
        *,
        apart_by_bias: bool = False,
        is_output: bool = False,
        explain: Explain | None = None,
        sources: Sequence[TensorComparison] = (),
    ) -> TensorComparison:
        """Compare two tensors; `depth` is None for constants.

        With `explain`, the tolerance is what rounding explains; `sources` are the twins before.
        """
        if self.dumps[0].excerpts:
            return self.compare_excerpts(actual, expected, by, depth, is_output=is_output)
        share_quantization(self.values, (actual, expected))
        quantizations = [
            side.quantizations.get(tensor.key)
            for side, tensor in zip(self.values, (actual, expected), strict=True)
        ]
        # Where one side does not say what its integers stand for, the integers are all there is.
        as_integers = None in quantizations and actual.dtype == expected.dtype
        if (actual.shape, actual.layout) == (expected.shape, expected.layout):
            leave_out_padding(self.values, (actual, expected))
        one, other = (
            side.elements(tensor, integers=as_integers)
            for side, tensor in zip(self.values, (actual, expected), strict=True)
        )
        problem, figures, passed = "", None, False
        explained: Explained | None = None
        fill = inf
        if squeezed(one.shape) == squeezed(other.shape):
            one = one._replace(shape=other.shape)
        if one.shape != other.shape:
            problem = f"shapes differ: {one.shape} and {other.shape}"
        else:
            if apart_by_bias:
                other = with_bias_of(one, other)
            spare_bits = 16 if actual.dtype == expected.dtype == "BFloat16" else 0
            scales = [] if as_integers else [max(it.scale) for it in quantizations if it]
            step = max(scales, default=None)
            bounds = bounds_of(self.tolerance, actual.dtype, expected.dtype, step=step)

            def settle(size: Size) -> Bounds:
                nonlocal explained, fill
                fill = size.fill
                if explain is None or (as_integers and any(quantizations)):
                    return bounds
                explained = explain(size, other)
                return explained.bounds

            figures = measure(one, other, settle, spare_bits=spare_bits)
            if scales:  # steps of a scale are no neighbours among floating-point numbers
                figures = replace(figures, max_ulp=None)
            passed = not figures.mismatches
            if explained is not None:
                before = [it.figures for it in sources if it.figures]
                passed = explained.passes(
                    figures, before, lambda: worst_channel_of(one, other, fill)
                )
        return TensorComparison(
            actual=self.tensor_facts(0, actual),
            expected=self.tensor_facts(1, expected),
            matched_by=by,
            passed=passed,
            depth=depth or 0,
            constant=depth is None,
            apart_by_bias=apart_by_bias,
            is_output=is_output,
            precision=explained.precision if explained else "",
            explained=explained.error if explained else None,
            figures=figures,
            problem=problem,
        )

    def compare_excerpts(
        self,
        actual: DumpedTensor,
        expected: DumpedTensor,
        by: MatchedBy,
        depth: int | None,
        *,
        is_output: bool,
    ) -> TensorComparison:
        """Compare what a text has of two tensors: the statistics, and in one layout the first
        values."""
        facts = self.tensor_facts(0, actual), self.tensor_facts(1, expected)
        problem, figures = "", None
        if squeezed(facts[0].shape) != squeezed(facts[1].shape):
            problem = f"shapes differ: {facts[0].shape} and {facts[1].shape}"
        else:
            one, other = self.dumps[0].read(actual.key), self.dumps[1].read(expected.key)
            if actual.layout != expected.layout or one.size != other.size:
                one, other = (side[: len(STATISTICS)] for side in (one, other))
            bounds = bounds_of(self.tolerance, expected.dtype)
            figures = measure(as_printed(one, other), other, bounds)
            shape = () if expected.layout else facts[1].shape
            figures = replace(
                figures,
                max_ulp=None,
                first=name_element(figures.first, shape),
                worst=name_element(figures.worst, shape),
            )
        return TensorComparison(
            actual=facts[0],
            expected=facts[1],
            matched_by=by,
            passed=figures is not None and not figures.mismatches,
            depth=depth or 0,
            constant=depth is None,
            is_output=is_output,
            figures=figures,
            problem=problem,
        )

    def tensor_facts(self, side: int, tensor: DumpedTensor) -> TensorFacts:
        maker = self.graphs[side].makers.get(tensor.key)
        return TensorFacts(
            key=tensor.key,
            name=name_of(tensor),
            dtype=tensor.dtype,
            shape=self.values[side].shape_of(tensor),
            layout=tensor.layout,
            engine_name=tensor.name if tensor.origin else "",
            operator=maker.name if maker else "",
            operator_type=maker.type if maker else "",
            quantization=self.values[side].quantizations.get(tensor.key, tensor.quantization),
        )

    def culprit_of(self, blame: Blame, constants: dict[str, TensorComparison]) -> Culprit:
        """Return the record of a culprit, with those of its own weights that differ."""
        integers_of = self.graphs[0].integers_of
        taken = [integers_of(key) for node in blame.actual for _, key in node.constants]
        parameters = [
            constants[key]
            for key in dict.fromkeys(taken)
            if key in constants and not is_identical(constants[key])
        ]
        return Culprit(
            actual=tuple(self.operator_facts(0, node) for node in blame.actual),
            expected=tuple(self.operator_facts(1, node) for node in blame.expected),
            inputs=tuple(self.compared[pair.actual] for pair in blame.inputs),
            output=blame.output,
            parameters=tuple(parameters),
            is_coarse=blame.is_coarse,
            kind=blame.scale or self.kind_of_weights(parameters) or self.kind_of(blame.output),
        )

    def kind_of_weights(self, parameters: Sequence[TensorComparison]) -> str:
        """Return which weights differ most, where and how; empty if all agree."""
        wrong = [it for it in parameters if not it.passed and it.figures]
        if not wrong:
            return ""
        found = max(wrong, key=lambda it: error_of(it)[0])
        kind = self.kind_of(found)
        return f"weights: {describe_difference(found, self.names)}{f'; {kind}' if kind else ''}"

    def kind_of(self, output: TensorComparison) -> str:
        """Return what is wrong with what a culprit gives or with its weights, where the elements
        show it."""
        if output.figures is None or output.apart_by_bias or self.dumps[0].excerpts:
            return ""
        keys = output.actual.key, output.expected.key
        if any(key not in dump for key, dump in zip(keys, self.dumps, strict=True)):
            return ""
        sides = [
            values.elements(dump.tensor(key))
            for values, dump, key in zip(self.values, self.dumps, keys, strict=True)
        ]
        if squeezed(sides[0].shape) != squeezed(sides[1].shape):
            return ""
        shape = output.expected.shape
        one, other = (whole(side).reshape(shape) for side in sides)
        found = [
            values.quantizations.get(key) for values, key in zip(self.values, keys, strict=True)
        ]
        step = max((max(it.scale) for it in found if it), default=0.0)
        # Of weights the channels of the output come first.
        return find_kind(one, other, step, axis=0 if output.constant else None, names=self.names)

    def operator_facts(self, side: int, node: Node) -> OperatorFacts:
        assert node.operator
        return OperatorFacts(
            key=node.operator.key,
            name=node.operator.name,
            type=node.operator.type,
            parameters=node.operator.parameters,
            algorithm=node.operator.algorithm,
            output=node.name,
            layout=node.tensor.layout if node.tensor else "",
            origin=node.operator.origin,
            opaque=node.operator.type.lower() in self.graphs[side].kinds.opaque,
        )

    def find_unmatched(
        self, pairs: list[Pair], constants: list[ConstantPair]
    ) -> list[UnmatchedTensor]:
        """Describe every tensor without a twin."""
        by_node = {node: pair for pair in pairs for node in pair[:2]}
        known = {pair.actual.key for pair in constants}, {pair.expected.key for pair in constants}
        found = []
        names: tuple[Literal["actual", "expected"], ...] = ("actual", "expected")
        for side, name in enumerate(names):
            graph = self.graphs[side]
            for node in graph.present:
                if node in by_node or node.tensor is None:
                    continue
                reason = self.describe_moved(node) or describe_fused(node, by_node, side)
                found.append(
                    UnmatchedTensor(
                        side=name,
                        tensor=self.tensor_facts(side, node.tensor),
                        fused=bool(reason),
                        reason=reason or "the other side has no such tensor",
                    )
                )
            for tensor in graph.dump:
                if tensor.key in graph.constants and tensor.key not in known[side]:
                    facts = self.tensor_facts(side, tensor)
                    integers = graph.integers_of(tensor.key)
                    is_data = integers != tensor.key and integers in known[side]
                    if is_data:
                        reason = f"the data of {graph.dump.tensor(integers).name}"
                    else:
                        reason = (
                            "a constant that the other side holds in another form, or not at all"
                        )
                    found.append(
                        UnmatchedTensor(
                            side=name,
                            tensor=facts,
                            fused=True,
                            reason=reason,
                            constant=not is_data,
                        )
                    )
        return found

    def describe_moved(self, node: Node) -> str:
        """Return which tensor's data a tensor holds or helps to move, empty for any other
        tensor."""
        if node in self.originals:
            name = self.originals[node].name
            return MOVED if name == node.name else f"the data of {name}"
        copies = results_of(node, self.originals) if node.steps == ("move",) else []
        for each in copies:
            original = self.originals[each]
            if original in sources_of(node, {original}):
                if original.name == node.name == each.name:
                    return MOVED
                return f"between {original.name} and {each.name}, which holds its data"
        return ""

    def find_finding(self, tensors: list[TensorComparison], divergence: Divergence) -> Finding:
        if self.only == "outputs":
            tensors = [tensor for tensor in tensors if tensor.is_output]
        elif divergence.blames:
            return "fault"
        if all(tensor.passed for tensor in tensors):
            return "same" if tensors else "different"
        if divergence.blames:
            return "fault"
        return "rounding" if divergence.steepest and not self.wrong_inputs() else "different"

    def has_more_behind(self, divergence: Divergence) -> bool:
        """Return whether something differs behind a culprit."""
        ends = [node for blame in divergence.blames for node in blame.expected]
        behind = {node.key for end in ends for node in after(end)}
        return any(
            not found.passed and found.expected.key in behind for found in self.compared.values()
        )

    def wrong_inputs(self) -> list[TensorComparison]:
        """Return what was found of inputs of the model that differ."""
        return [
            found
            for node, found in self.compared.items()
            if node in self.input_nodes and not found.passed
        ]

    def find_notes(self, tensors: list[TensorComparison], divergence: Divergence) -> Iterator[str]:
        """Yield notes for the reader."""
        for values, side in zip(self.values, ("actual", "expected"), strict=True):
            dump = values.dump
            if values.unscaled:
                yield (
                    f"nothing says which numbers {len(values.unscaled)} quantised tensors of the "
                    f"{side} dump stand for: --model FILE does"
                )
            if not dump.index.complete:
                yield f"the {side} dump is not complete: its run did not end well"
            if dump.missing:
                count, names = len(dump.missing), ", ".join(dump.missing[:5])
                what = f"{count} files" if count > 1 else "1 file"
                more = ", ..." if count > 5 else ""
                yield f"the {side} dump lacks {what} that its index names: {names}{more}"
        if not tensors and any(graph.nodes for graph in self.graphs):
            yield "no tensor has a twin on the other side"
        elif self.only == "outputs" and not any(tensor.is_output for tensor in tensors):
            yield "no output has a twin on the other side"
        wrong_inputs = self.wrong_inputs()
        for found in wrong_inputs:
            yield f"the input {found.expected.name} differs: the sides were fed with other data"
        reordered = [each for each in self.compared.values() if each.reordered]
        if reordered:
            names = ", ".join(each.expected.name for each in reordered[:5])
            yield f"a permutation, which what follows undoes: the order of {names}"
        if divergence.no_twins:
            names = ", ".join(pair.expected.name for pair in divergence.no_twins[:5])
            yield f"these pairs were dropped, since all that is computed from them agrees: {names}"
        isolated = any(tensor.single or tensor.single_problem for tensor in tensors)
        if self.has_more_behind(divergence) and not isolated:
            yield (
                "behind a culprit all errors may be its own, or there may be more culprits: "
                "--isolate runs each operator alone"
            )
        if divergence.steepest and not wrong_inputs:
            pair, growth = divergence.steepest
            yield (
                "no operator stands out: errors grow gradually, most at "
                f"{pair.expected.name}, to {growth:.3g} times those of its inputs"
            )


def is_input(pair: Pair) -> bool:
    """Return whether a pair is an input of the model that something is computed from."""
    node = pair.expected if pair.actual.steps == UNKNOWN_STEPS else pair.actual
    return node.is_input and bool(node.children)


def scales_are_product(bias: Quantization, step: float, weight: Quantization) -> bool:
    """Return whether the scales of a bias are those of the weights, times that of the input."""
    if len(bias.scale) != len(weight.scale) or not step:
        return False
    return all(
        abs(one - step * other) <= SAME_FACTOR * one
        for one, other in zip(bias.scale, weight.scale, strict=True)
    )


def name_element(element: Element | None, shape: Sequence[int]) -> Element | None:
    """Return an element of an excerpt: a statistic with its name, a value with its place in a
    tensor of plain axes."""
    if element is None:
        return None
    (place,) = element.index
    if place < len(STATISTICS):
        name = STATISTICS[place]
        return Element(
            index=(), actual=f"{name}={element.actual}", expected=f"{name}={element.expected}"
        )
    place -= len(STATISTICS)
    index = unravel_index(place, shape) if place < prod(shape) and shape else ()
    return replace(element, index=tuple(map(int, index)))


def describe_difference(found: TensorComparison, names: Names) -> str:
    """Return the name of a tensor and by how much it differs."""
    figures = found.figures
    text = found.expected.name or found.actual.name
    if figures is None or figures.relative_l2 is None:
        return f"{text} differs"
    text += f" differs by {figures.relative_l2:.2%} of its length"
    if figures.worst is None:
        return text
    worst = figures.worst
    place = "{" + ",".join(map(str, worst.index)) + "}"
    numbers = f"{worst.actual} in {names[0]}, {worst.expected} in {names[1]}"
    return f"{text}, most at {place}: {numbers}"


def rounding_of(tensors: Sequence[TensorComparison]) -> tuple[str, float | None]:
    """Return the coarse type whose rounding explains what differs, empty if none is needed, and
    the least ratio of signal to noise of an output."""
    computed = [it for it in tensors if it.precision and not it.constant and it.figures]
    if not any(it.figures and (it.figures.bulk_l2 or 0.0) > FINE for it in computed):
        return "", None
    noisy = [it.figures.snr_db for it in computed if it.is_output and it.figures]
    return coarsest(it.precision for it in computed), min(filter(None, noisy), default=None)


def form_of(graph: Graph, tensor: DumpedTensor) -> tuple[object, ...]:
    """Return what two constants have in common where their graphs are the same."""
    maker = graph.makers.get(tensor.key)
    return (maker.type if maker else "", tensor.shape)


def describe_fused(node: Node, by_node: dict[Node, Pair], side: int) -> str:
    """Return which operator of the other side computes a tensor within itself, empty if none
    does."""
    results = results_of(node, by_node)
    if results:
        pair = by_node[results[0]]
        twin = pair.actual if side else pair.expected
        maker = twin.operator.type if twin.operator else "an operator"
        return f"within {maker} that gives {twin.name}"
    if any(node.operator is it.operator is not None for it in by_node):
        return "an output beside one that has a twin"
    return ""


def side_facts(dump: Dump) -> SideFacts:
    index = dump.index
    return SideFacts(
        source=dump.source,
        tensors=len(dump),
        engine=index.engine,
        engine_version=index.engine_version,
        driver=index.driver,
        device=index.device,
        provider=index.provider,
        system=index.system,
        architecture=index.architecture,
        processor=index.processor,
        model=index.model,
        model_sha256=index.model_sha256,
        settings=index.settings,
        complete=index.complete,
    )


def is_identical(found: TensorComparison) -> bool:
    return found.figures is not None and found.figures.max_absolute in (0.0, None)
