"""The graph of a dump, from the names of its tensors: operators, their order, blocked layouts."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lar.dumps.binary import TensorHeader
from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import NO_FACTS, DumpFacts, Kernel
from lar.dumps.names import Variable
from lar.dumps.quantizations import quantizations_of
from lar.dumps.tensor_layouts import layouts_of

# Operators that hold a value; all others compute one, or take in the model's input.
CONSTANT = re.compile(
    r"ImmutableTensor|(Volatile)?SharedDeviceTensor(WithFormat)?|"
    r"MultipleDeviceTensor(WithFormat)?Holder|Constant|Initializer"
)
OUTPUT_FILE = re.compile(r"run(\d{1,9})-var ?\d+")


class Place(NamedTuple):
    """The run that a file of a dump comes from, None for the last run."""

    run: int | None

    def key_of(self, variable: Variable) -> str:
        """Return the name that the engine gives to a variable's file."""
        if self.run is None:
            return f"{variable.id:06x}"
        return f"run{self.run}-var{variable.id}"

    def key_of_operator(self, variable: Variable) -> str:
        """Return a key for the operator that gives a variable."""
        scope = "" if self.run is None else f"run{self.run}-"
        return f"{scope}opr{variable.operator_id}"


def index_of(headers: Iterable[TensorHeader], facts: DumpFacts = NO_FACTS) -> DumpIndex:
    """Return the index of the tensors in a folder.

    The order is that of the facts, which is the engine's; without them it is that of the graph,
    and of the engine's numbers where that leaves a choice.
    """
    files = list(headers)
    places = [place_of(header) for header in files]
    keys = {
        (place.run, header.meaning.variable.id): header.path.name
        for header, place in zip(files, places, strict=True)
        if header.meaning
    }
    tensors: list[DumpedTensor] = []
    operators: dict[str, DumpedOperator] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    known = {fact.number: (rank, fact) for rank, fact in enumerate(facts.operators)}
    formats: dict[str, str] = {}
    for header, place in zip(files, places, strict=True):
        if header.meaning is None:
            tensors.append(tensor_of(header))
            continue
        variable, inputs = header.meaning.variable, header.meaning.inputs
        operator = place.key_of_operator(variable) if variable.operator_type else ""
        tensors.append(tensor_of(header, place, operator))
        formats[header.path.name] = variable.format
        if not operator:
            continue
        rank, fact = known.get(variable.operator_id, (len(facts.operators), None))
        ranks.setdefault(operator, (place.run or 0, rank, variable.operator_id))
        before = operators.get(operator)
        shapes = tuple(each.shape for each in (*inputs, variable))
        algorithm = facts.algorithms.get(Kernel(variable.operator_type, shapes), "")
        operators[operator] = DumpedOperator(
            key=operator,
            name=variable.operator,
            type=variable.operator_type,
            inputs=tuple(keys.get((place.run, each.id), place.key_of(each)) for each in inputs),
            outputs=(*(before.outputs if before else ()), header.path.name),
            parameters=fact.parameters if fact else {},
            algorithm=algorithm or (before.algorithm if before else ""),
            constant=CONSTANT.fullmatch(variable.operator_type) is not None,
        )
    ordered = sort_operators(operators, ranks, {each.key: each.operator for each in tensors})
    placed = sort_tensors(tensors, ordered, layouts_of(tensors, ordered, formats))
    found = quantizations_of(placed, ordered, facts)
    return DumpIndex(
        tensors=tuple(replace(each, quantization=found.get(each.key)) for each in placed),
        operators=tuple(ordered),
    )


def place_of(header: TensorHeader) -> Place:
    found = OUTPUT_FILE.fullmatch(header.path.name)
    return Place(int(found[1]) if found else None)


def tensor_of(header: TensorHeader, place: Place | None = None, operator: str = "") -> DumpedTensor:
    variable = header.meaning.variable if header.meaning else None
    return DumpedTensor(
        key=header.path.name,
        name=variable.name if variable else header.name,
        dtype=header.dtype,
        shape=header.shape,
        operator=operator,
        slot=variable.slot if variable else 0,
        run=place.run or 0 if place else 0,
    )


def sort_operators(
    operators: Mapping[str, DumpedOperator],
    ranks: Mapping[str, tuple[int, ...]],
    makers: Mapping[str, str],
) -> list[DumpedOperator]:
    """Return operators behind those that give their inputs, and by rank where that leaves a choice.

    `makers` maps tensors to operators. Those that wait for each other, which no engine writes,
    come last.
    """
    waiting: dict[str, set[str]] = {}
    followers: dict[str, list[str]] = {key: [] for key in operators}
    for key, operator in operators.items():
        waiting[key] = {makers[each] for each in operator.inputs if each in makers} - {key, ""}
        for before in waiting[key]:
            followers[before].append(key)
    ready = [(ranks[key], key) for key, before in waiting.items() if not before]
    heapq.heapify(ready)
    ordered: list[DumpedOperator] = []
    while ready:
        _, key = heapq.heappop(ready)
        ordered.append(operators[key])
        for follower in followers[key]:
            waiting[follower].discard(key)
            if not waiting[follower]:
                heapq.heappush(ready, (ranks[follower], follower))
    placed = {operator.key for operator in ordered}
    return ordered + [operators[key] for key in operators if key not in placed]


def sort_tensors(
    tensors: Iterable[DumpedTensor], operators: Sequence[DumpedOperator], layouts: Mapping[str, str]
) -> tuple[DumpedTensor, ...]:
    """Return tensors in the order of their operators, with their layouts."""
    order = {operator.key: number for number, operator in enumerate(operators)}
    placed = [replace(each, layout=layouts.get(each.key, "")) for each in tensors]
    last = len(order)
    return tuple(
        sorted(
            placed, key=lambda each: (order.get(each.operator, last), each.run, each.slot, each.key)
        )
    )
