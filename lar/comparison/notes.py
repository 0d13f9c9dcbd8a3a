"""Facts for the reader beside the finding: notes, tensors without twins, what was not compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from lar.comparison.culprits import Blame
from lar.comparison.pairs import Paired
from lar.errors import count_of
from lar.graphs.graph import Node, results_of, sources_of
from lar.graphs.origins import PART
from lar.records.comparison import Finding, LeftOut, UnmatchedTensor

SIDES: tuple[Literal["actual", "expected"], ...] = ("actual", "expected")

OTHER_FORM = "a constant that the other side holds in another form, or not at all"

# At most so many names are in a note.
MOST_NAMED = 5


def find_notes(
    finding: Finding, blames: Sequence[Blame], paired: Paired, *, isolate: bool
) -> Iterator[str]:
    """Yield notes for the reader."""
    yield from note_dumps(paired)
    yield from note_inputs(paired)
    if paired.drawn:
        nodes = sorted({pair.expected for pair in paired.drawn}, key=lambda it: it.place)
        first = [it for it in nodes if not paired.graphs[1].random.intersection(it.parents)]
        names = listed([it.name.removeprefix(PART) for it in first or nodes])
        yield f"random operators: not comparable are {names} and what is computed from them"
    inside = [it for it in paired.compared.values() if not (it.passed or it.is_input)]
    if finding == "same" and inside:
        differ = count_of(len(inside), "tensor") + (" differs" if len(inside) == 1 else " differ")
        earliest = min(inside, key=lambda it: it.depth)
        if earliest.precision:
            differ += f", first {earliest.expected.name}"
            yield f"inside, {differ}; the outputs agree as {earliest.precision} rounds"
        else:
            yield f"inside, {differ}; nothing of it reaches the outputs"
    behind = {node for blame in blames for end in blame.expected for node in end.children}
    following = (paired.by_node[node] for node in behind & paired.by_node.keys())
    if not isolate and not all(paired.found(pair).passed for pair in following):
        yield "behind a culprit there may be more: --isolate runs each operator alone"


def note_dumps(paired: Paired) -> Iterator[str]:
    """Yield notes on what a dump lacks."""
    for values, name in zip(paired.values, paired.names, strict=True):
        dump = values.dump
        if values.unscaled:
            yield (
                f"nothing says which numbers {len(values.unscaled)} quantised tensors of "
                f"{name} stand for: --model FILE does"
            )
        if dump.missing:
            files = count_of(len(dump.missing), "file")
            yield f"the dump {name} lacks {files} that its index names: {listed(dump.missing)}"


def note_inputs(paired: Paired) -> Iterator[str]:
    """Yield notes on inputs of the model that differ."""
    for found in paired.wrong_inputs():
        mine, theirs = found.actual.shape, found.expected.shape
        if mine[:1] != theirs[:1] and mine[1:] == theirs[1:]:
            batches = f"{paired.names[0]} was run with {mine[0]} items, {paired.names[1]} with"
            yield f"the batch differs: {batches} {theirs[0]}"
        else:
            yield f"the input {found.expected.name} differs: the sides were fed with other data"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def find_unmatched(paired: Paired) -> Iterator[UnmatchedTensor]:
    """Yield every tensor without a twin."""
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
    """Return whose data a tensor holds or helps to move, empty for any other tensor."""
    originals = paired.twins.originals
    if node in originals:
        name = originals[node].name
        return "the same data in other axes" if name == node.name else f"the data of {name}"
    for each in results_of(node, originals) if node.is_move else ():
        original = originals[each]
        if original in sources_of(node, {original}):
            return f"between {original.name} and {each.name}, which holds its data"
    return ""


def describe_fused(node: Node, paired: Paired, side: int) -> str:
    """Return the operator of the other side that a tensor is a part of, empty without one."""
    for each in results_of(node, paired.by_node):
        twin = paired.by_node[each][:2][1 - side]
        maker = twin.operator.type if twin.operator else "an operator"
        return f"not separate: part of {maker}, which gives {twin.name}"
    return ""


def find_left_out(paired: Paired) -> Iterator[LeftOut]:
    """Yield the outputs that are not compared, and what a side computed but did not record."""
    drawn = {node for pair in paired.drawn for node in pair[:2]}
    for side, name in enumerate(SIDES):
        graph, index = paired.graphs[side], paired.graphs[side].dump.index
        for tensor, reason in index.left_out.items():
            yield LeftOut(side=name, name=tensor, reason=reason, is_output=tensor in index.outputs)
        for node in graph.outputs:
            reason = f"{paired.names[1 - side]} has no such output"
            if not drawn.isdisjoint({node, paired.twins.originals.get(node, node)}):
                reason = "random operators draw what it is computed from"
            elif paired.pair_of(node):
                continue
            yield LeftOut(side=name, name=node.name, reason=reason, is_output=True)
