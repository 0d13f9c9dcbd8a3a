"""The graph of a dump, from the names of its tensors: operators, their order, blocked layouts."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from lar.dumps.binary import TensorHeader
from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import NO_FACTS, DumpFacts, Kernel
from lar.dumps.names import DumpedName, Variable
from lar.dumps.quantizations import quantizations_of
from lar.dumps.tensor_layouts import layouts_of

# Operators that hold a value; all others compute one, or take in the model's input.
CONSTANT = re.compile(
    r"ImmutableTensor|(Volatile)?SharedDeviceTensor(WithFormat)?|"
    r"MultipleDeviceTensor(WithFormat)?Holder|Constant|Initializer"
)
OUTPUT_FILE = re.compile(r"(run(\d{1,9})-)var ?\d+")


def index_of(headers: Iterable[TensorHeader], facts: DumpFacts = NO_FACTS) -> DumpIndex:
    """Return the index of the tensors in a folder.

    The order is that of the facts, which is the engine's; without them it is that of the graph,
    and of the engine's numbers where that leaves a choice.
    """
    files = [(header, *run_of(header)) for header in headers]
    keys = {
        (run, header.meaning.variable.id): header.path.name
        for header, run, _ in files
        if header.meaning
    }
    known = {fact.number: (rank, fact.parameters) for rank, fact in enumerate(facts.operators)}
    tensors: list[DumpedTensor] = []
    operators: dict[str, DumpedOperator] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    formats: dict[str, str] = {}
    for header, run, scope in files:
        variable, inputs = header.meaning or DumpedName(Variable(id=-1, name=header.name))
        key = f"{scope}opr{variable.operator_id}" if variable.operator_type else ""
        tensor = DumpedTensor(
            key=header.path.name,
            name=variable.name,
            dtype=header.dtype,
            shape=header.shape,
            operator=key,
            slot=variable.slot,
            run=run,
        )
        tensors.append(tensor)
        formats[tensor.key] = variable.format
        if not key:
            continue
        rank, parameters = known.get(variable.operator_id, (len(known), {}))
        ranks[key] = (run, rank, variable.operator_id)
        before = operators.get(key)
        shapes = tuple(each.shape for each in (*inputs, variable))
        algorithm = facts.algorithms.get(Kernel(variable.operator_type, shapes), "")
        operators[key] = DumpedOperator(
            key=key,
            name=variable.operator,
            type=variable.operator_type,
            inputs=tuple(
                keys.get((run, each.id), f"{scope}var{each.id}" if scope else f"{each.id:06x}")
                for each in inputs
            ),
            outputs=(*(before.outputs if before else ()), tensor.key),
            parameters=parameters,
            algorithm=algorithm or (before.algorithm if before else ""),
            constant=CONSTANT.fullmatch(variable.operator_type) is not None,
        )
    makers = {tensor.key: tensor.operator for tensor in tensors if tensor.operator}
    order = {key: place for place, key in enumerate(sort_operators(operators, ranks, makers))}
    ordered = [operators[key] for key in order]
    layouts, last = layouts_of(tensors, ordered, formats), len(order)
    tensors.sort(key=lambda it: (order.get(it.operator, last), it.run, it.slot, it.key))
    found = quantizations_of(tensors, ordered, facts)
    return DumpIndex(
        tensors=tuple(
            replace(it, layout=layouts.get(it.key, ""), quantization=found.get(it.key))
            for it in tensors
        ),
        operators=tuple(ordered),
    )


def run_of(header: TensorHeader) -> tuple[int, str]:
    """Return the run that a file of a dump comes from, and what its keys begin with: nothing where
    a folder holds one run alone."""
    found = OUTPUT_FILE.fullmatch(header.path.name)
    return (int(found[2]), found[1]) if found else (0, "")


def sort_operators(
    operators: Mapping[str, DumpedOperator],
    ranks: Mapping[str, tuple[int, ...]],
    makers: Mapping[str, str],
) -> list[str]:
    """Return the keys of operators behind those that give their inputs, and by rank where that
    leaves a choice.

    `makers` maps tensors to operators. Where some wait for each other, which no engine writes, the
    order is that of the ranks.
    """
    before = {
        key: {makers[each] for each in operator.inputs if each in makers} - {key}
        for key, operator in operators.items()
    }
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError:
        return sorted(operators, key=ranks.__getitem__)
    ordered: list[str] = []
    ready: list[tuple[tuple[int, ...], str]] = []
    while sorter.is_active():
        for key in sorter.get_ready():
            heapq.heappush(ready, (ranks[key], key))
        ordered.append(heapq.heappop(ready)[1])
        sorter.done(ordered[-1])
    return ordered
