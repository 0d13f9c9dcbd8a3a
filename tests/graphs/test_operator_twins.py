"""Which operators of two profiles are joined."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lar.engines import operator_kinds_of_both
from lar.graphs.operator_twins import OperatorPair, match_operators
from lar.records.profile import Profile, ProfiledOperator, ProfileFacts, TensorFact

Shape = tuple[int, ...]


IMAGE = (1, 16, 8, 8)
ADD: dict[str, Any] = {"parameters": {"mode": "ADD"}}
RELU: dict[str, Any] = {"parameters": {"mode": "RELU"}}


def operator_of(text: str, shape: Shape = IMAGE, **fields: Any) -> ProfiledOperator:
    """An operator that gives a tensor of that shape, as in `y = Conv < x | weight bias`."""
    gives, _, rest = text.partition(" = ")
    type, _, taken = rest.partition(" < ")
    reads, weights = (tuple(names.split()) for names in taken.partition(" | ")[::2])
    fact = TensorFact(shape, "float32")
    return ProfiledOperator(
        **{
            "id": gives,
            "type": type,
            "name": gives,
            "inputs": (fact,) * len(reads + weights),
            "outputs": (fact,),
            "reads": reads + weights,
            "weights": weights,
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


def plain_network(*, shift: int = 0, hidden: bool = False) -> Profile:
    """Two convolutions with biases and activations, the second with a shortcut, in MegEngine."""

    def name(text: str, number: int) -> str:
        return f"{text}(var)[{number + shift}]" if hidden else text

    a, b, c = name("conv1", 1), name("bias1", 2), name("relu1", 3)
    d, e, f = name("conv2", 4), name("sum", 5), name("relu2", 6)
    return profile_of(
        operator_of("data = Host2DeviceCopy"),
        operator_of(f"{a} = ConvolutionForward < data | conv1.weight", flops=9000),
        operator_of(f"{b} = Elemwise < {a} | conv1.bias", **ADD),
        operator_of(f"{c} = Elemwise < {b}", **RELU),
        operator_of(f"{d} = ConvolutionForward < {c} | conv2.weight", flops=9000),
        operator_of(f"{e} = Elemwise < {d} {c}", **ADD),
        operator_of(f"{f} = Elemwise < {e}", **RELU),
    )


def fused_network() -> Profile:
    """The same, in blocks of eight channels, each convolution with all that follows it."""
    blocked = (1, 2, 8, 8, 8)
    parameters = {"format": "NCHW88", "nonlineMode": "RELU"}
    relu: dict[str, Any] = {"shape": blocked, "parameters": parameters, "flops": 9500}
    conv1 = "fused(a)[2] = ConvBiasForward < relayout[1] | conv1.weight#7 conv1.bias"
    conv2 = "fused(b)[3] = ConvBiasForward < fused(a)[2] | conv2.weight#9"
    return profile_of(
        operator_of("data = Host2DeviceCopy"),
        operator_of("relayout[1] = RelayoutFormat < data", blocked),
        operator_of(conv1, **relu),
        operator_of(conv2, **relu),
        operator_of("relayout[4] = RelayoutFormat < fused(b)[3]"),
    )


def test_the_same_graph_is_joined_step_by_step() -> None:
    first, second = plain_network(hidden=True), plain_network(hidden=True, shift=40)
    assert [*map(tuple, joined(first, second))] == [((place,), (place,)) for place in range(7)]


def test_what_is_fused_is_joined_with_its_parts_and_relayouts_are_added() -> None:
    without_shortcut = [each for each in plain_network().operators if each.name != "sum"]
    without_shortcut[-1] = operator_of("relu2 = Elemwise < conv2", **RELU)
    assert titles_of(profile_of(*without_shortcut), fused_network()) == {
        "data": "data",
        "conv1 + bias1 + relu1": "fused(a)[2]",
        "conv2 + relu2": "fused(b)[3]",
        "- relayout[1]": "relayout[1]",
        "- relayout[4]": "relayout[4]",
    }


def test_between_engines_names_and_kinds_join() -> None:
    onnx = profile_of(
        operator_of("conv1 = Conv < data | conv1.weight conv1.bias"),
        operator_of("relu1 = Relu < conv1"),
        operator_of("conv2 = Conv < relu1 | conv2.weight"),
        operator_of("sum = Add < conv2 relu1"),
        operator_of("relu2 = Relu < sum"),
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
            operator_of("data = Host2DeviceCopy"),
            *(operator_of(f"{name} = ConvolutionForward < data") for name in names),
            operator_of(f"(all)[{shift}] = Concat < {' '.join(names)}", (1, 48, 8, 8)),
            *more,
        )

    # Where all else is the same, the order proves enough; else none is joined alone.
    assert all(len(pair.a) == len(pair.b) == 1 for pair in joined(branches(0), branches(50)))
    end = operator_of("(end)[51] = Elemwise < (all)[50]", (1, 48, 8, 8))
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
    old = profile_of(*(replace(each, reads=(), writes=(), weights=()) for each in new.operators))
    names = [each.name for each in new.operators]
    for first, second in ((old, new), (new, old)):
        assert titles_of(first, second) == dict(zip(names, names, strict=True))
    some = profile_of(*new.operators[1:])
    assert titles_of(old, some) == {**dict(zip(names, names, strict=True)), names[0]: "-"}


def test_names_that_are_numbered_in_each_session_join_nothing() -> None:
    def reorders(first: int, second: int) -> Profile:
        return profile_of(
            operator_of("a = Relu < data"),
            operator_of("x = ReorderOutput < a", name=f"ReorderOutput_token_{first}"),
            operator_of("b = Relu < x"),
            operator_of("y = ReorderOutput < b", name=f"ReorderOutput_token_{second}"),
            engine="onnxruntime",
        )

    pairs = joined(reorders(7, 8), reorders(8, 7))
    assert [*map(tuple, pairs)] == [((place,), (place,)) for place in range(4)]


def test_one_structure_is_joined_whatever_its_shapes_and_windows() -> None:
    def network(shape: Shape, window: int) -> Profile:
        return profile_of(
            operator_of("conv = Conv < data | w", shape, parameters={"kernel_shape": window}),
            operator_of("relu = Relu < conv", shape),
            operator_of("scores = Softmax < relu", shape),
            engine="onnxruntime",
        )

    same = {name: name for name in ("conv", "relu", "scores")}
    assert titles_of(network(IMAGE, 3), network((4, 16, 32, 32), 5)) == same


def test_branches_in_another_order_are_joined_by_their_names() -> None:
    def branches(first: str, second: str) -> Profile:
        return profile_of(
            operator_of(f"{first} = Conv < data | w"),
            operator_of(f"{second} = Conv < data | w"),
            operator_of(f"sum = Add < {first} {second}"),
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
        given: dict[str, Any] = {"outputs": (data,), "flops": flops}
        return profile_of(
            operator_of("relu = Relu < data", inputs=(plain,), outputs=(data,)),
            operator_of("conv = Conv < relu | w", inputs=(data, weight), **given),
            engine="onnxruntime",
        )

    assert titles_of(run(10, "", 20_000), run(16, "NCHW16c", 51_200))["conv"] == "conv"


def encoder_of(engine: str, layers: int) -> Profile:
    """Equal blocks, whose operators have names that say nothing: two products with biases, Gelu
    between them, a shortcut and a norm."""
    narrow, wide = (8, 16), (8, 64)
    shapes: dict[str, Shape] = {"data": narrow}
    operators: list[ProfiledOperator] = []
    is_onnx = engine == "onnxruntime"

    def put(text: str, shape: Shape, **fields: Any) -> str:
        name = f"var_{len(operators)}"
        made = operator_of(f"{name} = {text}", shape)
        taken = tuple(TensorFact(shapes[key], "float32") for key in made.reads if key in shapes)
        operators.append(replace(made, **{"inputs": taken, **fields}))
        shapes[name] = shape
        return name

    def put_product(x: str, shape: Shape) -> str:
        flops = 2 * 8 * 16 * 64
        if is_onnx:
            return put(f"Gemm < {x} | w b", shape, flops=flops)
        x = put(f"MatrixMul < {x} | w", shape, flops=flops)
        return put(f"Elemwise < {x} | b", shape, **ADD)

    def put_gelu(x: str) -> str:
        if not is_onnx:
            return put(f"Elemwise < {x}", wide, parameters={"mode": "GELU"})
        y = put(f"Div < {x} | root", wide)
        y = put(f"Erf < {y}", wide)
        y = put(f"Add < {y} | one", wide)
        y = put(f"Mul < {x} {y}", wide)
        return put(f"Mul < {y} | half", wide)

    given = "data" if is_onnx else put("InputCallback", narrow, outputs=(TensorFact(narrow),))
    for _ in range(layers):
        x = put_product(put_gelu(put_product(given, wide)), narrow)
        if is_onnx:
            x = put(f"Add < {x} {given}", narrow)
        else:
            x = put(f"Elemwise < {x} {given}", narrow, **ADD)
        norm = "LayerNormalization" if is_onnx else "LayerNorm"
        given = put(f"{norm} < {x} | scale shift", narrow)
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
    assert [len(side) for side in done] == [len(sides[0].operators) - 1, len(sides[1].operators)]


def test_a_bias_that_was_folded_into_the_next_convolution_hides_nothing() -> None:
    def chain(*, folded: bool) -> Profile:
        operators, given = [], "data"
        for number in range(6):
            name = f"var_{number}" if folded else f"conv{number}"
            weights = "w" if folded and number % 2 == 0 else "w b"
            operators.append(operator_of(f"{name} = Conv < {given} | {weights}", flops=900))
            given = name
            if number % 2:
                given = f"{name}_end"
                operators.append(operator_of(f"{given} = Relu < {name}"))
        return profile_of(*operators, engine="onnxruntime")

    pairs = joined(chain(folded=False), chain(folded=True))
    assert [*map(tuple, pairs)] == [((place,), (place,)) for place in range(9)]


def test_biases_of_two_branches_may_be_added_as_one_behind_their_sum() -> None:
    fused = {"mode": "FUSE_ADD_RELU"}
    one, two = [], []
    given = "data", "data"
    for n in range(3):
        x, y = given
        one += [
            operator_of(f"(a)[{n}] = ConvolutionForward < {x} | w", flops=900),
            operator_of(f"(b)[{n}] = ConvolutionForward < {x} | w", flops=500),
            operator_of(f"(s)[{n}] = Elemwise < (a)[{n}] (b)[{n}]", **ADD),
            operator_of(f"(r)[{n}] = Elemwise < (s)[{n}] | c", parameters=fused),
        ]
        two += [
            operator_of(f"a{n} = Conv < {y} | w b", flops=900),
            operator_of(f"b{n} = Conv < {y} | w b", flops=500),
            operator_of(f"s{n} = Add < a{n} b{n}"),
            operator_of(f"r{n} = Relu < s{n}"),
        ]
        given = f"(r)[{n}]", f"r{n}"
    assert titles_of(profile_of(*one), profile_of(*two, engine="onnxruntime")) == {
        f"(a)[{n}] + (b)[{n}] + (s)[{n}] + (r)[{n}]": f"a{n} + b{n} + s{n} + r{n}" for n in range(3)
    }
