"""The real numbers that integers of a dump stand for: known of some tensors, followed to others.

Operators that move numbers keep their scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import DumpFacts
from lar.records.quantization import Quantization

# The integers that these take and give stand for real numbers in the same way.
KEEPING = re.compile(
    r"Reshape|Dimshuffle|AxisAddRemove|RelayoutFormat|Broadcast|Identity|Copy|Subtensor|Concat"
    r"|(Adaptive)?PoolingForward|PaddingForward|ResizeForward"
    r"|Transpose|Flatten|Squeeze|Unsqueeze|Expand|MaxPool|Slice|Split|Gather|Relu|Cast"
)
CONVOLUTIONS = ("ConvolutionForward", "ConvBiasForward")


def with_quantizations(index: DumpIndex, facts: DumpFacts) -> DumpIndex:
    """Return the index of a dump with what the file of its model says of its integers."""
    found = quantizations_of(index.tensors, index.operators, facts)
    tensors = (
        replace(it, quantization=it.quantization or found.get(it.key)) for it in index.tensors
    )
    return replace(index, tensors=tuple(tensors)) if found else index


def quantizations_of(
    tensors: Sequence[DumpedTensor],
    operators: Iterable[DumpedOperator],
    facts: DumpFacts,
) -> dict[str, Quantization]:
    """Return the quantization of tensors by key."""
    found: dict[str, Quantization] = {}
    for tensor in tensors:
        fitting = fit_to(facts.quantizations.get(tensor.name), tensor)
        if fitting is not None:
            found[tensor.key] = fitting
    if not found:
        return {}
    operators = list(operators)
    by_key = {tensor.key: tensor for tensor in tensors}
    grown = True
    while grown:
        before = len(found)
        for operator in operators:
            if KEEPING.fullmatch(operator.type):
                follow_moves(operator, by_key, found)
            elif operator.type in CONVOLUTIONS:
                follow_operands(operator, by_key, found, facts)
        grown = len(found) > before
    return found


def fit_to(quantization: Quantization | None, tensor: DumpedTensor) -> Quantization | None:
    """Return the quantization of a tensor with its axis counted from the first one; None if it
    does not fit the tensor."""
    if quantization is None or is_floating(tensor):
        return None
    if quantization.axis is None:
        return quantization
    axis = quantization.axis + (len(tensor.shape) if quantization.axis < 0 else 0)
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != len(quantization.scale):
        return None
    return Quantization(scale=quantization.scale, zero_point=quantization.zero_point, axis=axis)


def is_floating(tensor: DumpedTensor) -> bool:
    return "float" in tensor.dtype.lower() or "complex" in tensor.dtype


def is_open(key: str, tensors: Mapping[str, DumpedTensor], found: Mapping[str, object]) -> bool:
    """Return whether a tensor may hold quantised integers that nothing is known of."""
    return key in tensors and key not in found and tensors[key].dtype not in ("bool", "int64")


def follow_moves(
    operator: DumpedOperator,
    tensors: Mapping[str, DumpedTensor],
    found: dict[str, Quantization],
) -> None:
    """Note what an operator that moves numbers keeps, from its first input on or back to it."""
    count = len(operator.inputs) if operator.type == "Concat" else 1
    taken, given = operator.inputs[:count], operator.outputs
    sides = [{found[key] for key in side if key in found} for side in (taken, given)]
    if sides[0] and not all(key in found for key in taken):
        return
    for kept, side in ((sides[0], given), (sides[1], taken)):
        if len(kept) != 1:
            continue
        (quantization,) = kept
        for key in side:
            if quantization.axis is None and is_open(key, tensors, found):
                is_back = side is taken
                if not (is_back and is_floating(tensors[key])):
                    found[key] = quantization


def follow_operands(
    operator: DumpedOperator,
    tensors: Mapping[str, DumpedTensor],
    found: dict[str, Quantization],
    facts: DumpFacts,
) -> None:
    """Note the scales of a convolution's weights and bias, which have lost their names when the
    engine brought them into a layout."""
    given = tensors.get(operator.outputs[0])
    names = facts.operands.get(given.name, ()) if given else ()
    for key, name in zip(operator.inputs[1:3], names[1:3], strict=False):
        quantization = facts.quantizations.get(name)
        if quantization and is_open(key, tensors, found) and not is_floating(tensors[key]):
            found[key] = quantization
