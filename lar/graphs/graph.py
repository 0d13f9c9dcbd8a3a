"""The computed tensors of a dump as a graph, in an order that does not depend on the engine.

A graph can also be made of a profile's operators, after they are brought into the form of a dump's
index.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lar.dumps import Dump, DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.binary import ELEMENT
from lar.dumps.graph import with_operators
from lar.dumps.layouts import block_of, is_padded, layouts_of, plain_shape
from lar.graphs import UNKNOWN_STEPS, OperatorKinds, Steps, steps_of

if TYPE_CHECKING:
    from lar.records.profile import Profile, ProfiledOperator, TensorFact

Item = TypeVar("Item")

# The name of a tensor in a body of If, Loop or Scan has this after the name of the operator.
IN_BODY = re.compile(r"/(then|else|body)/")

# The operators that run a body in each iteration, and the type of the operators that feed a body.
LOOPS = ("Loop", "Scan")
BODY_INPUT = "BodyInput"

INPUT: Steps = ("input",)
INPUT_TYPES = ("Host2DeviceCopy", "InputCallback", "Input", "Parameter")


@dataclass(eq=False)
class Node:
    """A tensor that an operator computed, or that the run was fed with.

    `tensor` is None if the dump does not hold the tensor. `parents` are the nodes that the node's
    operator reads as inputs. The operator's other inputs are constants. `constants` has the number
    and the key of each constant input. `depth` counts the operators on the longest path from an
    input. `place` is the number of the node in the graph's order.
    """

    key: str
    tensor: DumpedTensor | None
    operator: DumpedOperator | None
    steps: Steps
    parents: tuple[Node, ...] = ()
    constants: tuple[tuple[int, str], ...] = ()
    children: list[Node] = field(default_factory=list)
    depth: int = 0
    place: int = 0

    @property
    def name(self) -> str:
        return name_of(self.tensor) if self.tensor else self.key

    @property
    def is_input(self) -> bool:
        return self.steps == INPUT

    @property
    def is_move(self) -> bool:
        """Whether the node holds its parent's data in other axes or another layout."""
        return self.steps == ("move",)

    @property
    def is_cast(self) -> bool:
        """Whether the node holds its parent's data in another type."""
        return self.steps == ("cast",) and len(self.parents) == 1

    @property
    def has_bodies(self) -> bool:
        return self.operator is not None and self.operator.type in (*LOOPS, "If")


def name_of(tensor: DumpedTensor) -> str:
    """Return the model's name of a tensor, or the engine's name if the model has no name for it.

    If the dump holds the outputs of several runs, the name ends with the number of the run. Each
    element of a sequence has its own name.
    """
    own = ELEMENT.sub("", tensor.name) == tensor.origin
    name = tensor.name if own else tensor.origin or tensor.name
    return f"{name} run {tensor.run}" if tensor.run else name


def branches_of(node: Node) -> tuple[str, ...]:
    """Return the branches, `then` or `else`, that contain a tensor; the outermost comes first."""
    found = IN_BODY.findall(node.tensor.name) if node.tensor else ()
    return tuple(each for each in found if each != "body")


def is_within(node: Node, outer: Node) -> bool:
    """Return whether a tensor lies in a subgraph of the operator whose output is `outer`.

    The branches of an If and the body of a Loop or Scan are subgraphs.
    """
    if node.tensor is None or not outer.has_bodies:
        return False
    assert outer.operator
    name = outer.operator.name.rpartition("[")[0]  # without its number
    inside = node.tensor.name.startswith(name) and IN_BODY.match(node.tensor.name, len(name))
    return bool(name and inside)


class Graph:
    """The nodes of a dump, in an order that does not depend on the engine.

    The nodes are in the order of a walk back from the outputs, which takes the longest branch
    first. The nodes have the same order for all engines that compute the same model. Fused
    operators and the order of execution do not change this order. If a dump names no operators, the
    nodes keep the order in which the dump lists its tensors. For such a dump, `constants` has the
    names of the tensors that are constants; constants are no nodes.
    """

    def __init__(self, dump: Dump, kinds: OperatorKinds, constants: Container[str] = ()) -> None:
        self.dump = dump
        self.kinds = kinds
        self.has_operators = bool(dump.index.operators)
        self.named_constants = constants
        self.makers = {key: each for each in dump.index.operators for key in each.outputs}
        self.constants = self.find_constants()
        self.dequantized = self.find_dequantized()
        self.nodes_by_key = self.make_nodes()
        self.nodes = self.put_in_order()
        self.outputs = self.find_outputs()
        self.drawing = self.find_random()
        self.random = with_results(self.drawing)

    def find_constants(self) -> set[str]:
        """Return the keys of constants, and of tensors that are computed from constants only.

        The model's outputs are left out, since they are compared as computed tensors.
        """
        named = {*self.dump.index.outputs}
        given = {each.key for each in self.dump if each.name in named}
        operators = self.dump.index.operators
        if not self.has_operators:
            return {each.key for each in self.dump if name_of(each) in self.named_constants}
        constants = {key for each in operators if each.constant for key in each.outputs}
        # If an input has no operator and no values, it is most likely a weight that the dump lacks.
        known = {tensor.key for tensor in self.dump} | set(self.makers)
        data = {key for each in operators for key in each.inputs if key not in known}
        if self.dump.index.engine and self.dump.index.complete:  # else operators may be unknown
            constants |= data
        return (with_computed(constants, operators) | data) - given

    def find_dequantized(self) -> dict[str, str]:
        """Return a mapping from the key of each dequantised constant to the key of its integers."""
        quantized = {it.key for it in self.dump if it.quantization} & self.constants
        computed = (self.constants & self.makers.keys()) - quantized
        first = {key: self.makers[key].inputs[0] for key in computed if self.makers[key].inputs}
        return {key: integers for key, integers in first.items() if integers in quantized}

    def integers_of(self, key: str) -> str:
        """Return the key of the integers from which a constant was dequantised.

        For a constant that was not dequantised, return the given key.
        """
        return self.dequantized.get(key, key)

    def make_nodes(self) -> dict[str, Node]:
        tensors = {tensor.key: tensor for tensor in self.dump}
        keys = [it for it in dict.fromkeys((*tensors, *self.makers)) if it not in self.constants]
        nodes = {key: self.make_node(key, tensors.get(key)) for key in keys}
        for node in nodes.values():
            taken = node.operator.inputs if node.operator else ()
            node.parents = tuple(nodes[key] for key in taken if key in nodes)
            for parent in dict.fromkeys(node.parents):
                parent.children.append(node)
        return nodes

    def make_node(self, key: str, tensor: DumpedTensor | None) -> Node:
        maker = self.makers.get(key)
        if not self.has_operators:
            return Node(key, tensor, None, UNKNOWN_STEPS)
        if maker is None or (not maker.inputs and maker.type in INPUT_TYPES):
            return Node(key, tensor, maker, INPUT)
        flags = [each in self.constants for each in maker.inputs]
        constants = tuple(it for it in enumerate(maker.inputs) if it[1] in self.constants)
        return Node(key, tensor, maker, steps_of(maker, flags, self.kinds), constants=constants)

    def put_in_order(self) -> list[Node]:
        nodes = list(self.nodes_by_key.values())
        for node in walk_back(nodes, by_depth=False):
            node.depth = 1 + max((parent.depth for parent in node.parents), default=-1)
        ordered = [*walk_back([it for it in nodes if not it.children], by_depth=True)]
        for place, node in enumerate(ordered):
            node.place = place
        return ordered

    def find_outputs(self) -> list[Node]:
        """Return the outputs of the model in the model's order.

        The list is empty if the dump does not name the outputs. If an output of the model is a
        sequence of tensors, each of these tensors is an output in the result.
        """
        named: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes if self.dump.index.outputs else ():
            if node.tensor:
                named[node.tensor.name].append(node)
                named[ELEMENT.sub("", node.tensor.name)].append(node)
        return list(dict.fromkeys(node for name in self.dump.index.outputs for node in named[name]))

    def find_random(self) -> set[Node]:
        """Return the nodes of operators that draw random numbers."""
        made = ((node, node.operator) for node in self.nodes if node.operator)
        return {node for node, maker in made if maker.type.lower() in self.kinds.random}

    @property
    def present(self) -> list[Node]:
        """The nodes whose values the dump holds."""
        return [node for node in self.nodes if node.tensor is not None]


def with_computed(constants: set[str], operators: Sequence[DumpedOperator]) -> set[str]:
    """Return the keys of constants, and of tensors that are computed from constants only."""
    found, count = {*constants}, -1
    while count != len(found):
        count = len(found)
        for each in operators:
            # The input of a body is no constant: in later iterations a loop feeds other values.
            if each.inputs and each.type != BODY_INPUT and found.issuperset(each.inputs):
                found.update(each.outputs)
    return found


def walk_back(ends: Sequence[Node], *, by_depth: bool) -> Iterator[Node]:
    """Yield some nodes and all nodes from which they are computed, each node after its parents.

    With `by_depth`, the deepest branch comes first.
    """
    done: set[Node] = set()
    begun: set[Node] = set()  # a damaged graph may have a cycle, and this must end
    stack = [*reversed(ends)]
    while stack:
        node = stack[-1]
        if node not in begun:
            begun.add(node)
            parents = list(reversed(node.parents))
            if by_depth:
                parents.sort(key=lambda it: it.depth)
            stack.extend(parent for parent in parents if parent not in begun)
            continue
        stack.pop()
        if node not in done:
            done.add(node)
            yield node


parents_of: Callable[[Node], Sequence[Node]] = attrgetter("parents")
children_of: Callable[[Node], Sequence[Node]] = attrgetter("children")


def sources_of(node: Node, stops: Container[Node]) -> list[Node]:
    """Return the nearest nodes in `stops` that a node is computed from."""
    return reach(node, stops, parents_of)[1]


def results_of(node: Node, stops: Container[Node]) -> list[Node]:
    """Return the nearest nodes in `stops` that are computed from a node."""
    return reach(node, stops, children_of)[1]


def with_results(nodes: Iterable[Node]) -> set[Node]:
    """Return some nodes and all nodes that are computed from them."""
    return {*walk(nodes, children_of)}


def region_of(node: Node, stops: Container[Node]) -> list[Node]:
    """Return a node and the nodes that it is computed from, up to the nearest nodes in `stops`.

    Nodes in `stops` are left out.
    """
    return reach(node, stops, parents_of)[0]


def is_end(node: Node) -> bool:
    """Return whether a tensor, or one of its moved copies, is not read by any operator."""
    copies = walk([node], lambda it: (each for each in it.children if each.is_move))
    return any(not each.children for each in copies)


def reach(
    node: Node, stops: Container[Node], step: Callable[[Node], Iterable[Node]]
) -> tuple[list[Node], list[Node]]:
    """Follow `step` from node to node, up to the nearest nodes in `stops`.

    Return two lists: the nodes between the given node and the nearest nodes in `stops`, and these
    nearest nodes. The two returned lists are in the graph's order.
    """
    between = walk([node], lambda it: (each for each in step(it) if each not in stops))
    ends = {each for it in between for each in step(it) if each in stops}
    return sorted(between, key=lambda it: it.place), sorted(ends, key=lambda it: it.place)


def walk(begin: Iterable[Item], step: Callable[[Item], Iterable[Item]]) -> dict[Item, None]:
    """Return items, and all items that can be reached from these items by `step`."""
    found = dict.fromkeys(begin)
    stack = [*found]
    while stack:
        new = dict.fromkeys(each for each in step(stack.pop()) if each not in found)
        found |= new
        stack += new
    return found


# The graph of a profile's operators, in the form of the index of a dump


COPY = re.compile(r"#\d+$")  # appended to a name that several tensors of a graph have
USUAL_TYPE = "float32"  # for a tensor whose type is not recorded, such as an input of a callback
FED = "Input"  # the type of the operators that stand for fed tensors


class ProfileGraph(NamedTuple):
    """The graph of a profile: an index, and each operator's positions in the profile, by key.

    An operator that was executed with several shapes is listed in the profile once for each shape.
    For such an operator, the graph has the shapes that come first in the profile. Weights are not
    among the tensors.
    """

    dump_index: DumpIndex
    places: Mapping[str, Sequence[int]]

    def with_tensors(self, change: Callable[[DumpedTensor], DumpedTensor]) -> ProfileGraph:
        """Return a graph in which `change` has changed each tensor."""
        tensors = tuple(map(change, self.dump_index.tensors))
        return self._replace(dump_index=replace(self.dump_index, tensors=tensors))


def graph_of(operators: Sequence[ProfiledOperator], engine: str) -> ProfileGraph:
    """Return the graph of all operators whose tensors are recorded, with the recorded shapes."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, operator in enumerate(operators):
        if operator.writes:
            places[operator.writes[0]].append(place)
    known = {key: operators[numbers[0]] for key, numbers in places.items()}
    made = [
        DumpedOperator(
            key=key,
            name=each.name,
            type=each.type,
            inputs=each.reads,
            outputs=each.writes,
            parameters=each.parameters,
        )
        for key, each in known.items()
    ]
    facts: dict[str, TensorFact] = {}
    names: dict[str, str] = {}
    for operator in known.values():
        names |= operator.names
        for key, fact in zip(operator.reads, operator.inputs, strict=False):
            if key not in operator.weights:
                facts.setdefault(key, fact)
        facts |= zip(operator.writes, operator.outputs, strict=False)
    fed = sorted(facts.keys() - {key for each in made for key in each.outputs})
    inputs = [DumpedOperator(key=f"{FED} {it}", name=it, type=FED, outputs=(it,)) for it in fed]
    tensors = (
        DumpedTensor(
            key=key,
            name=COPY.sub("", key),
            dtype=fact.dtype or USUAL_TYPE,
            shape=fact.shape,
            layout=fact.layout.lower(),
            origin=names.get(key, ""),
        )
        for key, fact in facts.items()
    )
    # For an index without an engine, `Graph` would assume that operators may be missing.
    index = DumpIndex(tensors=tuple(tensors), operators=(), engine=engine or "unknown")
    return ProfileGraph(with_operators(index, (*inputs, *made)), places)


def plain_graph_of(profile: Profile) -> ProfileGraph:
    """Return the graph of a profile, with shapes in plain axes (without a blocked layout)."""
    graph = graph_of(profile.operators, profile.facts.engine)
    index = replace(graph.dump_index, model_sha256=profile.facts.model.sha256)
    layouts = layouts_of(index.tensors, index.operators)

    def make_plain(tensor: DumpedTensor) -> DumpedTensor:
        layout = layouts.get(tensor.key)
        shape = plain_shape(tensor.shape, layout) if layout else tensor.shape
        return replace(tensor, shape=shape, layout=layout or tensor.layout)

    return graph._replace(dump_index=index).with_tensors(make_plain)


def without_filling(graph: ProfileGraph, other: ProfileGraph) -> ProfileGraph:
    """Return a graph with shapes without padding; the other side's shapes show what is padding.

    A padded shape is replaced by the shape of the other side's tensor with the same name or, if
    this shape does not fit, by the largest shape of the other side that fits.
    """
    shapes = {it.shape for it in other.dump_index.tensors}
    named = {name_of(it): it.shape for it in other.dump_index.tensors}

    def cut(tensor: DumpedTensor) -> DumpedTensor:
        if not block_of(tensor.layout):
            return tensor
        fitting = {it for it in shapes if is_padded(tensor.shape, it, tensor.layout)}
        likely = named.get(name_of(tensor), ())
        fits = likely in fitting
        return replace(tensor, shape=likely if fits else max(fitting, default=tensor.shape))

    return graph.with_tensors(cut)
