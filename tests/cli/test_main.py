"""The command line from outside: help, versions, closed and full outputs, odd environments."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import lar
from lar.cli.main import explain_refusal
from tests.cli.failures import run_shell
from tests.cli.marks import each_format, needs_full
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.tables import each_row

posix_shell = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")


def test_help_is_not_held_back() -> None:
    # As most people have it, Python holds back what it prints into a pipe.
    done = run_lar("engines", "--help", env={"PYTHONUNBUFFERED": ""}, code=0)
    assert (done.stdout.startswith("usage: lar engines"), done.stderr) == (True, "")


def test_version() -> None:
    for word in ("--version", "version"):
        done = run_lar(word, code=0)
        assert (done.stdout, done.stderr) == (f"lar {lar.__version__}\n", "")


def test_a_file_is_a_model_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "comapre").write_bytes(b"no model")
    assert "unknown command" not in run_lar("comapre", cwd=tmp_path, code=2).stderr


# Standard input and outputs


@posix_shell
@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_closed_stdout(words: list[str]) -> None:
    done = run_shell('$LAR "$@" >&-', *words, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@posix_shell
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_run_with_closed_files(tmp_path: Path, write_script: WriteScript, closed: str) -> None:
    # The script prints and has generated data, so that each output has something to say.
    script = write_script(
        prints="noise", inputs=[{"name": "data", "dtype": "float32", "shape": [4]}]
    )
    report = tmp_path / "report.json"
    command = f'$LAR "$1" --iter 1 --verbose --json "$2" {closed}'
    done = run_shell(command, script, str(report), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert lar.read_result(report.read_bytes()).status == "ok"


@posix_shell
def test_error_with_closed_stderr_does_not_go_to_stdout() -> None:
    done = run_shell("$LAR --bogus 2>&-", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")


@posix_shell
def test_report_on_a_closed_stdout(write_script: WriteScript) -> None:
    done = run_shell('$LAR "$1" --json - >&-', write_script(), cwd=ROOT)
    assert done.returncode != 1  # nothing was compared
    assert "Traceback" not in done.stderr


@posix_shell
@needs_full
@pytest.mark.parametrize("words", ["--help", "{} --iter 1", "{} --json -"])
def test_full_stdout(write_script: WriteScript, words: str) -> None:
    done = run_shell('$LAR "$@" >/dev/full', *words.format(write_script()).split(), cwd=ROOT)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("lar: error: ")]
    assert len(errors) == 1
    assert "no space left on device" in errors[0].lower()
    assert done.returncode == 4


@posix_shell
@pytest.mark.parametrize("words", ["--help", "{} --iter 20000"])
def test_reader_that_goes_away(write_script: WriteScript, words: str) -> None:
    command = '$LAR "$@" | head -n 1; echo "${PIPESTATUS[0]}"'
    done = run_shell(command, *words.format(write_script()).split(), cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


# The environment


@posix_shell
@each_format
def test_empty_environment(suffix: str) -> None:
    words = f"models/one_operator.{suffix} --iter 1"
    done = run_shell(f"exec env -i $LAR {words}", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "=== finished test #0" in done.stdout


@pytest.mark.parametrize("columns", ["1", "0", "-5", "x", "1000000"])
def test_odd_widths(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = run_lar("run", "--help", code=0)
    assert (done.stderr, "--warmup-iter" in done.stdout) == ("", True)


@each_row("cli/cases/narrow encodings")
def test_narrow_encoding(write_script: WriteScript, environment: dict[str, str]) -> None:
    inputs = [{"name": "数据", "dtype": "float32", "shape": [4]}]
    script = write_script(inputs=inputs, outputs={"größe": [0.5, float("inf")]})
    # JSON has no infinity; a large number becomes one in float32.
    Path(script).write_text(Path(script).read_text().replace("Infinity", "1e300"))
    for words in ([script, "--iter", "1", "--model-info"], ["é.onnx"]):
        done = run_lar(*words, env=environment)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if words == ["é.onnx"] else 0)


@posix_shell
@pytest.mark.parametrize("words", ["engines", "models/one_operator.onnx --engine reference"])
def test_folder_that_is_gone(tmp_path: Path, words: str) -> None:
    (tmp_path / "gone").mkdir()
    command = 'cd "$1" && rmdir "$1" && shift && $LAR "$@"'
    absolute = words.replace("models", str(ROOT / "models")).split()
    done = run_shell(command, str(tmp_path / "gone"), *absolute, cwd=ROOT)
    assert done.returncode == 4
    assert done.stderr == (
        "lar: error: the current folder does not exist any more\n"
        "hint: change to a folder that exists\n"
    )


@posix_shell
@pytest.mark.parametrize(
    ("words", "files"),
    [("engines", 9), *(("models/one_operator.onnx --iter 1", it) for it in (9, 16))],
)
def test_too_few_open_files(words: str, files: int) -> None:
    done = run_shell(f'ulimit -n {files}; $LAR "$@"', *words.split(), cwd=ROOT)
    if files < 16:
        assert done.stderr == (
            "lar: error: the system refuses to open more files: too many open files\n"
            "hint: raise the limit: ulimit -n 256\n"
        )
    else:
        assert done.returncode == 0, done.stderr


@posix_shell
@needs_full
def test_error_with_full_stderr_keeps_its_exit_code() -> None:
    assert run_shell("$LAR missing.onnx 2>/dev/full", cwd=ROOT).returncode == 2


@each_row("cli/cases/errors of the system")
def test_what_the_system_refuses_has_a_reason_and_a_way_out(
    name: str, place: str | None, problem: str, hint: str
) -> None:
    number = getattr(errno, name)
    assert explain_refusal(OSError(number, os.strerror(number), place)) == (problem, hint)


def test_a_defect_of_lar_is_said_to_be_one() -> None:
    defect = ("KeyError: 'x'", "this is a defect of lar; --debug shows where")
    assert explain_refusal(KeyError("x")) == defect
