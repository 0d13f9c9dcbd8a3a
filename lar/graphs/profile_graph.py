"""Makes the graph of a profile's operators, in the form of the index of a dump."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.graph import with_operators
from lar.dumps.layouts import block_of, is_padded, layouts_of, plain_shape
from lar.graphs.graph import name_of
from lar.records.profile import Profile, ProfiledOperator, TensorFact

COPY = re.compile(r"#\d+$")  # appended to a name that several tensors of a graph have
USUAL_TYPE = "float32"  # if none is recorded, as for inputs and outputs of callbacks
INPUT = "Input"  # the type of the operators that stand for what is fed


class ProfileGraph(NamedTuple):
    """The index, and the places in the profile of each of its operators, by key.

    If an operator was executed in several shapes, the first place counts. Weights are not among the
    tensors.
    """

    dump_index: DumpIndex
    places: Mapping[str, Sequence[int]]

    def with_tensors(self, change: Callable[[DumpedTensor], DumpedTensor]) -> ProfileGraph:
        """Return the graph with each of its tensors changed."""
        tensors = tuple(map(change, self.dump_index.tensors))
        return self._replace(dump_index=replace(self.dump_index, tensors=tensors))


def graph_of(operators: Sequence[ProfiledOperator], engine: str) -> ProfileGraph:
    """Return the graph of the operators whose tensors are recorded, with the recorded shapes."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, operator in enumerate(operators):
        if operator.writes:
            places[operator.writes[0]].append(place)
    known = {key: operators[numbers[0]] for key, numbers in places.items()}
    made = [
        DumpedOperator(
            key=key,
            name=each.name,
            type=each.type,
            inputs=each.reads,
            outputs=each.writes,
            parameters=each.parameters,
        )
        for key, each in known.items()
    ]
    facts: dict[str, TensorFact] = {}
    names: dict[str, str] = {}
    for operator in known.values():
        names |= operator.names
        for key, fact in zip(operator.reads, operator.inputs, strict=False):
            if key not in operator.weights:
                facts.setdefault(key, fact)
        facts |= zip(operator.writes, operator.outputs, strict=False)
    fed = facts.keys() - {key for each in made for key in each.outputs}
    inputs = [
        DumpedOperator(key=f"{INPUT} {key}", name=key, type=INPUT, outputs=(key,))
        for key in sorted(fed)
    ]
    tensors = (
        DumpedTensor(
            key=key,
            name=COPY.sub("", key),
            dtype=fact.dtype or USUAL_TYPE,
            shape=fact.shape,
            layout=fact.layout.lower(),
            origin=names.get(key, ""),
        )
        for key, fact in facts.items()
    )
    # In an index without an engine, `Graph` expects that operators may be missing.
    index = DumpIndex(tensors=tuple(tensors), operators=(), engine=engine or "unknown")
    return ProfileGraph(with_operators(index, (*inputs, *made)), places)


def plain_graph_of(profile: Profile) -> ProfileGraph:
    """Return the graph of a profile, with shapes in plain axes."""
    graph = graph_of(profile.operators, profile.facts.engine)
    index = replace(graph.dump_index, model_sha256=profile.facts.model.sha256)
    layouts = layouts_of(index.tensors, index.operators)

    def make_plain(tensor: DumpedTensor) -> DumpedTensor:
        layout = layouts.get(tensor.key)
        shape = plain_shape(tensor.shape, layout) if layout else tensor.shape
        return replace(tensor, shape=shape, layout=layout or tensor.layout)

    return graph._replace(dump_index=index).with_tensors(make_plain)


def without_filling(graph: ProfileGraph, other: ProfileGraph) -> ProfileGraph:
    """Return a graph without the channels that fill blocks, if the other side's shapes show them.

    The shape of the tensor with the same name comes first.
    """
    shapes = {it.shape for it in other.dump_index.tensors}
    named = {name_of(it): it.shape for it in other.dump_index.tensors}

    def cut(tensor: DumpedTensor) -> DumpedTensor:
        if not block_of(tensor.layout):
            return tensor
        fitting = {it for it in shapes if is_padded(tensor.shape, it, tensor.layout)}
        likely = named.get(name_of(tensor), ())
        fits = likely in fitting
        return replace(tensor, shape=likely if fits else max(fitting, default=tensor.shape))

    return graph.with_tensors(cut)
