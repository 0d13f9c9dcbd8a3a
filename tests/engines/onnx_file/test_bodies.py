"""The paths of what the bodies of If, Loop and Scan hold."""

from __future__ import annotations

from lar.engines.onnx_file.bodies import Body, name_by_paths, operators_in
from lar.engines.onnx_file.fields import Message
from tests.engines.onnx_models import model_of, text_of


def test_tensors_of_bodies_are_named_by_their_paths() -> None:
    """Names are those of the innermost graph that has them; a name that is taken is no path. What
    a body takes from around it is an input of the node."""
    graph = model_of(text_of("branches_in_two_loops"), domains={}).graph
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
