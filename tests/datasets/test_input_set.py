"""`--input test_data_set_N`: the outputs of the run are compared with those in the folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import lar
from tests.cli.failures import check_error
from tests.cli.marks import each_format
from tests.cli.runs import result_of
from tests.conftest import RunLar

DATA = np.array([-1, 0, 1, 2], np.float32)
RECTIFIED = np.array([0, 0, 1, 2], np.float32)


def write(path: Path, array: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(numpy_helper.from_array(array).SerializeToString())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A testcase of models/one_operator, which has the positive part of its input."""
    write(tmp_path / "test_data_set_0/input_0.pb", DATA)
    write(tmp_path / "test_data_set_0/output_0.pb", RECTIFIED)
    return tmp_path / "test_data_set_0"


@each_format
def test_the_outputs_of_the_run_are_judged(
    run_lar: RunLar, root: Path, folder: Path, suffix: str
) -> None:
    command = (f"models/one_operator.{suffix}", "--iter", "1", "--input", f"{folder}/")
    (case,) = result_of(*command, cwd=root).cases
    assert (case.name, case.passed) == ("test_data_set_0", True)
    write(folder / "output_0.pb", RECTIFIED + np.float32(1))
    check_error(run_lar(*command, cwd=root), 1, "test #0: ", "expected 1")
    assert run_lar(*command, "--disable-assert-throw", cwd=root).returncode == 0


def test_a_folder_without_outputs_is_only_fed(root: Path, folder: Path) -> None:
    (folder / "output_0.pb").unlink()
    result = lar.run(root / "models/one_operator.onnx", str(folder), iter=1, thread=2)
    assert (result.status, result.cases) == ("ok", ())


def test_files_of_the_folder_are_only_fed(root: Path, folder: Path) -> None:
    result = lar.run(root / "models/one_operator.onnx", str(folder / "input_0.pb"), iter=1)
    assert (result.status, result.cases) == ("ok", ())


@pytest.mark.parametrize("words", [("--batch-size", "2"), ("--thread", "2"), ("--seed", "1")])
def test_what_would_run_something_else_is_refused(
    run_lar: RunLar, root: Path, folder: Path, words: tuple[str, ...]
) -> None:
    check_error(
        run_lar("models/one_operator.onnx", "--input", str(folder), *words, cwd=root),
        2,
        words[0],
        "bring their own" if words[0] != "--thread" else "one after",
        "give model and input files",
    )


def test_a_comparison_does_not_judge(run_lar: RunLar, root: Path, folder: Path) -> None:
    write(folder / "output_0.pb", RECTIFIED + np.float32(1))
    model = "models/one_operator.onnx"
    run_lar("compare", model, model, "--input", str(folder), cwd=root, code=0)


def test_a_model_with_testcases_takes_no_other(
    run_lar: RunLar, root: Path, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(root / "models/one_operator.onnx", tmp_path / "model.onnx")
    done = run_lar(str(tmp_path), "--input", str(folder))
    check_error(done, 2, "--input and the testcases of ", "testcases bring their own inputs")
