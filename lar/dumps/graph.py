"""Finds the graph of a dump: its operators, their order, and the blocked layouts of its tensors.

The module reads the graph from the names of the dumped tensors. This module also finds the
quantization of tensors. The engine or the model file gives the quantization of some tensors.
Operators that only move numbers do not change the scale. Therefore a known scale is passed on
between the input and the output of an operator that only moves numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from lar.dumps import NO_FACTS, DumpedOperator, DumpedTensor, DumpFacts, DumpIndex, Kernel
from lar.dumps.binary import DumpedName, TensorHeader, Variable
from lar.dumps.layouts import CONVOLUTIONS, layout_of_format, layouts_of
from lar.records.run import Quantization

# The inputs and the outputs of these operators have the same scale.
KEEPING = re.compile(
    r"Reshape|Dimshuffle|AxisAddRemove|RelayoutFormat|Broadcast|Identity|Copy|Subtensor|Concat"
    r"|(Adaptive)?PoolingForward|PaddingForward|ResizeForward"
    r"|Transpose|Flatten|Squeeze|Unsqueeze|Expand|MaxPool|Slice|Split|Gather|Relu|Cast"
)

Tensors: TypeAlias = Mapping[str, DumpedTensor]
Found: TypeAlias = dict[str, Quantization]


def with_quantizations(index: DumpIndex, facts: DumpFacts) -> DumpIndex:
    """Return the index of a dump with the quantizations that the engine or the model file gives."""
    by_key = {tensor.key: tensor for tensor in index.tensors}
    fitting = {it.key: fit_to(facts.quantizations.get(it.name), it) for it in index.tensors}
    found = {key: quantization for key, quantization in fitting.items() if quantization}
    count = 0
    while len(found) > count:
        count = len(found)
        for operator in index.operators:
            if KEEPING.fullmatch(operator.type):
                follow_moves(operator, by_key, found)
            elif operator.type in CONVOLUTIONS:
                follow_operands(operator, by_key, found, facts)
    kept = (replace(it, quantization=it.quantization or found.get(it.key)) for it in index.tensors)
    return replace(index, tensors=tuple(kept)) if found else index


def fit_to(quantization: Quantization | None, tensor: DumpedTensor) -> Quantization | None:
    """Return a quantization whose axis is counted from the first axis of the tensor.

    The result is None if the quantization does not fit the tensor.
    """
    if quantization is None or is_floating(tensor) or quantization.axis is None:
        return None if is_floating(tensor) else quantization
    axis = quantization.axis + (len(tensor.shape) if quantization.axis < 0 else 0)
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != len(quantization.scale):
        return None
    return replace(quantization, axis=axis)


def is_floating(tensor: DumpedTensor) -> bool:
    return "float" in tensor.dtype.lower() or "complex" in tensor.dtype


def is_open(key: str, tensors: Tensors, found: Found) -> bool:
    """Return whether a tensor may hold quantised integers whose scale is not known yet."""
    return key in tensors and key not in found and tensors[key].dtype not in ("bool", "int64")


def follow_moves(operator: DumpedOperator, tensors: Tensors, found: Found) -> None:
    """Pass the scale on from inputs to outputs, or back, if an operator only moves numbers."""
    taken = operator.inputs if operator.type == "Concat" else operator.inputs[:1]
    sides = [{found[it] for it in side if it in found} for side in (taken, operator.outputs)]
    if sides[0] and not all(key in found for key in taken):
        return
    for kept, side, back in ((sides[0], operator.outputs, False), (sides[1], taken, True)):
        if len(kept) == 1 and (quantization := kept.pop()).axis is None:
            for key in side:
                if is_open(key, tensors, found) and not (back and is_floating(tensors[key])):
                    found[key] = quantization


def follow_operands(
    operator: DumpedOperator, tensors: Tensors, found: Found, facts: DumpFacts
) -> None:
    """Find the scales of a convolution's weights and bias by their names in the model.

    The names in the model are needed, since the engine renamed the weights and the bias when it
    changed their layout.
    """
    given = tensors.get(operator.outputs[0])
    names = facts.operands.get(given.name, ()) if given else ()
    for key, name in zip(operator.inputs[1:3], names[1:3], strict=False):
        quantization = facts.quantizations.get(name)
        if quantization and is_open(key, tensors, found) and not is_floating(tensors[key]):
            found[key] = quantization


# Operators that hold a value. All other operators compute a value, or are inputs of the model.
CONSTANT = re.compile(
    r"ImmutableTensor|(Volatile)?SharedDeviceTensor(WithFormat)?|"
    r"MultipleDeviceTensor(WithFormat)?Holder|Constant|Initializer"
)

OUTPUT_FILE = re.compile(r"(run(\d{1,9})-)var ?\d+")


def index_of(headers: Iterable[TensorHeader], facts: DumpFacts = NO_FACTS) -> DumpIndex:
    """Return the index of the tensors in a folder.

    The operators are in the order in which the engine's facts list them. Without facts, operators
    are in the order of their numbers, as far as the graph allows.
    """
    files = [(header, *run_of(header)) for header in headers]
    keys = {(run, it.meaning.variable.id): it.path.name for it, run, _ in files if it.meaning}
    known = {fact.number: (rank, fact.parameters) for rank, fact in enumerate(facts.operators)}
    tensors: list[DumpedTensor] = []
    operators: dict[str, DumpedOperator] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    for header, run, scope in reversed(files):  # so that an operator's first output counts
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
    """Return an index of tensors with the operators that compute the tensors.

    If an operator has no inputs, its type says whether it is a constant.
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
    """Return the number of the iteration that wrote a tensor file, and the file name's prefix.

    The prefix is empty if the name of the file does not contain the number of an iteration.
    """
    found = OUTPUT_FILE.fullmatch(header.path.name)
    return (int(found[2]), found[1]) if found else (0, "")


def sort_operators(
    operators: Mapping[str, DumpedOperator], ranks: Mapping[str, tuple[int, ...]]
) -> list[DumpedOperator]:
    """Sort operators by rank, but put each operator after the operators that compute its inputs.

    If operators form a cycle, which no engine writes, their order is arbitrary.
    """
    makers = {it: key for key, operator in operators.items() for it in operator.outputs}
    left = sorted(operators, key=ranks.__getitem__, reverse=True)
    placed: dict[str, DumpedOperator] = {}
    waiting: set[str] = set()
    while left:
        key = left.pop()
        before = {makers.get(each, key) for each in operators[key].inputs}.difference(placed, {key})
        if before and key not in waiting:
            waiting.add(key)
            left += [key, *sorted(before, key=ranks.__getitem__, reverse=True)]
        else:
            placed.setdefault(key, operators[key])
    return [*placed.values()]
