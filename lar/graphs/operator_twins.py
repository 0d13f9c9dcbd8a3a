"""The operators of two profiles that do the same work.

Two graphs of one structure are gone through side by side. Of others the twins are found without
values: what lies between twins does the same work on both sides, however many operators it is made
of, and such a group is one pair. Operators outside of the graph are joined by unique names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lar.graphs.graph import Graph, Node, region_of
from lar.graphs.matching import is_generic
from lar.graphs.operator_kinds import OperatorKinds
from lar.graphs.profile_graph import COPY, plain_graph_of, without_filling
from lar.graphs.structure import StructuralMatching, graph_without_values
from lar.graphs.twins import are_one_structure
from lar.records.profile import Profile, ProfiledOperator

# What engines number anew in each session.
NUMBER = re.compile(r"\[\d+\]|_token_\d+")

Place = tuple[int, int]  # a side, and an operator of it


class OperatorPair(NamedTuple):
    """Operators of A and of B that do the same work, by their places in `Profile.operators`; one
    that has no partner stands alone."""

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()

    @property
    def is_joined(self) -> bool:
        return bool(self.a and self.b)


def match_operators(
    a: Profile, b: Profile, kinds: tuple[OperatorKinds, OperatorKinds]
) -> list[OperatorPair]:
    """Join the operators of two profiles, in the order of A's; `kinds` are those of their engines.

    Where one profile has no graph, as that of an earlier lar, names alone join.
    """
    sides = a.operators, b.operators
    have_graphs = all(any(each.writes for each in side) for side in sides)
    pairs = pair_by_graph(a, b, kinds) if have_graphs else []
    named = []
    for operators, known, left in zip(sides, kinds, left_of(sides, pairs), strict=True):
        # What the graph compares and has not joined is not joined by its name.
        free = [it for it in left if not have_graphs or is_outside(operators[it], known)]
        named.append(unique_names(operators, free))
    pairs += [
        OperatorPair((place,), (named[1][name],))
        for name, place in named[0].items()
        if name in named[1]
    ]
    alone = left_of(sides, pairs)
    pairs += [OperatorPair(a=(place,)) for place in alone[0]]
    return [*sorted(pairs, key=lambda pair: pair.a), *(OperatorPair(b=(it,)) for it in alone[1])]


def left_of(
    sides: Sequence[Sequence[ProfiledOperator]], pairs: Sequence[OperatorPair]
) -> list[list[int]]:
    """Return the operators of either side that are in no pair."""
    joined = [{place for pair in pairs for place in pair[number]} for number in (0, 1)]
    return [
        [place for place in range(len(side)) if place not in done]
        for side, done in zip(sides, joined, strict=True)
    ]


def is_outside(operator: ProfiledOperator, kinds: OperatorKinds) -> bool:
    """Return whether an operator merely holds, feeds or moves data."""
    is_moving = kinds.kinds.get(operator.type.lower()) == "move"
    return is_moving or not (operator.reads and operator.writes)


def unique_names(
    operators: Sequence[ProfiledOperator], places: Iterable[int]
) -> dict[tuple[str, str], int]:
    """Return the places of operators whose type and name no other operator has."""
    names = [(each.type, lasting_name(each)) for each in operators]
    counts = Counter(names)
    return {names[it]: it for it in places if counts[names[it]] == 1 and names[it][1]}


def lasting_name(operator: ProfiledOperator) -> str:
    """Return a name that an operator has in each session: its own, or that of what it gives; empty
    where it has none."""
    name = NUMBER.sub("", operator.name)
    if name == operator.name or not operator.writes:
        return name
    given = COPY.sub("", operator.writes[0])
    return "" if is_generic(given) else given


def pair_by_graph(
    a: Profile, b: Profile, kinds: tuple[OperatorKinds, OperatorKinds]
) -> list[OperatorPair]:
    """Join the operators between tensors that both profiles compute."""
    sides = plain_graph_of(a), plain_graph_of(b)
    sides = without_filling(*sides), without_filling(*reversed(sides))
    one, other = (
        graph_without_values(side.dump_index, each) for side, each in zip(sides, kinds, strict=True)
    )
    twins: dict[Node, Node]
    copies: Iterable[Node] = ()
    if are_one_structure(one, other) and not are_crossed(one, other):
        twins = dict(zip(one.nodes, other.nodes, strict=True))
    else:
        matching = StructuralMatching(one, other)
        twins, copies = matching.match_surely(), matching.originals
    stops = {node for pair in twins.items() for node in pair}
    # What only moves data is an operator of its own, which one side may lack.
    groups = [
        {
            (side, place)
            for side, node in enumerate(pair)
            for each in region_of(node, stops)
            if each.operator is not None and each not in copies
            for place in sides[side].places.get(each.operator.key, ())
        }
        for pair in twins.items()
    ]
    pairs = [
        OperatorPair(
            *(tuple(sorted(place for at, place in group if at == side)) for side in (0, 1))
        )
        for group in merged(groups)
    ]
    return [pair for pair in pairs if pair.is_joined]


def are_crossed(one: Graph, other: Graph) -> bool:
    """Return whether a name of one graph stands elsewhere in another of the same structure:
    branches that are joined in another order look alike."""
    names = {node.name for node in other.nodes if not is_generic(node.name)}
    pairs = zip(one.nodes, other.nodes, strict=True)
    return any(each.name != twin.name and each.name in names for each, twin in pairs)


def merged(groups: Iterable[set[Place]]) -> list[set[Place]]:
    """Return groups that have nothing in common: those that overlap are one."""
    owners: dict[Place, set[Place]] = {}
    for group in groups:
        overlapping = {id(owners[place]): owners[place] for place in group if place in owners}
        whole = max(overlapping.values(), key=len, default=set())
        for part in (group, *overlapping.values()):
            if part is not whole:
                whole |= part
                owners |= dict.fromkeys(part, whole)
    return list({id(group): group for group in owners.values()}.values())
