"""Folders of test data that others have made, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.runs import failure_of, run_ok
from tests.tables import each_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two test data sets whose tensors have no names, and a model of three outputs."""
    save_model(tmp_path / "net.onnx", text_of("testcases"), {"w": np.arange(3, dtype=np.float32)})
    for number in (0, 1):
        x = np.random.default_rng(number).random((2 + number, 3), np.float32)
        w = np.arange(3, dtype=np.float32)
        place = tmp_path / f"test_data_set_{number}"
        place.mkdir()
        # Others' outputs come from another machine: the last bits differ.
        outputs = (x.argmax(1), x > w, (x + w) * np.float32(1 + 1e-6))
        for kind, arrays in (("input", (x,)), ("output", outputs)):
            for position, array in enumerate(arrays):
                write(place / f"{kind}_{position}.pb", array)
    return tmp_path


def write(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    path.write_bytes(numpy_helper.from_array(array).SerializeToString())


def test_they_are_run_by_position(folder: Path) -> None:
    result = run_ok(folder, iter=2)
    assert [case.name for case in result.cases] == ["test_data_set_0", "test_data_set_1"]
    assert [
        (verdict.output, verdict.passed) for case in result.cases for verdict in case.verdicts
    ] == 2 * [("place", True), ("above", True), ("sum", True)]
    assert 0 < (result.cases[1].verdicts[2].error or 0) < 1e-5
    assert [fed.shape for fed in result.fed] == [(2, 3), (3, 3)]


def test_a_wrong_integer_and_a_wrong_boolean_are_found(folder: Path) -> None:
    place = folder / "test_data_set_1"
    above = numpy_helper.to_array(
        onnx.TensorProto.FromString((place / "output_1.pb").read_bytes())
    ).copy()
    above[2, 1] ^= True
    write(place / "output_1.pb", above)
    assert failure_of(lar.run(folder, iter=1), 1).message.startswith("test #1: above[2,1] is ")


@each_row("engines/onnxruntime/messages/damaged testcases")
def test_a_damaged_folder_is_told_in_one_line(
    folder: Path, name: str, content: str | None, words: str
) -> None:
    place = folder / "test_data_set_0"
    known = (place / "output_0.pb").read_bytes()
    (place / name).write_bytes(known if content is None else content.encode("latin-1"))
    failure = failure_of(lar.run(folder, iter=1), 2)
    assert words in failure.message
    assert "--input" not in failure.message


def test_an_output_of_another_type_is_told(folder: Path) -> None:
    place = folder / "test_data_set_0"
    (place / "output_2.pb").write_bytes((place / "output_0.pb").read_bytes())
    result = lar.run(folder, iter=1)
    assert failure_of(result).message == "test #0: sum is float32{2,3}, expected int64{2}"


def test_every_tensor_of_every_testcase_is_in_range(folder: Path) -> None:
    write(folder / "test_data_set_1" / "input_0.pb", np.full((1, 3), 9, np.float32))
    result = lar.run(folder, iter=1, range=10)
    assert failure_of(result).message.startswith("--range 10: ")
    assert [case.passed for case in result.cases] == [True]
