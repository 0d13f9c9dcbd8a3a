"""Scales that are known of some tensors are followed to others."""

from __future__ import annotations

from lar.dumps.dump import DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.facts import DumpFacts
from lar.dumps.quantizations import with_quantizations
from lar.records.run import Quantization

HALF = Quantization(scale=(0.5,))
ROWS = Quantization(scale=(0.5, 1.0), axis=-1)


def tensor(name: str, dtype: str = "int8", shape: tuple[int, ...] = (2, 2)) -> DumpedTensor:
    return DumpedTensor(key=name, name=name, dtype=dtype, shape=shape)


def operator(kind: str, inputs: str, output: str) -> DumpedOperator:
    return DumpedOperator(
        key=output, name=output, type=kind, inputs=tuple(inputs.split()), outputs=(output,)
    )


def followed(
    tensors: list[DumpedTensor], operators: list[DumpedOperator], **known: Quantization
) -> dict[str, Quantization]:
    index = DumpIndex(tensors=tuple(tensors), operators=tuple(operators))
    given = with_quantizations(index, DumpFacts(quantizations=known))
    return {it.key: it.quantization for it in given.tensors if it.quantization}


def test_what_moves_integers_keeps_their_scale_on_and_back() -> None:
    tensors = [tensor(name) for name in "abcd"]
    moves = [
        operator("Reshape", "a", "b"),
        operator("MaxPool", "b", "c"),
        operator("Add", "c", "d"),
    ]
    assert followed(tensors, moves, b=HALF) == {"a": HALF, "b": HALF, "c": HALF}


def test_what_is_joined_has_a_scale_if_all_have_the_same() -> None:
    tensors = [tensor(name) for name in "abc"]
    join = [operator("Concat", "a b", "c")]
    assert "c" not in followed(tensors, join, a=HALF, b=Quantization(scale=(0.25,)))
    assert followed(tensors, join, a=HALF, b=HALF)["c"] == HALF


def test_an_axis_is_counted_from_the_first_and_fits_the_shape() -> None:
    assert followed([tensor("a")], [], a=ROWS)["a"].axis == 1
    assert followed([tensor("a", shape=(2, 3))], [], a=ROWS) == {}
    # Where the rows are after a move is not followed.
    moved = [tensor("a"), tensor("b")]
    assert set(followed(moved, [operator("Transpose", "a", "b")], a=ROWS)) == {"a"}


def test_numbers_have_no_scale() -> None:
    tensors = [tensor("a", "float32"), tensor("b", "int64"), tensor("c")]
    assert followed(tensors, [operator("Gather", "c", "b")], a=HALF, c=HALF) == {"c": HALF}


def test_weights_without_their_names_have_those_of_the_models_operator() -> None:
    tensors = [tensor(name, "QuantizedS8") for name in ("x", "fuse():w", "y")]
    conv = operator("ConvBiasForward", "x fuse():w", "y")
    facts = DumpFacts(quantizations={"w": HALF, "y": HALF}, operands={"y": ("x", "w")})
    index = DumpIndex(tensors=tuple(tensors), operators=(conv,))
    given = {it.name: it.quantization for it in with_quantizations(index, facts).tensors}
    assert given == {"x": None, "fuse():w": HALF, "y": HALF}
