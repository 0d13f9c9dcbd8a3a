"""The quantities that tensors of a quantised graph stand for: their names, and what computes them.

A quantiser rounds the output of an operator and names the result after it. If it folded an
activation into the range of the integers, the tensor before them is not the quantity of that name
in the float model: the integers are its twin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lar.dumps.dump import DumpedTensor
from lar.graphs.graph import Graph, Node, name_of
from lar.graphs.operator_kinds import HEAVY, UNKNOWN, Steps

# What ONNX Runtime's quantiser appends to the name of a tensor.
APPENDED = re.compile(
    r"(?P<name>.+?)(_(Dequantize|Quantize)Linear_(Input|Output)(_\d+)?|_quantized)(_token_\d+)?"
)

# Sums, whose result may be clipped where a range of integers begins at 0.
SUMS = ("sum", "add", "qlinearadd")

# The bits of quantised types; wider types, as for sums, are as good as floating-point numbers.
BITS = {
    **dict.fromkeys(("int8", "uint8", "QuantizedS8", "Quantized8Asymm"), 8),
    **dict.fromkeys(("int4", "uint4", "QuantizedS4", "Quantized4Asymm"), 4),
    **dict.fromkeys(("int16", "uint16"), 16),
}


def is_quantized(node: Node) -> bool:
    return node.tensor is not None and node.tensor.quantization is not None


def is_quantizing(node: Node) -> bool:
    """Return whether a tensor is the output of an operator, rounded to integers."""
    if not (node.is_cast and node.operator and is_quantized(node)):
        return False
    before, alone = node.parents[0], len(node.operator.outputs) == 1
    return alone and not is_quantized(before) and not before.is_input


def is_dequantizing(node: Node) -> bool:
    """Return whether a tensor has the real numbers that the integers before it stand for."""
    return node.is_cast and not is_quantized(node) and is_quantized(node.parents[0])


def steps_to(node: Node) -> Steps:
    """Return the steps that give a tensor, as the float model has them.

    They include an activation that is folded into a range of integers that begins at 0.
    """
    if not is_quantized(node):
        return node.steps
    steps = node.parents[0].steps if is_quantizing(node) else node.steps
    if node.tensor is None or not begins_at_zero(node.tensor) or steps[-1] in ("relu", "relu6"):
        return steps
    if steps[0] in HEAVY:
        return (*steps, "relu")
    return (*steps, UNKNOWN) if steps[-1] in SUMS else steps


def begins_at_zero(tensor: DumpedTensor) -> bool:
    """Return whether the integers of a tensor stand for no negative number."""
    _, lowest = bits_of(tensor.dtype)
    return tensor.quantization is not None and set(tensor.quantization.zero_point) == {lowest}


def bits_of(dtype: str) -> tuple[int, int]:
    """Return how many bits the integers of a quantised type have, and the lowest integer."""
    bits = BITS.get(dtype.partition("(")[0], 32)
    return bits, 0 if dtype.startswith("uint") or "Asymm" in dtype else -(2 ** (bits - 1))


def names_of(
    nodes: Sequence[Node], copies: Mapping[Node, Iterable[Node]]
) -> dict[Node, tuple[str, ...]]:
    """Return the names of each tensor and of its copies, as the float model has them.

    Integers have the name of the tensor that they round. If nothing else takes that tensor, it has
    no name itself.
    """
    own = {
        node: tuple(it.name for it in (node, *copies.get(node, ())) if not is_rounded_only(it))
        for node in nodes
    }
    taken = Counter(name for names in own.values() for name in names)
    named = {}
    for node, names in own.items():
        more = [found["name"] for name in names if (found := APPENDED.fullmatch(name))]
        if is_quantizing(node):
            more.append(node.parents[0].name)
        named[node] = (*names, *(name for name in dict.fromkeys(more) if not taken[name]))
    return named


def names_of_constants(graph: Graph) -> dict[str, str]:
    """Return the names of constants by key, as the float model has them.

    Dequantised constants are left out: their integers have these names.
    """
    tensors = {tensor.key: tensor for tensor in graph.dump if tensor.key in graph.constants}
    names = {key: name_of(it) for key, it in tensors.items() if key not in graph.dequantized}
    for key, integers in graph.dequantized.items():
        if key in tensors and integers in names:
            names[integers] = name_of(tensors[key])
    return {key: name_before(name) for key, name in names.items()}


def name_before(name: str) -> str:
    """Return a name without what a quantiser appended."""
    found = APPENDED.fullmatch(name)
    return found["name"] if found else name


def is_rounded_only(node: Node) -> bool:
    """Return whether every operator that takes a tensor rounds it."""
    return bool(node.children) and all(map(is_quantizing, node.children))
