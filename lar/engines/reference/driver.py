"""The evaluator driver, which computes a model in float64, operator by operator, in one thread.

While it computes the first run, the driver also writes dumps, with tensors in float64. If the right
value of a tensor is not certain (it has no "truth"), the dump contains the reason in place of the
tensor. Names and numbers of tensors are like those in MegEngine's dumps: each operator gets a
number, and then each of its outputs gets a number.
"""

from __future__ import annotations

import graphlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from lar.dumps.recording import LayerPlaces, Unheld, leaves_of, number_outputs, write_outputs
from lar.engines.driver import Driver, Misfit
from lar.engines.onnx_file import control_flow
from lar.engines.onnx_file.bodies import Body, bodies_in, name_by_paths, names_taken
from lar.engines.onnx_file.contents import inputs_in, read_message, refuse_others
from lar.engines.onnx_file.control_flow import NoTruth, NoTruthHere, Values, Visit, parts_of_value
from lar.engines.onnx_file.fields import (
    SCHEMA,
    Message,
    Node,
    attributes_of,
    graphs_in,
    held_in,
    type_name,
)
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.tensors import array_of, dense_of, dtype_of
from lar.engines.reference.operators import (
    Array,
    Call,
    Function,
    check_truth,
    implementation_of,
    widened,
)
from lar.errors import UsageError, first_line
from lar.records.run import EngineFacts, TensorInfo

# A graph is computed in float64, operator by operator. Each tensor is dropped after its last use.
#
# The value of a tensor that cannot be computed is a `NoTruth`, and so are the values of tensors
# that depend on it. All other tensors are computed. Graphs inside operators are `Graph`s too, which
# If, Loop and Scan run.


class Meaning(NamedTuple):
    """What is needed to interpret operators, and the folder of the model's weight files.

    Operators are interpreted by the opsets of their domains, and by the functions that the model
    itself defines.
    """

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Message]
    folder: Path


class Graph:
    """A graph that is ready to run.

    The graph may belong to a model, to a function, or to a subgraph (such as the body of a Loop).
    """

    def __init__(self, body: Body, meaning: Meaning) -> None:
        self.body = body
        graph = body.graph
        sort_nodes(graph)
        self.inputs: Sequence[str] = [getattr(each, "name", each) for each in graph.input]
        self.outputs: Sequence[str] = [getattr(each, "name", each) for each in graph.output]
        self.weights = {name: widened(it) for name, it in weights_in(graph, meaning.folder)}
        self.steps = [Step(node, bodies, meaning) for node, bodies in bodies_in(body)]
        self.spent = names_after_last_use(graph.node, {*self.outputs, ""})

    def run(
        self, fed: Mapping[str, Any], visit: Visit | None = None, around: Values | None = None
    ) -> list[Any]:
        """Compute the graph's outputs from its inputs and from tensors of the graphs around it.

        `visit` is called with each operator and its results, as soon as they are computed.
        """
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
    """A node of a graph; the function that computes it is found when the node first runs."""

    def __init__(self, node: Message, bodies: Sequence[Body], meaning: Meaning) -> None:
        self.node = node
        self.meaning = meaning
        node.domain = domain_of(node)
        self.seen = Node(node.name, node.op_type, node.domain, (), tuple(node.output))
        self.bodies = [Graph(each, meaning) for each in bodies]
        self.function: Function | None = None

    @property
    def title(self) -> str:
        """The operator's type with its domain and opset, for messages."""
        domain = f"{self.node.domain}." if self.node.domain else ""
        version = self.meaning.opsets.get(self.node.domain, "unknown")
        return f"{domain}{self.node.op_type} of opset {version}"

    def compute(self, values: Values, visit: Visit | None) -> list[Any]:
        """Return the results of the node.

        If a result cannot be computed, a `NoTruth` is returned in its place. The `NoTruth` names
        the first operator that failed.
        """
        taken = [take(values, name) for name in self.node.input]
        unknown = next((each for each in taken if isinstance(each, NoTruth)), None)
        if unknown is not None:
            return [unknown] * len(self.node.output)
        found, says = list[Any](), "it does not give this output"
        try:
            with np.errstate(all="ignore"):  # NaN and infinities are valid results
                found = [widened(each) for each in self.results(taken, values, visit)]
        except MemoryError:
            raise
        except NoTruthHere as error:
            says = str(error)
        except Exception as error:  # implementations have no one kind for these
            shapes = ", ".join(shape_of(each) for each in taken if each is not None)
            says = f"with {shapes or 'no input'}: {first_line(error.__cause__ or error)}"
        found += [NoTruth(self.title, says, name) for name in self.seen.outputs[len(found) :]]
        return found[: len(self.node.output)]

    def results(self, taken: Sequence[Any], values: Values, visit: Visit | None) -> Sequence[Any]:
        """Return the operator's results, before they are converted to float64.

        Raises:
            NoTruthHere: no function computes this operator.
        """
        node, opset = self.node, self.meaning.opsets.get(self.node.domain, 0)
        call = Call(node.op_type, taken, attributes_of(node), opset, len(node.output))
        check_truth(call)
        if self.bodies:
            return run_bodies(call, self.bodies, values, visit)
        self.function = self.function or self.find_function(call)
        results = self.function(call)
        return results if isinstance(results, tuple) else [results]

    def find_function(self, call: Call) -> Function:
        """Return the function that computes the node.

        Raises:
            NoTruthHere: neither lar nor the ONNX standard defines this operator.
        """
        node = self.node
        own = self.meaning.functions.get((node.domain, node.op_type))
        function = None if own else implementation_of(node, call.opset)
        if function is not None:
            return function
        made = own or function_of_standard(node, call)
        attributes = {each.name: each for each in (*made.attribute_proto, *node.attribute)}
        body = with_attributes(made, attributes)
        graph = Graph(Body("", body), self.meaning._replace(opsets=opsets_of(made)))
        return lambda call: tuple(graph.run(dict(zip(graph.inputs, call.inputs, strict=False))))


def domain_of(message: Message) -> str:
    """Return the domain of a node or an opset; for ONNX's own domain, return an empty string."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def opsets_of(message: Message) -> dict[str, int]:
    """Return the opsets of a model or a function, by domain."""
    return {domain_of(each): each.version for each in message.opset_import}


def run_bodies(
    call: Call, bodies: Sequence[Graph], values: Values, visit: Visit | None
) -> Sequence[Any]:
    """Compute an operator that has subgraphs, such as a Loop with its body.

    `values` has the tensors of the graphs around the subgraphs.
    """
    if call.type == "If":
        return control_flow.branch_taken(call.inputs, bodies).run({}, visit, values)
    rounds = control_flow.run_rounds(
        call.type, call.inputs, call.attributes, bodies[0], values, visit
    )
    kinds = [each.type.tensor_type for each in bodies[0].body.graph.output]
    kinds = kinds[(call.type == "Loop") + len(rounds.states) :]
    # Without iterations, a result is known only if the body states its shape; so are all before it.
    none = [() for _ in takewhile(lambda kind: "shape" in kind, kinds)]
    pieces = [*zip(*rounds.pieces, strict=True)] or none
    ways = control_flow.ways_of(call.attributes, "output", len(pieces))
    return [*rounds.states, *map(joined, pieces, kinds, *ways)]


def joined(pieces: Sequence[Any], kind: Message, axis: int, backwards: int) -> Any:
    """Return the values that a tensor has in the iterations of a loop, joined along a new axis.

    If `backwards` is true, the last value comes first. `kind` is the type of the values, as the
    subgraph declares it.
    """
    lacking = next((each for each in pieces if isinstance(each, NoTruth)), None)
    if lacking is not None:
        return lacking
    shape = (0, *(each.dim_value for each in kind.shape.dim))
    array = np.stack(pieces) if pieces else np.zeros(shape, dtype_of(type_name(kind.elem_type)))
    return np.moveaxis(array[::-1] if backwards else array, 0, axis)


def take(values: Values, name: str) -> Any:
    """Return the value of a node's input by its name, None for an input that is left out."""
    return values.get(name, NoTruth("the graph", f"nothing gives {name}", name)) if name else None


def shape_of(value: Any) -> str:
    """Return the shape of an array as text; for another value, return the name of its type."""
    return str(value.shape) if isinstance(value, np.ndarray) else type(value).__name__


def function_of_standard(node: Message, call: Call) -> Message:
    """Return the function by which the ONNX standard defines an operator.

    Raises:
        NoTruthHere: the standard does not define this operator by a function.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, call.opset, node.domain)
    except onnx.defs.SchemaError:
        raise NoTruthHere("") from None
    if schema.has_function:
        content = schema.function_body.SerializeToString()
    elif schema.has_context_dependent_function:
        types = [type_of(each).SerializeToString() for each in call.inputs]
        content = schema.get_context_dependent_function(node.encode(), types)
    else:
        raise NoTruthHere("")
    found = Message("Function", content)
    defaults = (each.default_value for each in schema.attributes.values())
    stated = [Message("Attribute", each.SerializeToString()) for each in defaults if each.type]
    found.attribute_proto = [*stated, *found.attribute_proto]
    return found


def type_of(value: Any) -> Any:
    """Return the ONNX type of an array; for an input that is left out, return an empty type."""
    if value is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def with_attributes(function: Message, attributes: Mapping[str, Message]) -> Message:
    """Return a copy of a function, with the attributes of a call inserted into its nodes."""
    copy = Message("Function", function.encode())
    for graph in graphs_in(copy):
        for node in graph.node:
            node.attribute = [
                Message("Attribute", attributes[ref].encode(), name=it.name) if ref else it
                for it in node.attribute
                if not (ref := it.ref_attr_name) or ref in attributes
            ]
    return copy


def sort_nodes(graph: Message) -> None:
    """Sort the nodes of a graph: each node must come after the nodes that compute its inputs."""
    nodes = graph.node
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in names_taken(node) if name in makers} for node in nodes]
    if any(max(needed, default=-1) >= at for at, needed in enumerate(waits)):
        order = graphlib.TopologicalSorter(dict(enumerate(waits))).static_order()
        graph.node = [nodes[at] for at in order]


def names_after_last_use(nodes: Sequence[Message], kept: set[str]) -> list[list[str]]:
    """Return, for each node, the tensors that can be dropped since no later node reads them.

    The tensors in `kept` are never dropped.
    """
    last = {it: at for at, node in enumerate(nodes) for it in (*node.output, *names_taken(node))}
    spent: list[list[str]] = [[] for _ in nodes]
    for name in last.keys() - kept:
        spent[last[name]].append(name)
    return spent


def weights_in(graph: Message, folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield the names and values of the weights in a graph; functions have no weights."""
    if "initializer" in SCHEMA[graph.kind]:
        sparse = (dense_of(each, folder) for each in graph.sparse_initializer)
        for tensor in (*graph.initializer, *sparse):
            yield tensor.name, array_of(tensor, folder)


def evaluator_of(model: Message, folder: Path) -> Graph:
    """Return the graph of a model, ready to run."""
    name_by_paths(model.graph)
    functions = {(domain_of(each), each.name): each for each in model.functions}
    return Graph(Body("", model.graph), Meaning(opsets_of(model), functions, folder))


# The evaluator driver


NO_TIMES = "the times of the reference evaluator say nothing about the model's speed"


class EvaluatorDriver(Driver):
    """A driver that computes a model in float64; its outputs are float64 too.

    In the first run, each function in `visits` is called with each node and the node's results.
    `finish` is called after the last run.
    """

    name = "evaluator"
    calls = {"load": "ReferenceEvaluator", "forward": "ReferenceEvaluator.run"}

    def set_up(self) -> None:
        self.visits: list[Visit] = []
        self.finish: Callable[[], object] = bool
        self.results: dict[str, Any] = {}

    def facts(self) -> EngineFacts:
        return self.usual_facts(onnx.__version__)

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.notes.append(NO_TIMES)
        path = Path(self.spec.model)
        self.model = read_message(path)
        self.evaluator = evaluator_of(self.model, path.parent)
        weights = self.evaluator.weights
        refuse_others(path, [it for it in self.model.graph.input if it.name not in weights])
        self.infos = inputs_in(self.model, weights)
        self.fire_hooks("after_load")

    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.infos

    def feed(self, arrays: Mapping[str, Array]) -> None:
        self.fed = widened(dict(arrays))
        self.start, self.wait = self.compute, bool
        self.fire_hooks("before_run")

    def compute(self) -> None:
        """Compute the outputs, and in the first run write the dump that the user asked for.

        Raises:
            Misfit, UsageError: no output can be computed, and the run writes no files.
        """
        visits, self.visits = self.visits, []

        def visit(node: Node, results: Sequence[Any]) -> None:
            for each in visits:
                each(node, results)

        values = self.evaluator.run(self.fed, visit if visits else None)
        self.results = dict(zip(self.evaluator.outputs, values, strict=True))
        lacking = [each for each in values if isinstance(each, NoTruth)]
        if len(lacking) == len(values) and not self.context.written:
            operator, says, _ = lacking[0]
            problem = f"ONNX's reference evaluator cannot compute {operator}"
            if says.startswith("with "):
                raise Misfit(f"{problem} {says}")
            hint = f"it says: {says}" if says else "it has no such operator"
            raise UsageError(problem, hint, subject=self.spec.model)

    def outputs(self) -> Mapping[str, Array | str]:
        found = (each for name, it in self.results.items() for each in leaves_of(name, it))
        return {part: array_or_reason(part, leaf) for part, leaf in found}


def array_or_reason(name: str, value: Any) -> Array | str:
    """Return a value as an array, or return the reason why it is not an array."""
    if isinstance(value, NoTruth):
        return value.why(name)
    return value.reason if isinstance(value, Unheld) else np.asarray(value)


def print_operators(driver: EvaluatorDriver, _: bool) -> None:
    """Print each operator of the first run after it has been computed."""

    def show(node: Node, results: Sequence[Any]) -> None:
        shapes = " ".join(map(shape_of, results))
        print(f"{node.operator} {node.name or node.outputs[0]}: {shapes}", file=sys.stderr)

    driver.visits.append(show)


class ModelDump(NumberedGraph):
    """Writes a dump of a driver's model during a run."""

    def __init__(self, driver: EvaluatorDriver) -> None:
        super().__init__(driver.model.graph, driver.fed)
        self.driver, self.places = driver, LayerPlaces(driver)
        self.weights = driver.evaluator.weights
        self.factors = {name: it for name, it in self.weights.items() if name in self.wanted}

    def write_weights(self) -> None:
        """Write the weights that operators read, in the types that they have in the model file."""
        for tensor in held_in(self.driver.model.graph):
            name, kind = tensor.name, type_name(tensor.data_type)
            if self.holds_weight(name, kind):
                value = self.weights[name].astype(dtype_of(kind))
                for each in self.dump_parts(name, [*parts_of_value(name, value)]):
                    self.places.write_constant(each)

    def write_inputs(self) -> None:
        """Write the inputs of the model, and outputs that no operator computes."""
        known = {**self.weights, **self.driver.fed}
        for name in (*self.driver.fed, *self.outputs):
            if name in known:
                self.write_value(name, known[name])

    def visit(self, node: Node, results: Sequence[Any]) -> None:
        """Write the results of an operator; the results of constants are left out."""
        for name, value in zip(node.outputs, results, strict=True):
            if name and node.operator != "Constant":
                self.write_value(name, value)

    def write_value(self, name: str, value: Any) -> None:
        """Write the tensors in a value; if the value contains no tensors, store the reason."""
        for each in self.dump_parts(name, [*parts_of_value(name, value)]):
            self.places.write(each)


def dump_tensors(driver: EvaluatorDriver, _: object) -> None:
    """Write a dump of all tensors of the first run, and facts about operators and quantizations."""
    dump = ModelDump(driver)
    dump.places.write_facts(dump.facts())
    dump.write_weights()
    dump.write_inputs()
    driver.visits.append(dump.visit)
    driver.finish = lambda: dump.places.write_facts(dump.facts())


def finish(driver: EvaluatorDriver, _: object) -> None:
    """Finish a dump; if the driver has not run the model yet, run the model first."""
    if driver.visits:
        driver.compute()
    driver.finish()


def dump_outputs(driver: EvaluatorDriver, _: object) -> None:
    """Write a dump of those outputs of each iteration that can be computed."""
    variables = number_outputs(driver.evaluator.outputs)

    def leave_out() -> None:
        for name, value in driver.results.items():
            if isinstance(value, NoTruth):
                variables.pop(name, None)

    driver.after_iteration = leave_out
    write_outputs(driver, variables)
