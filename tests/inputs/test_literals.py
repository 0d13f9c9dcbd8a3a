from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from lar.inputs.literals import array_of_values, read_numbers
from tests.tables import each_row


@each_row("inputs/literals/shapes")
def test_nesting_and_an_outer_one_are_the_shape(text: str, shape: list[int], dtype: str) -> None:
    array = read_numbers(text)
    assert ([*array.shape], array.dtype.name) == (shape, dtype)


@each_row("inputs/literals/refused")
def test_what_is_no_array_of_values_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_numbers(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    for text, problem in (("[" * 100_000, "levels"), ("9" * 5000, "not a list of numbers")):
        with pytest.raises(ValueError, match=problem):
            read_numbers(text)


@given(
    st_np.arrays(
        st.sampled_from([np.int64, np.float64]),
        st_np.array_shapes(max_dims=4, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_what_is_written_is_read(array: np.ndarray[Any, Any]) -> None:
    read = read_numbers(json.dumps(array.tolist()))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array[np.newaxis])


@settings(max_examples=200)
@given(st.text(alphabet="[],.-+eE0123456789 "))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert read_numbers(text).dtype.kind in "iuf"


def test_booleans_are_an_array_of_their_own() -> None:
    assert array_of_values([True, False]).dtype == np.bool_
