"""The model's names for what engines make of it, in indices made by hand as engines write them."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from typing import Any

from lar.dumps import DumpedOperator, DumpedTensor, DumpIndex
from lar.graphs.origins import ModelOperator, name_origins
from tests.known import known
from tests.tables import each_row

MOVES = {"reorderoutput", "reorderinput", "transpose", "reshape", "dimshuffle", "cast"}

# A stem, and a block of two convolutions with a sum around them, as a model file has them.
MODEL = (
    ModelOperator("Conv", "c1", ("data", "w1", "b1"), ("stage1/conv",)),
    ModelOperator("Relu", "r1", ("stage1/conv",), ("stage1/relu",)),
    ModelOperator("Conv", "c2", ("stage1/relu", "w2", "b2"), ("stage2/conv",)),
    ModelOperator("Add", "a2", ("stage2/conv", "stage1/relu"), ("stage2/sum",)),
    ModelOperator("Relu", "r2", ("stage2/sum",), ("stage2/relu",)),
    ModelOperator("Flatten", "", ("stage2/relu",), ("flat",)),
)


MADE = re.compile(r"(\S+) = (\S+) (\w+)(?: \((.*?)\))?(?: (\w+))?")


def index_of(
    *made: str, constants: tuple[str, ...] = (), hidden: tuple[str, ...] = ()
) -> DumpIndex:
    """The index of operators of the engine: what each gives, its name and type, what it takes, and
    the activation in it, as in `y = conv[3] Conv (x, w) Relu`."""
    operators, tensors = [], []
    for text in made:
        output, name, type, inputs, activation = known(MADE.fullmatch(text)).groups("")
        operators.append(
            DumpedOperator(
                key=f"op {output}",
                name=name,
                type=type,
                inputs=tuple(inputs.split(", ")) if inputs else (),
                outputs=(output,),
                parameters={"activation": activation} if activation else {},
                constant=output in constants,
            )
        )
        tensors.append(
            DumpedTensor(
                key=output, name=output, dtype="float32", shape=(1,), operator=f"op {output}"
            )
        )
    kept = tuple(each for each in tensors if each.key not in hidden)
    return DumpIndex(tensors=kept, operators=tuple(operators))


def names_in(index: DumpIndex) -> dict[str, str]:
    return {each.name: each.origin for each in index.tensors if each.origin}


def origins_in(index: DumpIndex) -> dict[str, tuple[str, ...]]:
    return {each.outputs[0]: each.origin for each in index.operators if each.origin}


DATA = "data = data[0] Input"


def named_index(
    *made: str,
    model: Sequence[ModelOperator] = MODEL,
    moves: Collection[str] = MOVES,
    **others: tuple[str, ...],
) -> DumpIndex:
    return name_origins(index_of(*made, **others), model, moves)


def test_blocked_operators_have_the_names_of_those_they_are_made_of() -> None:
    """As ONNX Runtime names them: after the last that was fused first, and tokens."""
    named = named_index(
        DATA,
        "reorder_token_0 = r1_nchwc[6] Conv (data, w, b) Relu",
        "reorder_token_3 = c2_nchwc[9] Conv (reorder_token_0, v, b, reorder_token_0) Relu",
        "stage2/relu = ReorderOutput[11] ReorderOutput (reorder_token_3)",
        "flat = Flatten[13] Flatten (stage2/relu)",
    )
    assert names_in(named) == {"reorder_token_0": "stage1/relu", "reorder_token_3": "stage2/relu"}
    assert origins_in(named) == {
        "reorder_token_0": ("stage1/conv", "stage1/relu"),
        "reorder_token_3": ("stage2/conv", "stage2/sum", "stage2/relu"),
    }


def test_operators_that_a_converter_appended_are_gone_through_in_their_place() -> None:
    """As one to float16 does: what casts the inputs stands last in the file."""
    first = ModelOperator("Conv", "c1", ("data_cast", "w1", "b1"), ("stage1/conv",))
    named = named_index(
        DATA,
        "x = cast[2] Cast (data)",
        "t0 = r1_nchwc[6] Conv (x, w, b) Relu",
        "t1 = c2_nchwc[9] Conv (t0, v, b, t0) Relu",
        model=(first, *MODEL[1:], ModelOperator("Cast", "cast", ("data",), ("data_cast",))),
    )
    assert names_in(named) == {"x": "data_cast", "t0": "stage1/relu", "t1": "stage2/relu"}


@each_row("graphs/origins/names")
def test_tensors_have_the_names_of_the_model(
    what: str, made: list[str], others: dict[str, Any], names: dict[str, str]
) -> None:
    assert names_in(named_index(DATA, *made, **others)) == names, what


def test_bounds_that_vanish_are_no_weights() -> None:
    model = (
        ModelOperator("Conv", "c", ("data", "w", "b"), ("conv",)),
        ModelOperator("Clip", "k", ("conv", "low", "high"), ("clip",)),
    )
    named = named_index(
        DATA,
        "reorder = reorder[1] Initializer",
        "reorder_token_1 = reorder_token_1[2] Initializer",
        "token = k_nchwc[3] Conv (data, reorder, reorder_token_1) Clip",
        constants=("reorder", "reorder_token_1"),
        model=model,
    )
    assert names_in(named) == {"reorder": "w", "reorder_token_1": "b", "token": "clip"}
    assert origins_in(named) == {"token": ("conv", "clip")}


def test_an_unchanged_graph_and_one_of_another_model_stay_as_they_are() -> None:
    same = index_of(
        DATA,
        *(
            f"{each.outputs[0]} = {each.name or 'flat'} {each.type} ({', '.join(each.inputs)})"
            for each in MODEL
        ),
    )
    assert name_origins(same, MODEL, MOVES) == same
    other = index_of("x = x Input", "y = y Tanh (x)")
    assert name_origins(other, MODEL, MOVES) == other
    assert name_origins(same, (), MOVES) == same
    assert name_origins(DumpIndex(tensors=(), operators=()), MODEL, MOVES).tensors == ()


def test_a_chain_of_four_times_as_many_operators_takes_about_four_times_as_long() -> None:
    """The worst of chains: the engine takes the input again and again, as the model does not."""

    def seconds(layers: int) -> float:
        model, made, given = [], [DATA], "data"
        for n in range(layers):
            model.append(ModelOperator("Relu", f"r{n}", (given,), (f"relu{n}",)))
            model.append(ModelOperator("Mul", f"m{n}", (f"relu{n}", "scale"), (f"mul{n}",)))
            made.append(f"t{n} = t{n} Add ({given}, data)")
            made.append(f"mul{n} = m{n} Mul (t{n}, scale)")
            given = f"mul{n}"
        index = index_of(*made)
        times = []
        for _ in range(2):
            begin = time.process_time()
            name_origins(index, model, MOVES)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(1000) < 8 * seconds(250)


def test_a_loop_that_begins_with_a_constant_goes_on_with_data() -> None:
    state = ModelOperator("BodyInput", "loop/body/v", ("start",), ("loop/body/v",))
    product = ModelOperator("Mul", "", ("loop/body/v", "data"), ("loop/body/y",))
    index = index_of(
        DATA,
        "start = start[1] Initializer",
        "loop/body/v = loop/body/v[2] BodyInput (start)",
        "loop/body/y = Mul[3] Mul (loop/body/v, data)",
        constants=("start",),
    )
    assert names_in(name_origins(index, (state, product), MOVES)) == {}
