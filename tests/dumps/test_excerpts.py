"""Excerpts: the text of a dump is read back, and whole tensors beside it become excerpts too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lar.dumps import Dump, DumpedTensor, DumpIndex
from lar.dumps.binary import Variable
from lar.dumps.excerpts import (
    STATISTICS,
    as_printed,
    blocks_in,
    excerpt_of,
    excerpts_of,
    filter_blocks,
    format_block,
    format_statistics,
    format_values,
)
from lar.dumps.index import open_dump
from lar.errors import DumpError
from tests.refusals import refused
from tests.tables import each_row

# What the C++ program wrote of a model of digits.
BY_MEGENGINE = Path(__file__).parents[1] / "data" / "digits_cnn_io.txt"
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r{}"), min_size=1, max_size=9)
FLOATS = arrays(np.float32, st.integers(0, 9), elements=st.floats(-(2.0**60), 2.0**60, width=32))


def block_of(
    name: str, array: np.ndarray[tuple[int], np.dtype[np.float32]], operator: str = "f(x)[6]"
) -> list[str]:
    made = Variable(id=7, shape=array.shape, name=name, operator=operator, operator_type="Elemwise")
    return [*format_block(made, array, [(Variable(id=3), "[0, 1, 2, 3, 4, ...]")])]


@given(NAMES, FLOATS)
def test_a_block_is_read_back(
    name: str, array: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    lines = block_of(name, array)
    ((header, found),) = blocks_in("\n".join(["[info] a line of a log", *lines, "another"]))
    assert header.meaning is not None
    variable, (taken,) = header.meaning
    assert (variable.id, variable.name, taken.id) == (7, name, 3)
    assert (header.shape, variable.operator_type) == (array.shape, "Elemwise")
    excerpt = excerpt_of(array)
    assert len(found) == len(excerpt) == len(STATISTICS) + min(array.size, 5)
    np.testing.assert_array_equal(as_printed(np.array(found), excerpt), excerpt)


@given(st.lists(st.text(max_size=40)), st.integers(0, 200))
def test_any_text_is_gone_through(lines: list[str], cut: int) -> None:
    whole = "\n".join(block_of("x", np.ones(6, np.float32)))
    assert len([*blocks_in("\n".join([*lines, whole]))]) == 1
    assert [*blocks_in("\n".join([*lines, whole[:-1][:cut]]))] == []


def test_the_text_of_the_cpp_program_has_its_tensors_and_operators() -> None:
    dump = open_dump(BY_MEGENGINE)
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
    dump = open_dump(path)
    assert [dump.read(tensor.key)[0] for tensor in dump] == [2]
    assert not dump.index.complete
    path.write_text(blocks[0][0])
    refused("holds no complete tensor", open_dump, path, kind=DumpError)


def test_a_dump_of_whole_tensors_becomes_excerpts() -> None:
    array = np.array([[1, -2], [3, 4]], np.int8)
    tensor = DumpedTensor(key="a", name="a", dtype="int8", shape=(2, 2))
    whole = Dump("whole", DumpIndex(tensors=(tensor,), operators=()), lambda _: array)
    excerpts = excerpts_of(whole)
    assert excerpts_of(excerpts) is excerpts
    np.testing.assert_allclose(excerpts.read("a"), [-2, 4, 1.5, 30**0.5 / 2, 7**0.5, 1, -2, 3, 4])


@each_row("dumps/excerpts/digits")
def test_digits_that_a_text_lacks_are_no_difference(
    actual: float, expected: float, agree: list[bool]
) -> None:
    """Of a statistic the text has three digits, of a value four."""
    one, other = (np.full(len(STATISTICS) + 2, value) for value in (actual, expected))
    assert (as_printed(one, other) == other).tolist() == [agree[0]] * 5 + [agree[1]] * 2


# Text that lar writes

# What MegEngine wrote, of known values.
BLOCK = """\
var17 produced: name=ADD layout={4(1) Float32} owner_opr=ADD3(a,b)[16]{Elemwise} opr16
 deps:
  [i0]var3: [0, 1, 2, 3] s
  [i1]var5: [2] s
 val: [1, 3, 5, 7]min=1 max=7 mean=4 l2=4.58 sd=2.58 s
"""


def test_a_block_is_as_megengine_writes_it() -> None:
    made = Variable(
        id=17, shape=(4,), name="ADD", operator="ADD3(a,b)[16]", operator_type="Elemwise"
    )
    inputs = [(Variable(id=3), "[0, 1, 2, 3]"), (Variable(id=5), "[2]")]
    assert "\n".join(format_block(made, np.array([1, 3, 5, 7], np.float32), inputs)) + "\n" == BLOCK


def test_a_name_of_several_lines_stays_one(tmp_path: Path) -> None:
    made = Variable(id=1, shape=(1,), name="a\nb\\", operator="c\r\nd[0]")
    lines = [*format_block(made, np.zeros(1, np.float32), [])]
    assert lines[0].startswith(
        r"var1 produced: name=a\nb\ layout={1(1) Float32} owner_opr=c\r\nd[0]{"
    )
    text = tmp_path / "dump.txt"
    text.write_text("\n".join(lines) + "\n")
    assert filter_blocks(text, re.compile("^a")) == 1
    assert text.read_text().splitlines() == lines


@each_row("dumps/excerpts/statistics")
def test_statistics(values: list[float], text: str) -> None:
    assert format_statistics(np.array(values, np.float64)) == text


def test_numbers_of_every_kind_are_written() -> None:
    assert format_values(np.array([True, False])) == "[1, 0]"
    assert format_values(np.array([1234567, -3], np.int64)) == "[1.235e+06, -3]"
    halves = np.array([[0.1, 2], [3, 4], [5, 6]], np.float16)
    assert format_values(halves) == "[0.09998, 2, 3, 4, 5, ...]"
    assert format_values(np.array([1 + 2j], np.complex64)) == "[1]"
    assert format_statistics(np.array([200, 100], np.uint8)).startswith("min=100 max=200 mean=150 ")


@each_row("dumps/excerpts/kept")
def test_a_filter_keeps_whole_blocks(tmp_path: Path, pattern: str, kept: list[int]) -> None:
    names = [("relu", "RELU(data)[0]"), ("卷积 layout={", "ADD[2]"), ("x", "relu6(y)[4]")]
    made = [block_of(name, np.zeros(1, np.float32), operator) for name, operator in names]
    blocks = ["\n".join([*lines, ""]) for lines in made]
    path = tmp_path / "dump.txt"
    path.write_text("".join(blocks) * 2)
    assert filter_blocks(path, re.compile(pattern)) == 2 * len(kept)
    assert path.read_text() == "".join(blocks[index] for index in kept) * 2
    assert [found.name for found in tmp_path.iterdir()] == ["dump.txt"]
