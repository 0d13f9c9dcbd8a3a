"""The kernels of ONNX Runtime: their kinds, and the blocked layout of some of them.

ONNX Runtime reports the type of a convolution or a product alone. The kind of its kernel is read
from the optimised graph: the shape and the groups of the weights, the layout and the types of the
tensors. `Conv depthwise 3x3/2 NCHW16c` is a convolution of each channel by itself, with a window of
three by three that moves by two, on tensors in the blocked layout. ONNX Runtime has no Winograd
transformation for CPUs, so no kind is named so.

A tensor of the shape {N,C,H,W} in the blocked layout (NCHWc) holds {N,C/b,H,W,b} numbers for blocks
of b channels; the engine reports the plain shape all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from lar.engines.onnx_file.fields import Message, Node
from lar.engines.onnx_file.operators import FACTS, WORK
from lar.engines.onnxruntime.providers import CPU
from lar.records.profile import TensorFact

if TYPE_CHECKING:
    from lar.inputs import Array

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


# The blocked layout: how wide its blocks are here, and the way back from it

DOMAIN = "com.microsoft.nchwc"

# More channels than any block has.
CHANNELS = 64


def probe() -> bytes:
    """Return a model of one node, which brings its input into the blocked layout."""
    from lar.engines.onnxruntime.session import graph_alone, model_alone, tensor_type

    node = Message("Node", input=["x"], output=["y"], op_type="ReorderInput", domain=DOMAIN)
    return model_alone(graph_alone([node], {"x": tensor_type("float32")}, ["y"]), DOMAIN)


def block_size(onnxruntime: Any) -> int:
    """Return how many channels a block has on this processor, 1 if it has no such layout."""
    import numpy as np  # readers of a profile do not need it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a failure is an answer here, not an error
    try:
        session = onnxruntime.InferenceSession(probe(), options, providers=[CPU])
    except Exception:  # the engine has the operator only where it has the layout
        return 1
    # Two pixels a channel: the second of the first channel comes after a whole block.
    numbers = np.arange(2 * CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 1, 2)
    (blocked,) = session.run(None, {"x": numbers})
    return int(np.flatnonzero(blocked.reshape(-1) == 1)[0])


def blocked_tensors(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the tensors that are in the blocked layout."""
    blocked: set[str] = set()
    for node in nodes:
        # Other operators leave the layout as they find it; ReorderOutput ends it.
        of_layout = node.domain == DOMAIN and node.operator != "ReorderOutput"
        if of_layout or (node.domain != DOMAIN and not blocked.isdisjoint(node.inputs)):
            blocked.update(filter(None, node.outputs))
    return blocked


def split_blocks(array: Array, block: int) -> Array:
    """Return a tensor {N,C,...} of blocks with the axes {N,C/b,...,b} in which it is stored."""
    batch, channels, *sizes = array.shape
    return array.reshape(batch, channels // block, *sizes, block)


def join_blocks(array: Array) -> Array:
    """Return a tensor {N,C/b,...,b} in the shape {N,C,...} that the engine has for it."""
    batch, blocks, *sizes, block = array.shape
    return array.reshape(batch, blocks * block, *sizes)
