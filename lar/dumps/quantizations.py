"""The real numbers that a dump's integers stand for: known for some tensors, followed to others.

Operators that only move numbers keep their scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import DumpFacts
from lar.dumps.tensor_layouts import CONVOLUTIONS
from lar.records.run import Quantization

# The inputs and outputs of these have integers that stand for real numbers in the same way.
KEEPING = re.compile(
    r"Reshape|Dimshuffle|AxisAddRemove|RelayoutFormat|Broadcast|Identity|Copy|Subtensor|Concat"
    r"|(Adaptive)?PoolingForward|PaddingForward|ResizeForward"
    r"|Transpose|Flatten|Squeeze|Unsqueeze|Expand|MaxPool|Slice|Split|Gather|Relu|Cast"
)

Tensors: TypeAlias = Mapping[str, DumpedTensor]
Found: TypeAlias = dict[str, Quantization]


def with_quantizations(index: DumpIndex, facts: DumpFacts) -> DumpIndex:
    """Return the index of a dump with what an engine or the model file says of its integers."""
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
    """Return a tensor's quantization with its axis counted from the first, None if unfit."""
    if quantization is None or is_floating(tensor) or quantization.axis is None:
        return None if is_floating(tensor) else quantization
    axis = quantization.axis + (len(tensor.shape) if quantization.axis < 0 else 0)
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != len(quantization.scale):
        return None
    return replace(quantization, axis=axis)


def is_floating(tensor: DumpedTensor) -> bool:
    return "float" in tensor.dtype.lower() or "complex" in tensor.dtype


def is_open(key: str, tensors: Tensors, found: Found) -> bool:
    """Return whether a tensor may hold quantised integers of unknown scale."""
    return key in tensors and key not in found and tensors[key].dtype not in ("bool", "int64")


def follow_moves(operator: DumpedOperator, tensors: Tensors, found: Found) -> None:
    """Give one scale to both sides of an operator that moves numbers, if one side has it."""
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
    """Note the scales of a convolution's weights and bias.

    These lost their names when the engine brought them into a layout.
    """
    given = tensors.get(operator.outputs[0])
    names = facts.operands.get(given.name, ()) if given else ()
    for key, name in zip(operator.inputs[1:3], names[1:3], strict=False):
        quantization = facts.quantizations.get(name)
        if quantization and is_open(key, tensors, found) and not is_floating(tensors[key]):
            found[key] = quantization
