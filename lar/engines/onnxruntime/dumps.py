"""Dumps of a session: what each operator of the optimised graph gives, as text or as tensors.

The tensors come from sessions of their own, before anything is timed; the inputs are the same in
all iterations, and so are the tensors. They have the names that MegEngine would give them, and are
numbered as there: an operator, then its outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

# The optimised graph of a session: the values of all its tensors, and parts of it run alone.
#
# Outputs added to the original model would keep the engine from fusing operators: another graph
# would run. The graph is saved instead, and all that is run here is made of it and runs as it
# stands, without optimisation. What is inside control flow is computed by hand
# (`onnx_file.control_flow`).


# A session gives a part of the tensors, so that no more than that part is in memory at once.
PARTS = 4
LEAST_NODES = 8

FIRST_SCAN = 9  # the opset since which a Scan has no axis of items


class Graph(NumberedGraph):
    """The optimised graph of a driver; `fed` are the names of what it is fed with."""

    def __init__(self, driver: SessionDriver, saved: SavedModel, fed: Iterable[str] = ()) -> None:
        self.driver, self.saved = driver, saved
        # Without the weights that stand in a file.
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
        """Return a tensor of the blocked layout in plain axes, or several that a loop has
        stacked."""
        if array.ndim < 4:
            return array
        blocks = split_blocks(array.reshape(-1, *array.shape[-3:]), self.block)
        return to_plain(blocks, f"nchw{self.block}c").reshape(array.shape)

    def open_alone(
        self, nodes: Sequence[Message], types: Mapping[str, Message], outputs: Iterable[str]
    ) -> Any:
        """Return a session of some nodes, which is fed with tensors of these types."""
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
        """Yield all tensors in the graph's order, each with what a dump has of it: nothing if the
        engine did not compute it, in a branch that was not taken."""
        steps = [*onnx_bodies.bodies_in(Body("", self.model.graph))]
        known = self.makers.keys() | self.driver.fed.keys()
        fixed = [name for name in self.outputs if name not in known]
        count = max(-(-len(steps) // PARTS), LEAST_NODES)
        for begin in range(0, max(1, len(steps)), count):
            yield from self.values_of(steps[begin : begin + count], [] if begin else fixed)

    def values_of(
        self, steps: Sequence[tuple[Message, list[Body]]], fixed: Sequence[str]
    ) -> Iterator[tuple[str, list[Part | Unheld]]]:
        """Yield what a dump has of `fixed` tensors and of what some nodes give."""
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
        """Return tensors outside bodies; they are the engine's, which makes no copies of them."""
        model = Message("Model", self.saved.content)
        missing = names.difference(self.outputs)
        model.graph.output += [Message("Value", name=name) for name in missing]
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
        """Yield what a dump has of tensors in the bodies of a node."""
        shown: list[tuple[str, list[Part | Unheld]]] = []

        def show(node: Node, results: Sequence[Any]) -> None:
            pairs = zip(node.outputs, results, strict=True)
            shown.extend((name, self.parts_in(name, value)) for name, value in pairs if name)

        paths = tuple(body.path for body in bodies)
        inside = [name for name in self.makers if name.startswith(paths)]
        try:
            run_bodies(self, node, [SessionBody(self, it) for it in bodies], values, show)
        except Exception as error:  # the engine has no one kind for these
            says = f"inside a body, which cannot give it: {first_line(error)}"
            shown = [(name, [Unheld(name, says)]) for name in inside]
        computed = {name for name, _ in shown}
        yield from ((name, []) for name in inside if name not in computed)
        yield from shown

    def parts_in(self, name: str, value: Any) -> list[Part | Unheld]:
        """Return what a dump has of a value of the engine, or of those of all iterations."""
        if name in self.python_values:
            return [*parts_of_value(name, self.python_values.pop(name))]
        if isinstance(value, EachRound):
            return [*parts_of_value(name, EachRound(read_tensor(name, each) for each in value))]
        return [*parts_of_value(name, read_tensor(name, value))]


class SessionBody:
    """A body that ONNX Runtime runs, in a model that gives all its tensors."""

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
    """Show the operators in the bodies of a node, if it has some; its own results are known, and
    values from around the bodies are among `values`."""
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
        raise LarError("a Scan of items, as before opset 9, is not computed by hand")
    control_flow.run_rounds(
        node.op_type, taken, fields.attributes_of(node), bodies[0], values, visit
    )


# Single tensors, computed by models of the nodes before them.
#
# The nodes are those that the engine runs, fused and in blocks of channels; such a model runs as it
# stands, without optimisation. Nodes of bodies stand in it beside the others. A tensor that is
# computed in a loop comes from a run for each iteration.


class SessionIsolation(Isolation):
    """The optimised model of a driver, from which models of single nodes are made."""

    def __init__(self, driver: SessionDriver) -> None:
        if FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings):
            driver.load()  # then it has a saved graph
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
        """Return whether a tensor is inside a loop: all its iterations are on its first axis."""
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
            raise LarError("what it takes is not computed in the same iterations")
        types = {name: ort_values.tensor_type(array.dtype.name) for name, array in fed.items()}
        session = self.graph.open_alone(nodes, types, [value])
        found = []
        for at in range(count):
            # The values of an iteration, and those of the iteration of a loop around it.
            now = {name: fed[name][at * size // count] for name, size in looped.items()}
            given = {name: self.as_run(name, array) for name, array in (fed | now).items()}
            found.append(self.as_dumped(output, parts_of(value, session.run([value], given)[0])))
        return np.stack(found) if self.is_looped(output) else found[0]

    def as_run(self, name: str, array: Array) -> Array:
        """Return a tensor of a dump, or an iteration's part of it, as the engine has it."""
        if name in self.blocked and array.ndim == 5:
            return join_blocks(array)
        if name in self.blocked and self.is_looped(name) and array.ndim == 4:
            block = self.graph.block
            shape = split_blocks(array, block).shape
            return join_blocks(to_blocked(array, f"nchw{block}c", shape))
        return np.asarray(array, order="C")

    def as_dumped(self, name: str, parts: Iterable[Part | Unheld]) -> Array:
        """Return one part of a result of the engine, or of an iteration, as a dump has it.

        Raises:
            LarError: no file holds it.
        """
        part = next((each for each in parts if each.name == name), None)
        if not isinstance(part, Part):
            raise LarError(part.reason if part else "the engine gives no such part of it")
        if name not in self.blocked or part.array.ndim != 4:
            return part.array
        if self.is_looped(name):
            return self.graph.in_plain_axes(part.array)
        return split_blocks(part.array, self.graph.block)

    def nodes_before(self, output: str, values: Mapping[str, Array]) -> list[Message]:
        """Return the nodes between values and what is computed from them, in the graph's order.

        Raises:
            LarError: they take what is not among the values.
        """
        open_names, seen = [output], {output}
        while open_names:
            name = open_names.pop()
            maker = self.makers.get(name)
            if maker is None or maker.node.operator == onnx_bodies.BODY_INPUT:
                if name == output:
                    raise LarError("no operator of the model gives this tensor")
                raise LarError(f"it takes {name} too, whose value is not known")
            known = (values, self.graph.weights, self.graph.sparse, seen)
            taken = names_taken(maker.message)
            added = [each for each in taken if not any(each in names for names in known)]
            seen.update(added)
            open_names += added
        places = sorted({self.places[name] for name in seen})
        return [self.graph.operators[place].message for place in places]


# Dumps of a session: what each operator of the optimised graph gives, as text or as tensors


def save_source(driver: SessionDriver, _: object) -> None:
    """Save the optimised graph that will be dumped.

    It is done before the driver loads its own session, since saving takes more memory than
    anything after it. One that loads a cache has a saved graph then.
    """
    cached = FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings)
    if driver.runner == 0 and not cached and driver.dump_source is None:
        driver.dump_source = save_to_work_folder(driver)


def dump_tensors(driver: SessionDriver, _: object) -> None:
    """Write all tensors of a fed driver, and what is known of operators."""
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
    """Have the outputs of each iteration written."""
    write_outputs(driver, number_outputs(it.name for it in driver.session.get_outputs()))


class FedGraph(Graph):
    """The optimised graph of a driver that has been fed."""

    def __init__(self, driver: SessionDriver) -> None:
        saved = driver.dump_source or driver.saved or save_to_work_folder(driver)
        super().__init__(driver, saved, driver.fed)
        known = self.wanted & self.weights.keys()
        self.factors = {name: array_of(self.weights[name], saved.folder) for name in known}

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator; of a body, what it holds."""
        return [
            parameters_of(it)
            | {each.name: describe_body(each.g) for each in it.attribute if "g" in each}
            for it in (operator.message for operator in self.operators)
        ]

    def filters(self) -> Iterator[Dumped]:
        """Yield the weights that operators take, one at a time, in plain axes or in blocks."""
        in_blocks = dict(self.filters_in_blocks())
        for name, each in self.weights.items():
            if self.holds_weight(name, type_name(each.data_type)):
                array, layout = array_of(each, self.saved.folder), ""
                if array.ndim == 4 and (blocks := in_blocks.get(name)):
                    # The axes in which they are stored.
                    outputs, inputs, *sizes = array.shape
                    inner = inputs // self.block if len(blocks) > 1 else inputs
                    array = array.reshape(outputs // self.block, inner, *sizes, *blocks)
                    layout = f"OIHWC{{{','.join(map(str, blocks))}}}"
                yield self.dumped(name, (), array, layout)

    def filters_in_blocks(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the names of the filters that stand in blocks, of output channels alone, or within
        those of input channels, with the sizes of these blocks."""
        for node, known in zip(self.nodes, self.parameters, strict=True):
            if node.domain == DOMAIN and node.operator == "Conv":
                weight = self.weights.get(node.inputs[1])
                shape = tuple(weight.dims) if weight else ()
                by_channel = known.get("group", 1) > 1 and shape[1:2] == (1,)
                takes_blocks = node.inputs[0] in self.blocked and not by_channel
                yield node.inputs[1], [self.block] * (2 if takes_blocks else 1)

    def tensors(self) -> Iterator[Dumped]:
        """Yield the inputs, then all tensors, in the graph's order; of each its parts."""
        for name, given in self.driver.given.items():
            yield from self.dump_parts(name, [*parts_of(name, given)])
        for name, parts in self.values():
            yield from self.dump_parts(name, parts)


def describe_body(graph: Message) -> str:
    """Return the operators of a graph within an operator, and a hash of all that it holds."""
    operators = " ".join(node.op_type for node in graph.node)
    return f"[{operators}] {hashlib.sha256(graph.encode()).hexdigest()[:8]}"


# `--range`: every tensor that an operator gives is looked at, once, before anything is timed.
#
# The inputs are the same in all iterations, and so are the tensors. They are looked at in a session
# of their own, so that what is timed is the model as it is.


def check_each_feed(driver: SessionDriver, limit: float) -> None:
    """Check what a driver was fed, and what it is fed later.

    Raises:
        CheckFailed: as `check_range`.
    """
    check_range(driver, limit)
    driver.feed_checks.append(lambda: check_range(driver, limit))


def check_range(driver: SessionDriver, limit: float) -> None:
    """Run a driver's model on what it was fed, and check the floating-point tensors.

    Raises:
        CheckFailed: an element of one is NaN, or further from 0 than the limit.
    """
    for name, node, array in tensors_of(driver):
        # As wide as the limit: in float16 it may be infinite itself.
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        wrong = ~(np.isfinite(wide) & (np.abs(wide) <= wide.dtype.type(limit)))
        if wrong.any():
            raise CheckFailed(describe_misfit(name, node, wide, wrong, limit))


def tensors_of(driver: SessionDriver) -> Iterator[tuple[str, Node, Array]]:
    """Yield the floating-point tensors of a run in the graph's order and in the plain layout, with
    the nodes that give them.

    Integers are left out: sizes and indices may be large, and quantised ones mean other numbers.
    """
    graph = FedGraph(driver)
    for whole, parts in graph.values():
        for part in parts:
            if whole in graph.makers and isinstance(part, Part) and part.array.dtype.kind == "f":
                array = part.array
                if whole in graph.blocked:
                    array = graph.in_plain_axes(array)
                yield part.name, graph.makers[whole].node, array


def describe_misfit(name: str, node: Node, array: Array, wrong: Array, limit: float) -> str:
    """Say which element of a tensor is wrong: the first one."""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(map(str, index))
    count = int(wrong.sum())
    others = f", and {count - 1} of {array.size} more" if count > 1 else ""
    label = f" {node.name}" if node.name else ""
    return (
        f"--range {limit:.9g}: tensor {name} of {node.operator}{label} holds "
        f"{array[index]:.9g} at [{place}]{others}"
    )
