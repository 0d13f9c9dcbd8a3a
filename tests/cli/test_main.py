"""The command line from outside: help, versions, closed and full outputs, odd environments."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lar
from lar.cli.main import explain_refusal, main
from tests.cli.marks import each_format
from tests.command_lines import SCRIPTED_ENGINE
from tests.conftest import RunLar, WriteScript

posix_shell = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def run_shell(command: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which $LAR is lar and $1... are `words`."""
    return subprocess.run(
        ["bash", "-c", command.replace("$LAR", f"'{sys.executable}' -m lar"), "bash", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{cwd}:{SCRIPTED_ENGINE}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


# Help and version


def test_lar_alone(run_lar: RunLar) -> None:
    done = run_lar()
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("usage: lar MODEL")
    assert len(done.stdout.splitlines()) < 10


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(run_lar: RunLar, flag: str) -> None:
    done = run_lar(flag)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "info", "engines"):
        assert f"\n  {command} " in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize("word", ["--version", "version"])
def test_version(run_lar: RunLar, word: str) -> None:
    done = run_lar(word)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lar {lar.__version__}\n", "")


@pytest.mark.parametrize("command", ["info", "engines"])
def test_help_of_the_other_commands(run_lar: RunLar, command: str) -> None:
    # As most people have it, Python holds back what it prints into a pipe.
    done = run_lar(command, "--help", env={"PYTHONUNBUFFERED": ""})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: lar {command}")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["info"], "no model is given", "`lar info --help`"),
        (["info", "a.onnx", "b.onnx"], "'b.onnx' is one argument too many", "--"),
        (["info", "a.onnx", "--jsn", "x"], "unknown flag --jsn", "did you mean --json?"),
        (["engines", "x"], "'x' is one argument too many", "--"),
        (["engines", "--dbug"], "unknown flag --dbug", "did you mean --debug?"),
    ],
)
def test_words_that_make_no_command(
    run_lar: RunLar, words: list[str], message: str, hint: str
) -> None:
    done = run_lar(*words)
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"lar: error: {message}")
    assert len(rest) <= 1
    assert hint in "".join(rest)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["comapre", "a", "b"], "unknown command 'comapre'", "did you mean `lar compare`?"),
        (["repor", "a"], "unknown command 'repor'", "did you mean `lar report`?"),
        (["diff", "a", "b"], "unknown command 'diff'", "`lar compare A B`"),
        (["xyzzy"], "unknown command 'xyzzy'", "`lar help` lists the commands"),
        (["", "--iter", "3"], "unknown command ''", "`lar help` lists the commands"),
    ],
)
def test_an_unknown_command(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    error, its_hint = printed.err.splitlines()
    assert (printed.out, error) == ("", f"lar: error: {message}")
    assert its_hint.startswith("hint: ")
    assert hint in its_hint


@pytest.mark.parametrize("words", [["none.mge"], ["./none"], ["no/model"], ["run", "none"]])
def test_a_model_that_is_not_there_is_no_unknown_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "no such model file" in capsys.readouterr().err


def test_a_file_is_a_model_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("comapre").write_bytes(b"no model")
    assert main(["comapre"]) == 2
    assert "unknown command" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--itre", "did you mean --iter?"),
        ("--output", "--bin-out-dump"),
        ("--shapes", "--input 'NAME:{1,3,224,224}'"),
        ("--quiet", "`lar run --help` lists the flags"),
    ],
)
def test_the_hint_at_an_unknown_flag(
    flag: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models/one_operator.onnx", flag]) == 2
    error, its_hint = capsys.readouterr().err.splitlines()
    assert error == f"lar: error: unknown flag {flag}"
    assert hint in its_hint


# Standard input and outputs


@posix_shell
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["engines"]])
def test_closed_stdout(root: Path, words: list[str]) -> None:
    done = run_shell('$LAR "$@" >&-', *words, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")


@posix_shell
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_run_with_closed_files(
    root: Path, tmp_path: Path, write_script: WriteScript, closed: str
) -> None:
    # The script prints and has generated data, so that each output has something to say.
    script = write_script(
        prints="noise", inputs=[{"name": "data", "dtype": "float32", "shape": [4]}]
    )
    report = tmp_path / "report.json"
    command = f'$LAR "$1" --iter 1 --verbose --json "$2" {closed}'
    done = run_shell(command, script, str(report), cwd=root)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert lar.read_result(report.read_bytes()).status == "ok"


@posix_shell
def test_error_with_closed_stderr_does_not_go_to_stdout(root: Path) -> None:
    done = run_shell("$LAR --bogus 2>&-", cwd=root)
    assert (done.returncode, done.stdout) == (2, "")


@posix_shell
def test_report_on_a_closed_stdout(root: Path, write_script: WriteScript) -> None:
    done = run_shell('$LAR "$1" --json - >&-', write_script(), cwd=root)
    assert done.returncode != 1  # nothing was compared
    assert "Traceback" not in done.stderr


@posix_shell
@needs_full
@pytest.mark.parametrize("words", ["--help", "engines", "info {}", "{} --iter 1", "{} --json -"])
def test_full_stdout(root: Path, write_script: WriteScript, words: str) -> None:
    done = run_shell('$LAR "$@" >/dev/full', *words.format(write_script()).split(), cwd=root)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("lar: error: ")]
    assert len(errors) == 1
    assert "no space left on device" in errors[0].lower()
    assert done.returncode == 4


@posix_shell
@pytest.mark.parametrize("words", ["--help", "info {}", "{} --iter 20000"])
def test_reader_that_goes_away(root: Path, write_script: WriteScript, words: str) -> None:
    command = '$LAR "$@" | head -n 1; echo "${PIPESTATUS[0]}"'
    done = run_shell(command, *words.format(write_script()).split(), cwd=root)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


# The environment


@posix_shell
@each_format
def test_empty_environment(root: Path, suffix: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lar", f"models/one_operator.{suffix}", "--iter", "1"],
        cwd=root,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "=== finished test #0" in done.stdout


@pytest.mark.parametrize("columns", ["1", "0", "-5", "x", "1000000"])
def test_odd_widths(run_lar: RunLar, columns: str) -> None:
    done = run_lar("run", "--help", env={"COLUMNS": columns, "TERM": "dumb"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "--warmup-iter" in done.stdout


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_narrow_encoding(
    run_lar: RunLar, write_script: WriteScript, environment: dict[str, str]
) -> None:
    inputs = [{"name": "数据", "dtype": "float32", "shape": [4]}]
    script = write_script(inputs=inputs, outputs={"größe": [0.5, float("inf")]})
    # JSON has no infinity; a large number becomes one in float32.
    Path(script).write_text(Path(script).read_text().replace("Infinity", "1e300"))
    for words in (["info", script], [script, "--iter", "1", "--model-info"], ["é.onnx"]):
        done = run_lar(*words, env=environment)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if words == ["é.onnx"] else 0)


@posix_shell
@pytest.mark.parametrize("words", ["engines", "models/one_operator.onnx --iter 1"])
def test_folder_that_is_gone(root: Path, tmp_path: Path, words: str) -> None:
    (tmp_path / "gone").mkdir()
    command = 'cd "$1" && rmdir "$1" && shift && $LAR "$@"'
    absolute = words.replace("models", str(root / "models")).split()
    done = run_shell(command, str(tmp_path / "gone"), *absolute, cwd=root)
    assert done.returncode == 4
    assert done.stderr == (
        "lar: error: the current folder does not exist any more\n"
        "hint: change to a folder that exists\n"
    )


@posix_shell
@pytest.mark.parametrize("words", ["engines", "models/one_operator.onnx --iter 1"])
@pytest.mark.parametrize("files", [9, 16])
def test_too_few_open_files(root: Path, words: str, files: int) -> None:
    done = run_shell(f'ulimit -n {files}; $LAR "$@"', *words.split(), cwd=root)
    if files < 16:
        assert done.stderr == (
            "lar: error: the system refuses to open more: too many open files\n"
            "hint: raise the limit: ulimit -n 256\n"
        )
    else:
        assert done.returncode == 0, done.stderr


@posix_shell
@needs_full
def test_error_with_full_stderr_keeps_its_exit_code(root: Path) -> None:
    assert run_shell("$LAR missing.onnx 2>/dev/full", cwd=root).returncode == 2


# What it costs


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["run", "--help"], 0),
        (["model.onnx", "--bogus"], 2),
        (["missing.mge"], 2),
    ],
)
def test_help_and_usage_errors_load_nothing_heavy(words: list[str], code: int, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "lar", *words],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {"numpy", "msgspec", "onnx", "onnxruntime", "megengine", "megenginelite", "cv2"}
    assert not imported & heavy
    assert "lar.cli.main" in imported


@pytest.mark.parametrize(
    ("number", "place", "problem", "hint"),
    [
        (errno.EFBIG, None, "a file cannot be written: file too large", "make room"),
        (errno.ENOMEM, None, "out of memory", "ulimit -v"),
        (errno.EMFILE, None, "the system refuses to open more", "ulimit -n"),
        (errno.ENOSPC, "standard output", "standard output cannot be written", ""),
        (errno.EIO, "a.json", "a.json: input/output error", "--debug"),
        (errno.EIO, None, "the system refused: input/output error", "--debug"),
        (errno.ENOENT, "b.json", "b.json: no such file", "--debug"),
    ],
)
def test_what_the_system_refuses_has_a_reason_and_a_way_out(
    number: int, place: str | None, problem: str, hint: str
) -> None:
    said, way_out = explain_refusal(OSError(number, os.strerror(number), place))
    assert said.startswith(problem)
    assert (hint in way_out) if hint else way_out == ""
