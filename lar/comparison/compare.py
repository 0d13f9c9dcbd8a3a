"""Compares two dumps: matches tensors, measures errors, judges outputs, and proves the cause.

If there are more than two sides, the first side is compared with each other side. The comparisons
show which side differs from most of the other sides. Two sides can also be compared with the truth,
which means the reference values that the model should give.

Besides the finding, a comparison has notes, a list of the tensors without a twin, and a
list of the outputs that were not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from lar.comparison.causes import culprit_of, find_coarse
from lar.comparison.culprits import Alone, Blame, OperatorsOf, Prover, Search, without_behind
from lar.comparison.metrics import finite
from lar.comparison.pairs import Measure, Names, Paired, facts_from
from lar.comparison.rounding import FINE, Rounding, coarsest
from lar.dumps import Dump
from lar.dumps.excerpts import excerpts_of
from lar.errors import UsageError, count_of, join_first
from lar.graphs import OperatorKinds
from lar.graphs.graph import Graph, Node, name_of, results_of, sources_of
from lar.graphs.matching import Pair, match
from lar.graphs.origins import PART
from lar.graphs.signatures import Values
from lar.records.comparison import (
    Comparison,
    ComparisonOfSides,
    Culprit,
    ErrorsOverItems,
    Figures,
    Finding,
    Findings,
    LeftOut,
    Only,
    SideFacts,
    TensorComparison,
    TensorOfSides,
    Tolerance,
    Truth,
    TruthErrors,
    UnmatchedTensor,
)
from lar.records.record import Record

SIDES: tuple[Literal["actual", "expected"], ...] = ("actual", "expected")
OTHER_FORM = "a constant that the other side holds in another form, or not at all"


def find_notes(
    finding: Finding, blames: Sequence[Blame], paired: Paired, *, isolate: bool
) -> Iterator[str]:
    """Yield the notes on a comparison for the reader of a report."""
    yield from note_dumps(paired)
    yield from note_inputs(paired)
    yield from note_shapes(paired)
    if paired.drawn:
        nodes = sorted({pair.expected for pair in paired.drawn}, key=lambda it: it.place)
        first = [it for it in nodes if not paired.graphs[1].random.intersection(it.parents)]
        names = join_first([it.name.removeprefix(PART) for it in first or nodes])
        yield f"random operators: {names}, and all tensors computed from them, are not compared"
    inside = [it for it in paired.compared.values() if not (it.passed or it.is_input)]
    if finding == "same" and inside:
        differ = count_of(len(inside), "tensor") + (" differs" if len(inside) == 1 else " differ")
        earliest = min(inside, key=lambda it: it.depth)
        if earliest.precision:
            differ += f", first {earliest.expected.name}"
            yield f"inside, {differ}; the outputs agree within {earliest.precision} rounding"
        else:
            yield f"inside, {differ}; the outputs do not"
    behind = {node for blame in blames for end in blame.expected for node in end.children}
    following = (paired.by_node[node] for node in behind & paired.by_node.keys())
    if not isolate and not all(paired.found(pair).passed for pair in following):
        yield "there may be more culprits behind these: --isolate runs each operator alone"


def note_dumps(paired: Paired) -> Iterator[str]:
    """Yield notes on what a dump lacks."""
    for values, name in zip(paired.values, paired.names, strict=True):
        dump = values.dump
        if values.unscaled:
            yield (
                f"{len(values.unscaled)} quantised tensors of {name} have no known scale: "
                "--model FILE gives it"
            )
        if dump.missing:
            files = count_of(len(dump.missing), "file")
            yield f"the dump {name} lacks {files} that its index names: {join_first(dump.missing)}"


def note_shapes(paired: Paired) -> Iterator[str]:
    """Yield a note on outputs whose shapes differ, but whose numbers could be compared."""
    of_outputs = (it for it in paired.compared.values() if it.is_output and not it.problem)
    differing = [it for it in of_outputs if it.actual.shape != it.expected.shape]
    if differing:
        shapes = join_first(
            [f"{it.expected.name} {it.actual.shape} and {it.expected.shape}" for it in differing]
        )
        yield f"shapes of outputs differ, in the order of axes or in axes of size 1: {shapes}"


def note_inputs(paired: Paired) -> Iterator[str]:
    """Yield a note on each input of the model that was fed with different data."""
    for found in paired.wrong_inputs():
        mine, theirs = found.actual.shape, found.expected.shape
        if mine[:1] != theirs[:1] and mine[1:] == theirs[1:]:
            batches = f"{paired.names[0]} was run with {mine[0]} items, {paired.names[1]} with"
            yield f"the batch differs: {batches} {theirs[0]}"
        else:
            yield f"the input {found.expected.name} differs: the sides were fed with other data"


def find_unmatched(paired: Paired) -> Iterator[UnmatchedTensor]:
    """Yield every tensor of a side that has no twin on the other side."""
    drawn = {node for pair in paired.drawn for node in pair[:2]}
    for side, name in enumerate(SIDES):
        graph = paired.graphs[side]
        known = {pair[:2][side].key for pair in paired.twins.constants}
        lonely = [it for it in graph.present if it not in paired.by_node and it not in drawn]
        reasons = {
            it.key: describe_moved(it, paired) or describe_fused(it, paired, side) for it in lonely
        }
        left = graph.constants - known
        reasons |= {tensor.key: OTHER_FORM for tensor in graph.dump if tensor.key in left}
        for key, reason in reasons.items():
            integers = graph.integers_of(key)
            is_data = key in graph.constants and integers in known
            if is_data:
                reason = f"the data of {graph.dump.tensor(integers).name}"
            yield UnmatchedTensor(
                side=name,
                tensor=paired.measure.facts_of(side, graph.dump.tensor(key)),
                fused=bool(reason),
                reason=reason or "the other side has no such tensor",
                constant=key in graph.constants and not is_data,
            )


def describe_moved(node: Node, paired: Paired) -> str:
    """Say in words which tensor's data a moved copy holds; empty for a tensor that is not a copy.

    If a chain of operators makes the copy, the tensors inside the chain are described too.
    """
    originals = paired.twins.originals
    if node in originals:
        name = originals[node].name
        return "the same data in other axes" if name == node.name else f"the data of {name}"
    for each in results_of(node, originals) if node.is_move else ():
        original = originals[each]
        if original in sources_of(node, {original}):
            return f"between {original.name} and {each.name}, a copy of it"
    return ""


def describe_fused(node: Node, paired: Paired, side: int) -> str:
    """Say in words which fused operator on the other side contains a tensor; empty if unknown."""
    for each in results_of(node, paired.by_node):
        twin = paired.by_node[each][:2][1 - side]
        maker = twin.operator.type if twin.operator else "an operator"
        return f"not separate: part of {maker}, which gives {twin.name}"
    return ""


def find_left_out(paired: Paired) -> Iterator[LeftOut]:
    """Yield the outputs that are not compared, and computed tensors that a dump lacks."""
    drawn = {node for pair in paired.drawn for node in pair[:2]}
    for side, name in enumerate(SIDES):
        graph, index = paired.graphs[side], paired.graphs[side].dump.index
        for tensor, reason in index.left_out.items():
            yield LeftOut(side=name, name=tensor, reason=reason, is_output=tensor in index.outputs)
        for node in graph.outputs:
            other = paired.graphs[1 - side].dump.index
            has = "'s dump lacks it" if node.name in other.outputs else " has no such output"
            reason = f"{paired.names[1 - side]}{has}"
            if not drawn.isdisjoint({node, paired.twins.originals.get(node, node)}):
                reason = "it is computed from random numbers"
            elif paired.pair_of(node):
                continue
            yield LeftOut(side=name, name=node.name, reason=reason, is_output=True)


# Takes a short description of the work that begins now.
Progress = Callable[[str], None]


class Request(Record):
    """The options of a comparison of two dumps.

    With `raw`, the integers of quantised tensors are compared. Without `raw`, the real numbers that
    the integers stand for are compared. With `isolate`, each operator of the actual side is run
    alone. `only` says which tensors decide the finding: the outputs, or all tensors that both sides
    have. `progress` is called with a short description of each step.
    """

    tolerance: Tolerance = field(default_factory=Tolerance)
    raw: bool = False
    isolate: bool = False
    only: Only = "outputs"
    progress: Progress = lambda text: None


def compare_dumps(
    actual: Dump,
    expected: Dump,
    request: Request,
    kinds_of: Callable[[str], OperatorKinds],
    operators_of: OperatorsOf,
    names: Names = ("A", "B"),
) -> Comparison:
    """Compare two dumps.

    `kinds_of` returns the kinds of an engine's operators, given the name of the engine.
    `operators_of` returns an object that runs operators of a side alone. `operators_of` is called
    only if operators may be at fault. `names` are the names of the two sides.

    Raises:
        DumpError: a tensor is missing or damaged.
        UsageError: operators are to be run alone, but the expected dump has no whole tensors.
    """
    if request.isolate and expected.excerpts:
        raise UsageError(
            "has no whole tensors to feed to operators", flag="--isolate", subject=expected.source
        )
    if actual.excerpts or expected.excerpts:
        actual, expected = excerpts_of(actual), excerpts_of(expected)
    graphs = make_graphs(actual, expected, kinds_of)
    values = (
        Values(actual, raw=request.raw, scales_of=expected),
        Values(expected, raw=request.raw, scales_of=actual),
    )
    request.progress("matching tensors")
    measure = Measure(graphs, values, request.tolerance, Rounding(graphs, values))
    paired = Paired(measure, match(*graphs, values), names)
    paired.measure_all(request.progress)
    search = Search(paired, Prover(paired, operators_of), request.progress)
    return judge(paired, search, request.only, isolate=request.isolate)


def make_graphs(
    actual: Dump, expected: Dump, kinds_of: Callable[[str], OperatorKinds]
) -> tuple[Graph, Graph]:
    """Return the graphs of two dumps.

    If only one dump has operators, the names of this dump's constants show which tensors of the
    other dump are constants.
    """
    graphs = [Graph(dump, kinds_of(dump.index.engine)) for dump in (actual, expected)]
    for side, graph in enumerate(graphs):
        other = graphs[1 - side]
        if not graph.has_operators and other.has_operators:
            names = {name_of(it) for it in other.dump if it.key in other.constants}
            graphs[side] = Graph(graph.dump, graph.kinds, names)
    return graphs[0], graphs[1]


def judge(paired: Paired, search: Search, only: Only, *, isolate: bool) -> Comparison:
    """Return the comparison of two dumps, after all pairs are measured."""
    deciding = find_deciding(paired, only)
    blames, interrupted = find_culprits(search, deciding, isolate=isolate)
    coarse = [*find_coarse(paired)] if paired.measure.by_default else []
    # If this input fills little of a range, that is no fault: other inputs may fill it. A bias that
    # is read by a wrong scale is a fault.
    firm = [it for it in coarse if only == "common" or (isolate and it.is_misread)]
    blames = without_behind(blames, firm)
    coarse = without_behind(coarse, blames)
    blames += [it for it in coarse if it in firm]
    coarse = [it for it in coarse if it not in firm]
    tensors = [
        with_single(paired.found(pair), search.alone.get(pair.actual), isolate)
        for pair in paired.pairs
    ]
    finding = find_finding([*map(paired.found, deciding)], blames, paired)
    precision, snr_db = rounding_of(tensors) if finding == "same" else ("", None)
    both = (graph.dump for graph in paired.graphs)
    one, other = (facts_from(SideFacts, it.index, source=it.source, tensors=len(it)) for it in both)
    return Comparison(
        actual=one,
        expected=other,
        tolerance=paired.measure.tolerance,
        finding=finding,
        only=only,
        precision=precision,
        snr_db=snr_db,
        culprits=tuple(culprit_of(blame, paired) for blame in blames),
        tensors=(*tensors, *paired.constants.values()),
        unmatched=tuple(find_unmatched(paired)),
        left_out=tuple(find_left_out(paired)),
        notes=(
            *find_notes(finding, blames, paired, isolate=isolate),
            *(f"{blame.output.expected.name}: {blame.scale}" for blame in coarse),
            *interrupted,
        ),
        interrupted=bool(interrupted),
    )


def find_deciding(paired: Paired, only: Only) -> list[Pair]:
    """Return the pairs that decide the finding: the outputs, or all computed tensors.

    All computed tensors are returned if `only` is "common", if no output could be compared, or if a
    dump has no operators.
    """
    computed = [pair for pair in paired.pairs if not paired.found(pair).is_input]
    outputs = [pair for pair in computed if pair.actual in paired.outputs]
    lacking = not outputs and not paired.outputs <= paired.compared.keys()
    known = all(graph.has_operators for graph in paired.graphs)
    return computed if only == "common" or lacking or not known else outputs


def find_culprits(
    search: Search, deciding: Sequence[Pair], *, isolate: bool
) -> tuple[list[Blame], tuple[str, ...]]:
    """Find culprits if the outputs differ, or if a coarse type may hide differences.

    The second value of the result is a note if the user interrupted the search, else empty.
    """
    paired = search.paired
    wrong = [pair for pair in deciding if not paired.found(pair).passed]
    coarse = any(paired.found(pair).precision for pair in deciding)
    try:
        if isolate:
            return search.find_everywhere(), ()
        if wrong:
            return search.find(wrong), ()
        if coarse and paired.measure.by_default:
            return search.find_inside(), ()
    except KeyboardInterrupt:
        done = count_of(len(search.alone), "operator")
        return search.find_interrupted(), (f"interrupted: {done} of A were run alone",)
    return [], ()


def with_single(found: TensorComparison, run: Alone | None, isolate: bool) -> TensorComparison:
    """Return a pair's comparison, together with the result of running the pair's operator alone."""
    if run is None:
        return found
    alone = run.found
    problem = (alone.problem if alone else run.doubt) if isolate else ""
    return replace(found, single=alone.figures if alone else None, single_problem=problem)


def find_finding(
    deciding: Sequence[TensorComparison], blames: Sequence[Blame], paired: Paired
) -> Finding:
    if not deciding:
        return "nothing"
    if blames:
        return "fault"
    if all(tensor.passed for tensor in deciding):
        return "same"
    return "different" if any(paired.wrong_inputs()) or not paired.grow_gradually() else "rounding"


def rounding_of(tensors: Iterable[TensorComparison]) -> tuple[str, float | None]:
    """Return the coarse type whose rounding explains all differences, and the lowest SNR.

    The SNR of an output is its ratio of signal to noise in dB.

    The type is empty if float32 explains all differences.
    """
    computed = [(it, it.figures) for it in tensors if it.precision and it.figures]
    if not any((figures.relative_l2 or 0.0) > FINE for _, figures in computed):
        return "", None
    noisy = [figures.snr_db for it, figures in computed if it.is_output and figures.snr_db]
    return coarsest(it.precision for it, _ in computed), min(noisy, default=None)


# The errors over the items of a data set. The comparisons of items come one by one and are not
# kept: for each pair of tensors only sums and the comparison of the worst item stay in memory.


SEVERITY = ("nothing", "same", "rounding", "different", "fault")


class Errors:
    """The errors of one pair of tensors over the items of a data set."""

    def __init__(self) -> None:
        self.noise = self.signal = 0.0  # sums of squares over all items
        self.elements = self.items = 0
        self.worst: Figures | None = None
        self.worst_item = ""

    def add(self, item: str, figures: Figures | None) -> None:
        """Add the figures of an item of the data set; leave out an item without a comparison."""
        if figures is None:
            return
        if self.worst is None or snr_of(figures) < snr_of(self.worst):
            self.worst, self.worst_item = figures, item
        self.items += 1
        counted = figures.elements - max(sum(figures.nan_counts), sum(figures.infinity_counts))
        energy = (figures.scale or 0.0) ** 2 * counted
        self.signal += energy
        self.elements += counted
        if figures.relative_l2 is not None:
            self.noise += figures.relative_l2**2 * energy
        elif not figures.identical:  # the expected tensor is 0
            self.noise += (figures.max_absolute or 0.0) ** 2

    def sum_up(self, pair: TensorComparison) -> ErrorsOverItems | None:
        """Return the errors over all items, None if no item could be compared."""
        if self.worst is None:
            return None
        snr = snr_of(self.worst)
        known = (it.quantization.scale for it in (pair.actual, pair.expected) if it.quantization)
        step = next((scale[0] for scale in known if len(scale) == 1), 0.0)
        rms = math.sqrt(self.noise / self.elements) if self.elements else 0.0
        return ErrorsOverItems(
            items=self.items,
            worst_item=self.worst_item if snr < math.inf else "",
            relative_l2=math.sqrt(self.noise / self.signal) if self.signal else None,
            worst_snr_db=finite(snr),
            rmse_over_scale=rms / step if step else None,
        )


class TensorOverItems:
    """The worst comparison of a pair of tensors, and the pair's errors over all items."""

    def __init__(self, first: TensorComparison) -> None:
        self.worst, self.entire, self.single = first, Errors(), Errors()

    def add(self, item: str, found: TensorComparison) -> None:
        """Add the comparison of an item of the data set."""
        self.worst = max(self.worst, found, key=badness_of)
        self.entire.add(item, found.figures)
        self.single.add(item, found.single)

    def sum_up(self) -> TensorComparison:
        """Return the worst item's comparison, with the errors over all items of the data set."""
        return replace(
            self.worst,
            single=self.single.worst,
            over_items=self.entire.sum_up(self.worst),
            single_over_items=self.single.sum_up(self.worst),
        )


class CollectedItems:
    """Collects the comparisons of the items of a data set."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.main: Comparison | None = None  # the first item with the worst finding
        self.pairs: dict[tuple[str, str], TensorOverItems] = {}
        self.culprits: dict[tuple[str, str], dict[str, Culprit]] = {}  # by item

    def add(self, item: str, found: Comparison) -> None:
        """Add the comparison of an item of the data set."""
        self.items.append(item)
        if found.culprits and all(culprit.is_coarse for culprit in found.culprits):
            found = replace(found, finding="same")  # other items may fill the range
        if not self.main or SEVERITY.index(found.finding) > SEVERITY.index(self.main.finding):
            self.main = found
        for tensor in found.tensors:
            self.pairs.setdefault(key_of(tensor), TensorOverItems(tensor)).add(item, tensor)
        for culprit in found.culprits:
            self.culprits.setdefault(key_of(culprit.output), {})[item] = culprit

    def sum_up(self) -> Comparison:
        """Return one comparison for all items of the data set, with the culprits of every item.

        For each pair of tensors, the result has the comparison from the worst item, and the errors
        over all items. A scale is reported as too coarse only if the scale is too coarse in every
        item.
        """
        assert self.main is not None
        found = [
            each
            for each in self.culprits.values()
            if len(each) == len(self.items) or not all(it.is_coarse for it in each.values())
        ]
        tensors = {key: pair.sum_up() for key, pair in self.pairs.items()}
        culprits = [max(each.values(), key=lambda it: badness_of(it.output)) for each in found]
        notes = [describe_items(it) for it in found if len(it) < len(self.items)]
        return replace(
            self.main,
            items=tuple(self.items),
            finding="fault" if culprits else self.main.finding,
            culprits=tuple(
                it.with_tensors(lambda pair: tensors.get(key_of(pair), pair)) for it in culprits
            ),
            tensors=tuple(tensors.values()),
            notes=(*self.main.notes, *notes),
        )


def describe_items(culprits: Mapping[str, Culprit]) -> str:
    """Say in words which items show a fault.

    `culprits` maps the name of each item of the data set that shows the fault to the record of the
    fault.
    """
    name = next(iter(culprits.values())).output.expected.name
    if len(culprits) == 1:
        return f"only item {next(iter(culprits))} shows the fault at {name}"
    return f"only {len(culprits)} items show the fault at {name}: {join_first([*culprits])}"


def key_of(tensor: TensorComparison) -> tuple[str, str]:
    return tensor.actual.key, tensor.expected.key


def badness_of(found: TensorComparison) -> tuple[bool, float]:
    """Return whether a pair differs, and by how much: infinity if no errors are known."""
    return not found.passed, math.inf if found.figures is None else -snr_of(found.figures)


def snr_of(figures: Figures) -> float:
    """Return the ratio of signal to noise in dB.

    The ratio is infinite if the sides are equal. The ratio is minus infinite if a NaN or an
    infinity is on one side only, or if the expected tensor is 0 and the actual tensor is not 0.
    """
    if figures.nonfinite_mismatches:
        return -math.inf
    if figures.snr_db is not None:
        return figures.snr_db
    return math.inf if figures.identical or not figures.max_absolute else -math.inf


# Several sides, each compared with the first; and the truth


Keys = dict[str, TensorComparison]


def compare_sides(count: int, compare: Callable[[int, int], Comparison]) -> ComparisonOfSides:
    """Compare three or more sides.

    `compare` compares two sides. The arguments of `compare` are the indexes of the sides: first the
    index of the actual side, then the index of the expected side.

    Tensors are matched with the tensors of the first side. Two sides after the first side are
    compared with each other only if both of them differ from the first side.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    against_first = [compare(number, 0) for number in range(1, count)]
    by_key: list[Keys] = [{it.expected.key: it for it in each.tensors} for each in against_first]
    between: dict[tuple[int, int], Keys] = {}
    for one, found in enumerate(against_first):
        for other in range(one):
            if not found.same and not against_first[other].same:
                across = compare(one + 1, other + 1)
                agreeing = (it for it in across.tensors if it.passed or across.same)
                between[other, one] = {it.actual.key: it for it in agreeing}
    passed = [found.same for found in against_first]
    keys = dict.fromkeys(it.expected.key for found in against_first for it in found.tensors)
    rows = ([found.get(key) for found in by_key] for key in keys)
    tensors = (tensor_of_sides(row, passed, between) for row in rows)
    return ComparisonOfSides(
        sides=(against_first[0].expected, *(found.actual for found in against_first)),
        tolerance=against_first[0].tolerance,
        comparisons=tuple(against_first),
        tensors=tuple(sorted(tensors, key=lambda it: (it.constant, it.depth))),
    )


def tensor_of_sides(
    row: Sequence[TensorComparison | None],
    passed: Sequence[bool],
    between: dict[tuple[int, int], Keys],
) -> TensorOfSides:
    """Return a tensor of the first side with the matching tensors of the other sides.

    `passed` has a value for each side after the first side: whether the whole side agrees with the
    first side. `between` has, for any two sides after the first side, the pairs of tensors that
    agree.
    """
    known = [(side, pair) for side, pair in enumerate(row, 1) if pair is not None]
    groups: list[list[int]] = [[0]]
    for side, pair in known:
        if pair.passed or passed[side - 1]:
            groups[0].append(side)
            continue
        for group in groups[1:]:
            twin = row[group[0] - 1]
            agreeing = between.get((group[0] - 1, side - 1), {}).get(pair.actual.key)
            if twin and agreeing and agreeing.expected.key == twin.actual.key:
                group.append(side)
                break
        else:
            groups.append([side])
    main = known[0][1]
    return TensorOfSides(
        tensors=(main.expected, *(pair.actual if pair else None for pair in row)),
        figures=(None, *(pair.figures if pair else None for pair in row)),
        groups=tuple(map(tuple, groups)),
        odd=odd_of(groups),
        depth=main.depth,
        constant=main.constant,
    )


def odd_of(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the sides that differ from the largest group of agreeing sides.

    The result is empty if all sides agree, or if no single group is the largest.
    """
    sizes = sorted(map(len, groups), reverse=True)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return ()
    return tuple(sorted(side for group in groups if len(group) < sizes[0] for side in group))


# The largest number of reasons for a missing truth that is listed.
MOST_REASONS = 3


def judge_by_truth(
    found: Comparison, against: Sequence[Comparison], truth: Dump, *, nearest: int
) -> Comparison:
    """Return a comparison of two dumps, with the errors of both sides against reference values.

    `truth` is the dump of the reference values. `against` has the comparison of each side with the
    reference values. `nearest` is the side, 0 or 1, whose model is nearest to the model of the
    reference values. To find the reference tensor of a pair, lar first looks for the twin of the
    pair's tensor on the side `nearest`.
    """
    mine, theirs = (
        {it.actual.key: it for it in against[side].tensors if not it.constant} for side in (0, 1)
    )

    def add_truth(tensor: TensorComparison) -> TensorComparison:
        one, other = mine.get(tensor.actual.key), theirs.get(tensor.expected.key)
        twin = (one, other)[nearest] or one or other
        if tensor.constant or twin is None:
            return tensor
        actual, expected = (it.figures if it else None for it in (one, other))
        errors = TruthErrors(tensor=twin.expected, actual=actual, expected=expected)
        return replace(tensor, truth=errors)

    sides = [without_doubt(found, against[side], side) for side in (0, 1)]
    doubted = dict.fromkeys(kind for _, kinds in sides for kind in kinds)
    return replace(
        found,
        tensors=tuple(map(add_truth, found.tensors)),
        culprits=tuple(culprit.with_tensors(add_truth) for culprit in found.culprits),
        truth=Truth(side=against[nearest].expected, actual=sides[0][0], expected=sides[1][0]),
        notes=(
            *found.notes,
            *(f"the truth of {kind} is in doubt: the engines agree against it" for kind in doubted),
            *dict.fromkeys(list(truth.index.left_out.values())[:MOST_REASONS]),
        ),
    )


def without_doubt(found: Comparison, against: Comparison, side: int) -> tuple[Findings, list[str]]:
    """Return how a side differs from reference values, and which reference values are doubtful.

    The second value of the result has the types of the operators with doubtful reference values.

    The reference values of an operator are doubtful if both sides agree with each other, but not
    with the reference values. A side is at fault only at operators where the two sides also differ
    from each other.
    """
    blamed = {(it.output.actual, it.output.expected)[side].key for it in found.culprits}
    compared = {(it.actual, it.expected)[side].key for it in found.tensors}
    kept, doubted = [], []
    for culprit in against.culprits:
        key = culprit.output.actual.key
        if key in blamed or (key not in compared and not found.same):
            kept.append(culprit)
        else:
            doubted += [culprit.actual[0].type] if culprit.actual else []
    finding = against.finding
    if not kept and (doubted or (found.same and finding != "same")):
        finding = "nothing"
    return Findings(finding=finding, culprits=tuple(kept)), doubted


def has_coarse_tensors(dump: Dump) -> bool:
    """Return whether a dump has quantised tensors or tensors of half precision.

    If a dump has quantised or half-precision tensors, its model may have been made from another
    model, by quantising or by casting to half precision.
    """
    return any(it.quantization is not None or it.dtype in ("float16", "BFloat16") for it in dump)
