"""The comparison of two dumps: twins are found, each pair is measured, the outputs decide, and what
makes them differ is found and proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from lar.comparison.culprits import Blame, Paired, Search, after, error_of
from lar.comparison.fault_kinds import Names, find_kind
from lar.comparison.isolation import Alone, OperatorsOf, Prover
from lar.comparison.pairs import Measure, in_order
from lar.comparison.ranges import Ranges
from lar.comparison.rounding import FINE, Rounding, coarsest
from lar.dumps.dump import Dump
from lar.dumps.excerpts import excerpts_of
from lar.errors import UsageError, count_of
from lar.graphs.elements import whole
from lar.graphs.graph import Graph, Node, is_end, name_of, results_of, sources_of
from lar.graphs.matching import Pair
from lar.graphs.operator_kinds import OperatorKinds
from lar.graphs.signatures import Values, squeezed
from lar.graphs.twins import Twins, match
from lar.options.suggestions import nearest_spelling
from lar.records.comparison import (
    Comparison,
    Culprit,
    Finding,
    LeftOut,
    Only,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    Tolerance,
    UnmatchedTensor,
)

# What takes a few words on what is being done now.
Progress: TypeAlias = Callable[[str], None]

SIDES: tuple[Literal["actual", "expected"], ...] = ("actual", "expected")

# Why a tensor has no twin that an engine made of one that has.
MOVED = "the same data in other axes"

# Factors that are nearer to each other are one; of what is a multiple of another tensor, the cosine
# is as near to 1.
SAME_FACTOR = 0.01
ONE_DIRECTION = 1 - 1e-5

# Names of tensors that a note lists.
MOST_NAMED = 5


def ignore(text: str) -> None:
    """Take no notice of progress."""


def run_nothing(side: int) -> str:
    """Return why no operator is run alone."""
    return "its model is not known"


def compare_dumps(
    actual: Dump,
    expected: Dump,
    tolerance: Tolerance | None = None,
    *,
    kinds_of: Callable[[str], OperatorKinds],
    raw: bool = False,
    progress: Progress = ignore,
    operators_of: OperatorsOf = run_nothing,
    isolate: bool = False,
    only: Only = "outputs",
    name_map: Mapping[str, str] | None = None,
    names: Names = ("A", "B"),
) -> Comparison:
    """Compare two dumps; `kinds_of` takes an engine's name and returns what its operators do, and
    `progress` takes what is being done.

    `operators_of` is asked for what runs the operators of a side alone when there are candidates.
    With `isolate`, each operator of the actual side is run. `only` says what the finding rests on:
    the outputs, or all tensors that both have. `name_map` has twins that are known, by their
    names. `names` are what the sides are called.

    With `raw`, quantised tensors are compared by their integers, else by the real numbers that
    they stand for.

    Raises:
        DumpError: a tensor is missing or damaged.
        UsageError: a side has no tensor of a known twin's name.
    """
    check_name_map(name_map or {}, actual, expected)
    if isolate and expected.excerpts:
        raise UsageError(
            "has no whole tensors to feed operators with", flag="--isolate", subject=expected.source
        )
    if actual.excerpts or expected.excerpts:
        actual, expected = excerpts_of(actual), excerpts_of(expected)
    graphs = make_graphs(actual, expected, kinds_of)
    comparison = DumpComparison(
        graphs, tolerance or Tolerance(), only, progress, name_map, raw=raw, names=names
    )
    return comparison.run(operators_of, isolate=isolate)


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


class DumpComparison:
    """Two dumps, their graphs and what has been found so far."""

    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        tolerance: Tolerance,
        only: Only = "outputs",
        progress: Progress = ignore,
        name_map: Mapping[str, str] | None = None,
        *,
        raw: bool = False,
        names: Names = ("A", "B"),
    ) -> None:
        self.graphs, self.names, self.only = graphs, names, only
        self.name_map, self.progress = name_map, progress
        self.dumps = (graphs[0].dump, graphs[1].dump)
        self.values = (
            Values(self.dumps[0], raw=raw, scales_of=self.dumps[1]),
            Values(self.dumps[1], raw=raw, scales_of=self.dumps[0]),
        )
        self.measure = Measure(graphs, self.values, tolerance, Rounding(graphs, self.values, ()))
        self.compared: dict[Node, TensorComparison] = {}
        self.constants: dict[str, TensorComparison] = {}
        self.drawn: list[Pair] = []  # of what random operators gave

    def run(self, operators_of: OperatorsOf, *, isolate: bool) -> Comparison:
        self.progress("matching tensors")
        self.twins = match(*self.graphs, self.values, self.name_map)
        self.outputs = outputs_of(self.graphs, self.twins)
        self.measure_all()
        paired = Paired(self.pairs, self.compared)
        prover = Prover(paired.by_node, self.compared, self.measure, operators_of, self.names)
        search = Search(paired, prover, self.progress)
        deciding = self.find_deciding()
        blames, interrupted = self.search(search, deciding, isolate=isolate)
        coarse = [*self.find_coarse_scales(paired, blames)]
        if self.only == "common":
            blames += [*coarse, *(() if blames else self.find_takers(paired))]
        blames = [self.trace_to_scale(paired, blame) for blame in blames]
        tensors = [self.with_single(pair, search.alone, isolate) for pair in paired.pairs]
        finding = self.find_finding([self.compared[it.actual] for it in deciding], blames, paired)
        rounded = rounding_of(tensors) if finding == "same" else ("", None)
        return Comparison(
            actual=side_facts(self.dumps[0]),
            expected=side_facts(self.dumps[1]),
            tolerance=self.measure.tolerance,
            finding=finding,
            only=self.only,
            precision=rounded[0],
            snr_db=rounded[1],
            culprits=tuple(self.culprit_of(blame) for blame in blames),
            tensors=(*tensors, *self.constants.values()),
            unmatched=tuple(self.find_unmatched(paired)),
            left_out=tuple(self.find_left_out(paired)),
            notes=(
                *self.find_notes(finding, blames, paired, isolate=isolate),
                *(f"{blame.output.expected.name}: {blame.scale}" for blame in coarse),
                *interrupted,
            ),
            interrupted=bool(interrupted),
        )

    def measure_all(self) -> None:
        """Measure every pair, one at a time; those that random operators made differ are put
        apart."""
        pairs = [*in_order(self.twins.pairs)]
        self.measure.rounding = Rounding(self.graphs, self.values, pairs)
        self.constants = self.measure.measure_constants(self.twins.constants)
        self.pairs = []
        for number, pair in enumerate(pairs):
            self.progress(f"{number} of {len(pairs)} tensors compared")
            sources = self.measure.rounding.sources(pair, self.compared)
            is_output = pair.actual in self.outputs
            found = self.measure.measure_pair(pair, sources, is_output=is_output)
            drawn = pair.actual in self.graphs[0].random or pair.expected in self.graphs[1].random
            if drawn and not found.passed:
                self.drawn.append(pair)
                continue
            self.compared[pair.actual] = found
            self.pairs.append(pair)

    def find_deciding(self) -> list[Pair]:
        """Return the pairs that the finding rests on: those of outputs; all that are computed where
        the user asks for that, or a side has no outputs of the model."""
        computed = [pair for pair in self.pairs if not self.compared[pair.actual].is_input]
        outputs = [pair for pair in computed if pair.actual in self.outputs]
        lacking = [it for it in self.outputs if it not in self.compared] and not outputs
        known = all(graph.has_operators for graph in self.graphs)
        return computed if self.only == "common" or lacking or not known else outputs

    def search(
        self, search: Search, deciding: Sequence[Pair], *, isolate: bool
    ) -> tuple[list[Blame], tuple[str, ...]]:
        """Find culprits where the outputs differ, or where all that differs is less than a coarse
        type may excuse; return a note beside them if the user interrupted it."""
        wrong = [pair for pair in deciding if not self.compared[pair.actual].passed]
        coarse = any(self.compared[pair.actual].precision for pair in deciding)
        try:
            if isolate:
                return search.find_everywhere(), ()
            if wrong:
                return search.find(wrong), ()
            if coarse and self.measure.by_default:
                return search.find_inside(self.measure.rounding.round_alike), ()
        except KeyboardInterrupt:
            done = count_of(len(search.alone), "operator")
            return search.blames, (f"interrupted: {done} of A were run alone",)
        return [], ()

    def find_coarse_scales(self, paired: Paired, blames: Sequence[Blame]) -> Iterator[Blame]:
        """Yield the operators whose results have a scale that is far coarser than they need; those
        behind other culprits are left out."""
        if not self.measure.by_default:
            return
        ranges = Ranges(self.graphs, self.values)
        behind = {node for blame in blames for end in blame.expected for node in after(end)}
        blamed = {node for blame in blames for node in blame.expected}
        for pair in paired.pairs:
            found = self.compared[pair.actual]
            if pair.expected in behind | blamed or not found.figures:
                continue
            if coarse := ranges.find_coarse(pair, paired.by_node):
                name = self.names[coarse.side]
                scale = f"scale: that of {name} is {coarse.times:.0f} times coarser than the values"
                blame = paired.blame(pair, Alone(found))
                yield blame._replace(scale=f"{scale} need", is_coarse=True)

    def find_takers(self, paired: Paired) -> Iterator[Blame]:
        """Yield the operators that take constants which differ, though all that is computed agrees
        as far as rounding explains."""
        wrong = {key for key, found in self.constants.items() if not found.passed}
        for pair in paired.pairs if wrong else ():
            blame = paired.blame(pair, Alone(self.compared[pair.actual]))
            taken = {key for node in blame.actual for _, key in node.constants}
            if not wrong.isdisjoint(map(self.graphs[0].integers_of, taken)):
                yield blame

    def trace_to_scale(self, paired: Paired, blame: Blame) -> Blame:
        """Return a culprit, or the one before it whose scale its bias was not made for.

        An engine may read the integers of a bias by the scales of the input and of the weights,
        whatever they were made with.
        """
        taken = {key for node in blame.actual for _, key in node.constants}
        known = [self.constants.get(self.graphs[0].integers_of(key)) for key in taken]
        wrong = [found for found in known if found and not found.passed]
        factor = gain_of(wrong[0]) if len(wrong) == 1 else None
        if factor is None or not wrong[0].actual.quantization:
            return blame
        for pair in blame.inputs:
            steps = [
                step.size if (step := self.measure.rounding.step_of(side, node.tensor)) else 0.0
                for side, node in enumerate(pair[:2])
                if node.tensor
            ]
            ratio = steps[0] / steps[1] if all(steps) else factor
            if steps[0] and abs(ratio / factor - 1) < SAME_FACTOR:
                name = wrong[0].expected.name
                scale = (
                    f"scale: {name} is {factor:.3g} times as large in {self.names[0]} as in "
                    f"{self.names[1]}, since it is read by the scale of {pair.expected.name}"
                )
                return paired.blame(pair, blame.alone)._replace(scale=scale, is_coarse=True)
        return blame

    def with_single(
        self, pair: Pair, alone: Mapping[Node, Alone], isolate: bool
    ) -> TensorComparison:
        """Return the comparison of a pair, with what its operator alone gave."""
        found, run = self.compared[pair.actual], alone.get(pair.actual)
        if run is None:
            return found
        return replace(
            found,
            single=run.found.figures if run.found else None,
            single_problem=(run.doubt if run.found is None else run.found.problem)
            if isolate
            else "",
        )

    def find_finding(
        self, deciding: Sequence[TensorComparison], blames: Sequence[Blame], paired: Paired
    ) -> Finding:
        if not deciding:
            return "nothing"
        if blames:
            return "fault"
        if all(tensor.passed for tensor in deciding):
            return "same"
        return "rounding" if paired.steepest() and not self.wrong_inputs() else "different"

    def culprit_of(self, blame: Blame) -> Culprit:
        """Return the record of a culprit, with those of its own weights that differ."""
        blame = self.without_alike(blame)
        integers_of = self.graphs[0].integers_of
        taken = [integers_of(key) for node in blame.actual for _, key in node.constants]
        parameters = [
            self.constants[key]
            for key in dict.fromkeys(taken)
            if key in self.constants and not is_identical(self.constants[key])
        ]
        alone = blame.alone.found
        return Culprit(
            actual=tuple(self.operator_facts(0, node) for node in blame.actual),
            expected=tuple(self.operator_facts(1, node) for node in blame.expected),
            inputs=tuple(self.compared[pair.actual] for pair in blame.inputs),
            output=blame.output,
            parameters=tuple(parameters),
            proven=blame.proven,
            alone=alone.figures if alone else None,
            doubt=blame.alone.doubt,
            is_coarse=blame.is_coarse,
            kind=blame.scale or self.kind_of_weights(parameters) or self.kind_of(blame.output),
        )

    def without_alike(self, blame: Blame) -> Blame:
        """Return a culprit without the operators that both sides have alike, if others are left."""
        left: tuple[list[Node], list[Node]] = [*blame.actual], [*blame.expected]
        for one in blame.actual:
            other = next((it for it in left[1] if self.are_alike(one, it)), None)
            if other:
                left[0].remove(one)
                left[1].remove(other)
        if not any(left):
            return blame
        return blame._replace(actual=tuple(left[0]), expected=tuple(left[1]))

    def are_alike(self, one: Node, other: Node) -> bool:
        """Return whether two operators have one type, the same parameters and equal constants, and
        take tensors of the same names."""
        if one.operator is None or other.operator is None:
            return False
        taken_names = [{it.name for it in node.parents} for node in (one, other)]
        if one.name == other.name and taken_names[0] != taken_names[1]:
            return False
        if (one.operator.type, one.operator.parameters, len(one.parents)) != (
            other.operator.type,
            other.operator.parameters,
            len(other.parents),
        ):
            return False
        taken = [
            [graph.integers_of(key) for _, key in node.constants]
            for graph, node in zip(self.graphs, (one, other), strict=True)
        ]
        found = [self.constants.get(key) for key in taken[0]]
        equal = [it.expected.key if it and it.passed else None for it in found]
        return equal == taken[1]

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
        if output.figures is None or output.axes or self.measure.excerpts:
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

    def find_unmatched(self, paired: Paired) -> Iterator[UnmatchedTensor]:
        """Yield every tensor without a twin."""
        drawn = {node for pair in self.drawn for node in pair[:2]}
        for side, name in enumerate(SIDES):
            for node in self.graphs[side].present:
                if node in paired.by_node or node in drawn or node.tensor is None:
                    continue
                reason = self.describe_moved(node) or describe_fused(node, paired.by_node, side)
                yield UnmatchedTensor(
                    side=name,
                    tensor=self.measure.facts_of(side, node.tensor),
                    fused=bool(reason),
                    reason=reason or "the other side has no such tensor",
                )
            yield from self.find_unmatched_constants(side, name)

    def find_unmatched_constants(
        self, side: int, name: Literal["actual", "expected"]
    ) -> Iterator[UnmatchedTensor]:
        graph = self.graphs[side]
        known = {pair[:2][side].key for pair in self.twins.constants}
        for tensor in graph.dump:
            if tensor.key not in graph.constants or tensor.key in known:
                continue
            integers = graph.integers_of(tensor.key)
            is_data = integers != tensor.key and integers in known
            reason = "a constant that the other side holds in another form, or not at all"
            if is_data:
                reason = f"the data of {graph.dump.tensor(integers).name}"
            yield UnmatchedTensor(
                side=name,
                tensor=self.measure.facts_of(side, tensor),
                fused=True,
                reason=reason,
                constant=not is_data,
            )

    def describe_moved(self, node: Node) -> str:
        """Return which tensor's data a tensor holds or helps to move, empty for any other
        tensor."""
        originals = self.twins.originals
        if node in originals:
            name = originals[node].name
            return MOVED if name == node.name else f"the data of {name}"
        copies = results_of(node, originals) if node.steps == ("move",) else []
        for each in copies:
            original = originals[each]
            if original in sources_of(node, {original}):
                if original.name == node.name == each.name:
                    return MOVED
                return f"between {original.name} and {each.name}, which holds its data"
        return ""

    def find_left_out(self, paired: Paired) -> Iterator[LeftOut]:
        """Yield the outputs that are not compared, and what a side computed and did not record."""
        drawn = {node for pair in self.drawn for node in pair[:2]}
        for side, name in enumerate(SIDES):
            graph, index = self.graphs[side], self.dumps[side].index
            outputs = set(index.outputs)
            for tensor, reason in index.left_out.items():
                yield LeftOut(side=name, name=tensor, reason=reason, is_output=tensor in outputs)
            for node in graph.outputs:
                moved = self.twins.originals.get(node, node)
                if node in drawn or moved in drawn:
                    reason = "random operators draw what it is computed from"
                elif node not in paired.by_node and moved not in paired.by_node:
                    reason = f"{self.names[1 - side]} has no such output"
                else:
                    continue
                yield LeftOut(side=name, name=node.name, reason=reason, is_output=True)

    def wrong_inputs(self) -> list[TensorComparison]:
        """Return what was found of inputs of the model that differ."""
        return [it for it in self.compared.values() if it.is_input and not it.passed]

    def find_notes(
        self, finding: Finding, blames: Sequence[Blame], paired: Paired, *, isolate: bool
    ) -> Iterator[str]:
        """Yield notes for the reader."""
        yield from self.note_dumps()
        for found in self.wrong_inputs():
            sizes = found.actual.shape, found.expected.shape
            if sizes[0][:1] != sizes[1][:1] and sizes[0][1:] == sizes[1][1:]:
                batches = f"{self.names[0]} was run with {sizes[0][0]} items, {self.names[1]} with"
                yield f"the batch differs: {batches} {sizes[1][0]}"
            else:
                yield f"the input {found.expected.name} differs: the sides were fed with other data"
        if self.drawn:
            names = self.name_drawn()
            yield f"random operators: not comparable are {names} and what is computed from them"
        inside = [
            pair
            for pair in self.pairs
            if not self.compared[pair.actual].passed and not self.compared[pair.actual].is_input
        ]
        if finding == "same" and inside:
            differ = count_of(len(inside), "tensor")
            verb = "differs" if len(inside) == 1 else "differ"
            yield f"inside, {differ} {verb}; nothing of it reaches the outputs"
        behind = {node for blame in blames for end in blame.expected for node in end.children}
        following = [pair for pair in paired.pairs if pair.expected in behind]
        if not isolate and not all(self.compared[pair.actual].passed for pair in following):
            yield "behind a culprit there may be more: --isolate runs each operator alone"
        steepest = paired.steepest() if finding == "rounding" else None
        if steepest:
            pair, growth = steepest
            yield (
                "no operator stands out: errors grow gradually, most at "
                f"{pair.expected.name}, to {growth:.3g} times those of its inputs"
            )

    def note_dumps(self) -> Iterator[str]:
        """Yield notes on what a dump lacks."""
        for values, name in zip(self.values, self.names, strict=True):
            dump = values.dump
            if values.unscaled:
                yield (
                    f"nothing says which numbers {len(values.unscaled)} quantised tensors of "
                    f"{name} stand for: --model FILE does"
                )
            if not dump.index.complete:
                yield f"the dump {name} is not complete: its run did not end well"
            if dump.missing:
                files = count_of(len(dump.missing), "file")
                yield f"the dump {name} lacks {files} that its index names: {listed(dump.missing)}"

    def name_drawn(self) -> str:
        """Return the names of what random operators gave first."""
        nodes = {pair.expected for pair in self.drawn}
        first = [node for node in nodes if not self.graphs[1].random.intersection(node.parents)]
        return listed([node.name for node in sorted(first or nodes, key=lambda it: it.place)])


def outputs_of(graphs: tuple[Graph, Graph], twins: Twins) -> set[Node]:
    """Return the actual nodes of the pairs that are outputs of a model, and those of outputs
    without a pair; an output that merely holds the data of another tensor may be that one's pair.

    Where a dump does not say what the model gives, it is that from which nothing is computed.
    """
    found: set[Node] = set()
    for side, graph in enumerate(graphs):
        by_node = {pair[:2][side]: pair.actual for pair in twins.pairs}
        outputs = graph.outputs or [node for node in graph.present if is_end(node)]
        for node in outputs:
            moved = twins.originals.get(node, node)
            pair = by_node.get(node) or by_node.get(moved)
            if pair is not None:
                found.add(pair)
            elif side == 0 and graph.outputs:
                found.add(node)
    return found


def gain_of(found: TensorComparison) -> float | None:
    """Return the factor between an expected and an actual tensor, None if no factor gives one from
    the other."""
    figures = found.figures
    if figures is None or (figures.cosine or 0.0) < ONE_DIRECTION:
        return None
    return figures.gain


def listed(names: Sequence[str]) -> str:
    """Return the first of some names."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


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


def rounding_of(tensors: Iterable[TensorComparison]) -> tuple[str, float | None]:
    """Return the coarse type whose rounding explains what differs, empty if none is needed, and
    the least ratio of signal to noise of an output."""
    computed = [it for it in tensors if it.precision and it.figures]
    if not any(it.figures and (it.figures.bulk_l2 or 0.0) > FINE for it in computed):
        return "", None
    noisy = [it.figures.snr_db for it in computed if it.is_output and it.figures]
    return coarsest(it.precision for it in computed), min(filter(None, noisy), default=None)


def describe_fused(node: Node, by_node: Mapping[Node, Pair], side: int) -> str:
    """Return which operator of the other side computes a tensor within itself, empty if none
    does."""
    results = results_of(node, by_node)
    if results:
        pair = by_node[results[0]]
        twin = pair.actual if side else pair.expected
        maker = twin.operator.type if twin.operator else "an operator"
        return f"not separate: part of {maker}, which gives {twin.name}"
    return ""


def side_facts(dump: Dump) -> SideFacts:
    """Return where a dump comes from."""
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
