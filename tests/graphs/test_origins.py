"""The model's names for what engines make of it, in indices made by hand as engines write them."""

from __future__ import annotations

import re
import time

from lar.dumps import DumpedOperator, DumpedTensor, DumpIndex
from lar.graphs.origins import ModelOperator, name_origins
from tests.known import known
from tests.tables import each_row

MOVES = {"reorderoutput", "reorderinput", "transpose", "reshape", "dimshuffle", "cast"}

# A stem, and a block of two convolutions with a sum around them, as a model file has them.
MODEL = (
    "stage1/conv = c1 Conv (data, w1, b1); stage1/relu = r1 Relu (stage1/conv); "
    "stage2/conv = c2 Conv (stage1/relu, w2, b2); "
    "stage2/sum = a2 Add (stage2/conv, stage1/relu); stage2/relu = r2 Relu (stage2/sum); "
    "flat = - Flatten (stage2/relu)"
)
MADE = re.compile(r"(\S+) = (\S+) (\w+)(?: \((.*?)\))?(?: (\w+))?")


def made_in(text: str) -> list[tuple[tuple[str, ...], str, str, tuple[str, ...], str]]:
    """Read operators with `; ` between them: outputs, name, type, inputs and activation of each, as
    in `y = conv[3] Conv (x, w) Relu`."""
    parts = (known(MADE.fullmatch(part)).groups("") for part in text.split("; ") if part)
    return [
        (tuple(gives.split(",")), name.strip("-"), type, tuple(re.findall(r"[^, ]+", taken)), more)
        for gives, name, type, taken, more in parts
    ]


def model_in(text: str) -> list[ModelOperator]:
    return [
        ModelOperator(type, name, taken, gives) for gives, name, type, taken, _ in made_in(text)
    ]


def index_in(text: str, hidden: str = "") -> DumpIndex:
    """The index of an engine's operators; those of the type `Constant` are constants."""
    operators = [
        DumpedOperator(
            key=f"op {gives[0]}",
            name=name,
            type=type,
            inputs=taken,
            outputs=gives,
            parameters={"activation": activation} if activation else {},
            constant=type == "Constant",
        )
        for gives, name, type, taken, activation in made_in(text)
    ]
    tensors = [
        DumpedTensor(key=name, name=name, dtype="float32", shape=(1,), operator=each.key)
        for each in operators
        for name in each.outputs
        if name not in hidden.split()
    ]
    return DumpIndex(tensors=tuple(tensors), operators=tuple(operators))


def origins_in(index: DumpIndex) -> str:
    """Tensors with the model's names, then operators with the model's operators they stand for."""
    names = [f"{each.name}: {each.origin}" for each in index.tensors if each.origin]
    made = [f"{it.outputs[0]} < {' + '.join(it.origin)}" for it in index.operators if it.origin]
    return "; ".join(names + made)


@each_row("graphs/origins/origins")
def test_tensors_and_operators_have_the_names_of_the_model(
    what: str, model: str, made: str, hidden: str, origins: str
) -> None:
    index = index_in(f"data = data[0] Input; {made}", hidden)
    assert origins_in(name_origins(index, model_in(model or MODEL), MOVES)) == origins, what


def test_an_unchanged_graph_and_one_of_another_model_stay_as_they_are() -> None:
    same = index_in(f"data = data[0] Input; {MODEL}")
    model = model_in(MODEL)
    assert name_origins(same, model, MOVES) == same
    other = index_in("x = x Input; y = y Tanh (x)")
    assert name_origins(other, model, MOVES) == other
    assert name_origins(same, (), MOVES) == same
    assert name_origins(DumpIndex(tensors=(), operators=()), model, MOVES).tensors == ()


def test_a_chain_of_four_times_as_many_operators_takes_about_four_times_as_long() -> None:
    """The worst of chains: the engine takes the input again and again, as the model does not."""

    def seconds(layers: int) -> float:
        model, made, given = [], ["data = data[0] Input"], "data"
        for n in range(layers):
            model.append(f"relu{n} = r{n} Relu ({given}); mul{n} = m{n} Mul (relu{n}, scale)")
            made.append(f"t{n} = t{n} Add ({given}, data); mul{n} = m{n} Mul (t{n}, scale)")
            given = f"mul{n}"
        index, operators = index_in("; ".join(made)), model_in("; ".join(model))
        times = []
        for _ in range(2):
            begin = time.process_time()
            name_origins(index, operators, MOVES)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(1000) < 8 * seconds(250)
