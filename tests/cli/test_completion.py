"""`lar completion`: scripts that the shells accept, and what bash completes with one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from lar.cli.commands import COMMANDS
from lar.cli.completion import LAST_OF_ZSH, RUN_OF_ZSH
from lar.cli.help import topics
from lar.cli.main import main
from lar.options.option import flag_of
from lar.options.table import BY_KEY

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a file."""
    path = tmp_path_factory.mktemp("completion") / "lar.bash"
    with path.open("w") as file, contextlib.redirect_stdout(file):
        assert main(["completion", "bash"]) == 0
    return path


def complete(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words, with the folder of the script as the current
    one."""
    code = (
        'source "$0"; [ "$(complete -p lar)" ] || exit 1\n'
        'COMP_WORDS=(lar "$@"); COMP_CWORD=$#; COMPREPLY=()\n'
        '$(complete -p lar | sed -E "s/.* -F ([^ ]+) .*/\\1/")\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", code, str(script), *words],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_has_every_command_and_flag(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command in script
    for key in BY_KEY:
        assert flag_of(key).lstrip("-") in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed to read the script")
    subprocess.run(
        [program, "-n"], input=script, text=True, timeout=30, check=True, capture_output=True
    )


@needs_bash
def test_bash_completes_flags(bash_script: Path) -> None:
    layouts = {"nchw4", "nchw44", "nchw44-dot", "nchw88", "nchw32", "nchw64", "nhwcd4"}
    flags = {f"--enable-{layout}" for layout in layouts}
    assert complete(bash_script, "run", "--enable-n") == flags
    # `lar MODEL` is short for `lar run MODEL`.
    assert complete(bash_script, "model.mge", "--enable-n") == flags
    assert complete(bash_script, "cache", "show", "--op") == {"--operator"}
    assert complete(bash_script, "info", "--enable-n") == set()


@needs_bash
def test_bash_completes_commands_topics_and_values(bash_script: Path) -> None:
    assert complete(bash_script, "co") == {"compare", "completion"}
    assert complete(bash_script, "cache", "") == {"show", "diff", "merge", "pick"}
    assert complete(bash_script, "run", "--input-layout", "n") == {"nchw", "nhwc"}
    assert complete(bash_script, "report", "--style", "t") == {"torch", "tensorboard"}
    assert complete(bash_script, "completion", "") == set(SHELLS)
    assert complete(bash_script, "help", "") == {*COMMANDS, *topics()}


@needs_bash
def test_bash_completes_files_and_folders(bash_script: Path) -> None:
    (bash_script.parent / "data.npy").touch()
    (bash_script.parent / "dump").mkdir()
    assert complete(bash_script, "run", "d") == {"data.npy", "dump"}
    assert complete(bash_script, "m.mge", "--input", "d") == {"data.npy", "dump"}
    assert complete(bash_script, "m.mge", "--bin-io-dump", "d") == {"dump"}


def test_zsh_completes_the_flags_of_a_run_after_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "zsh"]) == 0
    assert LAST_OF_ZSH + RUN_OF_ZSH in capsys.readouterr().out


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "invalid choice: 'csh'" in capsys.readouterr().err
