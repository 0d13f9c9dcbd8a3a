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

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.onnx_file.fields import Message
from lar.engines.onnx_file.operators import FACTS

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
    """Return the function that computes a node, None if lar and ONNX have no such function."""
    own = OWN.get((node.domain, node.op_type))
    return own or reference_of(onnx.NodeProto.FromString(node.encode()), opset)


def reference_of(node: Any, opset: int) -> Function | None:
    """Return ONNX's reference implementation of a node, None if it has none."""
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


# Which operators are without truth, and why: they have no one right result, or few models have
# them and ONNX's implementation is wrong.


class Rule(NamedTuple):
    """When operators have no truth, and why."""

    types: tuple[str, ...]
    why: str
    holds: Callable[[Call], Any] = lambda call: True


def trains(call: Call) -> Any:
    if call.type == "Dropout":
        return (flag := call.take(3)[2]) is not None and flag.item()
    # Before opset 7 it trained by default.
    return call.get("training_mode") or (call.opset < 7 and not call.get("is_test"))


def lacks_scores(call: Call) -> bool:
    """Return whether a classifier has, or may have, fewer scores than classes."""
    labels = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    classes = max(len(call.get(name, ())) for name in labels)
    if call.type == "LinearClassifier":
        return len(call.get("intercepts", ())) < classes
    leaves = {*zip(call.get("class_treeids"), call.get("class_nodeids"), strict=True)}
    return classes < 3 or len(call.get("class_ids")) < classes * len(leaves)


def reduces_nothing(call: Call) -> bool:
    axes = call.take(2)[1]
    return bool(call.get("noop_with_empty_axes") and (axes is None or not axes.size))


# Values of attributes that few models have, and that no implementation here computes right.
RARE: Mapping[str, tuple[Any, ...]] = {
    "channels_last": (1,),
    "coordinate_transformation_mode": ("half_pixel_symmetric", "tf_crop_and_resize"),
    "keep_aspect_ratio_policy": ("not_larger", "not_smaller"),
    "layout": (1,),
    "post_transform": ("PROBIT",),
    "spatial": (0,),
}


UNUSUAL = "lar does not compute this unusual form of it"
COMPOSED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")

RULES = (
    Rule((*FACTS.random,), "it draws random numbers"),
    Rule(("Dropout", "BatchNormalization"), "it trains", trains),
    Rule(("LinearClassifier", "TreeEnsembleClassifier"), "a class may lack a score", lacks_scores),
    Rule(COMPOSED, "the standard's versions differ in what it is over no axes", reduces_nothing),
    Rule(("ReduceMean",), "it is a mean of nothing", lambda call: not call.inputs[0].size),
    Rule(("BitCast",), "the bits of a floating-point number depend on its type"),
    Rule(("QGemm",), UNUSUAL, lambda call: call.get("alpha", 1) != 1),
    Rule(("ReduceSumSquare",), UNUSUAL, lambda call: call.inputs[0].dtype.kind != "f"),
    Rule(("Scan",), UNUSUAL, lambda call: call.opset < 9),
    Rule(("SequenceMap",), UNUSUAL),
    Rule(("Unique",), UNUSUAL, lambda call: not call.get("sorted", 1)),
)


def check_truth(call: Call) -> None:
    """Check that an operator has one right result, and that it is known here.

    Raises:
        NoTruthHere: it has none, or lar does not know it.
    """
    rules = (each for each in RULES if call.type in each.types and each.holds(call))
    rule = next(rules, None)
    if rule or any(value in RARE.get(name, ()) for name, value in call.attributes.items()):
        raise NoTruthHere(rule.why if rule else UNUSUAL)
