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


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("[1.5,2,3]", (1, 3), "float64"),
        ("[[1.5,2],[3,4]]", (1, 2, 2), "float64"),
        ("1.0,2.0", (2,), "float64"),
        ("[1,2],[3,4]", (2, 2), "int64"),
        ("7", (1,), "int64"),
        ("[1e3]", (1, 1), "float64"),
        (str(2**63 - 1), (1,), "int64"),
        (str(2**63), (1,), "uint64"),
        (str(2**64 - 1), (1,), "uint64"),
        (str(-(2**63)), (1,), "int64"),
        ("[" * 31 + "1" + "]" * 31, (1,) * 32, "int64"),
    ],
)
def test_nesting_and_an_outer_one_are_the_shape(
    text: str, shape: tuple[int, ...], dtype: str
) -> None:
    array = read_numbers(text)
    assert (array.shape, array.dtype.name) == (shape, dtype)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1,2", "not a list of numbers"),
        ("[1],2]", "not a list of numbers"),
        ("[a]", "not a list of numbers"),
        ("[1 2]", "not a list of numbers"),
        ("[[1],[2,3]]", "ragged"),
        ("[1,[2]]", "ragged"),
        ("[[1],[]]", "ragged"),
        ('["a",1]', "not a number"),
        ("[null]", "not a number"),
        ("[1,true]", "not a number"),
        ("[" * 32 + "1" + "]" * 32, "more than 32 levels"),
        ("[" * 100_000, "levels"),
        (str(2**64), "no dtype"),
        (str(-(2**63) - 1), "no dtype"),
        ("-1,18446744073709551615", "no dtype"),
        ("0.5," + "9" * 400, "no dtype"),
        ("9" * 5000, "not a list of numbers"),
    ],
)
def test_what_is_no_array_of_values_is_refused(text: str, problem: str) -> None:
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
