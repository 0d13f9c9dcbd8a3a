"""What a model file tells of its operators, in both formats and in the files around them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flatbuffers
import pytest

from lar.engines.megengine.defects import (
    FLOAT_PRODUCTS,
    GROUPED,
    MATRIX_PRODUCT,
    MAX_POOLING,
    QUANTISED,
    traits_in,
    traits_of,
)
from lar.engines.megengine.packed_model import write_packed
from lar.testcases.packed_file import HEADER, MAGIC
from tests.engines.megengine.programs import MODELS

if TYPE_CHECKING:
    from tests.conftest import RunLar

DIGITS = MODELS / "digits_cnn.mge"
OF_DIGITS = {FLOAT_PRODUCTS, MAX_POOLING}


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("digits_cnn", OF_DIGITS),
        ("int8", {QUANTISED, MAX_POOLING}),
        ("mobilenet_v2", {FLOAT_PRODUCTS, GROUPED}),
        ("uint8_input", {FLOAT_PRODUCTS}),
        ("multi_input", set()),
        ("one_operator", set()),
    ],
)
def test_the_traits_of_a_model(name: str, traits: set[str]) -> None:
    assert traits_of(str(MODELS / f"{name}.mge")) == traits


def test_a_file_in_the_older_format_and_in_blocks(run_lar: RunLar, tmp_path: Path) -> None:
    place = tmp_path / "blocked.mge"
    done = run_lar("run", str(DIGITS), "--enable-nchw44", "--model-dump", str(place), "--iter", "0")
    assert done.returncode == 0, done.stderr
    assert place.read_bytes().startswith(b"MGBC")
    assert traits_of(str(place)) == {MAX_POOLING}


def test_a_model_in_another_file(tmp_path: Path) -> None:
    graph = DIGITS.read_bytes()
    packed, cases = tmp_path / "packed.lite", tmp_path / "cases.mdl"
    write_packed(packed, graph, "digits")
    cases.write_bytes(HEADER.pack(MAGIC, 1) + graph + (MODELS / "int8.mge").read_bytes())
    assert traits_of(str(packed)) == traits_of(str(cases)) == OF_DIGITS


def test_what_is_damaged_tells_nothing(tmp_path: Path) -> None:
    content, file = DIGITS.read_bytes(), tmp_path / "damaged.mge"
    assert traits_of(str(file)) == set()
    for size in (0, 3, 12, 40, 400):
        file.write_bytes(content[:size])
        assert traits_of(str(file)) == set()
    for place in range(4, len(content), len(content) // 300):
        file.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
        assert traits_of(str(file)) <= {FLOAT_PRODUCTS, MAX_POOLING, GROUPED, QUANTISED}


def graph_of_product(shape: list[int] | None) -> memoryview:
    """A graph of one matrix product whose output has that shape, if the file tells it."""
    builder: Any = flatbuffers.Builder(1024)

    def add_vector(elements: list[int], prepend: Any) -> int:
        builder.StartVector(4, len(elements), 4)
        for element in reversed(elements):
            prepend(element)
        return int(builder.EndVector())

    sizes = None if shape is None else add_vector(shape, builder.PrependUint32)
    builder.StartObject(5)
    if sizes is not None:
        builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
    variables = add_vector([builder.EndObject()], builder.PrependUOffsetTRelative)
    outputs = add_vector([0], builder.PrependUint32)
    builder.StartObject(15)
    builder.PrependUint8Slot(3, MATRIX_PRODUCT, 0)
    builder.PrependUOffsetTRelativeSlot(8, outputs, 0)
    operators = add_vector([builder.EndObject()], builder.PrependUOffsetTRelative)
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(2, operators, 0)
    builder.PrependUOffsetTRelativeSlot(3, variables, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"mgv2")
    content = bytes(builder.Output())
    return memoryview(struct.pack("<I", len(content)) + content)


@pytest.mark.parametrize(
    ("shape", "traits"),
    [
        ([1, 1000], set()),
        ([64, 256], {FLOAT_PRODUCTS}),
        ([4, 8, 64, 64], {FLOAT_PRODUCTS}),
        ([4, 8, 1, 64], set()),
        ([256], set()),
        (None, set()),
    ],
)
def test_a_matrix_product_of_many_rows(shape: list[int] | None, traits: set[str]) -> None:
    assert set(traits_in(graph_of_product(shape))) == traits
