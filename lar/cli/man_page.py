"""The man page of lar, written from the parsers of its commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from lar import __version__
from lar.cli.commands import COMMANDS

DESCRIPTION = (
    "lar runs dumped models on the engine that reads their format, and prints how fast they run, "
    "whether their numbers are right and which settings make them fastest. `lar MODEL` is short "
    "for `lar run MODEL`. `lar help` lists the topics of the manual."
)


def format_man_page(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return a page of section 1 in the language of man."""
    lines = [
        f'.TH LAR 1 "" "lar {__version__}" "User Commands"',
        ".SH NAME",
        r"lar \- run dumped models and time them",
        ".SH SYNOPSIS",
        r"\fBlar\fR \fIMODEL\fR [\fIflags\fR]",
        ".br",
        r"\fBlar\fR \fICOMMAND\fR ...",
        ".SH DESCRIPTION",
        escape(DESCRIPTION),
        ".SH COMMANDS",
    ]
    for name, parser in parsers.items():
        text = COMMANDS[name]
        lines += [f".SS lar {name}", escape(f"{text[0].upper()}{text[1:]}.")]
        lines += describe_parser(parser)
    return "\n".join(lines)


def describe_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Give the lines of a parser's arguments, then those of its actions' parsers."""
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                for its in action.choices.values():
                    yield from (
                        ".PP",
                        rf"\fB{escape(its.prog)}\fR: {escape(its.description or '')}",
                    )
                    yield from describe_parser(its)
            elif action.dest != "help" and action.help != argparse.SUPPRESS:
                yield from (
                    ".TP",
                    describe_argument(action),
                    escape((action.help or "").replace("%%", "%")),
                )


def describe_argument(action: argparse.Action) -> str:
    """Return the names of an argument and of its value."""
    value = ""
    if action.nargs != 0:
        name = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
        value = rf"\fI{escape(str(name))}\fR"
    names = ", ".join(rf"\fB{escape(name)}\fR" for name in action.option_strings)
    return " ".join(part for part in (names, value) if part)


def escape(text: str) -> str:
    """Return a text in which man finds no commands: hyphens, backslashes and leading dots."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text
