"""What a model holds, as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lar.records.run import ModelInfo, TensorInfo
from lar.reports.info_text import report_info
from tests.reports.golden_files import check_golden

INFO = ModelInfo(
    engine="megengine",
    inputs=(TensorInfo(name="data", dtype="float32", shape=(None, 3, 224, 224)),),
    outputs=(TensorInfo(name="prob", dtype="float32", shape=(1, 1000)),),
    operators={"Convolution": 20, "Elemwise": 3},
    parameter_count=1_234_567,
    weight_bytes=3 * 2**20,
    flops=2_000_000,
    metadata={"format": "mgv2"},
    input_bytes=602_112,
    activation_bytes=1025,
    at={"batch": (1, 3)},
)


def test_a_model_is_described_line_by_line() -> None:
    check_golden("info.txt", report_info(INFO).text)


def test_unknown_flops_name_the_operators_concerned() -> None:
    lines = report_info(replace(INFO, flops=None, flops_unknown=("Loop", "Conv"))).lines_for()
    assert lines[3].startswith("FLOPs: N/A (unknown for Loop, Conv);")
    described = replace(INFO, flops=None, flops_unknown=("Loop",), open_axes=("seq", "x[2]"))
    said = "unknown for Loop; open axes: seq, x[2]; lar info --shape 'seq=N,x[2]=N' counts them"
    assert report_info(described).lines_for()[3].startswith(f"FLOPs: N/A ({said});")


def test_a_long_remark_of_a_model_is_shortened() -> None:
    lines = report_info(replace(INFO, metadata={"character": "a b c " * 2000})).lines_for()
    (line,) = (line for line in lines if line.startswith("character: a b c a"))
    assert len(line) == len("character: ") + 200


def test_a_model_of_nothing_is_described_too() -> None:
    lines = report_info(replace(INFO, inputs=(), outputs=(), operators={}, metadata={})).lines_for()
    assert lines[-3:] == ["tensor  name  dtype  shape", "", "operator (0)  count"]


@pytest.mark.parametrize(
    ("shape", "text"), [((), "{}"), ((4,), "{4}"), ((None, 3), "{?,3}"), ((1, 0, 2), "{1,0,2}")]
)
def test_shapes_are_written_as_input_takes_them(shape: tuple[int | None, ...], text: str) -> None:
    assert TensorInfo(name="x", dtype="float32", shape=shape).shape_text == text
