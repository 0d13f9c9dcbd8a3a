"""Excerpts: the text of a dump is read back, and whole tensors beside it become excerpts too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lar.dumps.dump import Dump, DumpedTensor, DumpIndex
from lar.dumps.excerpts import STATISTICS, as_printed, blocks_in, excerpts_of
from lar.dumps.index import open_tensors
from lar.dumps.names import Variable, contiguous_strides
from lar.dumps.text import excerpt_of, format_block
from lar.errors import DumpError

# What the C++ program wrote of a model of digits.
BY_MEGENGINE = Path(__file__).parents[1] / "data" / "digits_cnn_io.txt"
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r{}"), min_size=1, max_size=9)
FLOATS = arrays(np.float32, st.integers(0, 9), elements=st.floats(-(2.0**60), 2.0**60, width=32))


def block_of(name: str, array: np.ndarray[tuple[int], np.dtype[np.float32]]) -> list[str]:
    made = Variable(
        id=7,
        shape=array.shape,
        strides=contiguous_strides(array.shape),
        name=name,
        operator=f"f({name})[6]",
        operator_type="Elemwise",
    )
    return [*format_block(made, array, [(Variable(id=3), "[0, 1, 2, 3, 4, ...]")])]


@given(NAMES, FLOATS)
def test_a_block_is_read_back(
    name: str, array: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    lines = block_of(name, array)
    (block,) = blocks_in(["[info] a line of a log", *lines, "another"])
    assert (block.variable.id, block.variable.name, block.inputs) == (7, name, (3,))
    assert (block.variable.shape, block.variable.operator_type) == (array.shape, "Elemwise")
    excerpt = excerpt_of(array)
    assert len(block.excerpt) == len(excerpt) == len(STATISTICS) + min(array.size, 5)
    np.testing.assert_array_equal(as_printed(np.array(block.excerpt), excerpt), excerpt)


@given(st.lists(st.text(max_size=40)), st.integers(0, 200))
def test_any_text_is_gone_through(lines: list[str], cut: int) -> None:
    whole = "\n".join(block_of("x", np.ones(6, np.float32)))
    assert len([*blocks_in([*lines, *whole.split("\n")])]) == 1
    assert [*blocks_in([*lines, *whole[:-1][:cut].split("\n")])] == []


def test_the_text_of_the_cpp_program_has_its_tensors_and_operators() -> None:
    dump = open_tensors(BY_MEGENGINE)
    assert dump.excerpts
    names = {tensor.name: tensor for tensor in dump}
    assert names["logits"].shape == (1, 10)
    assert names["data"].dtype == "float32"
    np.testing.assert_array_equal(
        dump.read(names["data"].key), [0, 16, 4.73, 7.63, 6.03, 0, 0, 1, 8, 10]
    )
    makers = {operator.key: operator for operator in dump.index.operators}
    logits = makers[names["logits"].operator]
    assert logits.type == "Elemwise"
    assert names["MatrixMul"].key in logits.inputs
    assert makers[names["conv1.weight"].operator].constant


def test_of_a_tensor_that_is_there_twice_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    blocks = [block_of("x", np.full(2, value, np.float32)) for value in (1, 2)]
    path.write_text("\n".join([*blocks[0], *blocks[1]]) + "\nnot complete: the run ended before\n")
    dump = open_tensors(path)
    assert [dump.read(tensor.key)[0] for tensor in dump] == [2]
    assert not dump.index.complete


def test_a_text_without_a_whole_block_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(block_of("x", np.ones(2, np.float32))[0] + "\n deps:\n")
    with pytest.raises(DumpError, match="holds no whole tensor"):
        open_tensors(path)


def test_a_dump_of_whole_tensors_becomes_excerpts() -> None:
    array = np.array([[1, -2], [3, 4]], np.int8)
    tensor = DumpedTensor(key="a", name="a", dtype="int8", shape=(2, 2))
    whole = Dump("whole", DumpIndex(tensors=(tensor,), operators=()), lambda _: array)
    excerpts = excerpts_of(whole)
    assert excerpts_of(excerpts) is excerpts
    np.testing.assert_allclose(excerpts.read("a"), [-2, 4, 1.5, 30**0.5 / 2, 7**0.5, 1, -2, 3, 4])


@pytest.mark.parametrize(
    ("actual", "expected", "agree"),
    [
        (1.23, 1.234, True),  # of a statistic the text has three digits
        (1.23, 1.25, False),
        (0.0, 0.0, True),
        (0.0, 1e-30, False),
        (np.inf, 1.0, False),
        (np.nan, 1.0, False),
    ],
)
def test_digits_that_a_text_lacks_are_no_difference(
    actual: float, expected: float, agree: bool
) -> None:
    one, other = (np.full(len(STATISTICS), value) for value in (actual, expected))
    assert bool(np.all(as_printed(one, other) == other)) is agree
