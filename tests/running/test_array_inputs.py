"""What a run is fed with from Python becomes items of --input."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lar.records.run import Failure, RunSpec
from lar.running.array_inputs import GivenInputs


def test_arrays_are_written_and_files_stay_where_they_are(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32)
    given = GivenInputs({"a": array, "b": "b.npy", "c": Path("c.npy")}, tmp_path)
    assert given.items == [f"a:{tmp_path / '0.npy'}", "b:b.npy", "c:c.npy"]
    assert np.array_equal(np.load(tmp_path / "0.npy"), array)


def test_one_input_has_no_name(tmp_path: Path) -> None:
    assert GivenInputs("x.npy;y.npy", tmp_path).items == ["x.npy;y.npy"]
    assert GivenInputs(Path("x.npy"), tmp_path).items == ["x.npy"]
    assert GivenInputs(np.zeros(2), tmp_path).items == [str(tmp_path / "0.npy")]


def test_what_was_given_has_another_name_for_who_gave_it(tmp_path: Path) -> None:
    given = GivenInputs({"x": np.zeros(2), "y": "a;b.npy"}, tmp_path)
    made = str(tmp_path / "0.npy")
    spec = RunSpec(model="m", engine="fake", driver="script", inputs=tuple(given.items))
    assert given.named_in(spec).inputs == ("x:the array given for 'x'", "y:a;b.npy")
    failure = Failure("wrong", "look", flag="--input", subject=made).called(given.names)
    assert failure.message == "inputs: the array given for 'x': wrong"
