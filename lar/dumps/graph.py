"""The graph of a dump, from the names of its tensors: operators, their order, blocked layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lar.dumps.binary import TensorHeader
from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import NO_FACTS, DumpFacts, Kernel
from lar.dumps.names import DumpedName, Variable
from lar.dumps.quantizations import with_quantizations
from lar.dumps.tensor_layouts import layout_of_format, layouts_of

# Operators that hold a value; all others compute one, or take in the model's input.
CONSTANT = re.compile(
    r"ImmutableTensor|(Volatile)?SharedDeviceTensor(WithFormat)?|"
    r"MultipleDeviceTensor(WithFormat)?Holder|Constant|Initializer"
)
OUTPUT_FILE = re.compile(r"(run(\d{1,9})-)var ?\d+")


def index_of(headers: Iterable[TensorHeader], facts: DumpFacts = NO_FACTS) -> DumpIndex:
    """Return the index of the tensors in a folder.

    The order is the engine's, from the facts. Without them the engine's numbers give the order, as
    far as the graph allows.
    """
    files = [(header, *run_of(header)) for header in headers]
    keys = {(run, it.meaning.variable.id): it.path.name for it, run, _ in files if it.meaning}
    known = {fact.number: (rank, fact.parameters) for rank, fact in enumerate(facts.operators)}
    tensors: list[DumpedTensor] = []
    operators: dict[str, DumpedOperator] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    for header, run, scope in reversed(files):  # an operator is known from its first output
        variable, inputs = header.meaning or DumpedName(Variable(id=-1, name=header.name))
        kind, number = variable.operator_type, variable.operator_id
        tensor = DumpedTensor(
            key=header.path.name,
            name=variable.name,
            dtype=header.declared.dtype,
            shape=header.shape,
            layout=layout_of_format(variable.format),
            operator=f"{scope}opr{number}" if kind else "",
            slot=variable.slot,
            run=run,
        )
        tensors.append(tensor)
        if not kind:
            continue
        rank, parameters = known.get(number, (len(known), {}))
        ranks[tensor.operator] = (run, rank, number)
        kernel = Kernel(kind, tuple(each.shape for each in (*inputs, variable)))
        others = operators[tensor.operator].outputs if tensor.operator in operators else ()
        operators[tensor.operator] = DumpedOperator(
            key=tensor.operator,
            name=variable.operator,
            type=kind,
            inputs=tuple(keys.get((run, it.id), f"{scope}var{it.id}") for it in inputs),
            outputs=(tensor.key, *others),
            parameters=parameters,
            algorithm=facts.algorithms.get(kernel, ""),
            constant=CONSTANT.fullmatch(kind) is not None,
        )
    ordered = sort_operators(operators, ranks)
    order = {operator.key: place for place, operator in enumerate(ordered)}
    layouts, last = layouts_of(tensors, ordered), len(order)
    tensors.sort(key=lambda it: (order.get(it.operator, last), it.run, it.slot, it.key))
    laid_out = tuple(replace(it, layout=layouts.get(it.key, "")) for it in tensors)
    return with_quantizations(DumpIndex(tensors=laid_out, operators=tuple(ordered)), facts)


def with_operators(index: DumpIndex, operators: Iterable[DumpedOperator]) -> DumpIndex:
    """Return the index of tensors with the operators that give them, by their keys.

    An operator without inputs is a constant or not by its type.
    """
    made = tuple(
        replace(it, constant=not it.inputs and CONSTANT.fullmatch(it.type) is not None)
        for it in operators
    )
    makers = {key: (each.key, slot) for each in made for slot, key in enumerate(each.outputs)}
    tensors = []
    for tensor in index.tensors:
        key, slot = makers.get(tensor.key, (tensor.operator, tensor.slot))
        tensors.append(replace(tensor, operator=key, slot=slot))
    return replace(index, operators=made, tensors=tuple(tensors))


def run_of(header: TensorHeader) -> tuple[int, str]:
    """Return the run of a dump's file, and the beginning of its keys.

    The beginning is empty if a folder has only one run.
    """
    found = OUTPUT_FILE.fullmatch(header.path.name)
    return (int(found[2]), found[1]) if found else (0, "")


def sort_operators(
    operators: Mapping[str, DumpedOperator], ranks: Mapping[str, tuple[int, ...]]
) -> list[DumpedOperator]:
    """Return operators by rank, but each behind those that give its inputs.

    Operators that wait for each other, which no engine writes, come in any order.
    """
    makers = {it: key for key, operator in operators.items() for it in operator.outputs}
    left = sorted(operators, key=ranks.__getitem__, reverse=True)
    placed: dict[str, DumpedOperator] = {}
    waiting: set[str] = set()
    while left:
        key = left.pop()
        before = {makers.get(each, key) for each in operators[key].inputs} - placed.keys() - {key}
        if before and key not in waiting:
            waiting.add(key)
            left += [key, *sorted(before, key=ranks.__getitem__, reverse=True)]
        else:
            placed.setdefault(key, operators[key])
    return [*placed.values()]
