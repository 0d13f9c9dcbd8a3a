"""ONNX's own reference evaluator, in float64, with each tensor dropped after its last use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError

from lar.engines.reference.operators import OPERATORS, WIDENED
from lar.errors import first_line

Array = np.ndarray[Any, np.dtype[Any]]

# Takes a node and what it gave: its results, in their order.
Visit = Callable[[Any, Sequence[Any]], object]


class MissingOperator(Exception):
    """An operator that the evaluator does not have."""


class OperatorFailed(Exception):
    """An operator that cannot be computed from its inputs; `says` is the evaluator's reason."""

    def __init__(self, operator: str, says: str) -> None:
        super().__init__(f"{operator}: {says}")
        self.operator = operator
        self.says = says


class Evaluator(ReferenceEvaluator):  # type: ignore[misc]
    """The evaluator of a model, or of a function or a branch within one."""

    rt_inits_: dict[str, Any]

    def __init__(
        self, proto: Any, *arguments: Any, new_ops: Sequence[Any] | None = None, **rest: Any
    ) -> None:
        """Find the implementation of each operator.

        Raises:
            MissingOperator: there is none.
        """
        super().__init__(proto, *arguments, new_ops=[*(new_ops or ()), *OPERATORS], **rest)
        self.rt_inits_ = {name: widened(value) for name, value in self.rt_inits_.items()}
        kept = {*self.output_names, ""}
        self.spent = [*names_after_last_use([node.onnx_node for node in self.rt_nodes_], kept)]

    def _load_impl(self, node: Any, input_types: Any = None) -> Any:
        try:
            return super()._load_impl(node, input_types)
        except RuntimeContextError:
            raise  # what it computes is known when its inputs are
        except (NotImplementedError, RuntimeError, onnx.defs.SchemaError) as error:
            version = self.opsets.get(node.domain, "unknown")
            domain = f"{node.domain}." if node.domain else ""
            raise MissingOperator(f"{domain}{node.op_type} of opset {version}") from error

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        *rest: Any,
        visit: Visit | None = None,
        **more: Any,
    ) -> list[Any]:
        """Compute the outputs; `visit` is given what each operator gives, as soon as it is known.

        Raises:
            OperatorFailed: an operator does not take its inputs.
        """
        values: dict[str, Any] = {"": None, **self.rt_inits_, **feed_inputs}
        for node, spent in zip(self.rt_nodes_, self.spent, strict=True):
            found = [widened(value) for value in compute_node(node, values, attributes)]
            values.update(zip(node.output, found, strict=False))
            if visit is not None:
                visit(node.onnx_node, found)
            del found
            for name in spent:
                values.pop(name, None)
        return [values[name] for name in output_names or self.output_names]


def compute_node(
    node: Any, values: Mapping[str, Any], attributes: Mapping[str, Any] | None
) -> Sequence[Any]:
    """Compute one operator.

    Raises:
        OperatorFailed: it does not take its inputs.
    """
    taken = [values[name] for name in node.input]
    further: dict[str, Any] = {}
    if node.has_linked_attribute and attributes:
        further["linked_attributes"] = attributes
    if node.need_context():
        further["context"] = values
    try:
        with np.errstate(all="ignore"):  # NaN and infinities are results like others
            results: Sequence[Any] = node.run(*taken, **further)
    except (OperatorFailed, MissingOperator, MemoryError):
        raise
    except Exception as error:  # the evaluator has no one kind for these
        name = f"{node.op_type} {node.onnx_node.name or node.output[0]}"
        shapes = ", ".join(str(np.shape(each)) for each in taken if each is not None)
        reason = error.__cause__ or error
        raise OperatorFailed(f"{name} with {shapes or 'no input'}", first_line(reason)) from error
    return results


def widened(value: Any) -> Any:
    """Return floating-point numbers as float64, whatever else as it is."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in WIDENED:
        return np.asarray(value).astype(np.float64)
    return value


def names_after_last_use(nodes: Sequence[Any], kept: set[str]) -> Iterator[list[str]]:
    """Yield for each node the tensors that no node after it takes, without those to be kept."""
    last: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in (*node.output, *names_within(node)):
            last[name] = place
    spent: list[list[str]] = [[] for _ in nodes]
    for name, place in last.items():
        if name not in kept:
            spent[place].append(name)
    yield from spent


def names_within(node: Any) -> Iterator[str]:
    """Yield the tensors that a node takes, those that its branches take among them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from names_within(inner)
            # A branch may hand out a tensor from around it.
            yield from (output.name for output in graph.output)


def take_weights(graph: Any, folder: Path) -> tuple[dict[str, Array], dict[str, np.dtype[Any]]]:
    """Take the weights out of a graph, in float64: the file's own form of them is let go.

    Those of its branches stay there, if they do not lie in files of their own. The types that they
    have in the file are returned beside them.
    """
    weights: dict[str, Array] = {}
    types: dict[str, np.dtype[Any]] = {}
    while graph.initializer:
        tensor = graph.initializer.pop()
        read_external(tensor, folder)
        array = numpy_helper.to_array(tensor)
        weights[tensor.name], types[tensor.name] = widened(array), array.dtype
    for inner in branches_of(graph):
        for tensor in inner.initializer:
            read_external(tensor, folder)
    return weights, types


def without_spare_memory(model: Any) -> Any:
    """Return a model in memory of its own: what was taken out of a message stays with it."""
    return onnx.load_model_from_string(model.SerializeToString())


def rename_domain(model: Any) -> None:
    """Call ONNX's own domain by its empty name alone; `ai.onnx` is another name of it."""
    for each in model.opset_import:
        each.domain = "" if each.domain == "ai.onnx" else each.domain
    for graph in (model.graph, *branches_of(model.graph), *model.functions):
        for node in graph.node:
            node.domain = "" if node.domain == "ai.onnx" else node.domain


def branches_of(graph: Any) -> Iterator[Any]:
    """Yield the graphs within the nodes of a graph."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield inner
                yield from branches_of(inner)


def read_external(tensor: Any, folder: Path) -> None:
    """Read the data of a tensor that lies in a file beside the model."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with open(folder / entries["location"], "rb") as file:
        file.seek(int(entries.get("offset", 0)))
        tensor.raw_data = file.read(int(entries["length"]) if "length" in entries else -1)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def widen_types(graph: Any) -> None:
    """Have a graph's inputs and outputs be float64, and forget the types of what is between."""
    wide = {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in wide:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del graph.value_info[:]


def parameters_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node that are numbers, texts or lists of them."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            found[attribute.name] = value.decode(errors="replace")
        elif isinstance(value, (int, float)):
            found[attribute.name] = value
        elif attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            found[attribute.name] = list(value)
    return found
