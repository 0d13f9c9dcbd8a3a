"""No file of the current folder stands in for a module of Python, of a library or of lar."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lar.files.python_process import python_command
from lar.measurement.peak import measure_peak
from tests.command_lines import run_lar, run_program, run_python
from tests.conftest import WriteScript

PLANTED = ("json", "struct", "numpy", "msgspec", "zlib", "argparse")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has files of such names."""
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text("import os; os.write(2, b'planted'); os._exit(9)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", [[], ["--python", sys.executable]])
def test_lar_imports_nothing_from_the_current_folder(
    write_script: WriteScript, words: list[str]
) -> None:
    # With an environment it is `python -m lar`, which has the current folder first in its path.
    done = run_lar(write_script(), "--iter", "1", *words, env={"LAR_TEST": "1"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("folder")
def test_a_peak_is_measured_beside_files_of_such_names() -> None:
    assert measure_peak(1) is not None


@pytest.mark.parametrize(
    ("flags", "variable", "is_there"),
    [([], "", False), ([], "{}", True), (["-I"], "", False)],
)
def test_the_current_folder_counts_where_the_user_names_it(
    tmp_path: Path, flags: list[str], variable: str, is_there: bool
) -> None:
    root = str(Path(__file__).resolve().parents[2])
    (tmp_path / "tool.py").write_text(
        f"import sys; sys.path.append({root!r})\n"
        "from lar.files.python_process import module_path; print(*module_path(), sep='\\n')"
    )
    done = run_python(
        *flags,
        *(["tool.py"] if flags else ["-m", "tool"]),
        cwd=tmp_path,
        env={"PYTHONPATH": variable.format(tmp_path)},
        code=0,
    )
    folders = done.stdout.splitlines()
    assert root in folders
    assert (str(tmp_path) in folders) == is_there


def test_another_python_keeps_the_folders_of_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "tool.py").write_text("")
    (tmp_path / "json.py").write_text("import os; os.write(2, b'planted'); os._exit(9)")
    done = run_program(
        *python_command("import json, tool; print(sys.argv[1:])", "a b", python=sys.executable),
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "there")},
    )
    assert (done.stdout, done.stderr) == ("['a b']\n", "")


def test_numpy_runs_some_packages_when_they_are_used() -> None:
    code = "from lar.files import python_process as it\nit.delay_packages()\nimport sys, numpy\n"
    code += "print('numpy.random.mtrand' in sys.modules, numpy.random.PCG64(0).lock is not None)"
    assert run_python("-c", code, code=0).stdout == "False True\n"
