"""What computes an operator: a function of lar's own, or ONNX's reference implementation of it.

A function of lar's own takes a `Call`, and returns one value or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper
from onnx.reference.ops import aionnx_preview_training, aionnxml, load_op

from lar.engines.onnxruntime.model_fields import Node

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]
Opsets = Mapping[str, int]
# Takes a node and what it gave: its results, in their order.
Visit = Callable[[Node, Sequence[Any]], object]

ONNX_RUNTIME = "com.microsoft"
LEARNING = "ai.onnx.ml"
LOADERS: Mapping[str, Function] = {
    "": load_op,
    LEARNING: aionnxml.load_op,
    "ai.onnx.preview.training": aionnx_preview_training.load_op,
}
# Types of numbers that are float64 here, by the names of their NumPy types.
WIDENED = frozenset({"float16", "float32", "bfloat16"})
# What an operator did before an opset that gave it an attribute for it.
BEFORE_ATTRIBUTES = {"RoiAlign": (16, "coordinate_transformation_mode", "output_half_pixel")}


class Call(NamedTuple):
    """An operator with its inputs (None for one that is left out) and the attributes that it was
    given; `opset` is that of its domain, `outputs` how many there are."""

    type: str
    opset: int
    inputs: Sequence[Any]
    attributes: Mapping[str, Any]
    outputs: int = 1

    def take(self, count: int) -> list[Any]:
        """Return the inputs, as many as there can be."""
        return [*self.inputs, *[None] * (count - len(self.inputs))]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)


class NoTruth(NamedTuple):
    """A value that cannot be computed: the operator that fails, and why."""

    operator: str
    says: str
    tensor: str = ""  # what it would give

    def why(self, name: str) -> str:
        """Return why a tensor has no truth."""
        if name != self.tensor:
            return f"computed from {self.tensor}, which has no truth"
        return f"no truth for {self.operator}" + (f": {self.says}" if self.says else "")


class NoTruthHere(Exception):
    """An operator that has no one right result; the message says why."""


OWN: dict[tuple[str, str], Callable[[Call], Any]] = {}


def implements(*types: str, domains: Sequence[str] = ("",)) -> Callable[[Function], Function]:
    """Make a function what computes operators of these types."""

    def register(function: Function) -> Function:
        OWN.update({(domain, each): function for domain in domains for each in types})
        return function

    return register


def implementation_of(node: Any, opsets: Opsets) -> Function | None:
    """Return what computes a node from its inputs, None if nothing here does."""
    own = OWN.get((node.domain, node.op_type))
    if own is None:
        return reference_of(node, opsets)
    attributes = {each.name: value_of(each) for each in node.attribute}
    opset, count = opsets.get(node.domain, 0), len(node.output)
    return lambda *inputs: own(Call(node.op_type, opset, inputs, attributes, count))


def reference_of(node: Any, opsets: Opsets) -> Function | None:
    """Return ONNX's reference implementation of a node, None if there is none."""
    opset = opsets.get(node.domain, 0)
    if node.domain not in LOADERS or not opset:
        return None
    try:
        kind = LOADERS[node.domain](node.domain, node.op_type, opset)
    except (NotImplementedError, RuntimeError, AssertionError, onnx.defs.SchemaError):
        return None  # it is a function of other operators, or unknown
    parameters = {"log": no_log, "opsets": dict(opsets), "verbose": 0, "new_ops": {}}
    operator = kind(with_defaults(node, opset), parameters)
    for name, value in [*vars(operator).items()]:
        setattr(operator, name, exact(value))
    return lambda *inputs: operator.run(*inputs)


def no_log(*_: object) -> None:
    """Take the lines that ONNX's implementations log."""


def exact(value: Any) -> Any:
    """Return attributes that are float32 as float64."""
    if isinstance(value, list):
        return [exact(each) for each in value]
    return np.float64(value) if isinstance(value, np.float32) else value


def with_defaults(node: Any, opset: int) -> Any:
    """Return a node with the defaults that its attributes have in an opset; ONNX's implementations
    know those of the newest alone."""
    old = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
    new = onnx.defs.get_schema(node.op_type, domain=node.domain).attributes
    given = {each.name for each in node.attribute}
    complete = onnx.NodeProto.FromString(node.SerializeToString())
    for name in sorted((old.keys() & new.keys()) - given):
        if old[name].default_value.type and old[name].default_value != new[name].default_value:
            complete.attribute.append(old[name].default_value)
    since, name, value = BEFORE_ATTRIBUTES.get(node.op_type, (0, "", ""))
    if opset < since:
        complete.attribute.append(helper.make_attribute(name, value))
    return complete


def value_of(attribute: Any) -> Any:
    """Return the value of an attribute, texts as such."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [each.decode() for each in value]
    return [*value] if hasattr(value, "extend") else value


def compute(operator: str, *inputs: Any, opset: int = 18, **attributes: Any) -> Any:
    """Compute an operator of ONNX's own."""
    own = OWN.get(("", operator))
    if own is not None:
        return own(Call(operator, opset, inputs, attributes))
    return compute_as_onnx(operator, *inputs, opset=opset, **attributes)


def compute_as_onnx(
    operator: str, *inputs: Any, opset: int, outputs: int = 1, domain: str = "", **given: Any
) -> Any:
    """Compute an operator by its reference implementation.

    Raises:
        NoTruthHere: there is none.
    """
    names = ["" if each is None else f"input{place}" for place, each in enumerate(inputs)]
    results = [f"output{place}" for place in range(outputs)]
    node = helper.make_node(operator, names, results, domain=domain, **given)
    function = reference_of(node, {domain: opset})
    if function is None:
        raise NoTruthHere("")
    found = function(*inputs)
    return found[0] if outputs == 1 else found


def real(array: Any) -> Array:
    """Return numbers as float64."""
    return np.asarray(array).astype(np.float64)


def widened(value: Any) -> Any:
    """Return floating-point numbers as float64, whatever else as it is."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if isinstance(value, dict):
        return {key: widened(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return real(value) if value.dtype.name in WIDENED else np.asarray(value)
    return value


def graphs_of(node: Any) -> Iterator[Any]:
    """Yield the graphs that a node has as attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
