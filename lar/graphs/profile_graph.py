"""The graph of a profile's operators, as the index of a dump has it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.graph import CONSTANT
from lar.dumps.layouts import block_of, is_padded, plain_shape
from lar.dumps.tensor_layouts import layouts_of
from lar.graphs.graph import name_of
from lar.records.profile import ProfiledOperator, TensorFact

COPY = re.compile(r"#\d+$")  # behind a name that several tensors of a graph have
USUAL_TYPE = "float32"
INPUT = "Input"  # the type of what stands for a tensor that is fed

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ProfileGraph:
    """The index, and by the keys of its operators the places of those of the profile, the first of
    which counts where one was executed in several shapes.

    Weights are no tensors of it.
    """

    index: DumpIndex
    places: Mapping[str, Sequence[int]]


def graph_of(operators: Sequence[ProfiledOperator], engine: str) -> ProfileGraph:
    """Return the graph of the operators whose tensors are recorded, with the shapes that these
    had."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, operator in enumerate(operators):
        if operator.writes:
            places[operator.writes[0]].append(place)
    known = {key: operators[numbers[0]] for key, numbers in places.items()}
    facts: dict[str, TensorFact] = {}
    makers: dict[str, tuple[str, int]] = {}
    names: dict[str, str] = {}
    for key, operator in known.items():
        names |= operator.names
        facts |= zip(operator.writes, operator.outputs, strict=False)
        makers |= {each: (key, slot) for slot, each in enumerate(operator.writes)}
    for operator in known.values():
        for each, fact in zip(operator.reads, operator.inputs, strict=False):
            if each not in makers and each not in operator.weights:
                facts.setdefault(each, fact)
    missing = find_missing_types(known.values(), facts)
    fed = [key for key in facts if key not in makers]
    makers |= {key: (f"{INPUT} {key}", 0) for key in fed}
    tensors = tuple(
        DumpedTensor(
            key=key,
            name=COPY.sub("", key),
            dtype=missing.get(key, fact.dtype),
            shape=fact.shape,
            layout=fact.layout.lower(),
            operator=makers[key][0],
            slot=makers[key][1],
            origin=names.get(key, ""),
        )
        for key, fact in facts.items()
    )
    inputs = (
        DumpedOperator(key=makers[key][0], name=key, type=INPUT, outputs=(key,)) for key in fed
    )
    made = tuple(
        DumpedOperator(
            key=key,
            name=each.name,
            type=each.type,
            inputs=each.reads,
            outputs=each.writes,
            parameters=each.parameters,
            constant=not each.reads and CONSTANT.fullmatch(each.type) is not None,
        )
        for key, each in known.items()
    )
    # Of an engine without a name it is not known what the graph lacks.
    index = DumpIndex(tensors=tensors, operators=(*inputs, *made), engine=engine or "unknown")
    return ProfileGraph(index, places)


def find_missing_types(
    operators: Collection[ProfiledOperator], facts: Mapping[str, TensorFact]
) -> dict[str, str]:
    """Return the types of tensors that are not recorded, as those that callbacks take or give:
    those of what is computed from them or they are computed from, else the usual one."""
    found: dict[str, str] = {}
    for operator in operators:
        keys = [key for key in (*operator.reads, *operator.writes) if key in facts]
        types = [facts[key].dtype for key in keys if facts[key].dtype]
        for key in keys:
            if not facts[key].dtype and (types or key not in found):
                found[key] = types[0] if types else USUAL_TYPE
    return found


def with_plain_shapes(index: DumpIndex, items: int) -> DumpIndex:
    """Return an index whose tensors have their shapes in plain axes; those of `items` are of
    one."""
    layouts = layouts_of(index.tensors, index.operators)

    def shape_of(tensor: DumpedTensor) -> Shape:
        layout = layouts.get(tensor.key)
        shape = plain_shape(tensor.shape, layout) if layout else tensor.shape
        if shape and shape[0] % items == 0:
            return (shape[0] // items, *shape[1:])
        return shape

    return replace(
        index,
        tensors=tuple(
            replace(it, shape=shape_of(it), layout=layouts.get(it.key) or it.layout)
            for it in index.tensors
        ),
    )


def without_filling(index: DumpIndex, other: DumpIndex) -> DumpIndex:
    """Return an index without the channels that fill blocks, as far as a shape of the other side
    shows them, best that of the same name."""
    shapes = {it.shape for it in other.tensors}
    named = {name_of(it): it.shape for it in other.tensors}

    def shape_of(tensor: DumpedTensor) -> Shape:
        if not block_of(tensor.layout):
            return tensor.shape
        fitting = {it for it in shapes if is_padded(tensor.shape, it, tensor.layout)}
        if named.get(name_of(tensor)) in fitting:
            return named[name_of(tensor)]
        return max(fitting, default=tensor.shape)

    return replace(index, tensors=tuple(replace(it, shape=shape_of(it)) for it in index.tensors))
