"""Which operators are without truth, and why: they have no one right result, or few models have
them and ONNX's implementation is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.onnx_file.operators import FACTS
from lar.engines.reference.implementations import Call


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
