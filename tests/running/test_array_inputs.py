"""What a run is fed with from Python becomes items of --input."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lar.records.run import Failure, FedInput, RunResult, RunSpec
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


def test_a_file_whose_name_would_be_two_items_has_another(tmp_path: Path) -> None:
    named = tmp_path / "a;b.npy"
    np.save(named, np.ones(3))
    given = GivenInputs({"x": named, "y": "no;such.npy"}, tmp_path)
    assert given.items == [f"x:{tmp_path / '0.npy'}", "y:no;such.npy"]
    assert (tmp_path / "0.npy").resolve() == named


def test_a_result_calls_inputs_what_they_were(tmp_path: Path) -> None:
    given = GivenInputs({"x": np.zeros(2)}, tmp_path)
    made = str(tmp_path / "0.npy")
    result = RunResult(
        spec=RunSpec(model="m", engine="fake", driver="script", inputs=(f"x:{made}",)),
        status="failed",
        phase="prepare",
        lar_version="",
        fed=(FedInput(name="x", dtype="float32", shape=(2,), source=made),),
        failure=Failure(f"--input: {made}: wrong", f"look at {made}"),
        warnings=(f"{made} is odd",),
    )
    named = given.named_in(result)
    assert named.spec.inputs == ("x:the array given for 'x'",)
    assert named.fed[0].source == "the array given for 'x'"
    assert named.warnings == ("the array given for 'x' is odd",)
    assert named.failure is not None
    assert named.failure.message == "inputs: the array given for 'x': wrong"
    assert named.failure.hint == "look at the array given for 'x'"
