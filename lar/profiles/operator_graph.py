"""The graph of a profile's operators, as the index of a dump has it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.graph import CONSTANT
from lar.records.profile import ProfiledOperator, TensorFact

COPY = re.compile(r"#\d+$")  # behind a name that several tensors of a graph have
USUAL_TYPE = "float32"
INPUT = "Input"  # the type of what stands for a tensor that is fed


class OperatorGraph(NamedTuple):
    """The index; by the keys of its operators those of the profile, the first of which counts
    where one was executed in several shapes; and what is known of each tensor, by key.

    Weights are no tensors of it.
    """

    dump_index: DumpIndex
    places: Mapping[str, Sequence[int]]
    operators: Mapping[str, ProfiledOperator]
    facts: Mapping[str, TensorFact]


def graph_of(operators: Sequence[ProfiledOperator], engine: str) -> OperatorGraph:
    """Return the graph of the operators whose tensors are recorded."""
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
    for key, dtype in find_missing_types(known.values(), facts).items():
        facts[key] = msgspec.structs.replace(facts[key], dtype=dtype)
    fed = [key for key in facts if key not in makers]
    makers |= {key: (f"{INPUT} {key}", 0) for key in fed}
    tensors = tuple(
        DumpedTensor(
            key=key,
            name=COPY.sub("", key),
            dtype=fact.dtype,
            shape=fact.shape,
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
    return OperatorGraph(index, places, known, facts)


def find_missing_types(
    operators: Collection[ProfiledOperator], facts: Mapping[str, TensorFact]
) -> dict[str, str]:
    """Return the types of tensors that are not recorded, as those that callbacks take or give:
    those of what is computed from them or they are computed from, else the usual one."""
    found: dict[str, str] = {}
    for operator in operators:
        keys = [key for key in (*operator.reads, *operator.writes) if key in facts]
        types = [facts[key].dtype for key in keys if facts[key].dtype]
        missing = [key for key in keys if not facts[key].dtype]
        if types:
            found |= dict.fromkeys(missing, types[0])
        for key in missing:
            found.setdefault(key, USUAL_TYPE)
    return found
