"""The optimised graph of ONNX Runtime, with the kinds of its kernels and the blocked layout.

For a convolution or matrix product, ONNX Runtime reports only the type of the operator. The kind of
the operator's kernel is derived from the optimised graph. The kind depends on the shape and groups
of the weights, and on the layout and types of the tensors. For example, `Conv depthwise 3x3/2
NCHW16c` is a depthwise convolution with a window of 3x3 and a stride of 2, on tensors in the
blocked layout. ONNX Runtime has no Winograd transformation for CPUs, so the word Winograd is in no
kind.

In the blocked layout (NCHWc), a tensor of the shape {N,C,H,W} is stored as {N,C/b,H,W,b} for blocks
of b channels. However, for a tensor in the blocked layout, the engine reports the plain shape
{N,C,H,W}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from operator import le
from typing import TYPE_CHECKING, Any

from lar.engines.onnx_file.bodies import CONTROL_FLOW, parameters_of
from lar.engines.onnx_file.fields import Message, Node, graphs_in, node_of, type_name
from lar.engines.onnx_file.operators import FACTS, WORK
from lar.engines.onnxruntime.providers import CPU
from lar.engines.operator_facts import Shape, flops_of
from lar.records.profile import TensorFact

if TYPE_CHECKING:
    from lar.inputs import Array

CHANNELS_LAST = "Nhwc"
BLOCKED_NAME = "_nchwc"  # the optimiser for the blocked layout appends it to a node's name
VIEWS = FACTS.moves["views"]


def kernel_kind(
    node: Message,
    parameters: Mapping[str, Any],
    facts: Mapping[str, TensorFact],
    constants: Mapping[str, TensorFact],
    filters: Mapping[str, tuple[int, ...]],
) -> str | None:
    """Return the kind of kernel of a convolution or matrix product; for other nodes return None.

    `facts` has the facts about all tensors, by name. `constants` has the facts about the constant
    tensors. `filters` has the original shapes of weights, without the channels that were added to
    fill blocks.
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
        words = product_kind(second.shape, out, not constants.keys().isdisjoint(names[:2]))
    return " ".join([operator, *words, *type_words(first, second)])


def convolution_kind(
    operator: str,
    parameters: Mapping[str, Any],
    weights: tuple[int, ...],
    given: TensorFact,
    made: TensorFact,
) -> list[str]:
    """Return the words that describe a convolution: its groups, its window and its layout."""
    groups, window = int(parameters.get("group", 1)), weights[2:]
    per_group = weights[0 if operator == "ConvTranspose" else 1] if len(weights) > 1 else 0
    if operator == "ConvTranspose":
        per_group //= groups
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
    """Format one number for each axis, or a single number if the numbers of all axes are equal."""
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


def layout_of(
    operator: str, parameters: Mapping[str, Any], given: TensorFact, made: TensorFact
) -> str:
    """Return the layout of a convolution, or two layouts if input and output differ in layout."""
    if operator.startswith(CHANNELS_LAST) or parameters.get("channels_last"):
        return "NHWC"
    plain = "NC" + "DHW"[5 - len(given.shape) :] if 2 < len(given.shape) < 6 else "plain"
    before, after = given.layout or plain, made.layout or plain
    return before if before == after else f"{before} to {after}"


def product_kind(second: tuple[int, ...], made: TensorFact, constant: bool) -> list[str]:
    """Return the words for a matrix product, such as `one row`, `batched` or `by weights`."""
    words = ["by weights" if constant else "of two tensors"]
    # A product of many matrices with the same weights is one product of a taller matrix.
    if prod(second[:-2]) > 1:
        return ["batched", *words]
    return ["one row", *words] if prod(made.shape[:-1]) == 1 else words


def type_words(first: TensorFact, second: TensorFact) -> list[str]:
    """Return the element types of two tensors as words; the list is empty if both are float32."""
    if first.dtype == second.dtype:
        return [] if first.dtype in ("float32", "") else [first.dtype]
    return [f"{first.dtype} by {second.dtype}"]


# The blocked layout: the size of its blocks on this processor, and conversions

DOMAIN = "com.microsoft.nchwc"

# A number of channels that is larger than any block.
CHANNELS = 64


def probe() -> bytes:
    """Return a model of one node, which converts its input to the blocked layout."""
    from lar.engines.onnxruntime.session import graph_alone, model_alone, tensor_type

    node = Message("Node", input=["x"], output=["y"], op_type="ReorderInput", domain=DOMAIN)
    return model_alone(graph_alone([node], {"x": tensor_type("float32")}, ["y"]), DOMAIN)


def block_size(onnxruntime: Any) -> int:
    """Return the number of channels in a block, or 1 if this processor has no blocked layout."""
    import numpy as np  # readers of a profile do not need it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a failure only means that there is no blocked layout
    try:
        session = onnxruntime.InferenceSession(probe(), options, providers=[CPU])
    except Exception:  # the engine has this operator only if it has the layout
        return 1
    # With two pixels in each channel, a whole block lies between the two of the first channel.
    numbers = np.arange(2 * CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 1, 2)
    (blocked,) = session.run(None, {"x": numbers})
    return int(np.flatnonzero(blocked.reshape(-1) == 1)[0])


def blocked_tensors(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the tensors that are in the blocked layout."""
    blocked: set[str] = set()
    for node in nodes:
        # Other operators keep the layout of their inputs; ReorderOutput converts it back.
        of_layout = node.domain == DOMAIN and node.operator != "ReorderOutput"
        if of_layout or (node.domain != DOMAIN and not blocked.isdisjoint(node.inputs)):
            blocked.update(filter(None, node.outputs))
    return blocked


def split_blocks(array: Array, block: int) -> Array:
    """Reshape a blocked tensor from {N,C,...} to the axes in memory, which are {N,C/b,...,b}."""
    batch, channels, *sizes = array.shape
    return array.reshape(batch, channels // block, *sizes, block)


def join_blocks(array: Array) -> Array:
    """Return a blocked tensor with the axes {N,C/b,...,b} in the engine's shape {N,C,...}."""
    batch, blocks, *sizes, block = array.shape
    return array.reshape(batch, blocks * block, *sizes)


# The optimised graph


class OptimizedGraph:
    """The constants of an optimised model, and its nodes, including those inside control flow.

    `blocked` has the names of the tensors in the blocked layout, and `layout` is the name of this
    layout. In the blocked layout, channels are added until the last block is full. `filters` has
    the shapes of weights without the added channels, and `channels` has the numbers of channels
    without the added channels (None if unknown). `plain` is the model with less optimisation,
    without the blocked layout. `filters`, `channels` and `mains` are computed from `plain`. `mains`
    has the original convolution of each blocked convolution, by the name of the blocked
    convolution.

    Raises:
        ValueError: the content is not a model.
    """

    def __init__(self, content: bytes = b"", plain: bytes = b"", layout: str = "") -> None:
        graph = Message("Model", content).graph
        graphs = [*graphs_in(graph)]
        self.nodes = [node for each in graphs for node in each.node]
        held = [tensor for each in graphs for tensor in each.initializer]
        self.constants = {
            it.name: TensorFact(tuple(it.dims), type_name(it.data_type)) for it in held
        }
        self.outputs = {info.name for info in graph.output}
        self.blocked = blocked_tensors(map(node_of, graph.node))
        self.layout = layout
        self.mains, self.filters, self.channels = unfilled(graph, Message("Model", plain).graph)

    def known_of(
        self, node: Message, inputs: Sequence[TensorFact], outputs: Sequence[TensorFact]
    ) -> dict[str, Any]:
        """Return those fields of an operator's record that are known from its node and its tensors.

        The fields FLOPs, bytes and kernel are known only if the node has the same inputs and
        outputs as the operator in the profile.
        """
        parameters = parameters_of(node)
        reads, writes = (tuple(filter(None, names)) for names in (node.input, node.output))
        known: dict[str, Any] = {"parameters": parameters, "reads": reads, "writes": writes}
        known["weights"] = tuple(name for name in reads if name in self.constants)
        taken = self.taken_facts(reads, inputs)
        if taken is None or len(writes) != len(outputs):
            return known
        given = self.in_layout(dict(zip(writes, outputs, strict=True)))
        facts = taken | given
        return known | {
            "inputs": tuple(taken.values()),
            "outputs": tuple(given.values()),
            "flops": self.flops_of(node, facts),
            "size_bytes": self.moved_bytes_of(node, taken, given),
            "algorithm": kernel_kind(node, parameters, facts, self.constants, self.filters),
        }

    def taken_facts(
        self, reads: Iterable[str], listed: Sequence[TensorFact]
    ) -> dict[str, TensorFact] | None:
        """Return a node's inputs by name, or None if they do not match `listed`, the engine's list.

        The engine's list of inputs lacks the constants that were rearranged when the model was
        loaded.
        """
        inputs, rest = dict[str, TensorFact](), [*listed]
        for name in reads:
            fact = self.constants.get(name)
            if fact is None or rest[:1] == [fact]:
                if not rest:
                    return None
                fact = rest.pop(0)
            inputs[name] = fact
        return None if rest else self.in_layout(inputs)

    def in_layout(self, facts: Mapping[str, TensorFact]) -> dict[str, TensorFact]:
        """Return tensors by name; the tensors in the blocked layout get the name of this layout."""
        return {
            name: TensorFact(it.shape, it.dtype, self.layout if name in self.blocked else "")
            for name, it in facts.items()
        }

    def flops_of(self, node: Message, facts: Mapping[str, TensorFact]) -> int | None:
        """Return a node's number of operations (see `operator_facts`), None if it is unknown."""
        from lar.engines.onnx_file.contents import operation_of

        shapes: dict[str, Shape] = {name: fact.shape for name, fact in facts.items()}
        for name in facts.keys() & self.channels.keys():
            batch, _, *sizes = facts[name].shape
            shapes[name] = (batch, self.channels[name], *sizes)
        shapes.update({name: self.filters[name] for name in facts.keys() & self.filters.keys()})
        return flops_of(operation_of(node, shapes))

    def moved_bytes_of(
        self, node: Message, inputs: Mapping[str, TensorFact], outputs: Mapping[str, TensorFact]
    ) -> int | None:
        """Return how many bytes a node reads and writes, None if an element's size is unknown.

        Each tensor is counted once. The result is 0 for a view whose outputs are not outputs of the
        model. A view whose output is an output of the model is counted, since the engine copies the
        output. The result is also 0 for an operator that runs subgraphs, since the bytes belong to
        the operators in the subgraphs.
        """
        from lar.engines.operator_times import moved_bytes

        kind = node.op_type
        if kind in CONTROL_FLOW or (kind in VIEWS and self.outputs.isdisjoint(outputs)):
            return 0
        places = FACTS.picked_from.get(kind, ())
        picked = {name for at, name in enumerate(node.input) if at in places} & inputs.keys()
        return moved_bytes(inputs, outputs.values(), picked)


def unfilled(
    graph: Message, plain: Message
) -> tuple[dict[str, Message | None], dict[str, tuple[int, ...]], dict[str, int | None]]:
    """Return original convolutions, the shapes of their weights, and the channels of tensors.

    ONNX Runtime adds channels to fill blocks; the added channels are not in these shapes and
    numbers. The first result maps the name of each node that ONNX Runtime made of a convolution to
    the original convolution.

    A convolution in the blocked layout is named after the output of the original convolution, or
    after the output of an operator that was fused into the convolution. After the convolution, no
    operator changes the number of channels, until a reorder operator removes the channels that fill
    blocks.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in plain.initializer}
    filled = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    makers = {name: node for node in plain.node for name in node.output if name}
    mains: dict[str, Message | None] = {}
    filters: dict[str, tuple[int, ...]] = {}
    channels: dict[str, int | None] = {}
    for node in graph.node:
        counts = [channels[name] for name in node.input if name in channels][:1]
        if node.domain == DOMAIN and node.op_type == "Conv":
            maker = makers.get(node.name.removesuffix(BLOCKED_NAME))
            while maker is not None and maker.op_type != "Conv":
                maker = makers.get(maker.input[0]) if maker.input else None
            mains[node.name] = maker
            shape = shapes.get(maker.input[1], ()) if maker is not None else ()
            wide, counts = filled.get(node.input[1], ()), [None]
            # Weights are padded only in their channels.
            if shape and shape[2:] == wide[2:] and all(map(le, shape, wide)):
                counts, filters[node.input[1]] = [shape[0]], shape
        if counts and node.op_type != "ReorderOutput":
            channels.update(dict.fromkeys(filter(None, node.output), counts[0]))
    return mains, filters, channels
