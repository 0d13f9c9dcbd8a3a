"""`lar completion`: scripts that the shells accept, and what bash completes with one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lar.cli import COMMANDS, topics
from lar.cli.completion import LAST_OF_ZSH, RUN_OF_ZSH
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.reports.styles import STYLES
from tests.command_lines import run_lar, run_program

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a file."""
    path = tmp_path_factory.mktemp("completion") / "lar.bash"
    path.write_text(run_lar("completion", "bash", code=0).stdout)
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
    done = run_program("bash", "-c", code, str(script), *words, cwd=script.parent, code=0)
    return set(done.stdout.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_has_every_command_and_flag(shell: str) -> None:
    script = run_lar("completion", shell, code=0).stdout
    for command in COMMANDS:
        assert command in script
    for key in BY_KEY:
        assert flag_of(key).lstrip("-") in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed to read the script")
    run_program(program, "-n", input=script, code=0)


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
    styles = {style for style in STYLES if style.startswith("t")}
    assert complete(bash_script, "report", "--style", "t") == styles
    assert complete(bash_script, "completion", "") == set(SHELLS)
    assert complete(bash_script, "help", "") == {*COMMANDS, *topics()}


@needs_bash
def test_bash_completes_files_and_folders(bash_script: Path) -> None:
    (bash_script.parent / "data.npy").touch()
    (bash_script.parent / "dump").mkdir()
    assert complete(bash_script, "run", "d") == {"data.npy", "dump"}
    assert complete(bash_script, "m.mge", "--input", "d") == {"data.npy", "dump"}
    assert complete(bash_script, "m.mge", "--bin-io-dump", "d") == {"dump"}


def test_zsh_completes_the_flags_of_a_run_after_a_model() -> None:
    assert LAST_OF_ZSH + RUN_OF_ZSH in run_lar("completion", "zsh", code=0).stdout
