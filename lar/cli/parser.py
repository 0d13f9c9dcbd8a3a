"""The argument parser of the commands, and the width of what it prints."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from lar.cli.arguments import add_rows
from lar.cli.commands import COMMANDS, load_command
from lar.cli.screen import width_of
from lar.errors import UsageError
from lar.files.input_file import FLAG
from lar.options.values import parse_bytes

MAX_FILE_SIZE = FLAG.lstrip("-").replace("-", "_")

# argparse searches the file system for a translation of each of its texts. lar has no translations,
# so the search is left out.
vars(argparse)["_"] = str


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_width(least=20))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Keep the lines of a description, and wrap those that are too long."""
        import textwrap  # slow to import, as argparse knows

        return "\n".join(
            textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent + "  ")
            for line in text.splitlines()
        )


def help_width(least: int = 40) -> int:
    """Return the width of help: nearly COLUMNS, else the terminal's, else 100."""
    return max((width_of(sys.stdout) or 100) - 2, least)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of printing and leaving; `missing` is its
    message for a missing argument, if argparse's own words are not enough."""

    missing = ""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **keywords})
        if self.add_help:  # `lar run` declares it with its other options
            self.add_argument("--debug", action="store_true", help="show the traceback of an error")
            self.add_argument(
                FLAG,
                metavar="SIZE",
                type=parse_bytes,
                default=argparse.SUPPRESS,  # an action's own parser keeps what was given before it
                help="read files up to SIZE (as 8G) that are refused for what they unpack to",
            )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, with the next word of a flag whose number may be left out only if it is one."""
        words = [*(sys.argv[1:] if args is None else args)]
        for place, (word, after) in enumerate(pairwise([*words, ""])):
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs == "?" and isinstance(action.const, float):
                is_number = re.fullmatch(r"-?[0-9.]+%?", after)
                words[place] = word if is_number else f"{word}={action.const:g}"
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        # argparse writes "argument --iter: ..."; the flag alone says as much, with its other name.
        message = re.sub(
            r"^argument (\S+):", lambda match: match[1].replace("/", ", ") + ":", message
        )
        if "arguments are required" in message and self.missing:
            message = self.missing
        elif "required: MODEL" in message:
            message = "no model is given"
        raise UsageError(message, f"`{self.prog} --help` lists what it takes")


def parser_of(command: str) -> Parser:
    """Return the parser of a command."""
    # `lar run` has a help of its own: it has too many flags for one screen.
    parser = Parser(prog=f"lar {command}", description=COMMANDS[command], add_help=command != "run")
    module = load_command(command)
    parser.missing = getattr(module, "MISSING", "")
    parser.epilog = getattr(module, "EPILOG", None)
    parser.set_defaults(parser=parser)
    add_rows(parser, getattr(module, "ARGUMENTS", ()))
    return parser


def format_entries(entries: Mapping[str, str]) -> list[str]:
    """Return a line for each name with its description, indented and wrapped."""
    import textwrap

    column = max(map(len, entries)) + 4
    return [
        textwrap.fill(
            f"  {name:{column - 2}}{text}",
            help_width(column + 20),
            subsequent_indent=" " * column,
            break_on_hyphens=False,
        )
        for name, text in entries.items()
    ]
