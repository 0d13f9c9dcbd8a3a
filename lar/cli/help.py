"""`lar help`: print the overview, a page of the manual in `lar/docs`, or a man page.

The man page is written from the parsers of the commands.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping

from lar import __version__
from lar.cli import COMMANDS, DOCS, overview, topics
from lar.cli.arguments import all_parsers, argument, parser_of
from lar.errors import UsageError
from lar.options.suggestions import nearest_spelling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lar.reports.text import Screen

DESCRIPTION = (
    "lar runs dumped models on the engine that reads their format, and prints how fast they run, "
    "whether their numbers are right and which settings make them fastest. `lar MODEL` is short "
    "for `lar run MODEL`. `lar help` lists the topics of the manual."
)


def format_man_page(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the man page of lar for section 1, in the markup of `man`."""
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
    """Yield the lines of the man page for a parser's arguments and for its actions."""
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
    return " ".join(filter(None, (names, value))).replace(r" \fI:ID\fR", r"[:\fIID\fR]")


def escape(text: str) -> str:
    """Return a text in which characters that `man` takes for markup are escaped.

    The escaped characters are hyphens, backslashes, and a dot or quote at the beginning.
    """
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


# A part of a page: a code block, a table, a heading, a paragraph or an item of a list.
PART = re.compile(
    r"^```.*?^```\n|(?:^\|[^\n]*\n)+|^#[^\n]*\n|^[^\n]+\n(?:(?!- |#|\||```)[^\n]+\n)*",
    re.MULTILINE | re.DOTALL,
)

# A link to another page of the manual; `lar help` prints the command for that page instead.
LINK = re.compile(r"\[[^]]+\]\(([a-z-]+)\.md\)")
ARGUMENTS = (
    argument("words TOPIC", "a topic of the manual, or a command of lar", nargs="*"),
    argument("--man", "print a man page of all commands, for `man -l FILE`"),
)


def main(arguments: argparse.Namespace) -> int:
    """Print the help that is asked for; return the exit code.

    Raises:
        UsageError: no command or topic has this name.
    """
    words: list[str] = arguments.words
    if arguments.man:
        print(format_man_page(all_parsers()))
    elif not words:
        print(overview())
    elif words[0] in COMMANDS:
        # An action of a command, `lar help cache show`, has a help text of its own.
        parser_of(words[0]).parse_args([*words[1:], "--help"])
    elif len(words) > 1:
        raise UsageError(f"{words[1]!r} is one topic too many", "`lar help TOPIC` prints one topic")
    else:
        page = page_of(words[0])
        from lar.cli.screen import screen_of_output  # the list of topics needs no tables

        screen = screen_of_output()
        if screen.width is not None:
            page = PART.sub(lambda it: fit_part(it[0], screen), page)
        sys.stdout.write(page)
    return 0


def page_of(topic: str) -> str:
    """Return the page of a topic of the manual; the beginning of the topic's name is enough.

    Raises:
        UsageError: no topic begins with this name, or more than one topic does.
    """
    known = topics()
    found = [name for name in known if name == topic or name.startswith(topic)]
    if len(found) != 1:
        near = nearest_spelling(topic, [*known, *COMMANDS])
        raise UsageError(
            f"there is no topic {topic!r}",
            f"did you mean `lar help {near}`?" if near else "`lar help` lists the topics",
        )
    with open(os.path.join(DOCS, f"{found[0]}.md"), encoding="utf-8") as file:
        return LINK.sub(r"`lar help \1`", file.read())


def fit_part(part: str, screen: Screen) -> str:
    """Return a part of a page, fitted to the screen.

    A paragraph that is too wide is wrapped again. A table is formatted like lar's own tables.
    """
    lines = part.splitlines()
    if part.startswith("|"):
        from lar.reports.model import WRAPPED
        from lar.reports.text import format_rows

        header, _, *rows = (
            [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in lines
        )
        lines = format_rows(header, rows, WRAPPED, screen)
    elif not part.startswith("```") and max(map(len, lines)) > (screen.width or 0):
        indent = "  " if part.startswith("- ") else ""
        lines = screen.wrap(" ".join(line.strip() for line in lines), indent)
    return "".join(f"{line}\n" for line in lines)
