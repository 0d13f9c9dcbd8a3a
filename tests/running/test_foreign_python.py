"""Runs whose worker has a Python of its own: `--python PATH`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import lar
from tests.command_lines import run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import finished, known

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_virtual_environment_runs_the_worker(write_script: WriteScript) -> None:
    result = finished(lar.run(write_script(outputs={"prob": [1.0]}), python=sys.prefix, iter=3))
    assert len(result.samples.end_to_end) == 3
    assert result.spec.python == os.path.join(sys.prefix, "bin", "python")


def bare_python(folder: Path) -> str:
    """A Python without packages."""
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    (folder / "python").chmod(0o755)
    return str(folder / "python")


def test_what_is_missing_there_is_one_line(write_script: WriteScript, tmp_path: Path) -> None:
    done = run_lar(write_script(), "--python", bare_python(tmp_path), "--iter", "1", code=3)
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("lar: error: --python: ")
    assert "lar's worker cannot run there: " in problem
    assert problem.endswith("No module named 'numpy'")
    assert hint.startswith("hint: it needs Python 3.10")


def test_variants_may_differ_in_it(write_script: WriteScript, tmp_path: Path) -> None:
    bare = bare_python(tmp_path)
    bench = lar.bench(write_script(), vary={"python": [None, bare]}, margin=0.9)
    assert [each.status for each in bench.variants] == ["ok", "failed"]
    assert [each.values["python"] for each in bench.variants] == ["", bare]
    assert known(bench.variants[1].failure).flag == "--python"
