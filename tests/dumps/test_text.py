"""The text dump: lar's blocks read as MegEngine's do, and a filter keeps whole blocks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lar.dumps.names import Variable, contiguous_strides
from lar.dumps.text import filter_blocks, format_block, format_statistics, format_values

# What MegEngine wrote, of known values.
BY_MEGENGINE = """\
var17 produced: name=ADD layout={4(1) Float32} owner_opr=ADD3(a,b)[16]{Elemwise} opr16
 deps:
  [i0]var3: [0, 1, 2, 3] s
  [i1]var5: [2] s
 val: [1, 3, 5, 7]min=1 max=7 mean=4 l2=4.58 sd=2.58 s
"""


def test_a_block_is_as_megengine_writes_it() -> None:
    made = Variable(
        id=17,
        shape=(4,),
        strides=(1,),
        name="ADD",
        operator="ADD3(a,b)[16]",
        operator_type="Elemwise",
    )
    inputs = [(Variable(id=3), "[0, 1, 2, 3]"), (Variable(id=5), "[2]")]
    lines = format_block(made, np.array([1, 3, 5, 7], np.float32), inputs)
    assert "\n".join(lines) + "\n" == BY_MEGENGINE


def test_a_name_of_several_lines_stays_one(tmp_path: Path) -> None:
    made = Variable(id=1, shape=(1,), strides=(1,), name="a\nb\\", operator="c\r\nd[0]")
    lines = [*format_block(made, np.zeros(1, np.float32), [])]
    assert lines[0].startswith(
        r"var1 produced: name=a\nb\ layout={1(1) Float32} owner_opr=c\r\nd[0]{"
    )
    text = tmp_path / "dump.txt"
    text.write_text("\n".join(lines) + "\n")
    assert filter_blocks(text, re.compile("^a")) == 1
    assert text.read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.0], "min=2 max=2 mean=2 l2=2 sd=N/A"),
        ([0, 1, 2, 3], "min=0 max=3 mean=1.5 l2=1.87 sd=1.29"),
        ([1, 1, 1, 1], "min=1 max=1 mean=1 l2=1 sd=0"),
        ([], "min=N/A max=N/A mean=N/A l2=N/A sd=N/A"),
        ([np.inf, 1], "min=1 max=inf mean=inf l2=inf sd=nan"),
    ],
)
def test_statistics(values: list[float], text: str) -> None:
    assert format_statistics(np.array(values, np.float64)) == text


def test_numbers_of_every_kind_are_written() -> None:
    assert format_values(np.array([True, False])) == "[1, 0]"
    assert format_values(np.array([1234567, -3], np.int64)) == "[1.235e+06, -3]"
    assert (
        format_values(np.array([[0.1, 2], [3, 4], [5, 6]], np.float16))
        == "[0.09998, 2, 3, 4, 5, ...]"
    )
    assert format_values(np.array([1 + 2j], np.complex64)) == "[1]"
    assert format_statistics(np.array([200, 100], np.uint8)).startswith("min=100 max=200 mean=150 ")


def block(name: str, operator: str, number: int) -> str:
    variable = Variable(
        id=number + 1,
        shape=(1,),
        strides=contiguous_strides((1,)),
        name=name,
        operator=operator,
        operator_type="Elemwise",
    )
    return "\n".join(format_block(variable, np.zeros(1), ())) + "\n"


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [("relu", [0, 2]), ("^relu$", [0]), (r"\[2\]", [1]), ("nothing", []), ("", [0, 1, 2])],
)
def test_a_filter_keeps_whole_blocks(tmp_path: Path, pattern: str, kept: list[int]) -> None:
    blocks = [
        block("relu", "RELU(data)[0]", 0),
        block("卷积 layout={", "ADD[2]", 2),
        block("x", "relu6(y)[4]", 4),
    ]
    path = tmp_path / "dump.txt"
    path.write_text("".join(blocks) * 2)
    assert filter_blocks(path, re.compile(pattern)) == 2 * len(kept)
    assert path.read_text() == "".join(blocks[index] for index in kept) * 2
    assert [found.name for found in tmp_path.iterdir()] == ["dump.txt"]
