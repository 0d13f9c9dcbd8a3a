"""Dumps of another machine, and how they are made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lar.dumps.index import open_dump
from tests.conftest import RunLar

DUMPS = "tests/data/aarch64"
MODELS = {
    "digits_cnn": "models/digits_cnn.onnx",
    "int8": "models/int8.onnx",
    "float16": f"{DUMPS}/digits_float16.onnx",
}


def test_an_index_names_the_machine(root: Path) -> None:
    for name in MODELS:
        index = open_dump(root / DUMPS / name).index
        assert (index.system, index.architecture) == ("Linux 6.1.0", "aarch64")
        assert (index.processor, index.provider) == ("ARM part 0xd0c", "CPUExecutionProvider")


@pytest.mark.parametrize("name", MODELS)
def test_no_operator_is_at_fault_between_processors(name: str, root: Path, run_lar: RunLar) -> None:
    done = run_lar("compare", f"{DUMPS}/{name}", MODELS[name], cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert "culprit" not in done.stdout
    lines = done.stdout.splitlines()
    assert "A on: Linux 6.1.0 aarch64, ARM part 0xd0c" in lines
    assert any(line.startswith("B on: ") for line in lines)
    assert lines[-1].startswith("result: the same within ")


@pytest.mark.parametrize("dump", ["int8_nchw", "int8_nchw44", "int8_nchw88"])
@pytest.mark.parametrize("turned", [False, True])
def test_types_without_scales_have_those_of_the_other_engine(
    dump: str, turned: bool, written_by_cpp: Path, root: Path, run_lar: RunLar
) -> None:
    sides = [str(written_by_cpp / dump), "models/int8.onnx"]
    words = [*(reversed(sides) if turned else sides), "--input", "inputs/digit_7.npy"]
    done = run_lar("compare", *words, cwd=root)
    assert "\nresult: the same within the tolerance (1 output, " in done.stdout
    assert " 0 differ;" in done.stdout


def test_dumps_are_made_on_an_emulated_processor(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [root / "tools" / "dump_on_aarch64.sh", tmp_path, "digits_cnn"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert open_dump(tmp_path / "digits_cnn").index.architecture == "aarch64"
