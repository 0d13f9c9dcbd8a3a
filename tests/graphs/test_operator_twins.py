"""Which operators of two profiles are joined."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lar.engines import operator_kinds_of_both
from lar.graphs.operator_twins import OperatorPair, match_operators
from lar.records.profile import Profile, ProfiledOperator, ProfileFacts, TensorFact
from tests.tables import each_row

Shape = tuple[int, ...]


IMAGE = (1, 16, 8, 8)
ADD: dict[str, Any] = {"parameters": {"mode": "ADD"}}


def operator_of(text: str, shape: Shape = IMAGE, **fields: Any) -> ProfiledOperator:
    """An operator that gives a tensor of that shape, as in `y = Conv < x | weight bias : flops=9`.

    Behind the colon stand the shape, FLOPs, name and parameters; `reads=` and `writes=` leave out
    the graph.
    """
    text, _, facts = text.partition(" : ")
    given: dict[str, Any] = dict(fact.split("=") for fact in facts.split())
    gives, _, rest = text.partition(" = ")
    type, _, taken = rest.partition(" < ")
    reads, weights = (tuple(names.split()) for names in taken.partition(" | ")[::2])
    shape = tuple(map(int, given.pop("shape").split("x"))) if "shape" in given else shape
    fact = TensorFact(shape, "float32")
    known: dict[str, Any] = {
        "id": gives,
        "type": type,
        "name": given.pop("name", gives),
        "inputs": (fact,) * len(reads + weights),
        "outputs": (fact,),
        "reads": reads + weights,
        "weights": weights,
        "writes": () if "writes" in given else (gives,),
        "flops": int(given.pop("flops", 0)),
        "parameters": given,
    }
    return ProfiledOperator(**{**known, **fields})


def profile_of(*operators: ProfiledOperator, engine: str = "megengine") -> Profile:
    return Profile(facts=ProfileFacts(engine=engine), operators=operators)


def joined(first: Profile, second: Profile) -> list[OperatorPair]:
    return match_operators(first, second, operator_kinds_of_both(first, second))


def titles_of(first: Profile, second: Profile) -> str:
    """The pairs of names, such as `conv + relu = fused; - = more`; `-` stands for no operator."""
    pairs = (
        [
            " + ".join(side.operators[place].name for place in places) or "-"
            for side, places in ((first, pair.a), (second, pair.b))
        ]
        for pair in joined(first, second)
    )
    return "; ".join(" = ".join(pair) for pair in pairs)


@each_row("graphs/joined/joined")
def test_operators_are_joined_by_these_rules(
    what: str, engine: str, first: str, other_engine: str, second: str, titles: str
) -> None:
    one = profile_of(*map(operator_of, first.split("; ")), engine=engine)
    other = profile_of(*map(operator_of, second.split("; ")), engine=other_engine)
    assert titles_of(one, other) == titles, what


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

    found = titles_of(run(10, "", 20_000), run(16, "NCHW16c", 51_200))
    assert found == "relu = relu; conv = conv"


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
