"""`lar help`: commands, topics of the manual, the man page; as wide as the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from lar.cli.commands import COMMANDS, OTHER_WAYS
from lar.cli.help import topics
from lar.cli.main import main
from lar.options.option import flag_of
from lar.options.table import BY_KEY


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command line prints on standard output."""
    assert main(words) == code
    output, errors = capsys.readouterr()
    assert not errors
    return output


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    output, errors = capsys.readouterr()
    assert not output
    return errors


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_lists_commands_and_topics(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, *words).splitlines()
    for name in [*COMMANDS, *topics()]:
        assert any(line.startswith(f"  {name} ") for line in lines), name


def test_every_topic_is_named_and_says_what_it_is_about() -> None:
    assert "running" in topics()
    assert all(topics().values())
    assert not topics().keys() & COMMANDS.keys()
    assert not OTHER_WAYS.keys() & COMMANDS.keys()


@pytest.mark.parametrize("topic", topics())
def test_a_topic_is_its_page(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "help", topic).startswith(f"# {topic}: {topics()[topic]}\n")


def test_the_beginning_of_a_topic_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "help", "runn") == printed(capsys, "help", "running")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "help", command)
    assert text.startswith(f"usage: lar {command}")
    assert text == printed(capsys, command, "--help")


def test_the_help_of_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "help", "cache", "show")
    assert text.startswith("usage: lar cache show")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["runing"], "there is no topic 'runing'", "did you mean `lar help running`?"),
        (["comapre"], "there is no topic 'comapre'", "did you mean `lar help compare`?"),
        (["xyzzy"], "there is no topic 'xyzzy'", "`lar help` lists the topics"),
        (["running", "run"], "'run' is one topic too many", "`lar help TOPIC`"),
    ],
)
def test_no_such_topic(
    words: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = error_of(capsys, "help", *words)
    assert text.startswith(f"lar: error: {error}\nhint: ")
    assert hint in text


@pytest.mark.parametrize("columns", [80, 132])
@pytest.mark.parametrize("words", [["help"], ["run", "--help"], ["pack", "--help"]])
def test_help_is_as_wide_as_the_terminal(
    words: list[str],
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, *words).splitlines()
    assert max(map(len, lines)) <= columns
    # It uses what there is: no line is broken far before the end.
    assert max(map(len, lines)) > min(columns, 100) - 25


def test_the_man_page_has_every_command_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "help", "--man")
    for command in COMMANDS:
        assert f"\n.SS lar {command}\n" in text
    plain = text.replace(r"\-", "-")
    for key in BY_KEY:
        assert rf"\fB{flag_of(key)}\fR" in plain
    assert r"\fBlar cache pick\fR" in plain


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_reads_the_man_page(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c"],
        input=printed(capsys, "help", "--man"),
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert "--warmup-iter" in done.stdout.replace("-\b-", "-").replace("\b", "") or done.stdout
