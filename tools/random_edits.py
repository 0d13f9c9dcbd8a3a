"""Random faults in real networks: one edit of a weight, an attribute, the wiring or an operator.

An edit is used only if it changes the outputs of ONNX Runtime by more than lar's default tolerance.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from network import Array
from onnx import helper, numpy_helper
from onnx_twin import run_onnx
from real_networks import NETWORKS, RealNetwork, bodies_of, make_network, walk_graphs
from tables import read_lines

from lar.comparison.metrics import bounds_of, measure
from lar.records.comparison import Tolerance

QUANTIZED = ("residual", "mobile", "keras", "attention_timm")
SUBJECTS = (*((name, "float") for name in NETWORKS), *((name, "qdq") for name in QUANTIZED))
FACTORS = (0.5, 0.8, 1.3, 2.0, -1.0)
DRAWS = 30  # attempts before another kind of edit is tried

# For each attribute, a function that makes another value from the present value.
ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "epsilon": lambda value: value * 1e4,
    "alpha": lambda value: value * 0.8,
    "beta": lambda value: value * 0.8,
    "transB": lambda value: 1 - value,
    "linear_before_reset": lambda value: 1 - value,
    "axis": lambda value: value + 1 if value < 0 else value - 1,
    "axes": lambda value: [each - 1 for each in value],
    "pads": lambda value: [0, *value[1:2], value[0] + value[2], *value[3:]],
    "dilations": lambda value: [2] * len(value),
    "nearest_mode": lambda value: b"ceil",
    "coordinate_transformation_mode": lambda value: b"align_corners",
    "norm": lambda value: b"MAX",
    "scale": lambda value: [each * 1.3 for each in value],
    "coefficients": lambda value: [value[0] * 2, *value[1:]],
}

# Groups of operator types that can replace each other.
ALIKE = [line.split() for line in read_lines(__file__)]


class Edited(NamedTuple):
    """A network with a fault.

    `what` describes the edit. `operators` are the names of the operators at fault, and `neighbours`
    the names of the operators next to them.
    """

    network: RealNetwork
    what: str
    operators: frozenset[str]
    neighbours: frozenset[str]


class Subject:
    """A model that is edited in place, with tables of its tensors."""

    def __init__(self, model: onnx.ModelProto, random: np.random.RandomState) -> None:
        self.random, self.graphs = random, list(walk_graphs(model.graph))
        self.constants: dict[str, onnx.TensorProto] = {}
        self.kinds: dict[str, tuple[int, ...]] = {}
        self.makers: dict[str, onnx.NodeProto] = {}
        self.users: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        self.holders: dict[str, onnx.NodeProto] = {}
        for graph in self.graphs:
            self.constants.update((each.name, each) for each in graph.initializer)
            for info in (*graph.input, *graph.value_info, *graph.output):
                tensor = info.type.tensor_type
                if tensor.HasField("shape"):
                    sizes = (each.dim_value for each in tensor.shape.dim)
                    self.kinds[info.name] = (tensor.elem_type, *sizes)
            for node in graph.node:
                self.makers.update(dict.fromkeys(node.output, node))
                for name in node.input:
                    self.users[name].append(node)
                for attribute in node.attribute:
                    if attribute.type == onnx.AttributeProto.TENSOR:
                        self.constants[node.output[0]] = attribute.t
                inside = (each for body in bodies_of(node) for each in body.node)
                held = (name for each in inside for name in each.output)
                self.holders.update(dict.fromkeys(held, node))

    def nodes(self, *kinds: str) -> list[onnx.NodeProto]:
        """Return the operators of the given types; without types, all operators except Constant."""
        nodes = (node for graph in self.graphs for node in graph.node)
        return [
            node
            for node in nodes
            if (node.op_type in kinds if kinds else node.op_type != "Constant")
        ]

    def choose(self, items: Sequence[Any]) -> Any:
        """Return a random item of `items`.

        Raises:
            LookupError: `items` is empty.
        """
        if not items:
            raise LookupError("nothing to choose from")
        return items[self.random.randint(len(items))]

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """Return the operators that read a constant, directly or through operators on constants."""
        found: list[onnx.NodeProto] = []
        for node in self.users[tensor]:
            if all(name in self.constants for name in node.input if name):
                found += self.readers(node.output[0])
            found.append(node)
        return found

    def beside(self, tensors: Iterable[str]) -> frozenset[str]:
        """Return the names of the operators next to the operators that compute `tensors`.

        These are operators that feed them, that read their outputs, or that contain them in a
        subgraph.
        """
        found = []
        for tensor in set(tensors) & set(self.makers):
            before = (self.makers.get(name) for name in self.makers[tensor].input)
            found += [*before, *self.users[tensor], self.holders.get(tensor)]
        return names_of(node for node in found if node)


def names_of(nodes: Iterable[onnx.NodeProto]) -> frozenset[str]:
    return frozenset(name for node in nodes for name in (node.name, *node.output) if name)


Change = tuple[str, Sequence[onnx.NodeProto]]


def edit_constant(subject: Subject) -> Change:
    """Scale an element, a channel or all of a float constant; add a number if it has integers."""
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    name = subject.choose(
        [key for key, each in subject.constants.items() if each.data_type in kinds]
    )
    array = numpy_helper.to_array(subject.constants[name]).copy()
    way = subject.choose(("element", "channel", "whole"))
    flat = array.reshape(array.shape[0] if array.ndim and way == "channel" else -1, -1)
    part = flat if way == "whole" else flat[subject.random.randint(len(flat)) :][:1]
    if array.dtype == np.float32:
        factor = subject.choose(FACTORS)
        part *= np.float32(factor)
    else:
        factor = subject.choose((-9, 5, 20))
        part += np.asarray(factor).astype(array.dtype)
    subject.constants[name].CopyFrom(numpy_helper.from_array(array, subject.constants[name].name))
    return f"{way} of {name} by {factor}", subject.readers(name)


def edit_attribute(subject: Subject) -> Change:
    node, attribute = subject.choose(
        [(node, it) for node in subject.nodes() for it in node.attribute if it.name in ATTRIBUTES]
    )
    before = helper.get_attribute_value(attribute)
    after = ATTRIBUTES[attribute.name](before)
    attribute.CopyFrom(helper.make_attribute(attribute.name, after))
    return f"{attribute.name} of {node.op_type} {node.name} from {before} to {after}", [node]


def edit_perm(subject: Subject) -> Change:
    """Swap two axes of equal sizes in a Transpose."""
    node = subject.choose(subject.nodes("Transpose"))
    perm, (_, *sizes) = node.attribute[0].ints, subject.kinds[node.input[0]]
    pairs = [
        (one, other)
        for one in range(len(perm))
        for other in range(one)
        if sizes[perm[one]] == sizes[perm[other]] > 1
    ]
    one, other = subject.choose(pairs)
    perm[one], perm[other] = perm[other], perm[one]
    return f"perm of {node.name}", [node]


def edit_wiring(subject: Subject) -> Change:
    """Replace an operator's input by another tensor of equal shape that is computed before."""
    graph = subject.choose(subject.graphs)
    places = []
    ready = [each.name for each in graph.input]
    for node in graph.node:
        for place, name in enumerate(node.input):
            kind = subject.kinds.get(name)
            others = [each for each in ready if each != name and subject.kinds.get(each) == kind]
            if name not in subject.constants and kind and others:
                places.append((node, place, others))
        ready += [] if node.op_type == "Constant" else node.output
    node, place, others = subject.choose(places)
    before, node.input[place] = node.input[place], subject.choose(others)
    return f"{node.op_type} {node.name} takes {node.input[place]}, not {before}", [node]


def swap_operands(subject: Subject) -> Change:
    node = subject.choose(subject.nodes("Sub", "Div", "MatMul", "Pow"))
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return f"operands of {node.op_type} {node.name} swapped", [node]


def replace_operator(subject: Subject) -> Change:
    node, kinds = subject.choose(
        [(node, kinds) for node in subject.nodes() for kinds in ALIKE if node.op_type in kinds]
    )
    before, node.op_type = node.op_type, subject.choose([it for it in kinds if it != node.op_type])
    if kinds == ALIKE[0]:
        del node.attribute[:]
    return f"{node.op_type} in place of {before} {node.name}", [node]


def remove_operator(subject: Subject) -> Change:
    """Remove an operator whose output has the shape of its input."""
    fixed = {each.name for graph in subject.graphs for each in graph.output}
    removable = [
        node
        for node in subject.nodes()
        if node.output[0] not in fixed
        and node.input
        and subject.kinds.get(node.input[0], 0) == subject.kinds.get(node.output[0], 1)
    ]
    node = subject.choose(removable)
    users = subject.users[node.output[0]]
    for user in users:
        user.input[:] = [node.input[0] if each == node.output[0] else each for each in user.input]
    for graph in subject.graphs:
        if node in graph.node:
            graph.node.remove(node)
    return f"{node.op_type} {node.name} removed", [node, *users]


# Two kinds of edit are listed twice, so that they are drawn more often.
EDITS: tuple[Callable[[Subject], Change], ...] = (
    *(edit_constant, edit_constant, edit_attribute, edit_attribute),
    *(edit_perm, edit_wiring, swap_operands, replace_operator, remove_operator),
)


def draw_edit(number: int) -> Edited:
    """Return the network with the random edit of this number."""
    random = np.random.RandomState(number)
    name, form = SUBJECTS[number % len(SUBJECTS)]
    network = make_network(name, form)
    original = run_model(network)
    while True:
        edit = EDITS[random.randint(len(EDITS))]
        for _ in range(DRAWS):
            edited = try_edit(edit, network, random)
            if edited and not agree(run_model(edited.network), original):
                return edited


def try_edit(
    edit: Callable[[Subject], Change], network: RealNetwork, random: np.random.RandomState
) -> Edited | None:
    model = copy.deepcopy(network.model)
    subject = Subject(model, random)
    try:
        what, nodes = edit(subject)
    except (LookupError, ValueError):
        return None
    for graph in subject.graphs:
        del graph.value_info[:]
    operators = names_of(nodes)
    beside = subject.beside(operators) | Subject(network.model, random).beside(operators)
    return Edited(RealNetwork(model, network.feeds), what, operators, beside - operators)


def run_model(network: RealNetwork) -> list[Any] | None:
    """Return the outputs of a model, or None if the model is invalid."""
    try:
        return list(run_onnx(network.model.SerializeToString(), network.feeds).values())
    except Exception:  # ONNX Runtime's errors have no common class
        return None


def agree(actual: list[Any] | None, expected: list[Any] | None) -> bool:
    """Return whether outputs agree within the tolerance.

    The result is also true if a model is invalid or if shapes or dtypes differ, since `lar compare`
    is not tested with such edits.
    """
    if actual is None or expected is None:
        return True
    pairs = list(zip(flatten(actual), flatten(expected), strict=False))
    if any(one.shape != other.shape or one.dtype != other.dtype for one, other in pairs):
        return True
    return not any(mismatches(one, other) for one, other in pairs)


def flatten(outputs: Any) -> Iterator[Array]:
    """Yield the arrays in tensors, sequences and maps."""
    if isinstance(outputs, dict):
        yield np.array(list(outputs.values()))
    elif isinstance(outputs, list):
        for each in outputs:
            yield from flatten(each)
    else:
        yield np.asarray(outputs)


def mismatches(actual: Array, expected: Array) -> int:
    """Return how many elements differ by more than lar's default tolerance."""
    if expected.dtype.kind not in "fiu":
        return int((actual != expected).sum())
    return measure(actual, expected, bounds_of(Tolerance(), expected.dtype.name)).mismatches
