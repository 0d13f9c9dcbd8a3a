"""Faults that are planted in small networks: what is altered in which operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from network import Network, Node
from onnx import numpy_helper
from planted_networks import IN_BLOCKS, NETWORKS

Change = Callable[[Network, Node], None]
AlterArray = Callable[[Any], Any]
AlterModel = Callable[[onnx.ModelProto], None]
Pairs = tuple[tuple[str, str], ...]

# Forms of `number_cases`: what the altered network is run with, and the network as it should be.
IN_ONNX = (("basic", "basic"),)
PLAIN = (("basic", "basic"), ("plain", "plain"), ("plain", "basic"))
BLOCKED = (*PLAIN, ("nchw44", "plain"), ("nchw44", "all"))
OTHER_FUSION = (("all", "basic"), ("all", "plain"), ("nchw44", "disabled"), ("plain", "all"))
QUANTIZED = (("qdq", "basic"), ("qdq", "qdq"), ("qdq all", "basic"))
BY_CHANNEL = (("qdq channels", "basic"), ("qdq channels", "qdq channels"))


@dataclass(frozen=True)
class Fault:
    """A fault: what is altered in which operators, and the pairs of forms that show it.

    `prepare` is done to both sides. `quantized` alters the model that the quantiser made. `renamed`
    gives other names to all that the altered network computes.
    """

    kind: str
    network: str
    changes: tuple[tuple[str, Change], ...] = ()
    pairs: Pairs = ()
    prepare: tuple[tuple[str, Change], ...] = ()
    quantized: AlterModel | None = None
    at: str = ""  # the operator that is at fault, where the changes are not of it alone
    others: tuple[str, ...] = ()  # what may be named instead, where it is fused or reads that
    renamed: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        return (self.at,) if self.at else tuple(name for name, _ in self.changes)


# Changes of a network


def of_weight(alter: AlterArray, role: str = "weight") -> Change:
    """Return a change of an operator's weight, which `alter` changes in place or replaces."""

    def change(network: Network, node: Node) -> None:
        changed = alter(node.weights[role])
        node.weights[role] = node.weights[role] if changed is None else changed

    return change


def add_at(place: Any, number: float) -> AlterArray:
    def alter(array: Any) -> None:
        array[place] += number

    return alter


def scale_at(place: Any, factor: float) -> AlterArray:
    def alter(array: Any) -> None:
        array[place] *= factor

    return alter


def add_to_one(array: Any) -> None:
    array.reshape(-1)[array.size // 3] += 0.05


def scale_a_kernel(array: Any) -> None:
    array[array.shape[0] // 2] *= 1.02


def swap_first_two(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


alter_weight = of_weight(add_to_one)
alter_kernel = of_weight(scale_a_kernel)
alter_bias = of_weight(add_at(-1, 0.01), "bias")
transpose_kernel = of_weight(lambda array: np.ascontiguousarray(array.swapaxes(-1, -2)))
transpose_matrix = of_weight(lambda array: np.ascontiguousarray(array.swapaxes(0, 1)))
round_weight = of_weight(lambda array: array.astype(np.float16).astype(np.float32))
alter_channel = of_weight(scale_at(1, 2))
swap_channels = of_weight(swap_first_two)


def set_to(**settings: Any) -> Change:
    return lambda network, node: node.settings.update(settings)


# Dilate a kernel of 3 with as much more padding: the shape stays.
widen = set_to(dilation=2, padding=2)
# Pad the other value: what a border extended by its own edge would be.
shift_padding = set_to(pads=(0, 2, 0, 2))
# Pad one row less before and one more behind.
shift_by_one = set_to(pads=(0, 1, 2, 1))


def scale_setting(name: str, factor: float) -> Change:
    return lambda network, node: node.settings.update({name: node.settings[name] * factor})


def scale_weights(factor: float) -> Change:
    def change(network: Network, node: Node) -> None:
        for weight in node.weights.values():
            weight *= np.float32(factor)

    return change


def divide_bias(factor: float) -> Change:
    return of_weight(lambda array: np.rint(array / factor).astype(np.int32), "bias")


def put(network: Network, node: Node, *nodes: Node) -> None:
    """Replace a node."""
    place = network.nodes.index(node)
    network.nodes[place : place + 1] = nodes


def remove(network: Network, node: Node) -> None:
    """Take an operator out: what took its output takes its input."""
    (source,) = node.inputs
    put(network, node)
    network.nodes = [rewired(each, {node.name: source}) for each in network.nodes]


def rewired(node: Node, names: dict[str, str]) -> Node:
    """Return a node with other names for what it takes."""
    return replace(node, inputs=tuple(names.get(each, each) for each in node.inputs))


def cast_half(network: Network, node: Node) -> None:
    """Bring what an operator takes into float16 and back."""
    name = f"{node.name}.half"
    half = Node("half", name, node.inputs[:1])
    put(network, node, half, replace(node, inputs=(name, *node.inputs[1:])))


def swap_inputs(network: Network, node: Node) -> None:
    first, second, *others = node.inputs
    put(network, node, replace(node, inputs=(second, first, *others)))


def become(kind: str, **settings: Any) -> Change:
    """Make it an operator of another kind."""
    return lambda network, node: put(
        network, node, replace(node, kind=kind, settings={**node.settings, **settings})
    )


# Changes of what the quantiser made


def alter_constant(name: str, alter: AlterArray) -> AlterModel:
    """Return a change of a constant of an ONNX model, by the beginning of its name."""

    def change(model: onnx.ModelProto) -> None:
        constant = next(it for it in model.graph.initializer if it.name.startswith(name))
        array = alter(numpy_helper.to_array(constant).copy())
        constant.CopyFrom(numpy_helper.from_array(np.asarray(array), constant.name))

    return change


def alter_reading(tensor: str, place: int, alter: AlterArray) -> AlterModel:
    """Return a change of the scale (1) or the zero point (2) by which a quantised tensor is read,
    not of that by which it is written."""

    def change(model: onnx.ModelProto) -> None:
        written = f"{tensor}_QuantizeLinear_Output"
        readers = [it for it in model.graph.node if [*it.input][:1] == [written]]
        readers = [it for it in readers if it.op_type == "DequantizeLinear"]
        before = readers[0].input[place]
        constant = next(it for it in model.graph.initializer if it.name == before)
        altered = np.asarray(alter(numpy_helper.to_array(constant)))
        model.graph.initializer.append(numpy_helper.from_array(altered, f"{before}_altered"))
        for node in readers:
            node.input[place] = f"{before}_altered"

    return change


def times(factor: float) -> AlterArray:
    return lambda array: array * np.float32(factor)


def plus(number: int) -> AlterArray:
    return lambda array: array + np.int8(number)


def flip(array: Any) -> Any:
    """Give each channel the scale of another one."""
    return np.ascontiguousarray(array[::-1])


# The faults


def plant(
    network: str, *faults: tuple[str, str, Change], pairs: Pairs | None = None
) -> tuple[Fault, ...]:
    """Return faults of a network, one altered operator each: kind, operator and change."""
    found = pairs or (BLOCKED if network in IN_BLOCKS else PLAIN)
    return tuple(Fault(kind, network, ((name, change),), found) for kind, name, change in faults)


# One altered operator at a time.
SINGLE_FAULTS = (
    *plant(
        "plain_cnn",
        ("weight", "conv2", alter_weight),
        ("bias", "conv3", alter_bias),
        ("transposed kernel", "conv1", transpose_kernel),
        ("missing relu", "relu2", remove),
        ("half cast", "conv3", cast_half),
        ("pooling mode", "pool2", become("average_pool", count_pad=True)),
    ),
    *plant("plain_cnn", ("dilation", "conv4", widen), pairs=PLAIN),
    # In blocks the engine pads another axis there.
    *plant("plain_cnn", ("padding", "conv2", shift_padding), pairs=PLAIN),
    *plant(
        "residual",
        ("weight", "a.conv2", alter_weight),
        ("bias", "b.conv2", alter_bias),
        ("shortcut", "b.short", alter_kernel),
        ("missing relu", "b.relu1", remove),
        ("missing relu at the sum", "a.relu", remove),
        ("transposed kernel", "c.conv1", transpose_kernel),
    ),
    *plant(
        "inverted",
        ("clip", "b.expand_relu", become("relu")),
        ("depthwise kernel", "b.depthwise", transpose_kernel),
        ("bias", "a.project", alter_bias),
        ("missing relu", "a.depthwise_relu", remove),
        ("rounded weight", "c.expand", round_weight),
    ),
    *plant(
        "branches",
        ("padding counted", "a.pool", set_to(count_pad=False)),
        ("pooling mode", "b.pool", become("max_pool")),
        ("order of joining", "a.joined", swap_inputs),
        ("kernel", "b.two", alter_kernel),
        ("missing relu", "a.relu3", remove),
    ),
    *plant(
        "perceptron",
        ("activation", "sigmoid1", become("tanh")),
        ("slope", "leaky_relu3", set_to(slope=0.02)),
        ("transposed matrix", "dense2", transpose_kernel),
        ("softmax axis", "prob", set_to(axis=0)),
        ("bias", "dense0", alter_bias),
    ),
    *plant(
        "attention",
        ("epsilon", "a.norm", set_to(epsilon=1e-2)),
        ("scale", "b.scaled", set_to(scale=0.5)),
        ("softmax axis", "a.weights", set_to(axis=0)),
        ("weight", "b.key", alter_weight),
        ("half cast", "a.mixed", cast_half),
    ),
    *plant(
        "excitation",
        ("gate", "a.gate", become("tanh")),
        ("weight", "b.reduce", alter_weight),
        ("missing relu", "a.relu", remove),
        ("bias", "a.raise", alter_bias),
    ),
    *plant(
        "two_inputs",
        ("order of a difference", "apart", swap_inputs),
        ("product", "product", become("add")),
        ("weight", "b.dense", alter_weight),
        ("missing tanh", "b.tanh", remove),
    ),
    *plant(
        "picture",
        ("scale", "normalize", set_to(scale=1 / 63)),
        ("shift", "normalize", set_to(shift=-2.01)),
        ("weight", "conv1", alter_weight),
        ("pooling mode", "pool", become("max_pool")),
    ),
    *plant(
        "dense",
        ("scale", "scale2", set_to(scale=0.91)),
        ("missing relu", "relu1", remove),
        ("kernel", "conv2", alter_kernel),
        ("order of joining", "joined1", swap_inputs),
    ),
)

# Whose integers are read otherwise than they were written.
RELU3_READ = ("conv4", "relu4")
SUM_READ = ("c.expand", "c.expand_relu", "c.sum")


def in_integers(
    kind: str,
    network: str,
    at: str,
    alter: AlterModel,
    others: tuple[str, ...] = (),
    pairs: Pairs = QUANTIZED,
) -> Fault:
    """Return a fault in what the quantiser made of an operator."""
    return Fault(kind, network, (), pairs, at=at, others=others, quantized=alter)


def scale_between(factor: float) -> tuple[tuple[str, Change], ...]:
    """Return changes of the scale of what conv2 gives and conv3 takes."""
    return (
        ("conv2", scale_setting("output_scale", factor)),
        ("conv3", scale_setting("input_scale", factor)),
    )


OTHER_FAULTS = (
    # Two at once, one behind the other or in two branches.
    Fault("two", "plain_cnn", (("conv1", alter_weight), ("conv4", alter_bias)), BLOCKED),
    Fault("two", "plain_cnn", (("conv2", alter_kernel), ("logits", alter_weight)), BLOCKED),
    Fault("two", "residual", (("a.conv2", alter_weight), ("c.conv1", transpose_kernel)), BLOCKED),
    Fault("two", "inverted", (("a.project", alter_bias), ("c.expand", alter_kernel)), BLOCKED),
    Fault("two", "branches", (("b.one", alter_kernel), ("b.two", alter_weight)), BLOCKED),
    Fault("two", "attention", (("a.norm", set_to(epsilon=1e-2)), ("b.key", alter_weight)), PLAIN),
    Fault("two", "two_inputs", (("b.dense", alter_weight), ("joint", alter_bias)), PLAIN),
    Fault("two", "dense", (("scale1", set_to(scale=0.91)), ("conv3", alter_kernel)), BLOCKED),
    *plant("plain_cnn", ("last", "logits", alter_weight)),
    *plant("attention", ("last", "logits", alter_bias)),
    *plant("two_inputs", ("last", "similarity", round_weight)),
    *plant("excitation", ("last", "logits", alter_bias)),
    *(
        replace(each, renamed=True)
        for each in (
            *plant("plain_cnn", ("renamed", "conv3", alter_weight)),
            *plant("residual", ("renamed", "b.conv1", alter_kernel)),
            *plant("attention", ("renamed", "b.value", alter_bias)),
            *plant("excitation", ("renamed", "a.relu", remove)),
        )
    ),
    *plant("plain_cnn", ("fusion", "conv2", alter_weight), pairs=OTHER_FUSION),
    *plant("residual", ("fusion", "b.relu1", remove), pairs=OTHER_FUSION),
    *plant("inverted", ("fusion", "b.project", alter_bias), pairs=OTHER_FUSION),
    *plant("branches", ("fusion", "a.pool", set_to(count_pad=False)), pairs=OTHER_FUSION),
    # Scales, zero points, axes, saturation.
    in_integers("scale", "plain_cnn", "relu3", alter_reading("relu3", 1, times(1.3)), RELU3_READ),
    in_integers("scale", "residual", "b.conv2", alter_constant("b.conv2.weight_scale", times(1.2))),
    *plant("int8_cnn", ("scale", "conv2", scale_setting("weight_scale", 1.2)), pairs=BLOCKED),
    Fault(
        "scale",
        "int8_cnn",
        (("conv3", scale_setting("input_scale", 1.3)),),
        IN_ONNX,
        others=("conv2",),  # whose integers are read otherwise than they were written
    ),
    in_integers(
        "zero point", "plain_cnn", "relu3", alter_reading("relu3", 2, plus(20)), RELU3_READ
    ),
    in_integers("zero point", "inverted", "b.sum", alter_reading("b.sum", 2, plus(15)), SUM_READ),
    *(
        in_integers(
            "axis", network, at, alter_constant(f"{at}.weight_scale", flip), pairs=BY_CHANNEL
        )
        for network, at in (("plain_cnn", "conv3"), ("residual", "c.conv1"))
    ),
    in_integers("saturation", "plain_cnn", "relu3", alter_constant("relu3_scale", times(0.25))),
    Fault(
        *("saturation", "int8_cnn", scale_between(0.2)),
        pairs=(("basic", "basic"), ("basic", "plain")),
        at="conv2",
    ),
    # Scales that rounding hides: far coarser than the values need.
    in_integers("coarse", "plain_cnn", "relu3", alter_constant("relu3_scale", times(12))),
    in_integers(
        *("coarse", "residual", "b.conv1", alter_constant("b.conv1_scale", times(12))),
        pairs=(("qoperator", "basic"), ("qoperator", "qdq")),
    ),
    Fault(
        *("coarse", "int8_cnn", (*scale_between(12), ("conv3", divide_bias(12))), BLOCKED),
        at="conv2",
    ),
    # The engine reads the bias of conv4 by the scale of what it takes.
    in_integers(
        *("coarse", "plain_cnn", "relu3", alter_constant("relu3_scale", times(4))),
        pairs=(("qdq all", "basic"), ("qdq all", "qdq all")),
    ),
    # Overflow of float16: right in float32.
    Fault(
        *("overflow", "plain_cnn", (("conv3", cast_half),), PLAIN),
        prepare=(("conv2", scale_weights(3e4)), ("conv3", scale_weights(3e-5))),
    ),
    Fault(
        *("overflow", "attention", (("a.scaled", cast_half),), PLAIN),
        prepare=(("a.query", scale_weights(2e3)), ("a.key", scale_weights(2e3))),
    ),
    # Weights and borders, across layouts and formats.
    *plant("attention", ("transposed", "a.query", transpose_matrix)),
    *plant("perceptron", ("transposed", "dense1", transpose_matrix)),
    *plant("plain_cnn", ("padding", "conv3", shift_by_one), pairs=PLAIN),
    *plant("residual", ("padding", "b.conv1", shift_by_one), pairs=PLAIN),
    *plant("dense", ("padding", "conv2", shift_by_one), pairs=PLAIN),
    *plant("plain_cnn", ("channel", "conv4", alter_channel)),
    *plant("inverted", ("channel", "b.depthwise", alter_channel)),
    *plant("branches", ("channel", "a.two", swap_channels)),
    *plant(
        *("plain_cnn", ("channel", "conv4", alter_channel)),
        pairs=(("qdq", "basic"), ("qoperator", "basic"), ("qdq", "qdq")),
    ),
)
# By the word that a side's name has.
FAULTS = {
    **{f"old-{number}": fault for number, fault in enumerate(SINGLE_FAULTS)},
    **{f"new-{number}": fault for number, fault in enumerate(OTHER_FAULTS)},
}


def describe(name: str, fault: str) -> Network:
    """Return a network as a fault leaves it; `prepared-new-1` is the other side of `new-1`."""
    network = NETWORKS[name]()
    planted = FAULTS.get(fault.removeprefix("prepared-"))
    if planted:
        apply(network, planted.prepare)
    if planted and fault in FAULTS:
        apply(network, planted.changes)
        if planted.renamed:
            rename(network)
    return network


def apply(network: Network, changes: Iterable[tuple[str, Change]]) -> None:
    for name, change in changes:
        change(network, next(node for node in network.nodes if node.name == name))


def rename(network: Network) -> None:
    """Give other names to all that a network computes."""
    names = {node.name: f"n{number}" for number, node in enumerate(network.nodes)}
    network.nodes = [rewired(replace(it, name=names[it.name]), names) for it in network.nodes]
    network.outputs = [names.get(each, each) for each in network.outputs]


def halve(network: Network) -> None:
    """Have a network compute in float16 between its inputs and its outputs."""
    for node in network.nodes:
        for name, weight in node.weights.items():
            node.weights[name] = weight.astype(np.float16)
    narrowed = {spec.name: f"{spec.name}.narrow" for spec in network.inputs}
    ends = {name: f"{name}.half" for name in network.outputs}
    names = {**narrowed, **ends}
    network.nodes = [
        *(Node("narrow", after, (before,)) for before, after in narrowed.items()),
        *(
            rewired(replace(each, name=ends.get(each.name, each.name)), names)
            for each in network.nodes
        ),
        *(Node("cast", before, (after,)) for before, after in ends.items()),
    ]


# What engines fuse with the operator before it.
FOLLOWING = ("relu", "relu6", "add", "sigmoid", "tanh")


def names_of(network: Network, operator: str) -> frozenset[str]:
    """Return the names that the result of an operator may have where others are fused with it."""
    node = next(each for each in network.nodes if each.name == operator)
    names = [operator, *(node.inputs if node.kind in FOLLOWING else ())]
    while True:
        following = [each for each in network.nodes if operator in each.inputs]
        if len(following) != 1 or following[0].kind not in FOLLOWING:
            return frozenset(names)
        operator = following[0].name
        names.append(operator)


def truth_of(fault: Fault) -> tuple[frozenset[str], ...]:
    """Return the operators at fault, by the names that each may have."""
    clean = NETWORKS[fault.network]()
    truth = tuple(names_of(clean, each) | {*fault.others} for each in fault.operators)
    if not fault.renamed:
        return truth
    places = {node.name: f"n{place}" for place, node in enumerate(clean.nodes)}
    return tuple(each | {places[name] for name in each if name in places} for each in truth)
