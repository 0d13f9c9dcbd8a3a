"""What has no twin on the other side, and what was not compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lar.comparison.pairs import Paired
from lar.graphs.graph import Node, results_of, sources_of
from lar.records.comparison import LeftOut, UnmatchedTensor

SideName = Literal["actual", "expected"]
SIDES: tuple[SideName, ...] = ("actual", "expected")

OTHER_FORM = "a constant that the other side holds in another form, or not at all"


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
    """Return which tensor's data a tensor holds or helps to move, empty for any other tensor."""
    originals = paired.twins.originals
    if node in originals:
        name = originals[node].name
        return "the same data in other axes" if name == node.name else f"the data of {name}"
    for each in results_of(node, originals) if node.steps == ("move",) else ():
        original = originals[each]
        if original in sources_of(node, {original}):
            return f"between {original.name} and {each.name}, which holds its data"
    return ""


def describe_fused(node: Node, paired: Paired, side: int) -> str:
    """Return which operator of the other side computes a tensor within itself, empty if none
    does."""
    for each in results_of(node, paired.by_node):
        twin = paired.by_node[each][:2][1 - side]
        maker = twin.operator.type if twin.operator else "an operator"
        return f"not separate: part of {maker}, which gives {twin.name}"
    return ""


def find_left_out(paired: Paired) -> Iterator[LeftOut]:
    """Yield the outputs that are not compared, and what a side computed and did not record."""
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
