"""Dumps of a session: the results of each operator of the optimised graph, as text or as tensors.

The tensors are computed in separate sessions before the timed iterations. The dumped tensors are
right for all iterations, since all iterations have the same inputs. Names and numbers of tensors
are like those in MegEngine's dumps: each operator gets a number, and then each of its outputs gets
a number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lar.dumps.binary import ELEMENT
from lar.dumps.layouts import to_blocked, to_plain
from lar.dumps.recording import (
    Dumped,
    LayerPlaces,
    Part,
    Unheld,
    number_outputs,
    parts_of,
    write_outputs,
)
from lar.engines.engine import Isolation
from lar.engines.onnx_file import bodies as onnx_bodies
from lar.engines.onnx_file import control_flow, fields
from lar.engines.onnx_file.bodies import Body, Operator, names_taken, parameters_of
from lar.engines.onnx_file.control_flow import EachRound, Values, Visit, parts_of_value
from lar.engines.onnx_file.fields import Message, Node, SavedModel, type_name
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.tensors import array_of
from lar.engines.onnxruntime import session as ort_values
from lar.engines.onnxruntime.kernels import (
    DOMAIN,
    block_size,
    blocked_tensors,
    join_blocks,
    split_blocks,
)
from lar.engines.onnxruntime.saving import open_saved, save_to_work_folder
from lar.engines.onnxruntime.session import Array, SessionDriver, read_tensor
from lar.errors import CheckFailed, LarError, first_line
from lar.options.table import FAST_RUN_ALGO_POLICY

# The optimised graph of a session: the values of all its tensors, and runs of parts of it.
#
# Outputs that are added to the original model would keep the engine from fusing operators, so
# another graph would run. Instead lar saves the optimised graph, adds outputs to that, and runs it
# without optimisation. lar itself runs the iterations of control flow (`onnx_file.control_flow`).


# Each of several sessions computes a part of the tensors, so that only this part is in memory.
PARTS = 4
LEAST_NODES = 8

FIRST_SCAN = 9  # the first opset in which a Scan has no batch axis


class Graph(NumberedGraph):
    """The optimised graph of a driver, from which sessions of single nodes can be made.

    `fed` has the names of the inputs.
    """

    def __init__(self, driver: SessionDriver, saved: SavedModel, fed: Iterable[str] = ()) -> None:
        self.driver, self.saved = driver, saved
        # The weights in the separate file are not in this message.
        self.model = Message("Model", saved.content)
        onnx_bodies.name_by_paths(self.model.graph)
        super().__init__(self.model.graph, fed)
        graphs = [*fields.graphs_in(self.model.graph)]
        self.weights = {each.name: each for graph in graphs for each in graph.initializer}
        self.sparse = {it.values.name: it for graph in graphs for it in graph.sparse_initializer}
        self.python_values: dict[str, Any] = {}  # of sequences and maps
        self.blocked = blocked_tensors(self.nodes)
        self.block = block_size(driver.onnxruntime) if self.blocked else 1
        self.left_out = {
            node.name or node.outputs[0]: f"what the graphs inside this {node.operator} compute"
            for node, message, _ in self.operators
            if node.operator not in onnx_bodies.CONTROL_FLOW
            and any("g" in it for it in message.attribute)
        }

    def stored(self, name: str, maker: Operator, array: Array) -> tuple[Array, str]:
        if name not in self.blocked:
            return array, ""
        if not onnx_bodies.LOOPS.isdisjoint(maker.body.around):
            return self.in_plain_axes(array), ""
        if array.ndim == 4:
            return split_blocks(array, self.block), f"NCHWC{{{self.block}}}"
        return array, ""

    def in_plain_axes(self, array: Array) -> Array:
        """Return a tensor that is in the blocked layout, converted to plain axes.

        For a tensor in a loop, the first axis of the array may be the iterations of the loop.
        """
        if array.ndim < 4:
            return array
        blocks = split_blocks(array.reshape(-1, *array.shape[-3:]), self.block)
        return to_plain(blocks, f"nchw{self.block}c").reshape(array.shape)

    def open_alone(
        self, nodes: Sequence[Message], types: Mapping[str, Message], outputs: Iterable[str]
    ) -> Any:
        """Return a session of some nodes of the graph, with inputs of the given types."""
        taken = dict.fromkeys([*(name for node in nodes for name in names_taken(node)), *outputs])
        graph = ort_values.graph_alone(
            *(nodes, types, outputs),
            initializer=[self.weights[name] for name in taken if name in self.weights],
            sparse_initializer=[self.sparse[name] for name in taken if name in self.sparse],
        )
        model = Message("Model", self.saved.content)
        model.graph, model.functions = graph, self.model.functions
        return open_saved(self.driver, SavedModel(model.encode(), self.saved.folder))

    def values(self) -> Iterator[tuple[str, list[Part | Unheld]]]:
        """Yield the name and the dumped parts of each tensor, in the order of the graph.

        A tensor in a branch that was not executed has no parts.
        """
        steps = [*onnx_bodies.bodies_in(Body("", self.model.graph))]
        fixed = [it for it in self.outputs if it not in self.makers and it not in self.driver.fed]
        count = max(-(-len(steps) // PARTS), LEAST_NODES)
        for begin in range(0, max(1, len(steps)), count):
            yield from self.values_of(steps[begin : begin + count], [] if begin else fixed)

    def values_of(
        self, steps: Sequence[tuple[Message, list[Body]]], fixed: Sequence[str]
    ) -> Iterator[tuple[str, list[Part | Unheld]]]:
        """Yield the names and dumped parts of the `fixed` tensors and of some nodes' outputs."""
        given = [*fixed, *(name for node, _ in steps for name in node.output if name)]
        inside = {name for node, bodies in steps if bodies for name in names_taken(node)}
        around = inside & self.makers.keys()
        found = self.run({*given, *around})
        for name in fixed:
            yield name, self.parts_in(name, found[name])
        for node, bodies in steps:
            if bodies:
                yield from self.values_inside(node, bodies, Values(found, self.driver.fed))
            for name in filter(None, node.output):
                yield name, self.parts_in(name, found[name] if name in around else found.pop(name))

    def run(self, names: set[str]) -> dict[str, Any]:
        """Return the values of tensors outside subgraphs, as objects that the engine owns."""
        model = Message("Model", self.saved.content)
        model.graph.output += [Message("Value", name=it) for it in names.difference(self.outputs)]
        session = open_saved(self.driver, SavedModel(model.encode(), self.saved.folder))
        outputs = [each.name for each in session.get_outputs() if each.name in names]
        values = session.run_with_ort_values(outputs, self.driver.fed)
        found = dict(zip(outputs, values, strict=True))
        self.python_values |= {
            name: ort_values.read_value(session, name, value)
            for name, value in found.items()
            if not value.is_tensor()
        }
        return found

    def values_inside(
        self, node: Message, bodies: Sequence[Body], values: Values
    ) -> Iterator[tuple[str, list[Part | Unheld]]]:
        """Yield the names and dumped parts of the tensors in the subgraphs of a node."""
        shown: list[tuple[str, list[Part | Unheld]]] = []

        def show(node: Node, results: Sequence[Any]) -> None:
            pairs = zip(node.outputs, results, strict=True)
            shown.extend((name, self.parts_in(name, value)) for name, value in pairs if name)

        paths = tuple(body.path for body in bodies)
        inside = [name for name in self.makers if name.startswith(paths)]
        try:
            run_bodies(self, node, [SessionBody(self, it) for it in bodies], values, show)
        except Exception as error:  # the engine has no one kind for these
            says = f"inside a body that cannot be run: {first_line(error)}"
            shown = [(name, [Unheld(name, says)]) for name in inside]
        computed = {name for name, _ in shown}
        yield from ((name, []) for name in inside if name not in computed)
        yield from shown

    def parts_in(self, name: str, value: Any) -> list[Part | Unheld]:
        """Return the dumped parts of a value.

        In a loop, `value` is a list of the values in all iterations.
        """
        if name in self.python_values:
            return [*parts_of_value(name, self.python_values.pop(name))]
        if isinstance(value, EachRound):
            return [*parts_of_value(name, EachRound(read_tensor(name, each) for each in value))]
        return [*parts_of_value(name, read_tensor(name, value))]


class SessionBody:
    """A subgraph, such as the body of a Loop, that ONNX Runtime runs as a separate model.

    The separate model has every tensor of the subgraph as an output.
    """

    def __init__(self, graph: Graph, body: Body) -> None:
        self.graph, self.body, self.nodes = graph, body, body.graph.node
        self.inputs: Sequence[str] = [each.name for each in body.graph.input]
        self.outputs = [each.name for each in body.graph.output]
        self.steps = [
            (node, [SessionBody(graph, each) for each in bodies])
            for node, bodies in onnx_bodies.bodies_in(body)
        ]
        self.taken = {*(name for node in self.nodes for name in names_taken(node)), *self.outputs}
        given = [name for node in self.nodes for name in node.output if name]
        self.wanted = [*given, *(it for it in self.outputs if it in graph.weights)]
        self.sessions: dict[tuple[str, ...], Any] = {}

    def run(self, fed: Mapping[str, Any], visit: Visit | None, around: Values) -> list[Any]:
        onnxruntime = self.graph.driver.onnxruntime
        values = around.new_child(
            {
                name: ort_values.make_value(onnxruntime, np.asarray(it, order="C"))
                if isinstance(it, np.ndarray)
                else it
                for name, it in fed.items()
            }
        )
        needed = {name: values[name] for name in sorted(self.taken) if name in values}
        types = tuple(value.data_type() for value in needed.values())
        if types not in self.sessions:
            kinds = dict(zip(needed, map(ort_values.type_named, types), strict=True))
            self.sessions[types] = self.graph.open_alone(self.nodes, kinds, self.wanted)
        found = self.sessions[types].run_with_ort_values(self.wanted, needed)
        values.update(zip(self.wanted, found, strict=True))
        for node, bodies in self.steps:
            run_bodies(self.graph, node, bodies, values, visit)
            if visit is not None:
                visit(fields.node_of(node), [values.get(name) for name in node.output])
        return [values[name] for name in self.outputs]


def run_bodies(
    graph: Graph, node: Message, bodies: Sequence[SessionBody], values: Values, visit: Visit | None
) -> None:
    """Run the subgraphs of a node, such as the body of a Loop, to show the operators in them.

    The results of the node itself are known already. `values` has the tensors of the graphs around
    the subgraphs.
    """
    if not bodies:
        return
    folder, weights = graph.saved.folder, graph.weights
    taken = [
        array_of(weights[name], folder) if name in weights else values.get(name)
        for name in node.input
    ]
    if node.op_type == "If":
        control_flow.branch_taken(taken, bodies).run({}, visit, values)
        return
    opsets = {each.domain: each.version for each in graph.model.opset_import}
    if node.op_type == "Scan" and opsets.get("", FIRST_SCAN) < FIRST_SCAN:
        raise LarError("lar cannot run the operator Scan of opset 8, which has a batch axis")
    control_flow.run_rounds(
        node.op_type, taken, fields.attributes_of(node), bodies[0], values, visit
    )


# Computes single tensors, by models of the nodes before them.
#
# The nodes are the nodes that the engine runs, fused and in blocks of channels. Such a model runs
# without optimisation. It has nodes of bodies beside the other nodes. For a tensor inside a loop,
# the model runs once for each iteration of the loop.


class SessionIsolation(Isolation):
    """The optimised model of a driver, from which lar makes models of a few nodes."""

    def __init__(self, driver: SessionDriver) -> None:
        if FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings):
            driver.load()  # this sets `driver.saved`, the graph in the cache
        else:
            driver.fire_hooks("before_load")
        self.graph = Graph(driver, driver.saved or save_to_work_folder(driver))
        self.makers, self.blocked = self.graph.makers, self.graph.blocked
        steps = enumerate(self.graph.nodes)
        self.places = {name: place for place, node in steps for name in node.outputs}

    def find_missing(self, names: Collection[str]) -> set[str]:
        known = {*self.makers, *(each.name for each in self.graph.model.graph.input)}
        return {name for name in names if not {name, ELEMENT.sub("", name)} & known}

    def is_looped(self, name: str) -> bool:
        """Return whether a tensor is inside a loop, so that its first axis has all iterations."""
        return name in self.makers and not onnx_bodies.LOOPS.isdisjoint(
            self.makers[name].body.around
        )

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        value = output if output in self.makers else ELEMENT.sub("", output)
        nodes = self.nodes_before(value, values)
        taken = {name for node in nodes for name in names_taken(node)}
        fed = {name: array for name, array in values.items() if name in taken}
        looped = {name: len(fed[name]) for name in fed if self.is_looped(name)}
        count = max(looped.values(), default=1)
        if any(count % each for each in looped.values()):
            raise LarError("the tensor's inputs come from loops with different iteration counts")
        types = {name: ort_values.tensor_type(array.dtype.name) for name, array in fed.items()}
        nodes = [without_fed_outputs(node, fed) for node in nodes]
        session = self.graph.open_alone(nodes, types, [value])
        found = []
        for at in range(count):
            # The values in this iteration; a tensor of an outer loop has fewer iterations.
            now = {name: fed[name][at * size // count] for name, size in looped.items()}
            given = {name: self.as_run(name, array) for name, array in (fed | now).items()}
            found.append(self.as_dumped(output, parts_of(value, session.run([value], given)[0])))
        return np.stack(found) if self.is_looped(output) else found[0]

    def as_run(self, name: str, array: Array) -> Array:
        """Convert a dumped tensor, or its part for one loop iteration, to the engine's layout."""
        if name in self.blocked and array.ndim == 5:
            return join_blocks(array)
        if name in self.blocked and self.is_looped(name) and array.ndim == 4:
            block = self.graph.block
            return join_blocks(to_blocked(array, f"nchw{block}c", split_blocks(array, block).shape))
        return np.asarray(array, order="C")

    def as_dumped(self, name: str, parts: Iterable[Part | Unheld]) -> Array:
        """Return one part of a result of the engine, converted to the layout in dumps.

        Raises:
            LarError: the result has no part with this name, or no file can hold the part.
        """
        part = next((each for each in parts if each.name == name), None)
        if not isinstance(part, Part):
            raise LarError(part.reason if part else "the engine returned no tensor of this name")
        if name not in self.blocked or part.array.ndim != 4:
            return part.array
        if self.is_looped(name):
            return self.graph.in_plain_axes(part.array)
        return split_blocks(part.array, self.graph.block)

    def nodes_before(self, output: str, values: Mapping[str, Array]) -> list[Message]:
        """Return the nodes that compute an output from given values, in the order of the graph.

        Raises:
            LarError: the nodes need tensors whose values are not given.
        """
        open_names, seen = [output], {output}
        while open_names:
            name = open_names.pop()
            maker = self.makers.get(name)
            if maker is None or maker.node.operator == onnx_bodies.BODY_INPUT:
                if name == output:
                    raise LarError("no operator of the model computes this tensor")
                raise LarError(f"the tensor depends on {name}, whose value is unknown")
            known = (values, self.graph.weights, self.graph.sparse, seen)
            taken = names_taken(maker.message)
            added = [each for each in taken if not any(each in names for names in known)]
            seen.update(added)
            open_names += added
        return [self.graph.operators[at].message for at in sorted({self.places[it] for it in seen})]


# Dumps of a session: the results of each operator of the optimised graph


def save_source(driver: SessionDriver, _: object) -> None:
    """Save the optimised graph for a dump.

    The graph is saved before the driver loads its own session, since saving takes more memory than
    later steps. A driver that loads a cache already has a saved graph.
    """
    cached = FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings)
    if driver.runner == 0 and not cached and driver.dump_source is None:
        driver.dump_source = save_to_work_folder(driver)


def dump_tensors(driver: SessionDriver, _: object) -> None:
    """Write a dump of all tensors for a driver's present inputs, and facts about the operators."""
    if driver.runner:
        return
    places, graph = LayerPlaces(driver), FedGraph(driver)
    places.write_facts(graph.facts())
    for weight in graph.filters():
        places.write_constant(weight)
    for dumped in graph.tensors():
        places.write(dumped)
    places.write_facts(graph.facts())


def dump_outputs(driver: SessionDriver, _: object) -> None:
    """Write a dump of the outputs of each iteration."""
    write_outputs(driver, number_outputs(it.name for it in driver.session.get_outputs()))


class FedGraph(Graph):
    """The optimised graph of a driver, together with the driver's present inputs."""

    def __init__(self, driver: SessionDriver) -> None:
        saved = driver.dump_source or driver.saved or save_to_work_folder(driver)
        super().__init__(driver, saved, driver.fed)
        known = self.wanted & self.weights.keys()
        self.factors = {name: array_of(self.weights[name], saved.folder) for name in known}

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator; a parameter that is a subgraph is replaced by a text."""
        return [
            parameters_of(it)
            | {each.name: describe_body(each.g) for each in it.attribute if "g" in each}
            for it in (operator.message for operator in self.operators)
        ]

    def filters(self) -> Iterator[Dumped]:
        """Yield the weights that operators read, in plain axes or in blocks of channels."""
        in_blocks = dict(self.filters_in_blocks())
        for name, each in self.weights.items():
            if self.holds_weight(name, type_name(each.data_type)):
                array, layout = array_of(each, self.saved.folder), ""
                if array.ndim == 4 and (blocks := in_blocks.get(name)):
                    # Give the array the axes in which it is stored.
                    outputs, inputs, *sizes = array.shape
                    inner = inputs // self.block if len(blocks) > 1 else inputs
                    array = array.reshape(outputs // self.block, inner, *sizes, *blocks)
                    layout = f"OIHWC{{{','.join(map(str, blocks))}}}"
                yield self.dumped(name, (), array, layout)

    def filters_in_blocks(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the names and block sizes of the filters that are stored in blocks of channels.

        Each of the filters has blocks of output channels, and some filters also have blocks of
        input channels.
        """
        for node, known in zip(self.nodes, self.parameters, strict=True):
            if node.domain == DOMAIN and node.operator == "Conv":
                weight = self.weights.get(node.inputs[1])
                shape = tuple(weight.dims) if weight else ()
                by_channel = known.get("group", 1) > 1 and shape[1:2] == (1,)
                takes_blocks = node.inputs[0] in self.blocked and not by_channel
                yield node.inputs[1], [self.block] * (2 if takes_blocks else 1)

    def tensors(self) -> Iterator[Dumped]:
        """Yield the dumped parts of the inputs, then of all tensors in the order of the graph."""
        for name, given in self.driver.given.items():
            yield from self.dump_parts(name, [*parts_of(name, given)])
        for name, parts in self.values():
            yield from self.dump_parts(name, parts)


def describe_body(graph: Message) -> str:
    """Return a short text for a subgraph of an operator, with its operator types and a hash."""
    operators = " ".join(node.op_type for node in graph.node)
    return f"[{operators}] {hashlib.sha256(graph.encode()).hexdigest()[:8]}"


# `--range`: checks every output of an operator once, before the timed iterations.
#
# The inputs and so the tensors are the same in all iterations. They are computed in a separate
# session, so that the timed session runs the model unchanged.


def check_each_feed(driver: SessionDriver, limit: float) -> None:
    """Check all floating-point tensors now, and again whenever the driver gets new inputs.

    Raises:
        CheckFailed: as `check_range`.
    """
    check_range(driver, limit)
    driver.feed_checks.append(lambda: check_range(driver, limit))


def check_range(driver: SessionDriver, limit: float) -> None:
    """Run a driver's model on its inputs, and check the floating-point tensors.

    Raises:
        CheckFailed: an element of a tensor is NaN, or its absolute value is larger than the limit.
    """
    for name, node, array in tensors_of(driver):
        # The limit may be infinite in float16, so it is compared in float32.
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        wrong = ~(np.isfinite(wide) & (np.abs(wide) <= wide.dtype.type(limit)))
        if wrong.any():
            raise CheckFailed(describe_misfit(name, node, wide, wrong, limit))


def tensors_of(driver: SessionDriver) -> Iterator[tuple[str, Node, Array]]:
    """Yield the floating-point tensors of a run, with the nodes that compute them.

    The tensors are in the order of the graph and in plain axes. Integer tensors are left out, since
    sizes and indices may be large, and since quantised integers stand for other numbers.
    """
    graph = FedGraph(driver)
    for whole, parts in graph.values():
        for part in parts:
            if whole in graph.makers and isinstance(part, Part) and part.array.dtype.kind == "f":
                array = part.array
                if whole in graph.blocked:
                    array = graph.in_plain_axes(array)
                yield part.name, graph.makers[whole].node, array


def without_fed_outputs(node: Message, fed: Container[str]) -> Message:
    """Return a node whose outputs have other names than the tensors that are fed."""
    if not any(name in fed for name in node.output):
        return node
    copy = Message("Node", node.encode())
    copy.output = [f"{name}/computed" if name in fed else name for name in node.output]
    return copy


def describe_misfit(name: str, node: Node, array: Array, wrong: Array, limit: float) -> str:
    """Return a message that names a tensor's first wrong element and counts its wrong elements."""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(map(str, index))
    count = int(wrong.sum())
    others = f", and {count - 1} of {array.size} more" if count > 1 else ""
    label = f" {node.name}" if node.name else ""
    return (
        f"--range {limit:.9g}: tensor {name} of {node.operator}{label} holds "
        f"{array[index]:.9g} at [{place}]{others}"
    )
