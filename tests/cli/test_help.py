"""`lar help`: commands, topics of the manual, the man page; as wide as the terminal."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import pytest

from lar.cli import COMMANDS, other_way, topics
from lar.cli.arguments import Formatter, parser_of, read_table
from lar.cli.help import fit_part
from lar.cli.run_help import GROUPS
from lar.options.option import Group, flag_of
from lar.options.table import BY_KEY, COMMON, OPTIONS
from lar.records.goals import Allowed
from lar.reports.text import Screen
from lar.results import NAMES
from tests.command_lines import run_lar, run_program
from tests.tables import each_row


def printed(*words: str, columns: int = 0) -> str:
    """What a command line prints on standard output, on a terminal of so many columns."""
    with pytest.MonkeyPatch.context() as patch:
        if columns:
            patch.setenv("COLUMNS", str(columns))
        done = run_lar(*words, code=0)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"], ["help", "--debug"]])
def test_help_lists_commands_and_topics(words: list[str]) -> None:
    lines = printed(*words).splitlines()
    for name in [*COMMANDS, *topics()]:
        assert any(line.startswith(f"  {name} ") for line in lines), name


def test_every_topic_is_named_and_says_what_it_is_about() -> None:
    assert "running" in topics()
    assert all(topics().values())
    assert not topics().keys() & COMMANDS.keys()
    assert not any(other_way("commands", name) for name in COMMANDS)
    assert other_way("commands", "vary")


@pytest.mark.parametrize("topic", topics())
def test_a_page_is_no_wider_than_the_screen(topic: str) -> None:
    whole, fitted = printed("help", topic), printed("help", topic, columns=60)
    assert whole.startswith(f"# {topic}: {topics()[topic]}\n")
    code = set(re.findall(r"^```.*?^```", whole, re.MULTILINE | re.DOTALL))
    assert all(block in fitted for block in code)
    for block in code:
        fitted = fitted.replace(block, "")
    wide = [line for line in fitted.splitlines() if len(line) > 60]
    assert all(" " not in line.strip("- ") for line in wide), wide
    assert "|---" not in fitted


@each_row("cli/cases/parts of a page")
def test_a_part_of_a_page_is_fitted_to_the_screen(part: str, columns: int, fitted: str) -> None:
    assert fit_part(part, Screen(columns)) == fitted


@each_row("cli/cases/texts of help")
def test_a_help_has_this_text(words: str, columns: int, text: str) -> None:
    assert text in printed(*words.split(), columns=columns)


def test_the_beginning_of_a_topic_is_enough() -> None:
    assert printed("help", "runn") == printed("help", "running")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command(command: str) -> None:
    text = printed("help", command)
    assert text.startswith("usage: lar ")
    assert text == printed(command, "--help")


def flags_in(text: str) -> list[str]:
    """Return the flags in a help; the value of --cuda is optional, and follows without a space."""
    lines = [line for line in text.splitlines() if line.startswith("  --")]
    return [line.split()[0].removesuffix("[:ID]") for line in lines]


@pytest.mark.parametrize(
    "words",
    [
        *(["run", "--help"], ["m.onnx", "-h"], ["--iter", "3", "-h"], ["run", "-h", "m.onnx"]),
        *(["run", "--help", "--iter", "3"], ["run"]),
    ],
)
def test_the_help_of_a_run_has_the_flags_that_people_use(words: list[str]) -> None:
    text = printed(*(["help", "run"] if words == ["run"] else words))
    assert {*flags_in(text)} == {option.flag for option in COMMON}
    assert len(flags_in(text)) == 23
    assert "  --cuda[:ID]  " in text
    for group in GROUPS:
        assert f"\n  {group.name} " in text
    assert "`lar run --help all`" in text
    assert text.startswith("usage: lar MODEL")


@pytest.mark.parametrize("words", [["run", "--help", "all"], ["m.onnx", "--help=all"]])
def test_all_flags_of_a_run(words: list[str]) -> None:
    text = printed(*words)
    for option in OPTIONS:
        assert f"  {option.flag}" in text
        assert f"{option.group.title}:" in text


@pytest.mark.parametrize("group", GROUPS, ids=[group.name for group in GROUPS])
def test_the_flags_of_a_group(group: Group) -> None:
    flags = flags_in(printed("run", "--help", group.name))
    assert flags == [option.flag for option in OPTIONS if option.group == group]


@pytest.mark.parametrize("word", ["fast-run", "fast_run", "--help=--fast-run"])
def test_the_help_of_one_flag(word: str) -> None:
    words = [word] if word.startswith("--") else ["--help", word]
    assert flags_in(printed("run", *words)) == ["--fast-run"]


@pytest.mark.usefixtures("own_engines")
def test_only_what_not_every_engine_honours_names_engines() -> None:
    text = " ".join(printed("run", "--help", "layout").split())
    assert "in the layout nchw44 [megengine]" in text
    assert "in the layout nchw88 [megengine, onnxruntime]" in text
    assert "[NAME]: only the engine of that name" in text
    assert "[NAME]" not in printed("run", "--help", "dataset")


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its actions."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for its in action.choices.values():
                yield from arguments_of(its)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_line_can_be_read_alone(command: str) -> None:
    for action in arguments_of(parser_of(command)):
        text = action.help or ""
        assert text or isinstance(action, argparse._SubParsersAction), action
        # What a line refers to may stand in another group, or not be printed.
        assert not re.match(r"(the same|as above|this|it|them|that|and|then|also)\b", text), text
        assert not text.endswith(".") or text.endswith("..."), text


@pytest.mark.parametrize("columns", [80, 132])
@pytest.mark.parametrize("words", [["help"], ["run", "--help"], ["pack", "--help"]])
def test_help_is_as_wide_as_the_terminal(words: list[str], columns: int) -> None:
    lines = printed(*words, columns=columns).splitlines()
    assert max(map(len, lines)) <= columns
    # It uses what there is: no line is broken far before the end.
    assert max(map(len, lines)) > min(columns, 100) - 25


def test_the_man_page_has_every_command_and_flag() -> None:
    text = printed("help", "--man")
    for command in COMMANDS:
        assert f"\n.SS lar {command}\n" in text
    plain = text.replace(r"\-", "-")
    for key in BY_KEY:
        assert rf"\fB{flag_of(key)}\fR" in plain
    assert r"\fBlar cache pick\fR" in plain
    assert "==SUPPRESS==" not in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_reads_the_man_page() -> None:
    done = run_program(
        "groff",
        "-man",
        "-Tascii",
        "-ww",
        "-P-c",
        input=printed("help", "--man"),
        env={**os.environ, "LC_ALL": "C"},
        code=0,
    )
    assert done.stderr == ""
    assert "--warmup-iter" in done.stdout.replace("-\b-", "-").replace("\b", "") or done.stdout


def test_help_leaves_two_columns_of_the_terminal_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    formatter = Formatter("lar")
    formatter.add_text("ab" + " x" * 60)
    assert len(formatter.format_help().splitlines()[0]) == 58


def rows_in(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield rows of the table of arguments, and those below them."""
    for row in rows:
        yield row
        yield from rows_in(row.get("rows", ()))
        for _, its in row.get("actions", {}).values():
            yield from rows_in(its)


def test_each_row_of_the_table_of_arguments_is_of_a_kind_and_in_use() -> None:
    table = read_table("arguments")
    kinds = {"name", "option", "heading", "rows_of", "actions"}
    every = [row for rows in table.values() for row in rows_in(rows)]
    assert [row for row in every if len(kinds & {*row}) != 1] == []
    shared = {row["rows_of"] for row in every if "rows_of" in row}
    assert {*table} - {*COMMANDS} - {"what a report shows"} <= shared


def test_the_help_names_what_a_flag_takes() -> None:
    helps = {
        action.dest: action.help or ""
        for command in ("tune", "results")
        for action in parser_of(command)._actions
    }
    assert helps["allow"].endswith(f": {', '.join(get_args(Allowed))}")
    assert f": {', '.join(NAMES)}, or " in helps["by"]
