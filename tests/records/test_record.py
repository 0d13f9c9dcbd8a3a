"""Numbers of 8 bytes each are those that they were made of."""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.records import record
from lar.records.record import Numbers, pieces_of_json, record_to_json
from lar.records.run import Pacing, RunResult, RunSpec, Samples, read_result

FLOATS = st.floats(allow_nan=False)
COLUMNS = st.lists(st.none() | FLOATS, max_size=8)
PLACES = st.slices(8)
RESULT = RunResult(
    spec=RunSpec(model="m", engine="e", driver="d"), status="ok", phase="done", log_tail="[\0]"
)


@pytest.fixture(params=[1, 3, 4096])
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many numbers are Python's own at once."""
    monkeypatch.setattr(record, "PART", request.param)
    return int(request.param)


@pytest.mark.usefixtures("part")
class TestNumbers:
    @staticmethod
    @given(COLUMNS, PLACES, FLOATS | st.none())
    def test_they_are_a_sequence_of_what_they_were_made_of(
        values: list[float | None], place: slice, other: float | None
    ) -> None:
        numbers = Numbers(values)
        assert [*numbers] == values
        assert [numbers[at] for at in range(-len(values), len(values))] == 2 * values
        assert [*reversed(numbers)] == values[::-1]
        assert len(numbers) == len(values)
        assert bool(numbers) == bool(values)
        assert [*numbers[place]] == values[place]
        assert (other in numbers, numbers.count(other)) == (other in values, values.count(other))
        assert repr(numbers) == repr(tuple(values))
        for at in (len(values), -len(values) - 1):
            with pytest.raises(IndexError):
                numbers[at]

    @staticmethod
    @given(COLUMNS, PLACES)
    def test_they_are_equal_to_any_sequence_of_the_same(
        values: list[float | None], place: slice
    ) -> None:
        numbers = Numbers(values)
        same: tuple[Sequence[float | None], ...] = (values, tuple(values), Numbers(values))
        for each in (*same, pickle.loads(pickle.dumps(numbers)), deepcopy(numbers)):
            assert numbers == each
            assert each == numbers
            assert numbers[place] == each[place]
            assert numbers + each == 2 * values
        assert pickle.loads(pickle.dumps(numbers[place])) == values[place]
        assert numbers != (*values, 1.0)
        assert numbers != 1.0

    @staticmethod
    @given(COLUMNS, COLUMNS)
    def test_json_in_pieces_is_that_of_the_lists(
        one: list[float | None], other: list[float | None]
    ) -> None:
        pair = {"[\0]": Numbers(one), "between": "[\0]", "two": [Numbers(other), 1]}
        lists = {"[\0]": one, "between": "[\0]", "two": [other, 1]}
        assert b"".join(pieces_of_json(pair)) == msgspec.json.encode(lists)


def test_doubles_are_taken_as_they_are() -> None:
    doubles = array("d", [0.5, float("nan"), 2.0])
    assert Numbers(doubles) == Numbers(memoryview(doubles)) == (0.5, None, 2.0)
    assert Numbers(memoryview(doubles)[::2]) == (0.5, 2.0)


def test_numpy_takes_them_as_it_takes_tuples() -> None:
    assert np.asarray(Numbers([0.5, 2])).tolist() == [0.5, 2.0]
    assert np.asarray(Numbers([0.5, None])).tolist() == [0.5, None]
    assert np.asarray(Numbers([0.5, 2])).dtype == np.float64


def test_numbers_take_8_bytes_each() -> None:
    assert len(pickle.dumps(Numbers([it / 7 for it in range(100_000)]))) < 801_000


def test_samples_keep_what_was_not_measured() -> None:
    samples = Samples(end_to_end=(1, 0.5), device=(None, 0.25), queue_delay=[None, None])
    assert samples.device == (None, 0.25)
    assert samples.queue_delay == (None, None)
    other: Any = np.array([1, 0.5], "f4"), (it for it in (None, 0.25))
    assert Samples(end_to_end=other[0], device=other[1]) == replace(samples, queue_delay=())
    device = Numbers([None, 0.25])
    assert samples == Samples(end_to_end=[1.0, 0.5], device=device, queue_delay=(None, None))
    assert samples.part(slice(1, None)) == Samples(
        end_to_end=(0.5,), device=(0.25,), queue_delay=(None,)
    )
    assert (samples.of_runner(0), samples.of_runner(1)) == (samples, Samples())
    several = replace(samples, runner=(1, 2))
    parts = [[*several.of_runner(runner).end_to_end] for runner in range(4)]
    assert parts == [[], [1.0], [0.5], []]


def test_a_record_shows_its_fields() -> None:
    shown = "{'idle_seconds': 0.5, 'rate': None, 'arrivals': 'poisson'}"
    assert repr(Pacing(idle_seconds=0.5)) == f"Pacing({shown})"


def test_a_result_with_columns_is_read_back() -> None:
    samples = Samples(end_to_end=(0.5, 2.0), device=(None, 0.25), runner=(0, 1))
    result = replace(RESULT, samples=samples)
    text = record_to_json(result)
    columns = json.loads(text)["samples"]
    assert (columns["end_to_end"], columns["device"]) == ([0.5, 2.0], [None, 0.25])
    back = read_result(text)
    assert back == result
    assert back.samples.device[0] is None
    assert result.rows() == [
        {"iteration": 0, "end_to_end": 0.5, "device": None, "runner": 0},
        {"iteration": 1, "end_to_end": 2.0, "device": 0.25, "runner": 1},
    ]
    for old, new in ((b"0.5", b"null"), (b"0.25", b'"x"')):
        with pytest.raises(ValueError, match="Expected `float"):
            read_result(text.replace(old, new))
