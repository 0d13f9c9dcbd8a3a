"""The pairs that `bench_numbers` compares: networks with planted faults, and pairs without any.

A case says which networks it takes, what is done to them, and how each side is run; `number_dumps`
makes the models and the dumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from network import Array, Network, Node
from planted_networks import (
    IN_BLOCKS,
    NETWORKS,
    Change,
    alter_bias,
    alter_kernel,
    alter_weight,
    cast_half,
    remove,
    round_weight,
    set_to,
    transpose_kernel,
)

ROOT = Path(__file__).resolve().parent.parent

Alter = Callable[[Network], None]


class Form(NamedTuple):
    """How a network is written and run: the format, what the format is made of, and options."""

    suffix: str
    recipe: str = ""
    options: tuple[tuple[str, Any], ...] = ()


# By the names that cases and failing rows show.
FORMS = {
    "basic": Form("onnx", options=(("graph_optimization_level", "basic"),)),
    "disabled": Form("onnx", options=(("graph_optimization_level", "disable"),)),
    "extended": Form("onnx", options=(("graph_optimization_level", "extended"),)),
    "all": Form("onnx"),
    "float16": Form("onnx", "float16", (("graph_optimization_level", "basic"),)),
    "float16 all": Form("onnx", "float16"),
    "qdq": Form("onnx", "qdq", (("graph_optimization_level", "disable"),)),
    "qdq all": Form("onnx", "qdq"),
    "qdq channels": Form("onnx", "qdq channels", (("graph_optimization_level", "disable"),)),
    "qoperator": Form("onnx", "qoperator", (("graph_optimization_level", "basic"),)),
    "dynamic": Form("onnx", "dynamic", (("graph_optimization_level", "basic"),)),
    "plain": Form("mge"),
    "nchw44": Form("mge", options=(("enable_nchw44", True),)),
    "nchw44 dot": Form("mge", options=(("enable_nchw44_dot", True),)),
    "threads": Form("mge", options=(("multithread", 2),)),
    "half": Form("mge", "half"),
}


class Side(NamedTuple):
    """One side of a case: a network as one of the `FORMS`, with the fault of that number or name;
    or, without a form, a folder that was dumped elsewhere."""

    network: str
    fault: str = "clean"
    form: str = ""

    @property
    def key(self) -> str:
        """The name of the dump's folder."""
        return f"{self.network}.{self.fault}.{self.form}".replace(" ", "_")

    @property
    def model(self) -> str:
        """The name of the model's file."""
        form = FORMS[self.form]
        recipe = f".{form.recipe}" if form.recipe else ""
        return f"{self.network}.{self.fault}{recipe}.{form.suffix}".replace(" ", "_")


class Case(NamedTuple):
    """A pair to compare; `faults` are the operators at fault, by the names that each may have."""

    group: str
    what: str
    actual: Side
    expected: Side
    faults: tuple[frozenset[str], ...] = ()

    @property
    def name(self) -> str:
        fault = f"{self.what}: " if self.what else ""
        return f"{self.group}: {fault}{self.actual.key} against {self.expected.key}"


# Faults


@dataclass(frozen=True)
class Planted:
    """A fault: what is altered in which operators, and the pairs of forms that show it.

    `prepare` is done to both sides. `quantized` alters the model that the quantiser made. `renamed`
    gives other names to all that the altered network computes.
    """

    kind: str
    network: str
    changes: tuple[tuple[str, Change], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    prepare: tuple[tuple[str, Change], ...] = ()
    quantized: Callable[[Any], None] | None = None
    at: str = ""  # the operator that is at fault, where the changes are not of it alone
    others: tuple[str, ...] = ()  # what may be named instead, where it is fused or reads that
    renamed: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        return (self.at,) if self.at else tuple(name for name, _ in self.changes)


IN_ONNX = (("basic", "basic"),)
PLAIN = (("basic", "basic"), ("plain", "plain"), ("plain", "basic"))
BLOCKED = (*PLAIN, ("nchw44", "plain"), ("nchw44", "all"))
OTHER_FUSION = (("all", "basic"), ("all", "plain"), ("nchw44", "disabled"), ("plain", "all"))
QUANTIZED = (("qdq", "basic"), ("qdq", "qdq"), ("qdq all", "basic"))


def alter_channel(network: Network, node: Node) -> None:
    """Have one channel of the weights come out doubled."""
    node.weights["weight"][1] *= 2


def swap_channels(network: Network, node: Node) -> None:
    """Have two channels of the weights change places."""
    node.weights["weight"][[0, 1]] = node.weights["weight"][[1, 0]]


def transpose_matrix(network: Network, node: Node) -> None:
    node.weights["weight"] = np.ascontiguousarray(node.weights["weight"].swapaxes(0, 1))


def shift_by_one(network: Network, node: Node) -> None:
    """Pad one row less before and one more behind."""
    node.settings["pads"] = (0, 1, 2, 1)


def scale_weights(factor: float) -> Change:
    def change(network: Network, node: Node) -> None:
        for weight in node.weights.values():
            weight *= np.float32(factor)

    return change


def scale_setting(name: str, factor: float) -> Change:
    def change(network: Network, node: Node) -> None:
        node.settings[name] *= factor

    return change


def divide_bias(factor: float) -> Change:
    def change(network: Network, node: Node) -> None:
        node.weights["bias"] = np.rint(node.weights["bias"] / factor).astype(np.int32)

    return change


def alter_constant(name: str, alter: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a change of a constant of an ONNX model, by the beginning of its name."""

    def change(model: Any) -> None:
        from onnx import numpy_helper

        for constant in model.graph.initializer:
            if constant.name.startswith(name):
                array = alter(numpy_helper.to_array(constant).copy())
                constant.CopyFrom(numpy_helper.from_array(np.asarray(array), constant.name))
                return
        raise LookupError(f"{name} in {[each.name for each in model.graph.initializer]}")

    return change


def alter_reading(tensor: str, place: int, alter: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a change of the scale (1) or the zero point (2) by which a quantised tensor is read,
    not of that by which it is written."""

    def change(model: Any) -> None:
        from onnx import numpy_helper

        constants = {each.name: each for each in model.graph.initializer}
        written = f"{tensor}_QuantizeLinear_Output"
        readers = [
            node
            for node in model.graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] == written
        ]
        array = numpy_helper.to_array(constants[readers[0].input[place]])
        name = f"{readers[0].input[place]}_altered"
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(alter(array)), name))
        for node in readers:
            node.input[place] = name

    return change


def times(factor: float) -> Callable[[Any], Any]:
    return lambda array: array * np.float32(factor)


def plus(number: int) -> Callable[[Any], Any]:
    return lambda array: array + np.int8(number)


def flip(array: Any) -> Any:
    """Give each channel the scale of another one."""
    return np.ascontiguousarray(array[::-1])


def int8_cnn() -> Network:
    """A network that computes in int8 in both formats."""
    network = Network("int8_cnn", seed=11)
    random = np.random.RandomState(11)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add("quantize", "quantize", x, scale=0.05)
    scale = 0.05
    for name, channels in (("conv1", (4, 8)), ("conv2", (8, 8)), ("conv3", (8, 8))):
        weights: dict[str, Array] = {
            "weight": random.randint(-90, 91, (channels[1], channels[0], 3, 3)).astype(np.int8),
            "bias": random.randint(-500, 500, channels[1]).astype(np.int32),
        }
        x = network.add(
            "quantized_conv",
            name,
            x,
            weights=weights,
            stride=1,
            padding=1,
            groups=1,
            input_scale=scale,
            weight_scale=0.005,
            output_scale=0.08,
        )
        scale = 0.08
    x = network.add("dequantize", "dequantize", x, scale=0.08)
    network.outputs = [x]
    return network


DESCRIPTIONS: dict[str, Callable[[], Network]] = {
    **{name: describe for name, (describe, _) in NETWORKS.items()},
    "int8_cnn": int8_cnn,
}

# Whose integers are read otherwise than they were written.
RELU3_READ = ("conv4", "relu4")
SUM_READ = ("c.expand", "c.expand_relu", "c.sum")
BY_CHANNEL = (("qdq channels", "basic"), ("qdq channels", "qdq channels"))


def in_integers(
    kind: str,
    network: str,
    at: str,
    alter: Callable[[Any], None],
    others: tuple[str, ...] = (),
    pairs: tuple[tuple[str, str], ...] = QUANTIZED,
) -> Planted:
    """Return a fault in what the quantiser made of an operator."""
    return Planted(kind, network, (), pairs, at=at, others=others, quantized=alter)


def scale_between(factor: float) -> tuple[tuple[str, Change], ...]:
    """Return changes of the scale of what conv2 gives and conv3 takes."""
    return (
        ("conv2", scale_setting("output_scale", factor)),
        ("conv3", scale_setting("input_scale", factor)),
    )


FAULTS = (
    # Two at once, one behind the other or in two branches.
    Planted("two", "plain_cnn", (("conv1", alter_weight), ("conv4", alter_bias)), BLOCKED),
    Planted("two", "plain_cnn", (("conv2", alter_kernel), ("logits", alter_weight)), BLOCKED),
    Planted("two", "residual", (("a.conv2", alter_weight), ("c.conv1", transpose_kernel)), BLOCKED),
    Planted("two", "inverted", (("a.project", alter_bias), ("c.expand", alter_kernel)), BLOCKED),
    Planted("two", "branches", (("b.one", alter_kernel), ("b.two", alter_weight)), BLOCKED),
    Planted("two", "attention", (("a.norm", set_to(epsilon=1e-2)), ("b.key", alter_weight)), PLAIN),
    Planted("two", "two_inputs", (("b.dense", alter_weight), ("joint", alter_bias)), PLAIN),
    Planted("two", "dense", (("scale1", set_to(scale=0.91)), ("conv3", alter_kernel)), BLOCKED),
    # The last layer.
    Planted("last", "plain_cnn", (("logits", alter_weight),), BLOCKED),
    Planted("last", "attention", (("logits", alter_bias),), PLAIN),
    Planted("last", "two_inputs", (("similarity", round_weight),), PLAIN),
    Planted("last", "excitation", (("logits", alter_bias),), BLOCKED),
    # Renamed nodes.
    Planted("renamed", "plain_cnn", (("conv3", alter_weight),), BLOCKED, renamed=True),
    Planted("renamed", "residual", (("b.conv1", alter_kernel),), BLOCKED, renamed=True),
    Planted("renamed", "attention", (("b.value", alter_bias),), PLAIN, renamed=True),
    Planted("renamed", "excitation", (("a.relu", remove),), BLOCKED, renamed=True),
    # Other fusion.
    Planted("fusion", "plain_cnn", (("conv2", alter_weight),), OTHER_FUSION),
    Planted("fusion", "residual", (("b.relu1", remove),), OTHER_FUSION),
    Planted("fusion", "inverted", (("b.project", alter_bias),), OTHER_FUSION),
    Planted("fusion", "branches", (("a.pool", set_to(count_pad=False)),), OTHER_FUSION),
    # Scales, zero points, axes, saturation.
    in_integers("scale", "plain_cnn", "relu3", alter_reading("relu3", 1, times(1.3)), RELU3_READ),
    in_integers("scale", "residual", "b.conv2", alter_constant("b.conv2.weight_scale", times(1.2))),
    Planted("scale", "int8_cnn", (("conv2", scale_setting("weight_scale", 1.2)),), BLOCKED),
    Planted(
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
    in_integers(
        "axis", "plain_cnn", "conv3", alter_constant("conv3.weight_scale", flip), pairs=BY_CHANNEL
    ),
    in_integers(
        "axis",
        "residual",
        "c.conv1",
        alter_constant("c.conv1.weight_scale", flip),
        pairs=BY_CHANNEL,
    ),
    in_integers("saturation", "plain_cnn", "relu3", alter_constant("relu3_scale", times(0.25))),
    Planted(
        "saturation",
        "int8_cnn",
        scale_between(0.2),
        (("basic", "basic"), ("basic", "plain")),
        at="conv2",
    ),
    # Scales that rounding hides: far coarser than the values need.
    in_integers("coarse", "plain_cnn", "relu3", alter_constant("relu3_scale", times(12))),
    in_integers(
        "coarse",
        "residual",
        "b.conv1",
        alter_constant("b.conv1_scale", times(12)),
        pairs=(("qoperator", "basic"), ("qoperator", "qdq")),
    ),
    Planted(
        "coarse",
        "int8_cnn",
        (*scale_between(12), ("conv3", divide_bias(12))),
        BLOCKED,
        at="conv2",
    ),
    # The engine reads the bias of conv4 by the scale of what it takes.
    in_integers(
        "coarse",
        "plain_cnn",
        "relu3",
        alter_constant("relu3_scale", times(4)),
        pairs=(("qdq all", "basic"), ("qdq all", "qdq all")),
    ),
    # Overflow of float16: right in float32.
    Planted(
        "overflow",
        "plain_cnn",
        (("conv3", cast_half),),
        PLAIN,
        prepare=(("conv2", scale_weights(3e4)), ("conv3", scale_weights(3e-5))),
    ),
    Planted(
        "overflow",
        "attention",
        (("a.scaled", cast_half),),
        PLAIN,
        prepare=(("a.query", scale_weights(2e3)), ("a.key", scale_weights(2e3))),
    ),
    # Weights and borders, across layouts and formats.
    Planted("transposed", "attention", (("a.query", transpose_matrix),), PLAIN),
    Planted("transposed", "perceptron", (("dense1", transpose_matrix),), PLAIN),
    Planted("padding", "plain_cnn", (("conv3", shift_by_one),), PLAIN),
    Planted("padding", "residual", (("b.conv1", shift_by_one),), PLAIN),
    Planted("padding", "dense", (("conv2", shift_by_one),), PLAIN),
    Planted("channel", "plain_cnn", (("conv4", alter_channel),), BLOCKED),
    Planted("channel", "inverted", (("b.depthwise", alter_channel),), BLOCKED),
    Planted("channel", "branches", (("a.two", swap_channels),), BLOCKED),
    Planted(
        "channel",
        "plain_cnn",
        (("conv4", alter_channel),),
        (("qdq", "basic"), ("qoperator", "basic"), ("qdq", "qdq")),
    ),
)


def describe(name: str, fault: str) -> Network:
    """Return a network as a fault leaves it; `prepared` is the other side of one."""
    network = DESCRIPTIONS[name]()
    word, _, number = fault.partition("-")
    if word == "old":
        old = NETWORKS[name][1][int(number)]
        apply(network, ((old.operator, old.change),))
    elif word in ("new", "prepared"):
        planted = FAULTS[int(number)]
        apply(network, planted.prepare)
        if word == "new":
            apply(network, planted.changes)
            if planted.renamed:
                rename(network)
    return network


def apply(network: Network, changes: Sequence[tuple[str, Change]]) -> None:
    for name, change in changes:
        change(network, next(node for node in network.nodes if node.name == name))


def rename(network: Network) -> None:
    """Give other names to all that a network computes."""
    names = {node.name: f"n{number}" for number, node in enumerate(network.nodes)}
    network.nodes = [
        replace(
            node, name=names[node.name], inputs=tuple(names.get(each, each) for each in node.inputs)
        )
        for node in network.nodes
    ]
    network.outputs = [names.get(each, each) for each in network.outputs]


def halve(network: Network) -> None:
    """Have a network compute in float16 between its inputs and its outputs."""
    for node in network.nodes:
        for name, weight in node.weights.items():
            node.weights[name] = weight.astype(np.float16)
    narrowed = {spec.name: f"{spec.name}.narrow" for spec in network.inputs}
    ends = {name: f"{name}.half" for name in network.outputs}
    names = {**narrowed, **ends}
    nodes = [
        replace(
            node,
            name=ends.get(node.name, node.name),
            inputs=tuple(names.get(each, each) for each in node.inputs),
        )
        for node in network.nodes
    ]
    network.nodes = [
        *(Node("narrow", after, (before,)) for before, after in narrowed.items()),
        *nodes,
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


def faulty_cases() -> Iterator[Case]:
    """Yield the cases of the faults as before, then the new ones."""
    for name, (make, faults) in NETWORKS.items():
        clean = make()
        for number, fault in enumerate(faults):
            blocks = name in IN_BLOCKS and fault.in_blocks
            for one, other in BLOCKED if blocks else PLAIN:
                yield Case(
                    "fault",
                    fault.kind,
                    Side(name, f"old-{number}", one),
                    Side(name, "clean", other),
                    (names_of(clean, fault.operator),),
                )
    for number, planted in enumerate(FAULTS):
        clean = DESCRIPTIONS[planted.network]()
        operators = planted.operators
        truth = tuple(names_of(clean, each) | {*planted.others} for each in operators)
        if planted.renamed:
            places = {node.name: f"n{place}" for place, node in enumerate(clean.nodes)}
            truth = tuple(
                each | {places[name] for name in each if name in places} for each in truth
            )
        right = f"prepared-{number}" if planted.prepare else "clean"
        for one, other in planted.pairs:
            yield Case(
                "new fault",
                planted.kind,
                Side(planted.network, f"new-{number}", one),
                Side(planted.network, right, other),
                truth,
            )


# Pairs without a fault

PLAIN_FORMS = (
    ("basic", "all"),
    ("disabled", "extended"),
    ("all", "disabled"),
    ("plain", "basic"),
    ("plain", "all"),
)
BLOCKED_FORMS = (
    ("nchw44", "plain"),
    ("plain", "nchw44"),
    ("nchw44", "basic"),
    ("all", "nchw44"),
    ("nchw44 dot", "threads"),
)
HALF_FORMS = (("float16", "basic"), ("basic", "float16"), ("float16 all", "all"), ("half", "plain"))
INT8_FORMS = (
    ("qdq", "basic"),
    ("basic", "qdq"),
    ("qdq all", "qdq"),
    ("qdq channels", "basic"),
    ("qoperator", "basic"),
    ("qoperator", "qdq"),
    ("dynamic", "basic"),
)
QUANTIZED_NETWORKS = ("plain_cnn", "residual", "inverted", "branches", "perceptron", "dense")

# MegEngine's pooling of float16 with a small kernel gives numbers of the wrong sign on a CPU; the
# cast of the third network would end the float16 in the middle.
NO_HALF = ("plain_cnn", "branches", "picture")
MODEL_FORMS = (("plain", "basic"), ("all", "basic"), ("nchw44", "all"))

# Of the repository, with what they are fed with.
FLOAT16 = "tests/data/aarch64/digits_float16"
MODELS = {
    "models/digits_cnn": ("inputs/digit_7.npy",),
    "models/int8": ("inputs/digit_7.npy",),
    "models/mobilenet_v2": ("inputs/cat.npy",),
    "models/uint8_input": ("inputs/cat.jpg",),
    "models/multi_input": ("inputs/multi_input.json",),
    "models/dynamic_batch": (),
    FLOAT16: ("inputs/digit_7.npy",),
}

# Folders that were dumped on another processor, with what they are of.
OTHER_CPU = {
    "tests/data/aarch64/digits_cnn": "models/digits_cnn",
    "tests/data/aarch64/int8": "models/int8",
    "tests/data/aarch64/float16": FLOAT16,
}

# Folders that C++ `load_and_run` wrote, beside what runs here.
CPP_DUMPS = {"digits_cnn": ("nchw", "nchw44", "nchw88"), "int8": ("nchw", "nchw44", "nchw88")}


def healthy_cases() -> Iterator[Case]:
    """Yield the pairs in which nothing is wrong."""
    for name in NETWORKS:
        forms = PLAIN_FORMS + BLOCKED_FORMS if name in IN_BLOCKS else PLAIN_FORMS
        yield from pairs_of(name, "layouts, engines, levels", forms)
        yield from pairs_of(name, "float16", HALF_FORMS[:3] if name in NO_HALF else HALF_FORMS)
        if name in QUANTIZED_NETWORKS:
            yield from pairs_of(name, "int8", INT8_FORMS)
    yield from pairs_of("int8_cnn", "int8", (("plain", "basic"), ("nchw44", "plain")))
    for name in MODELS:
        if name == FLOAT16:
            continue
        yield from pairs_of(name, "layouts, engines, levels", MODEL_FORMS)
    for name in ("digits_cnn", "mobilenet_v2"):
        yield from pairs_of(f"models/{name}", "float16", HALF_FORMS[:3])
        yield from pairs_of(f"models/{name}", "int8", INT8_FORMS[:1] + INT8_FORMS[3:])
    yield from cpp_cases()
    for dump, name in OTHER_CPU.items():
        for form in ("disabled", "basic", "all"):
            sides = Side(dump), Side(name, form=form)
            yield Case("another CPU", "", *sides)
            yield Case("another CPU", "", *sides[::-1])


def pairs_of(network: str, group: str, forms: Sequence[tuple[str, str]]) -> Iterator[Case]:
    for one, other in forms:
        yield Case(group, "", Side(network, form=one), Side(network, form=other))


def cpp_cases() -> Iterator[Case]:
    """Yield pairs of dumps without an index, and of them with runs here, both ways round."""
    for name, layouts in CPP_DUMPS.items():
        dumps = [Side(f"{name}_{layout}") for layout in layouts]
        runs = [Side(f"models/{name}", form=form) for form in ("plain", "nchw44", "basic")]
        for number, dump in enumerate(dumps):
            for other in (*dumps[number + 1 :], *runs):
                yield Case("C++ dumps", "", dump, other)
                yield Case("C++ dumps", "", other, dump)
    sides = Side("models/int8", form="plain"), Side("models/digits_cnn", form="plain")
    yield Case("int8", "", *sides)
    yield Case("int8", "", *sides[::-1])


def all_cases() -> list[Case]:
    return [*faulty_cases(), *healthy_cases()]
