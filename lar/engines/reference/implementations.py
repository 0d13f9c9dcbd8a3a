"""The functions that compute operators: lar's own, or ONNX's reference implementations.

Both take a `Call`, and return one value or a tuple of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper
from onnx.reference.ops import aionnxml, load_op

from lar.engines.onnx_file.fields import Message

Array = np.ndarray[Any, np.dtype[Any]]

ONNX_RUNTIME = "com.microsoft"
LEARNING = "ai.onnx.ml"
LOADERS: Mapping[str, Callable[..., Any]] = {"": load_op, LEARNING: aionnxml.load_op}
# Types of numbers that are float64 here, by the names of their NumPy types.
WIDENED = frozenset({"float16", "float32", "bfloat16"})


class Call(NamedTuple):
    """An operator with its inputs (None for one that is left out) and the attributes that it was
    given; `opset` is that of its domain, `outputs` how many there are."""

    type: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    opset: int = 13
    outputs: int = 1

    def take(self, count: int) -> list[Any]:
        """Return the inputs, as many as there can be."""
        return [*self.inputs, *[None] * (count - len(self.inputs))]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)


Function = Callable[[Call], Any]
OWN: dict[tuple[str, str], Function] = {}


def implements(*types: str, domains: Sequence[str] = ("",)) -> Callable[[Function], Function]:
    """Make a function compute operators of these types."""

    def register(function: Function) -> Function:
        OWN.update({(domain, each): function for domain in domains for each in types})
        return function

    return register


def implementation_of(node: Message, opset: int) -> Function | None:
    """Return the function that computes a node, None if there is none here."""
    own = OWN.get((node.domain, node.op_type))
    return own or reference_of(onnx.NodeProto.FromString(node.encode()), opset)


def reference_of(node: Any, opset: int) -> Function | None:
    """Return ONNX's reference implementation of a node, None if there is none."""
    if node.domain not in LOADERS or not opset:
        return None
    try:
        kind = LOADERS[node.domain](node.domain, node.op_type, opset)
    except (NotImplementedError, RuntimeError, AssertionError, onnx.defs.SchemaError):
        return None  # it is a function of other operators, or unknown
    log, opsets = logging.getLogger(__name__).debug, {node.domain: opset}
    parameters = {"log": log, "opsets": opsets, "verbose": 0, "new_ops": {}}
    operator = kind(node, parameters)
    for name, value in [*vars(operator).items()]:
        setattr(operator, name, exact(value))
    return lambda call: operator.run(*call.inputs)


def exact(value: Any) -> Any:
    """Return attributes that are float32 as float64."""
    if isinstance(value, list):
        return [exact(each) for each in value]
    return np.float64(value) if isinstance(value, np.float32) else value


def compute(call: Call) -> Any:
    """Return what an operator of ONNX's own gives, the first of several results."""
    found = OWN.get(("", call.type), compute_as_onnx)(call)
    return found[0] if isinstance(found, tuple) else found


def compute_as_onnx(call: Call) -> Any:
    """Compute an operator of ONNX's own by its reference implementation."""
    names = ["" if each is None else f"input{place}" for place, each in enumerate(call.inputs)]
    results = [f"output{place}" for place in range(call.outputs)]
    node = helper.make_node(call.type, names, results, **call.attributes)
    function = reference_of(node, call.opset)
    assert function is not None
    return function(call)


def real(array: Any) -> Array:
    """Return numbers as float64."""
    return np.asarray(array).astype(np.float64)


def widened(value: Any) -> Any:
    """Return floating-point numbers as float64, anything else as it is."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if isinstance(value, dict):
        return {key: widened(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return real(value) if value.dtype.name in WIDENED else np.asarray(value)
    return value
