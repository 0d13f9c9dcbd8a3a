"""Faults inside If, Loop and Scan: the operator is named by its path, and proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from lar.records.comparison import Culprit
from tests.comparison.exported_models import (
    FLOAT,
    Change,
    Models,
    RealNetwork,
    body_of,
    compare,
    draw,
    find_node,
    model_of,
    node,
    proven,
    set_attribute,
    set_weight,
)
from tests.known import known


def branch(seed: int) -> onnx.GraphProto:
    """Both branches have nodes of the same names."""
    nodes = [
        node("MatMul", "h w", "product"),
        node("LeakyRelu", "product", "act", alpha=0.1),
        node("Mul", "act h", "gated"),
    ]
    return body_of(nodes, "gated", w=draw(8, 8, seed=seed))


BEFORE = [
    node("MatMul", "x w0", "h0"),
    node("Relu", "h0", "h"),
    node("ReduceMax", "h", "most", keepdims=0),
    node("Greater", "most limit", "yes"),
]
WEIGHTS = {"w0": draw(8, 8, seed=1), "w1": draw(8, 4, seed=2), "limit": np.float32(100)}
FEEDS = {"x": draw(3, 8)}


def make_branching() -> RealNetwork:
    choice = node("If", "yes", "chosen", then_branch=branch(3), else_branch=branch(4))
    nodes = [*BEFORE, choice, node("MatMul", "chosen w1", "y")]
    return model_of(nodes, FEEDS, {"y": FLOAT}, WEIGHTS)


def make_looping() -> RealNetwork:
    nodes = [node("Identity", "going", "on")]
    last = "v"
    for layer in range(2):
        nodes += [
            node("MatMul", f"{last} w", f"product{layer}"),
            node("LeakyRelu", f"product{layer}", f"act{layer}", alpha=0.1),
            node("Mul", f"act{layer} factor", f"scaled{layer}"),
        ]
        last = f"scaled{layer}"
    nodes += [node("Add", f"{last} h", "sum"), node("ReduceMean", "sum", "mean", keepdims=0)]
    carried = {"i": (TensorProto.INT64, []), "going": (TensorProto.BOOL, []), "v": (FLOAT, [3, 8])}
    body = body_of(
        nodes, "on sum mean", carried, w=draw(8, 8, seed=3) / 2, factor=draw(8, seed=4, spread=2)
    )
    loop = node("Loop", "trips truth h", "last means", body=body)
    weights = WEIGHTS | {"trips": np.int64(4), "truth": np.True_}
    nodes = [*BEFORE, loop, node("MatMul", "last w1", "y")]
    return model_of(nodes, FEEDS, {"y": FLOAT, "means": FLOAT}, weights)


def make_scanning() -> RealNetwork:
    """A scan of rows whose state begins as a constant."""
    nodes = [
        node("MatMul", "state w", "product"),
        node("Add", "product row", "sum"),
        node("Tanh", "sum", "next"),
        node("Mul", "next two", "twice"),
    ]
    fed = {"state": (FLOAT, [1, 8]), "row": (FLOAT, [8])}
    body = body_of(nodes, "next twice", fed, w=draw(8, 8, seed=3) / 2, two=np.float32(2))
    scan = node("Scan", "zero h", "last rows", body=body, num_scan_inputs=1)
    nodes = [*BEFORE[:2], scan, node("MatMul", "rows w1", "y")]
    weights = WEIGHTS | {"zero": np.zeros((1, 8), np.float32)}
    return model_of(nodes, FEEDS, {"y": FLOAT, "last": FLOAT}, weights)


def set_input(name: str, place: int, tensor: str) -> Change:
    """Return a change of what the first operator of a name takes."""

    def change(model: onnx.ModelProto) -> None:
        find_node(model, name).input[place] = tensor

    return change


def swap_branches(model: onnx.ModelProto) -> None:
    for each in find_node(model, "If").attribute:
        each.name = {"then_branch": "else_branch", "else_branch": "then_branch"}[each.name]


BRANCHING: dict[str, tuple[Change, str]] = {
    "attribute": (set_attribute("act", alpha=0.3), "chosen/else/act"),
    "wiring": (set_input("gated", 1, "h0"), "chosen/else/gated"),
    "condition": (set_weight("limit", np.zeros_like), "yes"),
    "branches": (swap_branches, "chosen/else/product"),
}
LOOPING: dict[str, tuple[Change, str]] = {
    "weight": (set_weight("w", lambda it: (it * 1.2).astype(it.dtype)), "last/body/product0"),
    "attribute": (set_attribute("act1", alpha=0.3), "last/body/act1"),
    "wiring": (set_input("sum", 1, "h0"), "last/body/sum"),
    "trips": (set_weight("trips", lambda _: np.int64(3)), "last"),
    "start": (set_input("last", 2, "h0"), "last"),
}


SCANNING: dict[str, tuple[Change, str]] = {
    "weight": (set_weight("two", lambda it: it * np.float32(1.3)), "last/body/twice"),
    "direction": (set_attribute("last", scan_input_directions=[1]), "last"),
}


def names(found: Iterable[Culprit]) -> list[str]:
    """Return the names of the operators at fault, without the engine's numbers."""
    return [it.name.partition("[")[0] for each in found for it in each.actual or each.expected]


@pytest.mark.parametrize(
    ("make", "change", "culprit"),
    [
        pytest.param(make, *each, id=f"{make.__name__[5:]} {fault}")
        for make, faults in (
            (make_branching, BRANCHING),
            (make_looping, LOOPING),
            (make_scanning, SCANNING),
        )
        for fault, each in faults.items()
    ],
)
def test_a_fault_inside_a_body_is_named(
    models: Models, make: Callable[[], RealNetwork], change: Change, culprit: str
) -> None:
    found = compare(models.write(make(), change), models.write(make()))
    assert names(proven(found)) == names(found.culprits) == [culprit]


@pytest.mark.parametrize("make", [make_branching, make_looping, make_scanning])
def test_bodies_have_a_truth(models: Models, make: Callable[[], RealNetwork]) -> None:
    model = models.write(make())
    healthy = compare(model, model, truth=True)
    assert healthy.same
    assert (known(healthy.truth).actual.finding, healthy.notes) == ("same", ())
    judged = {it.actual.name for it in healthy.tensors if it.truth and it.truth.actual}
    inside = {it.actual.name for it in healthy.tensors if "/" in it.actual.name and not it.constant}
    assert inside
    assert inside <= judged


def test_a_fault_in_what_grows_from_iteration_to_iteration_is_named(models: Models) -> None:
    nodes = [
        node("Identity", "going", "on"),
        node("MatMul", "v w", "product"),
        node("LeakyRelu", "product", "act", alpha=0.1),
        node("Concat", "act h", "longer", axis=0),
    ]
    carried: dict[str, tuple[int, list[int] | None]]
    carried = {"i": (TensorProto.INT64, []), "going": (TensorProto.BOOL, []), "v": (FLOAT, None)}
    body = body_of(nodes, "on longer", carried, w=draw(8, 8, seed=3) / 2)
    nodes = [*BEFORE, node("Loop", "trips truth h", "last", body=body)]
    weights = WEIGHTS | {"trips": np.int64(4), "truth": np.True_}
    network = model_of([*nodes, node("MatMul", "last w1", "y")], FEEDS, {"y": FLOAT}, weights)
    actual = models.write(network, set_attribute("act", alpha=0.3))
    found = compare(actual, models.write(network), truth=True)
    assert names(proven(found)) == names(found.culprits) == ["last/body/act"]
    assert names(known(found.truth).actual.culprits) == ["last/body/act"]


def test_isolated_operators_are_named_without_what_they_are_inside_of(models: Models) -> None:
    change, culprit = LOOPING["attribute"]
    actual, expected = models.write(make_looping(), change), models.write(make_looping())
    assert names(compare(actual, expected, isolate=True).culprits) == [culprit]


def test_what_is_fused_in_a_body_has_the_names_of_the_model(models: Models) -> None:
    layers = [node("MatMul", "h w", "product"), node("Add", "product bias", "sum")]
    layers.append(node("Relu", "sum", "act"))

    def make() -> RealNetwork:
        inside = [
            body_of(layers, "act", w=draw(8, 8, seed=seed), bias=draw(8, seed=seed))
            for seed in (3, 4)
        ]
        choice = node("If", "yes", "chosen", then_branch=inside[0], else_branch=inside[1])
        nodes = [*BEFORE, choice, node("MatMul", "chosen w1", "y")]
        return model_of(nodes, FEEDS, {"y": FLOAT}, WEIGHTS)

    actual = models.write(make(), set_input("sum", 0, "h"))
    (culprit,) = proven(compare(actual, models.write(make())))
    (fused,) = culprit.expected
    assert {"chosen/else/product", "chosen/else/sum", "chosen/else/act"} >= {*fused.origin}
    assert fused.origin
