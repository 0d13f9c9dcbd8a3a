"""A graph computed in float64, operator by operator, each tensor dropped after its last use.

What cannot be computed is `NoTruth`, and so is what is computed from it; the rest goes on. Graphs
within operators are graphs here too, which If, Loop and Scan run.
"""

from __future__ import annotations

import graphlib
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from lar.engines.onnx_file.bodies import BODY_INPUT, Body, bodies_in, name_by_paths
from lar.engines.onnx_file.contents import dense_of
from lar.engines.onnx_file.fields import Node
from lar.engines.reference import operators  # noqa: F401
from lar.engines.reference.implementations import (
    Array,
    Call,
    Function,
    NoTruth,
    NoTruthHere,
    Visit,
    graphs_of,
    implementation_of,
    value_of,
    widened,
)
from lar.engines.reference.rules import check_truth
from lar.errors import first_line

Values = ChainMap[str, Any]  # of a graph by name, before those of the graphs around it


class Meaning(NamedTuple):
    """What the names of operators mean: opsets by domain, and the functions of the model; and the
    folder of the model, with what is in files of their own."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Any]
    folder: Path


class Graph:
    """The graph of a model, a body within an operator, or a function, ready to be run."""

    def __init__(self, body: Body, meaning: Meaning) -> None:
        self.body = body
        proto = body.graph
        sort_nodes(proto)
        self.inputs: Sequence[str] = [getattr(each, "name", each) for each in proto.input]
        self.outputs: Sequence[str] = [getattr(each, "name", each) for each in proto.output]
        self.weights = {name: widened(it) for name, it in weights_in(proto, meaning.folder)}
        self.steps = [Step(node, bodies, meaning) for node, bodies in bodies_in(body)]
        self.spent = names_after_last_use([*proto.node], {*self.outputs, ""})

    def run(
        self, fed: Mapping[str, Any], visit: Visit | None = None, around: Values | None = None
    ) -> list[Any]:
        """Compute the outputs from inputs and tensors around the graph; `visit` is given what each
        operator gives, as soon as it is known."""
        values = (around or Values()).new_child({**self.weights, **fed})
        for step, spent in zip(self.steps, self.spent, strict=True):
            found = step.compute(values, visit)
            values.update(zip(step.node.output, found, strict=True))
            if visit is not None:
                visit(step.seen, found)
            del found
            for name in spent:
                values.pop(name, None)
        return [take(values, name) for name in self.outputs]


class Step:
    """A node of a graph; what computes it is found when it is first run."""

    def __init__(self, node: Any, bodies: Sequence[Body], meaning: Meaning) -> None:
        self.node = node
        self.meaning = meaning
        self.seen = Node(node.name, node.op_type, node.domain, (), tuple(node.output))
        self.bodies = [Graph(each, meaning) for each in bodies]
        self.function: Function | None = None

    @property
    def title(self) -> str:
        """The operator with its domain and opset."""
        domain = f"{self.node.domain}." if self.node.domain else ""
        version = self.meaning.opsets.get(self.node.domain, "unknown")
        return f"{domain}{self.node.op_type} of opset {version}"

    def compute(self, values: Values, visit: Visit | None) -> list[Any]:
        """Return what the node gives; of a result without truth, where it began."""
        taken = [take(values, name) for name in self.node.input]
        unknown = next((each for each in taken if isinstance(each, NoTruth)), None)
        if unknown is not None:
            return [unknown] * len(self.node.output)
        found, says = list[Any](), "it does not give this output"
        try:
            with np.errstate(all="ignore"):  # NaN and infinities are results like others
                found = [widened(each) for each in self.results(taken, values, visit)]
        except MemoryError:
            raise
        except NoTruthHere as error:
            says = str(error)
        except Exception as error:  # implementations have no one kind for these
            shapes = ", ".join(shape_of(each) for each in taken if each is not None)
            says = f"with {shapes or 'no input'}: {first_line(error.__cause__ or error)}"
        for name in self.seen.outputs[len(found) :]:
            found.append(NoTruth(self.title, says, name))
        return found[: len(self.node.output)]

    def results(self, taken: Sequence[Any], values: Values, visit: Visit | None) -> Sequence[Any]:
        """Return what the operator gives, as it gives it.

        Raises:
            NoTruthHere: nothing computes it.
        """
        node, opset = self.node, self.meaning.opsets.get(self.node.domain, 0)
        attributes = {each.name: value_of(each) for each in node.attribute}
        call = Call(node.op_type, taken, attributes, opset, len(node.output))
        check_truth(call)
        if self.bodies:
            return run_bodies(call, self.bodies, values, visit)
        self.function = self.function or self.find_function(call)
        results = self.function(call)
        return results if isinstance(results, tuple) else [results]

    def find_function(self, call: Call) -> Function:
        """Return what computes the node.

        Raises:
            NoTruthHere: nothing does.
        """
        node = self.node
        proto = self.meaning.functions.get((node.domain, node.op_type))
        function = None if proto else implementation_of(node, call.opset)
        if function is not None:
            return function
        proto = proto or function_of_standard(node, call)
        attributes = {each.name: each for each in (*proto.attribute_proto, *node.attribute)}
        within = {each.domain: each.version for each in proto.opset_import}
        proto = with_attributes(proto, attributes)
        graph = Graph(Body("", proto), self.meaning._replace(opsets=within))
        return lambda call: tuple(graph.run(dict(zip(graph.inputs, call.inputs, strict=False))))


@dataclass
class Rounds:
    """The iterations of a body: runs it, and shows what its operators gave in all of them.

    `states` are what an iteration hands to the next one, `pieces` what else each gave.
    """

    body: Graph
    states: Sequence[Any]
    around: Values
    visit: Visit | None
    pieces: list[Sequence[Any]] = field(default_factory=list)
    seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = field(default_factory=dict)

    def run(self, taken: Sequence[Any]) -> list[Any]:
        """Compute the outputs of the body in one iteration."""
        fed = dict(zip(self.body.inputs, taken, strict=False))
        if self.visit is None:
            return self.body.run(fed, None, self.around)
        for name, value in fed.items():
            self(Node(name, BODY_INPUT, "", (), (name,)), [value])
        return self.body.run(fed, self, self.around)

    def advance(self, found: Sequence[Any]) -> None:
        """Take what an iteration gave: the states of the next one, then the pieces."""
        count = len(self.states)
        self.states = found[:count]
        self.pieces.append(found[count:])

    def __call__(self, node: Node, results: Sequence[Any]) -> None:
        """Keep what an operator gave in an iteration."""
        self.seen.setdefault(node.outputs, (node, []))[1].append(results)

    def show(self) -> None:
        """Show the operators of the body with what they gave in all iterations, those of a loop
        around this one too."""
        for node, found in self.seen.values():
            assert self.visit is not None
            whole = [[of_all_rounds(each) for each in zip(*found, strict=True)]]
            for results in found if isinstance(self.visit, Rounds) else whole:
                self.visit(node, results)


def of_all_rounds(values: Sequence[Any]) -> Any:
    """Return the values of all iterations on a new first axis; if they do not fit, the first."""
    if all(isinstance(each, np.ndarray) for each in values):
        return np.stack(values if len({each.shape for each in values}) == 1 else values[:1])
    return next((each for each in values if isinstance(each, NoTruth)), values[0])


def run_bodies(
    call: Call, bodies: Sequence[Graph], values: Values, visit: Visit | None
) -> Sequence[Any]:
    """Compute an operator whose bodies take tensors from around them out of `values`."""
    if call.type == "If":
        path = "then" if call.inputs[0].item() else "else"
        body = next(each for each in bodies if each.body.path.endswith(f"/{path}/"))
        return body.run({}, visit, values)
    last = len(call.inputs) - call.get("num_scan_inputs", 0)
    run, first = (run_loop, 2) if call.type == "Loop" else (run_scan, 0)
    rounds = Rounds(bodies[0], call.inputs[first:last], values, visit)
    run(call, rounds)
    rounds.show()
    found = [*map(stacked, zip(*rounds.pieces, strict=True))]
    if not rounds.pieces:
        kinds = [it.type.tensor_type for it in bodies[0].body.graph.output]
        kinds = kinds[first // 2 + len(rounds.states) :]
        found = [none_of(each) for each in kinds if each.HasField("shape")]
    ways = ways_of(call, "output", len(found))
    return [*rounds.states, *map(turned, found, *ways)]


def stacked(pieces: Sequence[Any]) -> Any:
    """Return what the iterations gave on a new first axis."""
    lacking = (each for each in pieces if isinstance(each, NoTruth))
    return next(lacking, None) or np.stack(pieces)


def none_of(kind: Any) -> Any:
    """Return what no iteration gave of a tensor whose type a body states."""
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return np.zeros((0, *(each.dim_value for each in kind.shape.dim)), dtype)


def turned(array: Any, axis: int, backwards: int) -> Any:
    """Return what iterations gave with them on another axis, from the last one on."""
    if isinstance(array, NoTruth):
        return array
    return np.moveaxis(array[::-1] if backwards else array, 0, axis)


def ways_of(call: Call, side: str, count: int) -> list[Sequence[int]]:
    """Return the axes of what a loop takes or gives in pieces, and which of it goes backwards."""
    given = (call.get(f"scan_{side}_{what}") for what in ("axes", "directions"))
    return [each or [0] * count for each in given]


def run_loop(call: Call, rounds: Rounds) -> None:
    """Run a body until its condition fails, or for a number of trips."""
    most, goes_on = call.take(2)[:2]
    limit = np.inf if most is None else most.item()
    infos = rounds.body.body.graph.input[:2]
    ranks = [len(each.type.tensor_type.shape.dim) for each in infos]
    while (goes_on is None or goes_on.item()) and len(rounds.pieces) < limit:
        first = (len(rounds.pieces), True)
        leading = [np.full((1,) * rank, each) for rank, each in zip(ranks, first, strict=True)]
        goes_on, *found = rounds.run([*leading, *rounds.states])
        if isinstance(goes_on, NoTruth):
            raise NoTruthHere(goes_on.why(""))
        rounds.advance(found)


def run_scan(call: Call, rounds: Rounds) -> None:
    """Run a body along an axis of each of its scanned inputs."""
    scanned = call.inputs[len(rounds.states) :]
    ways = zip(scanned, *ways_of(call, "input", len(scanned)), strict=True)
    columns = (np.moveaxis(array, axis, 0)[:: -1 if back else 1] for array, axis, back in ways)
    for elements in zip(*columns, strict=True):
        rounds.advance(rounds.run([*rounds.states, *elements]))


def take(values: Values, name: str) -> Any:
    """Return a value that a node takes, None for one that is left out."""
    missing = NoTruth("the graph", f"nothing gives {name}", name)
    return values.get(name, missing) if name else None


def shape_of(value: Any) -> str:
    """Return the shape of an array as text; what else a value is, by name."""
    return str(value.shape) if isinstance(value, np.ndarray) else type(value).__name__


def function_of_standard(node: Any, call: Call) -> Any:
    """Return the function of other operators by which the standard defines one.

    Raises:
        NoTruthHere: it has none for that.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, call.opset, node.domain)
    except onnx.defs.SchemaError:
        raise NoTruthHere("") from None
    if schema.has_function:
        proto = onnx.FunctionProto.FromString(schema.function_body.SerializeToString())
    elif schema.has_context_dependent_function:
        types = [type_of(each).SerializeToString() for each in call.inputs]
        content = schema.get_context_dependent_function(node.SerializeToString(), types)
        proto = onnx.FunctionProto.FromString(content)
    else:
        raise NoTruthHere("")
    known = {each.name for each in proto.attribute_proto}
    defaults = (each.default_value for each in schema.attributes.values())
    proto.attribute_proto.extend(it for it in defaults if it.type and it.name not in known)
    return proto


def type_of(value: Any) -> Any:
    """Return the ONNX type of an array; an empty one for an input that is left out."""
    if value is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def with_attributes(function: Any, attributes: Mapping[str, Any]) -> Any:
    """Return a function whose nodes have the attributes that it is called with."""
    copy = onnx.FunctionProto.FromString(function.SerializeToString())
    for node in nodes_within(copy.node):
        for each in [it for it in node.attribute if it.ref_attr_name]:
            node.attribute.remove(each)
            if each.ref_attr_name in attributes:
                node.attribute.append(attributes[each.ref_attr_name])
                node.attribute[-1].name = each.name
    return copy


def nodes_within(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield nodes and those of the graphs within them."""
    for node in nodes:
        for graph in graphs_of(node):
            yield from nodes_within(graph.node)
        yield node


def sort_nodes(graph: Any) -> None:
    """Bring the nodes of a graph into an order in which each stands behind those that give what it
    takes, if they are in no such order."""
    nodes = [*graph.node]
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in names_within(node) if name in makers} for node in nodes]
    if all(max(needed, default=-1) < at for at, needed in enumerate(waits)):
        return
    order = [*graphlib.TopologicalSorter(dict(enumerate(waits))).static_order()]
    copies = [onnx.NodeProto.FromString(nodes[at].SerializeToString()) for at in order]
    del graph.node[:]
    graph.node.extend(copies)


def names_after_last_use(nodes: Sequence[Any], kept: set[str]) -> list[list[str]]:
    """Return for each node the tensors that no node after it takes, without those to be kept."""
    numbered = enumerate(nodes)
    last = {it: at for at, node in numbered for it in (*node.output, *names_within(node))}
    spent: list[list[str]] = [[] for _ in nodes]
    for name in last.keys() - kept:
        spent[last[name]].append(name)
    return spent


def names_within(node: Any) -> Iterator[str]:
    """Yield the tensors that a node takes, those that its branches take among them."""
    yield from node.input
    for graph in graphs_of(node):
        for inner in graph.node:
            yield from names_within(inner)
        # A branch may hand out a tensor from around it.
        yield from (output.name for output in graph.output)


def weights_in(proto: Any, folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield the weights that stand in a graph."""
    sparse = getattr(proto, "sparse_initializer", ())
    for tensor in (*getattr(proto, "initializer", ()), *map(dense_of, sparse)):
        read_external(tensor, folder)
        yield tensor.name, numpy_helper.to_array(tensor)


def read_external(tensor: Any, folder: Path) -> None:
    """Read the data of a tensor that lies in a file, wherever that may be; ONNX's own reader takes
    those in the model's folder alone."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with open(folder / entries["location"], "rb") as file:
        file.seek(int(entries.get("offset", 0)))
        tensor.raw_data = file.read(int(entries.get("length", -1)))
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def rename_domain(model: Any) -> None:
    """Call ONNX's own domain by its empty name alone; `ai.onnx` is another name of it."""
    functions = [node for each in model.functions for node in each.node]
    imports = [each for function in model.functions for each in function.opset_import]
    for each in (*model.opset_import, *imports, *nodes_within([*model.graph.node, *functions])):
        each.domain = "" if each.domain == "ai.onnx" else each.domain


def evaluator_of(model: Any, folder: Path) -> Graph:
    """Return a model, ready to be computed."""
    rename_domain(model)
    name_by_paths(model.graph)
    opsets = {each.domain: each.version for each in model.opset_import}
    functions = {(each.domain, each.name): each for each in model.functions}
    return Graph(Body("", model.graph), Meaning(opsets, functions, folder))
