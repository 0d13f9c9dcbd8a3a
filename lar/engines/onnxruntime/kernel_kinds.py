"""The kind of kernel of a convolution or a product, of which ONNX Runtime gives the type alone.

It is read from the optimised graph: the shape and the groups of the weights, the layout and the
types of the tensors. `Conv depthwise 3x3/2 NCHW16c` is a convolution of each channel by itself,
with a window of three by three that moves by two, on tensors in the blocked layout. ONNX Runtime
has no Winograd transformation for CPUs, so no kind is named so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lar.records.profile import TensorFact

# By operator: the position of the weights among the inputs, and of the second factor.
CONVOLUTIONS = {
    "Conv": 1,
    "FusedConv": 1,
    "NhwcConv": 1,
    "NhwcFusedConv": 1,
    "ConvTranspose": 1,
    "ConvInteger": 1,
    "QLinearConv": 3,
}
PRODUCTS = {
    "MatMul": 1,
    "FusedMatMul": 1,
    "Gemm": 1,
    "FusedGemm": 1,
    "MatMulInteger": 1,
    "DynamicQuantizeMatMul": 1,
    "MatMulIntegerToFloat": 1,
    "QGemm": 3,
    "QLinearMatMul": 3,
}
CHANNELS_LAST = "Nhwc"


def kernel_kind(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    parameters: Mapping[str, Any],
    facts: Mapping[str, TensorFact],
    constants: Mapping[str, TensorFact],
    filters: Mapping[str, tuple[int, ...]],
) -> str | None:
    """Return the kind of a node's kernel, None for other operators than convolutions and products.

    `inputs` and `outputs` have an empty name for what is left out; `facts` and `constants` have the
    tensors by name, `filters` the shapes that weights had before blocks were filled up.
    """
    for positions, describe in ((CONVOLUTIONS, convolution_kind), (PRODUCTS, product_kind)):
        at = positions.get(operator)
        if at is None or len(inputs) <= at or not outputs:
            continue
        first, second, out = (facts.get(name) for name in (inputs[0], inputs[at], outputs[0]))
        if first is None or second is None or out is None:
            return None
        shape = filters.get(inputs[at], second.shape)
        words = describe(operator, parameters, shape, first, out, inputs[at] in constants)
        return " ".join([operator, *words, *type_words(first, second)])
    return None


def convolution_kind(
    operator: str,
    parameters: Mapping[str, Any],
    weights: tuple[int, ...],
    given: TensorFact,
    made: TensorFact,
    constant: bool,
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
    strides = [int(each) for each in parameters.get("strides", ()) or ()]
    dilations = [int(each) for each in parameters.get("dilations", ()) or ()]
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
    """Return the layout, that of both sides where a convolution brings its input into another."""
    if operator.startswith(CHANNELS_LAST) or parameters.get("channels_last"):
        return "NHWC"
    plain = "NC" + "DHW"[max(0, 5 - len(given.shape)) :] if 2 < len(given.shape) < 6 else "plain"
    before, after = given.layout or plain, made.layout or plain
    return before if before == after else f"{before} to {after}"


def product_kind(
    operator: str,
    parameters: Mapping[str, Any],
    second: tuple[int, ...],
    given: TensorFact,
    made: TensorFact,
    constant: bool,
) -> list[str]:
    """Return the words for a product: of a vector, of many matrices, by weights or not."""
    rows = made.shape[-2] if len(made.shape) > 1 else 1
    batch = prod(made.shape[:-2])
    # Many matrices by the same weights are one product of a taller matrix.
    if len(second) > 2 and prod(second[:-2]) > 1:
        words = ["batched"]
    elif rows * batch == 1:
        words = ["one row"]
    else:
        words = []
    return [*words, "by weights" if constant else "of two tensors"]


def type_words(first: TensorFact, second: TensorFact) -> list[str]:
    """Return the types of elements, none where both are float32."""
    if first.dtype == second.dtype:
        return [] if first.dtype in ("float32", "") else [first.dtype]
    return [f"{first.dtype} by {second.dtype}"]
