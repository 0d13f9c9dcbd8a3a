"""Tensors inside the bodies of If, Loop and Scan as outputs of the model.

From opset 13 on, control flow takes sequences: one for each tensor goes through all nodes around
it, and grows by an item whenever the tensor is computed, whatever its shape. Into a Scan no
sequence goes, nor into others before opset 13: there a tensor is an output of its body, which a
loop stacks, and an empty one in the other branch of an If. What the model itself computes stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from lar.engines.onnx_file.bodies import (
    BODY_INPUT,
    CONTROL_FLOW,
    LOOPS,
    Body,
    bodies_in,
    graphs_in,
    operators_in,
    takes_sequences,
)
from lar.engines.onnxruntime.values import DTYPES

# Of a loop that gives what it is fed with, nobody knows the shape, whatever the type.
ANY_SHAPE = helper.make_graph(
    [],
    "any shape",
    [
        helper.make_tensor_value_info("count", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes on", TensorProto.BOOL, []),
        ValueInfoProto(name="carried"),
    ],
    [ValueInfoProto(name="goes on"), ValueInfoProto(name="carried")],
)
# The types of tensors that sequences take, as ONNX Runtime calls them and as a file has them.
ELEMENTS = {
    "tensor(string)": TensorProto.STRING,
    **{name: helper.np_dtype_to_tensor_dtype(np.dtype(each)) for name, each in DTYPES.items()},
}


class BodyOutputs:
    """A model that gives tensors of its bodies too; `types` has their element types by the names
    that a dump has for them. `outputs` are those names, by the names of the new outputs. Of what
    loops stacked, `stacks` counts them by name; `branched` has an empty one for each iteration that
    took another branch."""

    def __init__(self, model: Any, types: Mapping[str, int]) -> None:
        self.types = types
        self.stacks, self.branched = Counter[str](), set[str]()
        self._count = 0
        self.model = ModelProto()
        self.model.CopyFrom(model)
        model = self.model
        whole = Body("", model.graph)
        if takes_sequences(model):
            empty = {name: self.new_name() for name in types}
            found = self.fill_sequences(whole, empty)
            for name, sequence in empty.items():
                node = helper.make_node("SequenceEmpty", [], [sequence], dtype=types[name])
                model.graph.node.insert(0, node)
        else:
            found = self.lift_tensors(whole)
        add_outputs(model.graph, found.values())
        self.outputs = {output: name for name, output in found.items()}

    def new_name(self) -> str:
        self._count += 1
        return f"of body {self._count}"

    def add_node(self, graph: Any, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node behind all others; return the name of what it gives."""
        name = self.new_name()
        graph.node.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def add_empty(self, graph: Any, name: str) -> str:
        """Add an array without elements, of the type of a tensor."""
        value = TensorProto(data_type=self.types[name], dims=[0])
        return self.add_node(graph, "Constant", [], value=value)

    def add_number(self, graph: Any, number: int) -> str:
        """Add a single integer."""
        return self.add_node(graph, "Constant", [], value_int=number)

    def wanted_in(self, body: Body) -> dict[str, str]:
        """Return the names of what is wanted of a graph itself, by those in a dump."""
        given = [each.name for each in body.graph.input]
        given += [name for node in body.graph.node for name in node.output]
        return {name: name for name in given if name in self.types}

    def fill_sequences(self, outer: Body, sequences: Mapping[str, str]) -> dict[str, str]:
        """Add to sequences what a graph and its bodies compute; return what they are called in the
        end, by the names of the tensors."""
        found, tensors = dict(sequences), self.wanted_in(outer)
        for node, bodies in [*bodies_in(outer)]:
            if node.op_type == "Scan" and not self.becomes_loop(node, bodies[0], outer.graph):
                tensors |= self.lift_from(node, bodies)
            elif node.op_type in CONTROL_FLOW:
                paths = tuple(body.path for body in bodies)
                inside = {name: found[name] for name in sequences if name.startswith(paths)}
                found |= self.fill_inside(node, bodies, inside)
        for name, tensor in tensors.items():
            found[name] = self.add_node(outer.graph, "SequenceInsert", [found[name], tensor])
        return found

    def becomes_loop(self, node: Any, body: Body, around: Any) -> bool:
        """Make a Loop of a Scan around control flow, for sequences go into a Loop; False for
        another one, and where results are not stacked forwards on their first axes."""
        given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        ways = chain(*(given.get(f"scan_output_{what}", ()) for what in ("axes", "directions")))
        if any(ways) or not any(bodies for _, bodies in bodies_in(body)):
            return False
        graph, count = body.graph, given["num_scan_inputs"]
        scanned, slices = [*node.input[-count:]], [*graph.input[-count:]]
        axes, backwards = (
            given.get(f"scan_input_{what}") or [0] * count for what in ("axes", "directions")
        )
        index, goes_on = self.new_name(), self.new_name()
        before, first = GraphProto(), GraphProto()
        size = self.add_node(before, "Shape", scanned[:1])
        trips = self.add_node(before, "Gather", [size, self.add_number(before, axes[0])])
        minus = self.add_node(first, "Neg", [index])
        from_end = self.add_node(first, "Sub", [minus, self.add_number(first, 1)])
        for each, source, axis, back in zip(slices, scanned, axes, backwards, strict=True):
            taken = [source, from_end if back else index]
            first.node.append(helper.make_node("Gather", taken, [each.name], axis=axis))
            graph.input.remove(each)
        insert(around.node, [*around.node].index(node), before.node)
        insert(graph.node, 0, first.node)
        kinds = ((index, TensorProto.INT64), (goes_on, TensorProto.BOOL))
        insert(graph.input, 0, [helper.make_tensor_value_info(*it, []) for it in kinds])
        insert(graph.output, 0, graph.input[1:2])
        node.op_type = "Loop"
        node.input[:] = [trips, "", *node.input[:-count]]
        for attribute in [each for each in node.attribute if each.name != "body"]:
            node.attribute.remove(attribute)
        return True

    def fill_inside(
        self, node: Any, bodies: Sequence[Body], taken: Mapping[str, str]
    ) -> dict[str, str]:
        """Have an If or a Loop add to sequences; return what its results are called."""
        results = {name: self.new_name() for name in taken}
        place = len(node.output)
        for body in bodies:
            graph, inner, end = body.graph, taken, len(body.graph.output)
            if node.op_type == "Loop":  # what it carries on comes before what it stacks
                place, end = len(graph.input) - 2, len(graph.input) - 1
                inner = {name: self.new_name() for name in taken}
                node.input.extend([""] * (2 - len(node.input)))
                node.input.extend(taken.values())
                graph.input.extend(ValueInfoProto(name=name) for name in inner.values())
            filled = self.fill_sequences(body, inner)
            stacked = [*graph.output[end:]]
            del graph.output[end:]
            for name, output in filled.items():
                if output == inner[name]:  # the other branch computes it; no Identity before 14
                    longer = [output, self.add_empty(graph, name)]
                    longer = [self.add_node(graph, "SequenceInsert", longer)]
                    output = self.add_node(graph, "SequenceErase", longer)
                add_outputs(graph, [output])
            graph.output.extend(stacked)
        node.output[place:place] = results.values()
        return results

    def lift_tensors(self, outer: Body) -> dict[str, str]:
        """Bring what is wanted of bodies into the graph around them; return its names there."""
        found = self.wanted_in(outer)
        for node, bodies in [*bodies_in(outer)]:
            if node.op_type in CONTROL_FLOW:
                found |= self.lift_from(node, bodies)
        return found

    def lift_from(self, node: Any, bodies: Sequence[Body]) -> dict[str, str]:
        """Have a node give what is wanted of its bodies; return what its results are called."""
        lifted = [self.lift_tensors(body) for body in bodies]
        results = {name: self.new_name() for name in chain(*lifted)}
        if node.op_type in LOOPS:
            self.stacks.update(results.keys())
        else:
            self.branched.update(results)
        for body, tensors in zip(bodies, lifted, strict=True):
            for name in results:
                tensor = tensors.get(name) or self.add_empty(body.graph, name)
                add_outputs(body.graph, [self.add_node(body.graph, "Identity", [tensor])])
        node.output.extend(results.values())
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.extend([0] * len(results))
        return results


def insert(items: Any, place: int, added: Sequence[Any]) -> None:
    """Insert messages into others."""
    for at, each in enumerate(added, place):
        items.insert(at, each)


def add_outputs(graph: Any, names: Iterable[str]) -> None:
    """Add outputs to a graph; the engine infers their types."""
    graph.output.extend(ValueInfoProto(name=name) for name in names)


def types_in_bodies(model: Any, load: Callable[[bytes], Any]) -> dict[str, int]:
    """Return the element types of the tensors in bodies, by the names that a dump has for them,
    without those of other types; `load` makes a session of a model.

    What a body does not state, the session says of a model that has the operators of all bodies
    side by side.
    """
    whole = Body("", model.graph)
    stated = {
        each.name: each.type
        for body in graphs_in(whole)
        for each in (*body.graph.input, *body.graph.output)
        if body.path and each.type.WhichOneof("value")
    }
    flat = flattened(model, stated)
    found = {each.name: ELEMENTS.get(each.type, 0) for each in load(flat).get_outputs()}
    found |= {name: kind.tensor_type.elem_type for name, kind in stated.items()}
    return {name: element for name, element in found.items() if element in ELEMENTS.values()}


def flattened(model: Any, stated: Mapping[str, Any]) -> bytes:
    """Return a model of all operators of a model and its bodies, each once, which is for a look at
    the types of what the bodies hold; the types that they state themselves are taken for granted.
    """
    flat, whole = ModelProto(), Body("", model.graph)
    flat.CopyFrom(model)
    graph = flat.graph
    del graph.node[:], graph.output[:]
    for body in graphs_in(whole):
        if body.path:
            graph.initializer.extend(body.graph.initializer)

    def give(name: str, kind: Any, source: str) -> None:
        """Give a tensor a type, or that of another tensor, without a shape: loops change it."""
        if kind is None:
            graph.node.append(helper.make_node("Loop", ["", "", source], [name], body=ANY_SHAPE))
            return
        graph.input.append(ValueInfoProto(name=name, type=kind))
        if kind.HasField("tensor_type"):
            graph.input[-1].type.tensor_type.ClearField("shape")

    for node, proto, body in operators_in(whole):
        if node.operator == BODY_INPUT:
            (name,), (source,) = node.outputs, node.inputs
            give(name, stated.get(name), source)
        elif node.operator in CONTROL_FLOW:
            results = node.inputs[len(node.inputs) - len(node.outputs) :]
            for name, result in zip(node.outputs, results, strict=True):
                give(name, stated.get(result), result)
        else:
            copy = graph.node.add()
            copy.CopyFrom(proto)
        if body.path:
            add_outputs(graph, (it for it in node.outputs if it and it not in stated))
    content: bytes = flat.SerializeToString()
    return content
