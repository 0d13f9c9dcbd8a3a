"""The paths of what the bodies of If, Loop and Scan hold."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper

from lar.engines.onnx_file.bodies import Body, name_by_paths, operators_in
from lar.engines.onnx_file.fields import Message


def graph_of(nodes: list[Any], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Any:
    fed, given = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        for names in (inputs, outputs)
    )
    return helper.make_graph(nodes, "g", fed, given)


def test_tensors_of_bodies_are_named_by_their_paths() -> None:
    """Names are those of the innermost graph that has them; a name that is taken is no path. What
    a body takes from around it is an input of the node."""
    relu = helper.make_node("Relu", ["x"], ["y"], name="act")
    less = helper.make_node("Sigmoid", ["v"], ["z"])
    inner = helper.make_node(
        "If",
        ["c"],
        ["r"],
        name="",
        then_branch=graph_of([relu], outputs=("y",)),
        else_branch=graph_of([less], outputs=("z",)),
    )
    body = graph_of([inner], ("i", "c", "v"), ("c", "r"))
    loops = [
        helper.make_node("Loop", ["n", "", "x"], [out], name="walk", body=body)
        for out in ("again", "last")
    ]
    graph = graph_of(loops, ("x", "n"), ("last", "again"))
    whole = Body("", Message("Graph", graph.SerializeToString()))
    name_by_paths(whole.graph)
    found = [each.node for each in operators_in(whole)]
    assert [(each.operator, each.inputs, each.outputs) for each in found[:7]] == [
        ("BodyInput", ("n",), ("walk/body/i",)),
        ("BodyInput", ("",), ("walk/body/c",)),
        ("BodyInput", ("x",), ("walk/body/v",)),
        ("Sigmoid", ("walk/body/v",), ("walk/body/If_0/else/z",)),
        ("Relu", ("x",), ("walk/body/If_0/then/y",)),
        (
            "If",
            ("walk/body/c", "walk/body/v", "x", "walk/body/If_0/else/z", "walk/body/If_0/then/y"),
            ("walk/body/r",),
        ),
        ("Loop", ("n", "", "x", "walk/body/c", "walk/body/r"), ("again",)),
    ]
    assert found[4].name == "walk/body/If_0/then/act"
    assert found[-1].inputs[-1] == "Loop_1/body/r"
