"""Faults that are planted in small networks: what is altered in which operators.

The networks are in `planted_faults.txt`, and the faults are the rows of `planted_faults.json`. In a
row, each altered operator has the name of a change in `CALLED`, or a list of the name and the
arguments of the change. A row without `pairs` gets the pairs of forms that fit its network. Some
rows have `plain` pairs, since in blocks of channels, the engine pads another axis.

Three groups of the new faults are special. Some have two faults at once, one behind the other or in
two branches. Some have scales so coarse that rounding hides the fault; one of these is shown with
`qdq all`, since the engine reads the next bias by this scale. In one, numbers that are right in
float32 overflow in float16.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from network import Network, Node, read_networks
from onnx import numpy_helper

Change = Callable[[Network, Node], None]
Changes = tuple[tuple[str, Change], ...]
AlterArray = Callable[[Any], Any]
AlterModel = Callable[[onnx.ModelProto], None]
Pairs = tuple[tuple[str, str], ...]

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())
NETWORKS = read_networks(__file__)
# Networks for images, which MegEngine can run with blocks of four channels.
IN_BLOCKS = ("plain_cnn", "residual", "inverted", "branches", "excitation", "picture", "dense")


def read_pairs(text: str) -> Pairs:
    """Read pairs of forms of `number_cases`: of the altered and of the correct network."""
    parts = (each.strip().partition("/") for each in text.split(","))
    return tuple((one, other) for one, _, other in parts)


PLAIN, BLOCKED = (read_pairs(TABLE["pairs"][name]) for name in ("plain", "in blocks"))


@dataclass(frozen=True)
class Fault:
    """A fault: what is altered in which operators, and the pairs of forms that show the fault.

    The changes in `prepare` are made on both sides. `quantized` is a change of the quantised model.
    If `renamed` is true, all tensors that the altered network computes get other names.
    """

    kind: str
    network: str
    pairs: Pairs
    changes: Changes = ()
    prepare: Changes = ()
    quantized: AlterModel | None = None
    at: str = ""  # the operator at fault, if other operators change too
    others: Sequence[str] = ()  # other operators that lar may name instead
    renamed: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        return (self.at,) if self.at else tuple(name for name, _ in self.changes)


# Changes of a network


def of_weight(alter: AlterArray, role: str = "weight") -> Change:
    """Return a change of a weight by `alter`, which changes the array or returns a new one."""

    def change(network: Network, node: Node) -> None:
        changed = alter(node.weights[role])
        node.weights[role] = node.weights[role] if changed is None else changed

    return change


def add_to_one(array: Any) -> None:
    array.reshape(-1)[array.size // 3] += 0.05


def add_to_last(array: Any) -> None:
    array[-1] += 0.01


def scale_a_kernel(array: Any) -> None:
    array[array.shape[0] // 2] *= 1.02


def double_second(array: Any) -> None:
    array[1] *= 2


def swap_first_two(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


def set_to(settings: dict[str, Any]) -> Change:
    return lambda network, node: node.settings.update(settings)


def scale_setting(name: str, factor: float) -> Change:
    return lambda network, node: node.settings.update({name: node.settings[name] * factor})


def scale_weights(factor: float) -> Change:
    def change(network: Network, node: Node) -> None:
        for weight in node.weights.values():
            weight *= np.float32(factor)

    return change


def coarsen_input(factor: float) -> Change:
    """Return a change that makes the scale of an operator's input and bias coarser."""

    def change(network: Network, node: Node) -> None:
        scale_setting("input_scale", factor)(network, node)
        node.weights["bias"] = np.rint(node.weights["bias"] / factor).astype(np.int32)

    return change


def put(network: Network, node: Node, *nodes: Node) -> None:
    """Replace a node by zero or more nodes."""
    place = network.nodes.index(node)
    network.nodes[place : place + 1] = nodes


def remove(network: Network, node: Node) -> None:
    """Remove an operator; the readers of its output get its input instead."""
    (source,) = node.inputs
    put(network, node)
    network.nodes = [rewired(each, {node.name: source}) for each in network.nodes]


def rewired(node: Node, names: dict[str, str]) -> Node:
    """Return a node whose inputs are renamed by `names`."""
    return replace(node, inputs=tuple(names.get(each, each) for each in node.inputs))


def cast_half(network: Network, node: Node) -> None:
    """Cast the first input of an operator to float16 and back."""
    name = f"{node.name}.half"
    half = Node("half", name, node.inputs[:1])
    put(network, node, half, replace(node, inputs=(name, *node.inputs[1:])))


def swap_inputs(network: Network, node: Node) -> None:
    first, second, *others = node.inputs
    put(network, node, replace(node, inputs=(second, first, *others)))


def become(kind: str, settings: dict[str, Any]) -> Change:
    """Return a change that makes an operator one of another kind."""
    return lambda network, node: put(
        network, node, replace(node, kind=kind, settings={**node.settings, **settings})
    )


# Changes of a quantised model


def alter_constant(name: str, alter: AlterArray) -> AlterModel:
    """Return a change of the constant of an ONNX model whose name begins with `name`."""

    def change(model: onnx.ModelProto) -> None:
        constant = next(it for it in model.graph.initializer if it.name.startswith(name))
        array = alter(numpy_helper.to_array(constant).copy())
        constant.CopyFrom(numpy_helper.from_array(np.asarray(array), constant.name))

    return change


def alter_reading(tensor: str, place: int, alter: AlterArray) -> AlterModel:
    """Return a change of the scale or zero point with which a quantised tensor is read.

    `place` is 1 for the scale, and 2 for the zero point. The scale and zero point with which the
    tensor is written stay unchanged.
    """

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
    """Return the scales of all channels in reverse order."""
    return np.ascontiguousarray(array[::-1])


# The faults

# Changes by their names in the JSON file.
CALLED: dict[str, Any] = {
    "weight": of_weight(add_to_one),
    "kernel": of_weight(scale_a_kernel),
    "bias": of_weight(add_to_last, "bias"),
    "channel": of_weight(double_second),
    "swapped channels": of_weight(swap_first_two),
    "transposed kernel": of_weight(lambda array: np.ascontiguousarray(array.swapaxes(-1, -2))),
    "transposed matrix": of_weight(lambda array: np.ascontiguousarray(array.swapaxes(0, 1))),
    "rounded weight": of_weight(lambda array: array.astype(np.float16).astype(np.float32)),
    "remove": remove,
    "half cast": cast_half,
    "swap inputs": swap_inputs,
    "set": set_to,
    "become": become,
    "scale setting": scale_setting,
    "scale weights": scale_weights,
    "coarsen input": coarsen_input,
    "constant": alter_constant,
    "reading": alter_reading,
    "times": times,
    "plus": plus,
    "flip": flip,
}


def made(call: Any) -> Any:
    """Return the change that a name, or a list of a name and arguments, stands for."""
    name, *arguments = call if isinstance(call, list) else [call]
    values = [made(each) if isinstance(each, list) else each for each in arguments]
    return CALLED[name](*values) if values else CALLED[name]


def read_fault(row: dict[str, Any]) -> Fault:
    """Return the fault that a row of the JSON file describes."""
    pairs = row.get("pairs", "in blocks" if row["network"] in IN_BLOCKS else "plain")
    fields: dict[str, Any] = {
        "pairs": read_pairs(TABLE["pairs"].get(pairs, pairs)),
        "changes": changes_of(row.get("changes", {})),
        "prepare": changes_of(row.get("prepare", {})),
        "quantized": made(row["quantized"]) if "quantized" in row else None,
    }
    return Fault(**{**row, **fields})


def changes_of(calls: dict[str, Any]) -> Changes:
    return tuple((operator, made(call)) for operator, call in calls.items())


# All faults by name: `old-N` alters a single operator, `new-N` is a fault of another kind.
FAULTS = {
    f"{group}-{number}": read_fault(row)
    for group in ("old", "new")
    for number, row in enumerate(TABLE[group])
}


def describe(name: str, fault: str) -> Network:
    """Return a network with a fault; `prepared-new-1` is the correct network for `new-1`."""
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
    """Give other names to all tensors that a network computes."""
    names = {node.name: f"n{number}" for number, node in enumerate(network.nodes)}
    network.nodes = [rewired(replace(it, name=names[it.name]), names) for it in network.nodes]
    network.outputs = [names.get(each, each) for each in network.outputs]


def halve(network: Network) -> None:
    """Make a network compute in float16; its inputs and outputs keep their dtypes."""
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


# Kinds of operators that engines fuse with the operator before.
FOLLOWING = ("relu", "relu6", "add", "sigmoid", "tanh")


def names_of(network: Network, operator: str) -> frozenset[str]:
    """Return the names that an operator may have after engines have fused it with others."""
    node = next(each for each in network.nodes if each.name == operator)
    names = [operator, *(node.inputs if node.kind in FOLLOWING else ())]
    while True:
        following = [each for each in network.nodes if operator in each.inputs]
        if len(following) != 1 or following[0].kind not in FOLLOWING:
            return frozenset(names)
        names.append(operator := following[0].name)


def truth_of(fault: Fault) -> tuple[frozenset[str], ...]:
    """Return, for each operator at fault, the set of names that it may have."""
    clean = NETWORKS[fault.network]()
    truth = tuple(names_of(clean, each) | {*fault.others} for each in fault.operators)
    if not fault.renamed:
        return truth
    places = {node.name: f"n{place}" for place, node in enumerate(clean.nodes)}
    return tuple(each | {places[name] for name in each if name in places} for each in truth)
