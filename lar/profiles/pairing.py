"""The operators of two profiles that do the same work.

A profile has no values, but all else that `lar compare` aligns dumps by: names, the graph, shapes,
layers and what operators do. The twins that are found so are the tensors that both runs compute.
What lies between twins does the same work on both sides, however many operators it is made of:
each such group is one pair. Two operators that are not certain to be partners are none, and neither
are those whose shapes show other work, as two models may have it under one name.

Of runs with two batch sizes it is the work for one item that is the same. What one model file
computes of larger inputs is joined too, by names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lar.graphs.graph import region_of
from lar.graphs.matching import is_generic
from lar.graphs.operator_kinds import OperatorKinds
from lar.graphs.profile_graph import (
    COPY,
    ProfileGraph,
    plain_graph_of,
    without_filling,
)
from lar.graphs.structure import StructuralMatching, graph_without_values
from lar.profiles.operator_work import Work, do_same_work
from lar.profiles.run_likeness import (
    NUMBER,
    OperatorPair,
    are_fed_alike,
    has_graph,
    have_equal_graphs,
    have_one_model,
    items_of,
    operators_of,
    pair_by_places,
)
from lar.records.profile import Profile, ProfiledOperator

Place = tuple[int, int]  # a side, and an operator of it


def pair_operators(
    baseline: Profile,
    experiment: Profile,
    kinds: tuple[OperatorKinds, OperatorKinds] = (OperatorKinds(), OperatorKinds()),
) -> list[OperatorPair]:
    """Join the operators of two runs, in the order of the baseline's; `kinds` are those of their
    engines."""
    if have_equal_graphs(baseline, experiment):
        return pair_by_places(baseline)
    sides = operators_of(baseline, experiment)
    shapes: list[dict[str, tuple[int, ...]]] = [{}, {}]
    pairs: list[OperatorPair] = []
    if has_graph(sides[0]):
        graphs = make_graphs(baseline, experiment)
        shapes = [{it.key: it.shape for it in graph.dump_index.tensors} for graph in graphs]
        pairs = pair_by_graph(graphs, kinds)
    works = [*map(Work, sides, shapes, kinds, items_of(baseline, experiment))]
    pairs += pair_by_names(sides, kinds, pairs)
    if are_fed_alike(baseline, experiment) or not have_one_model(baseline, experiment):
        pairs = [
            pair
            for pair in pairs
            if do_same_work(works[0].of(pair.baseline), works[1].of(pair.experiment))
        ]
    left = [
        [number for number in range(len(side)) if number not in done]
        for side, done in zip(sides, places_in(pairs), strict=True)
    ]
    pairs += [OperatorPair(baseline=(number,)) for number in left[0]]
    pairs.sort(key=lambda pair: pair.baseline or (len(sides[0]),))
    return pairs + [OperatorPair(experiment=(number,)) for number in left[1]]


def make_graphs(baseline: Profile, experiment: Profile) -> tuple[ProfileGraph, ProfileGraph]:
    """Return the graphs of two runs; shapes are those of one item, in plain axes."""
    graphs = [
        plain_graph_of(profile, items)
        for profile, items in zip(
            (baseline, experiment), items_of(baseline, experiment), strict=True
        )
    ]
    return without_filling(*graphs), without_filling(*reversed(graphs))


def places_in(pairs: Iterable[OperatorPair]) -> tuple[set[int], set[int]]:
    """Return the operators of either side that are in pairs."""
    both = [*pairs]
    return (
        {number for pair in both for number in pair.baseline},
        {number for pair in both for number in pair.experiment},
    )


def pair_by_names(
    sides: Sequence[Sequence[ProfiledOperator]],
    kinds: Sequence[OperatorKinds],
    pairs: Iterable[OperatorPair],
) -> Iterator[OperatorPair]:
    """Yield pairs of operators of one type whose name no other operator of their run has.

    Of operators in a graph they are those that the graph does not compare: what moves data or
    holds it. What else it has not joined is not joined by its name.
    """
    found = []
    for side, known, done in zip(sides, kinds, places_in(pairs), strict=True):
        names = [(each.type, name_of_operator(each)) for each in side]
        counts = Counter(names)
        found.append(
            {
                name: place
                for place, (name, each) in enumerate(zip(names, side, strict=True))
                if counts[name] == 1 and name[1] and place not in done
                if not (each.writes and each.reads) or known.kinds.get(each.type.lower()) == "move"
            }
        )
    for name, place in found[0].items():
        if name in found[1]:
            yield OperatorPair((place,), (found[1][name],))


def name_of_operator(operator: ProfiledOperator) -> str:
    """Return a name that an operator has in each session: its own, or that of what it gives; empty
    where it has none."""
    name = NUMBER.sub("", operator.name)
    if name == operator.name or not operator.writes:
        return name
    given = COPY.sub("", operator.writes[0])
    return "" if is_generic(given) else given


def pair_by_graph(
    sides: Sequence[ProfileGraph], kinds: Sequence[OperatorKinds]
) -> list[OperatorPair]:
    """Join the operators between tensors that both runs compute."""
    matching = StructuralMatching(
        *(
            graph_without_values(side.dump_index, each)
            for side, each in zip(sides, kinds, strict=True)
        )
    )
    twins = matching.match_surely()
    stops = {node for pair in twins.items() for node in pair}
    # What only moves data is an operator of its own, which one run may lack.
    groups = [
        {
            (side, place)
            for side, node in enumerate(pair)
            for each in region_of(node, stops)
            if each.operator is not None and each not in matching.originals
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
