"""Which operators of two profiles are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from lar.engines import operator_kinds_of_both
from lar.graphs.operator_twins import OperatorPair, match_operators
from lar.records.profile import (
    Profile,
    ProfiledOperator,
    ProfileFacts,
    TensorFact,
)

Shape = tuple[int, ...]


def operator_of(
    type: str,
    reads: Sequence[str],
    gives: str,
    shape: Shape,
    *,
    weights: Sequence[str] = (),
    **fields: Any,
) -> ProfiledOperator:
    """An operator that reads tensors and weights and gives a tensor of that shape."""
    return ProfiledOperator(
        **{
            "id": gives,
            "type": type,
            "name": gives,
            "inputs": tuple(TensorFact(shape, "float32") for _ in (*reads, *weights)),
            "outputs": (TensorFact(shape, "float32"),),
            "reads": (*reads, *weights),
            "weights": tuple(weights),
            "writes": (gives,),
            **fields,
        }
    )


def profile_of(*operators: ProfiledOperator, engine: str = "megengine") -> Profile:
    return Profile(facts=ProfileFacts(engine=engine), operators=operators)


def joined(first: Profile, second: Profile) -> list[OperatorPair]:
    return match_operators(first, second, operator_kinds_of_both(first, second))


def titles_of(first: Profile, second: Profile) -> dict[str, str]:
    """By the names of the first run's operators those of the second's; `-` for none."""
    found = {}
    for pair in joined(first, second):
        names = [
            " + ".join(side.operators[place].name for place in places) or "-"
            for side, places in ((first, pair.a), (second, pair.b))
        ]
        found[names[0] if names[0] != "-" else f"- {names[1]}"] = names[1]
    return found


IMAGE = (1, 16, 8, 8)


def plain_network(*, shift: int = 0, hidden: bool = False) -> Profile:
    """Two convolutions with biases and activations, the second with a shortcut, in MegEngine."""

    def name(text: str, number: int) -> str:
        return f"{text}(var)[{number + shift}]" if hidden else text

    a, b, c = name("conv1", 1), name("bias1", 2), name("relu1", 3)
    d, e, f = name("conv2", 4), name("sum", 5), name("relu2", 6)
    add: dict[str, Any] = {"parameters": {"mode": "ADD"}}
    relu: dict[str, Any] = {"parameters": {"mode": "RELU"}}
    return profile_of(
        operator_of("Host2DeviceCopy", (), "data", IMAGE),
        operator_of("ConvolutionForward", ["data"], a, IMAGE, weights=["conv1.weight"], flops=9000),
        operator_of("Elemwise", [a], b, IMAGE, weights=["conv1.bias"], **add),
        operator_of("Elemwise", [b], c, IMAGE, **relu),
        operator_of("ConvolutionForward", [c], d, IMAGE, weights=["conv2.weight"], flops=9000),
        operator_of("Elemwise", [d, c], e, IMAGE, **add),
        operator_of("Elemwise", [e], f, IMAGE, **relu),
    )


def fused_network() -> Profile:
    """The same, in blocks of eight channels, each convolution with all that follows it."""
    blocked = (1, 2, 8, 8, 8)
    relu: dict[str, Any] = {
        "parameters": {"format": "NCHW88", "nonlineMode": "RELU"},
        "flops": 9500,
    }
    weights = ["conv1.weight#7", "conv1.bias"], ["conv2.weight#9"]
    return profile_of(
        operator_of("Host2DeviceCopy", (), "data", IMAGE),
        operator_of("RelayoutFormat", ["data"], "relayout[1]", blocked),
        operator_of(
            "ConvBiasForward", ["relayout[1]"], "fused(a)[2]", blocked, weights=weights[0], **relu
        ),
        operator_of(
            "ConvBiasForward",
            ["fused(a)[2]"],
            "fused(b)[3]",
            blocked,
            **relu,
            weights=weights[1],
        ),
        operator_of("RelayoutFormat", ["fused(b)[3]"], "relayout[4]", IMAGE),
    )


def test_the_same_graph_is_joined_step_by_step() -> None:
    first, second = plain_network(hidden=True), plain_network(hidden=True, shift=40)
    pairs = joined(first, second)
    assert [*map(tuple, pairs)] == [((place,), (place,)) for place in range(7)]


def test_what_is_fused_is_joined_with_its_parts_and_relayouts_are_added() -> None:
    without_shortcut = [each for each in plain_network().operators if each.name != "sum"]
    relu = without_shortcut[-1]
    without_shortcut[-1] = operator_of(
        "Elemwise", ["conv2"], relu.name, IMAGE, parameters={"mode": "RELU"}
    )
    assert titles_of(profile_of(*without_shortcut), fused_network()) == {
        "data": "data",
        "conv1 + bias1 + relu1": "fused(a)[2]",
        "conv2 + relu2": "fused(b)[3]",
        "- relayout[1]": "relayout[1]",
        "- relayout[4]": "relayout[4]",
    }


def test_between_engines_names_and_kinds_join() -> None:
    onnx = profile_of(
        operator_of("Conv", ["data"], "conv1", IMAGE, weights=["conv1.weight", "conv1.bias"]),
        operator_of("Relu", ["conv1"], "relu1", IMAGE),
        operator_of("Conv", ["relu1"], "conv2", IMAGE, weights=["conv2.weight"]),
        operator_of("Add", ["conv2", "relu1"], "sum", IMAGE),
        operator_of("Relu", ["sum"], "relu2", IMAGE),
        engine="onnxruntime",
    )
    found = titles_of(plain_network(), onnx)
    assert found["conv1 + bias1 + relu1"] == "conv1 + relu1"
    assert found["sum"] == "sum"
    assert found["conv2"] == "conv2"
    assert found["data"] == "-"


def test_without_names_likeness_is_no_proof() -> None:
    """Three convolutions of one input that nothing but their order distinguishes."""

    def branches(shift: int, *more: ProfiledOperator) -> Profile:
        names = [f"(x)[{number + shift}]" for number in (1, 2, 3)]
        return profile_of(
            operator_of("Host2DeviceCopy", (), "data", IMAGE),
            *(operator_of("ConvolutionForward", ["data"], name, IMAGE) for name in names),
            operator_of("Concat", names, f"(all)[{shift}]", (1, 48, 8, 8)),
            *more,
        )

    # Where all else is the same, the order proves enough; else none is joined alone.
    assert all(len(pair.a) == len(pair.b) == 1 for pair in joined(branches(0), branches(50)))
    end = operator_of("Elemwise", ["(all)[50]"], "(end)[51]", (1, 48, 8, 8))
    found = titles_of(branches(0), branches(50, end))
    assert all(
        left.count("(x)") in (0, 3) for left, right in found.items() if "-" not in left + right
    )


def test_old_profiles_are_joined_by_names_of_one_type_alone() -> None:
    def old(*named: tuple[str, str]) -> Profile:
        return profile_of(
            *(ProfiledOperator(id=name, type=type, name=name) for type, name in named)
        )

    first = old(("Conv", "a"), ("Relu", "b"), ("Relu", "c"), ("Pool", "d"))
    second = old(("Relu", "b"), ("Conv", "e"), ("Relu", "f"), ("Softmax", "d"))
    assert titles_of(first, second) == {
        "a": "-",
        "b": "b",
        "c": "-",
        "d": "-",
        "- e": "e",
        "- f": "f",
        "- d": "d",
    }


def test_an_old_profile_and_a_new_one_of_the_same_run_are_joined_by_names() -> None:
    new = plain_network()
    old = profile_of(
        *(replace(each, reads=(), writes=(), weights=()) for each in new.operators),
    )
    names = [each.name for each in new.operators]
    for first, second in ((old, new), (new, old)):
        assert titles_of(first, second) == dict(zip(names, names, strict=True))
    some = profile_of(*new.operators[1:])
    assert titles_of(old, some) == {**dict(zip(names, names, strict=True)), names[0]: "-"}


def test_names_that_are_numbered_in_each_session_join_nothing() -> None:
    def reorders(first: int, second: int) -> Profile:
        return profile_of(
            operator_of("Relu", ["data"], "a", IMAGE),
            operator_of("ReorderOutput", ["a"], "x", IMAGE, name=f"ReorderOutput_token_{first}"),
            operator_of("Relu", ["x"], "b", IMAGE),
            operator_of("ReorderOutput", ["b"], "y", IMAGE, name=f"ReorderOutput_token_{second}"),
            engine="onnxruntime",
        )

    pairs = joined(reorders(7, 8), reorders(8, 7))
    assert [*map(tuple, pairs)] == [((place,), (place,)) for place in range(4)]


def test_one_structure_is_joined_whatever_its_shapes_and_windows() -> None:
    def network(shape: Shape, window: int, end: str = "Softmax") -> Profile:
        parameters = {"kernel_shape": window}
        return profile_of(
            operator_of("Conv", ["data"], "conv", shape, weights=["w"], parameters=parameters),
            operator_of("Relu", ["conv"], "relu", shape),
            operator_of(end, ["relu"], "scores", shape),
            engine="onnxruntime",
        )

    same = {name: name for name in ("conv", "relu", "scores")}
    assert titles_of(network(IMAGE, 3), network((4, 16, 32, 32), 5)) == same


def test_branches_in_another_order_are_joined_by_their_names() -> None:
    def branches(first: str, second: str) -> Profile:
        return profile_of(
            operator_of("Conv", ["data"], first, IMAGE, weights=["w"]),
            operator_of("Conv", ["data"], second, IMAGE, weights=["w"]),
            operator_of("Add", [first, second], "sum", IMAGE),
            engine="onnxruntime",
        )

    same = {name: name for name in ("left", "right", "sum")}
    assert titles_of(branches("left", "right"), branches("right", "left")) == same


@pytest.mark.parametrize("depthwise", [False, True])
def test_channels_that_fill_up_blocks_are_no_more_work(depthwise: bool) -> None:
    """Ten channels are sixteen in blocks of sixteen; the engine counts the operations otherwise."""

    def run(channels: int, layout: str, flops: int) -> Profile:
        shape, taken = (1, channels, 8, 8), 1 if depthwise else channels
        plain, data = TensorFact((1, 10, 8, 8), "float32"), TensorFact(shape, "float32", layout)
        weight = TensorFact((channels, taken, 3, 3), "float32")
        operators = [
            operator_of("Relu", ["data"], "relu", shape, inputs=(plain,), outputs=(data,)),
            operator_of(
                "Conv",
                ["relu"],
                "conv",
                shape,
                weights=["w"],
                inputs=(data, weight),
                outputs=(data,),
                flops=flops,
            ),
        ]
        return profile_of(*operators, engine="onnxruntime")

    found = titles_of(run(10, "", 20_000), run(16, "NCHW16c", 51_200))
    assert found["conv"] == "conv"


def encoder_of(engine: str, layers: int) -> Profile:
    """Equal blocks, whose operators have names that say nothing: two products with biases, Gelu
    between them, a shortcut and a norm."""
    narrow, wide = (8, 16), (8, 64)
    shapes: dict[str, Shape] = {"data": narrow}
    operators: list[ProfiledOperator] = []
    add: dict[str, Any] = {"parameters": {"mode": "ADD"}}

    def put(type: str, reads: Sequence[str], shape: Shape, **fields: Any) -> str:
        name = f"var_{len(operators)}"
        taken = tuple(TensorFact(shapes[key], "float32") for key in reads)
        operators.append(operator_of(type, reads, name, shape, **{"inputs": taken, **fields}))
        shapes[name] = shape
        return name

    def put_product(x: str, shape: Shape) -> str:
        flops = 2 * 8 * 16 * 64
        if engine == "onnxruntime":
            return put("Gemm", [x], shape, weights=["w", "b"], flops=flops)
        x = put("MatrixMul", [x], shape, weights=["w"], flops=flops)
        return put("Elemwise", [x], shape, weights=["b"], **add)

    def put_gelu(x: str) -> str:
        if engine != "onnxruntime":
            return put("Elemwise", [x], wide, parameters={"mode": "GELU"})
        y = put("Div", [x], wide, weights=["root"])
        y = put("Add", [put("Erf", [y], wide)], wide, weights=["one"])
        return put("Mul", [put("Mul", [x, y], wide)], wide, weights=["half"])

    given = "data"
    if engine == "megengine":
        given = put("InputCallback", (), narrow, outputs=(TensorFact(narrow),))
    for _ in range(layers):
        x = put_product(put_gelu(put_product(given, wide)), narrow)
        x = (
            put("Add", [x, given], narrow)
            if engine == "onnxruntime"
            else put("Elemwise", [x, given], narrow, **add)
        )
        norm = "LayerNormalization" if engine == "onnxruntime" else "LayerNorm"
        given = put(norm, [x], narrow, weights=["scale", "shift"])
    return profile_of(*operators, engine=engine)


def test_equal_blocks_without_names_are_joined_in_the_order_of_the_graph() -> None:
    sides = encoder_of("megengine", 4), encoder_of("onnxruntime", 4)
    pairs = [each for each in joined(*sides) if each.a and each.b]
    layers = [
        {(place - (side == 0)) // ((len(run.operators) - (side == 0)) // 4) for place in pair[side]}
        for pair in pairs
        for side, run in enumerate(sides)
    ]
    assert all(len(each) == 1 for each in layers)
    assert layers[::2] == layers[1::2]
    done = [{it for pair in pairs for it in pair[side]} for side in (0, 1)]
    assert [len(side) for side in done] == [
        len(sides[0].operators) - 1,
        len(sides[1].operators),
    ]


def test_a_bias_that_was_folded_into_the_next_convolution_hides_nothing() -> None:
    def chain(*, folded: bool) -> Profile:
        operators, given = [], "data"
        for number in range(6):
            name = f"var_{number}" if folded else f"conv{number}"
            weights = ["w"] if folded and number % 2 == 0 else ["w", "b"]
            operators.append(operator_of("Conv", [given], name, IMAGE, weights=weights, flops=900))
            given = name
            if number % 2:
                given = f"{name}_end"
                operators.append(operator_of("Relu", [name], given, IMAGE))
        return profile_of(*operators, engine="onnxruntime")

    pairs = joined(chain(folded=False), chain(folded=True))
    assert [*map(tuple, pairs)] == [((place,), (place,)) for place in range(9)]


def test_biases_of_two_branches_may_be_added_as_one_behind_their_sum() -> None:
    add: dict[str, Any] = {"parameters": {"mode": "ADD"}}
    fused = {"parameters": {"mode": "FUSE_ADD_RELU"}}
    one, two = [], []
    given = "data", "data"
    for n in range(3):
        x, y = given
        one += [
            operator_of("ConvolutionForward", [x], f"(a)[{n}]", IMAGE, weights=["w"], flops=900),
            operator_of("ConvolutionForward", [x], f"(b)[{n}]", IMAGE, weights=["w"], flops=500),
            operator_of("Elemwise", [f"(a)[{n}]", f"(b)[{n}]"], f"(s)[{n}]", IMAGE, **add),
            operator_of("Elemwise", [f"(s)[{n}]"], f"(r)[{n}]", IMAGE, weights=["c"], **fused),
        ]
        two += [
            operator_of("Conv", [y], f"a{n}", IMAGE, weights=["w", "b"], flops=900),
            operator_of("Conv", [y], f"b{n}", IMAGE, weights=["w", "b"], flops=500),
            operator_of("Add", [f"a{n}", f"b{n}"], f"s{n}", IMAGE),
            operator_of("Relu", [f"s{n}"], f"r{n}", IMAGE),
        ]
        given = f"(r)[{n}]", f"r{n}"
    found = titles_of(profile_of(*one), profile_of(*two, engine="onnxruntime"))
    assert found == {
        f"(a)[{n}] + (b)[{n}] + (s)[{n}] + (r)[{n}]": f"a{n} + b{n} + s{n} + r{n}" for n in range(3)
    }
