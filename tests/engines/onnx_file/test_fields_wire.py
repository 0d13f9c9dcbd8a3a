"""Protobuf's wire format, against the library that defines it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from lar.engines.onnx_file.fields import (
    bytes_field,
    encode_varint,
    fields_in,
    messages_in,
    number_field,
    texts_in,
    varint_at,
)

MODELS = sorted((Path(__file__).resolve().parents[3] / "models").glob("*.onnx"))


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    data = encode_varint(number)
    assert varint_at(data, 0, len(data)) == (number, len(data))


@given(st.integers(1, 2**29 - 1), st.binary(max_size=300), st.integers(0, 2**63))
def test_fields_are_read_as_they_were_written(number: int, value: bytes, other: int) -> None:
    data = bytes_field(number, value) + number_field(number, other)
    first, second = fields_in(data)
    assert (first.number, second.number, second.value) == (number, number, other)
    assert data[first.value : first.end] == value
    assert (first.begin, second.begin, second.end) == (0, first.end, len(data))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_a_value_error_and_nothing_else(data: bytes) -> None:
    try:
        fields = list(fields_in(data))
    except ValueError:
        return
    assert b"".join(data[field.begin : field.end] for field in fields) == data


def test_a_message_that_is_cut_short_is_refused_or_has_fewer_fields() -> None:
    tensor = TensorProto(name="weight", dims=[2, 300], raw_data=b"1234", double_data=[1.5])
    data = tensor.SerializeToString()
    fields = list(fields_in(data))
    whole = {field.end: count for count, field in enumerate(fields, start=1)}
    for length in range(1, len(data) + 1):
        if length in whole:
            assert list(fields_in(data[:length])) == fields[: whole[length]]
        else:
            with pytest.raises(ValueError, match="byte"):
                list(fields_in(data[:length]))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_what_is_read_of_a_model_is_what_the_library_reads(path: Path) -> None:
    data, model = path.read_bytes(), onnx.load(path)
    (graph,) = messages_in(data, 7)
    assert texts_in(data, 2, *graph) == [model.graph.name]
    names: list[Any] = [
        name for tensor in messages_in(data, 5, *graph) for name in texts_in(data, 8, *tensor)
    ]
    assert names == [tensor.name for tensor in model.graph.initializer]
