"""Outputs compared with expected ones: the error is MegEngine's, for every type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from lar.datasets.judging import Judge, complete, describe_failure, errors_of, judge
from lar.errors import CheckFailed, UsageError
from lar.inputs import Loaded
from lar.records.run import Case, Expected, RunSpec, Setting, Verdict
from tests.tables import each_row

Array = NDArray[Any]
DTYPES = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_dims=4))
)


def verdict_of(actual: Any, wanted: Array, limit: float = 1e-4) -> Verdict:
    return judge(Expected(file="", output="y", limit=limit), wanted, {"y": actual})


@settings(max_examples=100, deadline=None)
@given(arrays)
def test_an_output_is_as_itself(array: Array) -> None:
    verdict = verdict_of(array, array, 0.0)
    assert (verdict.passed, verdict.error) == (True, 0)


@settings(max_examples=100, deadline=None)
@given(arrays, st.data())
def test_the_first_wrong_element_is_named(array: Array, data: st.DataObject) -> None:
    if array.size == 0:
        return
    place = data.draw(st.integers(0, array.size - 1))
    other = array.copy()
    flat = other.reshape(-1)
    flat[place] = not flat[place] if array.dtype == bool else (7 if flat[place] != 7 else 9)
    # All that follow are wrong, too.
    flat[place:] = flat[place]
    verdict = verdict_of(other, array)
    if abs(float(array.reshape(-1)[place])) > 1e4:  # near to another large one
        return
    assert not verdict.passed
    index = np.unravel_index(place, array.shape)
    assert verdict.index == tuple(map(int, index))
    assert verdict.actual == str(other[index])
    assert verdict.expected == str(array[index])


@each_row("datasets/cases/errors of an element")
def test_the_error_is_that_of_megengines_assertion(
    actual: float, expected: float, error: float
) -> None:
    pair = (np.array([actual], np.float32), np.array([expected], np.float32))
    assert errors_of(*pair)[0] == pytest.approx(error)
    assert not verdict_of(*pair, error * 0.999).passed
    assert verdict_of(*pair, float(errors_of(*pair)[0])).passed


def test_nan_and_infinity_equal_themselves_alone() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0, np.nan], np.float32)
    others = np.array([np.nan, np.inf, np.inf, np.inf, 1.0], np.float32)
    assert errors_of(values, others).tolist() == [0, 0, np.inf, np.inf, np.inf]
    verdict = verdict_of(values, others)
    assert (verdict.error, verdict.index) == (None, (2,))


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (np.zeros((2, 3), np.float32), "float32{2,3}"),
        (np.zeros(3, np.float64), "float64{3}"),
        ("seq(tensor(float))", "seq(tensor(float))"),
    ],
)
def test_another_type_or_shape_is_told(output: Any, told: str) -> None:
    verdict = verdict_of(output, np.zeros(3, np.float32))
    assert not verdict.passed
    assert (verdict.actual, verdict.expected) == (told, "float32{3}")


@pytest.mark.parametrize(
    ("dtype", "wanted", "passed"),
    [("float64", "float32", True), ("float64", "int32", False), ("int32", "float32", False)],
)
def test_an_exact_engine_may_give_wider_floats(dtype: str, wanted: str, passed: bool) -> None:
    outputs = {"a": np.zeros(2), "y": np.ones(3, dtype)}
    expected = Expected(file="", id=1)
    verdict = judge(expected, np.ones(3, wanted), outputs, is_exact=True)
    assert (verdict.passed, verdict.output, verdict.limit) == (passed, "y", 0.001)
    assert not judge(expected, np.ones(3, np.float16), outputs).passed
    assert not judge(expected, np.ones(3, np.float16), {"a": 0, "y": "map"}, is_exact=True).passed


def test_texts_are_equal_or_not() -> None:
    pair = (np.array([text], object) for text in "ab")
    assert errors_of(*pair).tolist() == [np.inf]
    assert verdict_of(np.array(["a"], object), np.array(["a"], object), 0.0).error == 0


def make_judge(tmp_path: Path, *, raises: bool) -> tuple[Judge, list[Any], list[str]]:
    np.save(tmp_path / "y.npy", np.arange(3.0))
    case = Case(
        name="a", expected=(Expected(file=str(tmp_path / "y.npy"), output="y", limit=1e-4),)
    )
    settings: dict[str, Setting] = {} if raises else {"disable_assert_throw": True}
    spec = RunSpec(model="m", engine="fake", driver="script", settings=settings)
    told: list[Any] = []
    notes: list[str] = []
    return Judge(2, case, spec, told.append, notes), told, notes


def test_a_failure_is_told_before_it_is_raised(tmp_path: Path) -> None:
    judge, told, notes = make_judge(tmp_path, raises=True)
    judge({"y": np.arange(3.0)})
    with pytest.raises(CheckFailed, match=r"test #2: y\[1\] is 3.0, expected 1.0 \(err=2"):
        judge({"y": np.array([0.0, 3.0, 0.0])})
    assert [event.verdicts[0].passed for event in told] == [True, False]
    assert notes == []


def test_a_failure_that_is_not_raised_is_noted_once(tmp_path: Path) -> None:
    judge, told, notes = make_judge(tmp_path, raises=False)
    for _ in range(3):
        judge({"y": np.zeros(3)})
    assert [text[:15] for text in notes] == ["test #2: y[1] i"]
    assert len(told) == 3


def test_an_output_that_the_model_lacks_is_told() -> None:
    with pytest.raises(UsageError, match=r"a\.npy.* no such output; it has x"):
        judge(Expected(file="a.npy", output="y", limit=0.0, id=1), np.zeros(1), {"x": 0})


@each_row("datasets/cases/limits in a file")
def test_a_file_of_test_data_says_its_limit(note: str, limit: float, shown: bool) -> None:
    loaded = Loaded(np.zeros(1), "a/b.pb", name="y", note=note)
    found = complete(Expected(file="a/b.pb"), loaded)
    assert found == Expected(file="a/b.pb", output="y", name="y", limit=limit, shown=shown)
    assert complete(found, loaded._replace(name="z")) == found
    assert complete(Expected(file="a/b.pb"), loaded._replace(name="")).name == "b"


def test_a_failure_names_the_element_and_both_values() -> None:
    bad = Verdict(
        output="y", error=0.5, limit=1e-4, passed=False, index=(0, 2), actual="1.5", expected="1.0"
    )
    assert describe_failure(3, bad) == (
        "test #3: y[0,2] is 1.5, expected 1.0 (err=0.5, allowed 0.0001)"
    )
    other = replace(bad, error=None, index=(), actual="float32{2}", expected="float32{3}")
    assert describe_failure(0, other) == "test #0: y is float32{2}, expected float32{3}"
