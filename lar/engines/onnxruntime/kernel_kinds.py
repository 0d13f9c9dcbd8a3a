"""The kind of kernel of a convolution or a product: ONNX Runtime reports the type alone.

It is read from the optimised graph: the shape and the groups of the weights, the layout and the
types of the tensors. `Conv depthwise 3x3/2 NCHW16c` is a convolution of each channel by itself,
with a window of three by three that moves by two, on tensors in the blocked layout. ONNX Runtime
has no Winograd transformation for CPUs, so no kind is named so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lar.engines.onnx_file.fields import Message
from lar.engines.onnx_file.operators import FACTS, WORK
from lar.records.profile import TensorFact

CHANNELS_LAST = "Nhwc"


def kernel_kind(
    node: Message,
    parameters: Mapping[str, Any],
    facts: Mapping[str, TensorFact],
    constants: Mapping[str, TensorFact],
    filters: Mapping[str, tuple[int, ...]],
) -> str | None:
    """Return the kind of a node's kernel, None for other operators than convolutions and products.

    `facts` and `constants` have the tensors by name, `filters` the shapes that weights had before
    blocks were filled up.
    """
    operator = node.op_type
    second_place = FACTS.inputs.get(operator, (0, 1))[1]
    names = [*node.input[:1], *node.input[second_place:][:1], *node.output[:1]]
    known = [facts[name] for name in names if name in facts]
    kind = WORK.get(operator)
    if kind not in ("convolution", "deconvolution", "matrix product") or len(known) < 3:
        return None
    first, second, out = known
    if kind != "matrix product":
        weights = filters.get(names[1], second.shape)
        words = convolution_kind(operator, parameters, weights, first, out)
    else:
        words = product_kind(second.shape, out, names[1] in constants)
    return " ".join([operator, *words, *type_words(first, second)])


def convolution_kind(
    operator: str,
    parameters: Mapping[str, Any],
    weights: tuple[int, ...],
    given: TensorFact,
    made: TensorFact,
) -> list[str]:
    """Return the words for a convolution: how its channels are joined, its window, its layout."""
    groups, window = int(parameters.get("group", 1)), weights[2:]
    per_group = weights[0 if operator == "ConvTranspose" else 1] if len(weights) > 1 else 0
    if operator == "ConvTranspose":
        per_group //= groups or 1
    words = []
    if groups > 1:
        words.append("depthwise" if per_group == 1 else "grouped")
    elif window and all(size == 1 for size in window):
        words.append("pointwise")
    size = "x".join(map(str, window))
    strides, dilations = (parameters.get(name) or () for name in ("strides", "dilations"))
    if any(each != 1 for each in strides):
        size += f"/{short(strides)}"
    if any(each != 1 for each in dilations):
        size += f" dilated {short(dilations)}"
    return [*words, *([size] if size else []), layout_of(operator, parameters, given, made)]


def short(numbers: Sequence[int]) -> str:
    """Return one number for all axes where it is the same."""
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


def layout_of(
    operator: str, parameters: Mapping[str, Any], given: TensorFact, made: TensorFact
) -> str:
    """Return the layout, or both layouts if a convolution brings its input into another one."""
    if operator.startswith(CHANNELS_LAST) or parameters.get("channels_last"):
        return "NHWC"
    plain = "NC" + "DHW"[max(0, 5 - len(given.shape)) :] if 2 < len(given.shape) < 6 else "plain"
    before, after = given.layout or plain, made.layout or plain
    return before if before == after else f"{before} to {after}"


def product_kind(second: tuple[int, ...], made: TensorFact, constant: bool) -> list[str]:
    """Return the words for a product: of a vector, of many matrices, by weights or not."""
    words = ["by weights" if constant else "of two tensors"]
    # Many matrices by the same weights are one product of a taller matrix.
    if prod(second[:-2]) > 1:
        return ["batched", *words]
    return ["one row", *words] if prod(made.shape[:-1]) == 1 else words


def type_words(first: TensorFact, second: TensorFact) -> list[str]:
    """Return the types of elements, none if both are float32."""
    if first.dtype == second.dtype:
        return [] if first.dtype in ("float32", "") else [first.dtype]
    return [f"{first.dtype} by {second.dtype}"]
