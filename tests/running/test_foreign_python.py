"""Runs whose worker has a Python of its own: `--python PATH`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import lar
from tests.conftest import RunLar, WriteScript

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_virtual_environment_runs_the_worker(write_script: WriteScript) -> None:
    result = lar.run(write_script(outputs={"prob": [1.0]}), python=sys.prefix, iter=3)
    assert result.status == "ok"
    assert len(result.samples.end_to_end) == 3
    assert result.spec.python == os.path.join(sys.prefix, "bin", "python")


def test_the_command_line_takes_an_interpreter(run_lar: RunLar, write_script: WriteScript) -> None:
    done = run_lar(write_script(), "--python", sys.executable, "--iter", "1")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_in_the_current_folder_stands_in_for_a_library(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert lar.run(write_script(), python=sys.executable, iter=1).status == "ok"


def test_what_is_missing_there_is_one_line(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without its packages
    bare.chmod(0o755)
    done = run_lar(write_script(), "--python", str(bare), "--iter", "1")
    assert done.returncode == 3
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("lar: error: --python: ")
    assert problem.endswith("lar's worker cannot run there: No module named 'numpy'")
    assert hint.startswith("hint: it needs Python 3.10")


@pytest.mark.parametrize(
    ("name", "problem"),
    [("gone", "does not exist"), ("folder", "has no bin/python"), ("file", "is no program")],
)
def test_what_is_no_interpreter_is_refused(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, name: str, problem: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    done = run_lar(write_script(), "--python", str(tmp_path / name))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"lar: error: --python: {tmp_path / name}: {problem}"


def test_it_is_no_use_in_this_process(run_lar: RunLar, write_script: WriteScript) -> None:
    done = run_lar(write_script(), "--python", sys.executable, "--in-process")
    assert done.returncode == 2
    assert "another Python is another process" in done.stderr


def test_variants_may_differ_in_it(write_script: WriteScript, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    bench = lar.bench(write_script(), vary={"python": [None, sys.prefix, bare]}, margin=0.9)
    assert [each.status for each in bench.variants] == ["ok", "ok", "failed"]
    assert [each.values["python"] for each in bench.variants] == ["", sys.prefix, str(bare)]
    assert bench.variants[2].failure is not None
    assert bench.variants[2].failure.flag == "--python"
