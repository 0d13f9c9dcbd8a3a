"""The argument parsers of the commands, built from rows.

A row is a function that adds an argument to a parser, or a heading with the arguments below it. The
rows that need no Python code are declared in `arguments.json`, in lists. The name of a list is the
name of the command that uses the list, or another name if several commands use the list. A row in
`arguments.json` is an object with one of these keys:

    name      an argument such as "-o --output FILE", with `help` and other keywords of argparse
    option    the key of an option of `lar run`, with `text` if its help differs here
    heading   a heading of the help, with the rows below it in `rows`
    rows_of   the name of a shared list, whose rows are added
    actions   the actions of a command, each with its line of help and its rows

The key `choices_of` of an argument names a type whose members are the choices. A function or type
is given as `MODULE:NAME`, or by its name alone if its module is `lar.options.values`.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile

from lar import cli
from lar.cli import COMMANDS, load_command
from lar.cli.screen import help_width
from lar.errors import UsageError
from lar.files.input_file import FLAG
from lar.options.suggestions import SWITCH, nearest_spelling
from lar.options.values import parse_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from lar.options.option import Option


@functools.cache
def read_table(name: str) -> Mapping[str, Any]:
    """Return the content of a JSON file beside this module."""
    import json  # slow to import, and `lar --help` does not need it

    with open(os.path.join(os.path.dirname(__file__), f"{name}.json")) as file:
        return dict(json.load(file))


Row = Callable[[argparse._ActionsContainer], object]
"""A function that adds an argument, or a heading with its arguments, to a parser."""


def argument(names: str, text: str, **keywords: Any) -> Row:
    """Return the row of an argument such as `-o --output FILE`.

    For an argument without a flag, `names` has its key and the name of its value, such as `models
    MODEL`. A flag without a value is a switch. `keywords` are passed to argparse.
    """
    words = names.split()
    flags = [word for word in words if word.startswith("-")]
    keywords |= {"help": text.replace("%", "%%")}
    if metavar := " ".join(words[len(flags) or 1 :]):
        keywords |= {"metavar": metavar}
    elif "choices" not in keywords:
        keywords |= {"action": "store_true"}
    if keywords.get("nargs") == "*":  # without a default, argparse calls it required
        keywords = {"default": [], **keywords}
    return lambda parser: parser.add_argument(*(flags or words[:1]), **keywords)


# Not in `arguments.json`, which is slow to read: a run does without that file.
MODEL = argument("model MODEL", cli.MODEL)


def option(it: Option[Any], text: str = "", parse: Callable[[str], Any] | None = None) -> Row:
    """Return the row of an option of `lar run`.

    `text` replaces the option's help. `parse` replaces the option's parser, and an option with
    `parse` has no default.
    """
    keywords: dict[str, Any] = {"dest": it.key, "help": (text or it.help).replace("%", "%%")}
    if it.parse is None:
        keywords |= {"action": "store_true", "default": False}
    else:
        keywords |= {"type": parse or it.parse, "default": None if parse else it.default}
        keywords |= {"choices": it.choices} if it.choices else {}
        keywords |= {"metavar": it.metavar} if it.metavar else {}
        keywords |= {"action": "append", "default": None} if it.repeatable else {}
    return lambda parser: parser.add_argument(*it.flags, **keywords)


def heading(title: str, *rows: Row, text: str = "") -> Row:
    """Return the row of a heading and of the rows below it.

    The help prints `text` under the heading.
    """
    return lambda parser: add_rows(parser.add_argument_group(title, text or None), rows)


def headings_of(options: Iterable[Option[Any]], ending: str = "", **how: Any) -> list[Row]:
    """Return a row for each group of options: the heading of the group, and its options.

    `ending` is appended to each heading.
    """
    groups: dict[str, list[Row]] = {}
    for it in options:
        groups.setdefault(it.group.title, []).append(option(it, **how))
    return [heading(f"{title}{ending}", *rows) for title, rows in groups.items()]


def add_rows(parser: argparse._ActionsContainer, rows: Iterable[Row]) -> None:
    """Add rows to a parser, or to one of its headings."""
    for row in rows:
        row(parser)


def name_supporters(
    parser: argparse._ActionsContainer, support: Mapping[str, Sequence[str]]
) -> None:
    """Append to the help of each flag the names of the engines or styles that honour the flag.

    `support` has the names of engines or styles, by the key of the flag.
    """
    for action in parser._actions:
        if action.dest in support:
            action.help = f"{action.help} [{', '.join(support[action.dest])}]"


def declared(name: str) -> Row:
    """Return one row that adds all rows under a name in `arguments.json`."""
    return partial(add_declared, rows=read_table("arguments")[name])


def add_declared(parser: argparse._ActionsContainer, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of `arguments.json` to a parser, or to one of its headings."""
    for row in rows:
        match row:
            case {"name": names, "help": text, **how}:
                if "type" in how:
                    how["type"] = named(how["type"])
                if "choices_of" in how:
                    from typing import get_args  # slow to import, and few commands need it

                    how["choices"] = get_args(named(how.pop("choices_of")))
                argument(names, text, **how)(parser)
            case {"option": key, **how}:
                from lar.options.table import BY_KEY  # few commands import it themselves

                option(BY_KEY[key], **how)(parser)
            case {"heading": title, "rows": its}:
                add_declared(parser.add_argument_group(title), its)
            case {"rows_of": name}:
                add_declared(parser, read_table("arguments")[name])
            case {"actions": actions} if isinstance(parser, argparse.ArgumentParser):
                parsers = parser.add_subparsers(metavar="|".join(actions), required=True)
                for name, (text, its) in actions.items():
                    action = parsers.add_parser(
                        name, help=text, description=text, allow_abbrev=False
                    )
                    action.set_defaults(action=name, parser=action)
                    add_declared(action, its)


def named(name: str) -> Any:
    """Return the function or type that a name in `arguments.json` stands for."""
    import importlib

    module, _, its = name.rpartition(":")
    return getattr(importlib.import_module(module or "lar.options.values"), its)


MAX_FILE_SIZE = FLAG.lstrip("-").replace("-", "_")

# argparse searches the file system for a translation of each of its texts. lar has no translations,
# so the search is left out.
vars(argparse)["_"] = str


class Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that makes the help as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_width(least=20))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Keep the line breaks of a description, and wrap only lines that are too long."""
        import textwrap  # slow to import; argparse also imports it late

        return "\n".join(
            textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent + "  ")
            for line in text.splitlines()
        )


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of ending the process.

    `missing` replaces argparse's message for a missing argument, unless `missing` is empty.
    """

    missing = ""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **keywords})
        if self.add_help:  # `lar run` declares it with its other options
            self.add_argument("--debug", action="store_true", help="show the traceback of an error")
            self.add_argument(
                FLAG,
                metavar="SIZE",
                type=parse_bytes,
                default=argparse.SUPPRESS,  # so that an action's parser keeps an earlier value
                help="let lar read files of up to SIZE, such as 8G, before and after unpacking",
            )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments; a flag with an optional number takes only a numeric argument as value.

        If there is an error, only unknown flags are returned: they are the likely cause of other
        errors, such as a missing argument.
        """
        words = [*(sys.argv[1:] if args is None else args)]
        for place, (word, after) in enumerate(pairwise([*words, ""])):
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs == "?" and isinstance(action.const, float):
                is_number = re.fullmatch(r"-?[0-9.]+%?", after)
                words[place] = word if is_number else f"{word}={action.const:g}"
        try:
            return super().parse_known_args(words, namespace)
        except UsageError:
            if unknown := [*self.find_unknown(words)]:
                return argparse.Namespace(parser=self), unknown
            raise

    def find_unknown(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the unknown flags in a command line; stop at words that another parser parses."""
        known = self._option_string_actions
        for before, word in pairwise(["", *takewhile("--".__ne__, words)]):
            if before in known and known[before].nargs is None:
                continue  # the value of a flag
            flag = word.partition("=")[0]
            is_flag = re.match(r"-[^\d.\s]\S*$", flag)
            takes_all = flag in known and known[flag].nargs == argparse.REMAINDER
            if takes_all or (self._subparsers and not is_flag):
                return
            if is_flag and not known.keys() & {flag, flag[:2]}:
                yield word

    def format_help(self) -> str:
        return re.sub(r"(--\S+) (:[A-Z]+)(?:(\])| )?", r"\1[\2]\3", super().format_help())

    def error(self, message: str) -> NoReturn:
        # argparse writes "argument -o/--output: ..."; the flags alone, with a comma, are enough.
        message = re.sub(r"^argument (\S+):", lambda it: it[1].replace("/", ", ") + ":", message)
        if "arguments are required" in message and self.missing:
            message = self.missing
        elif "required: MODEL" in message:
            message = "no model is given"
        hint = f"`{self.prog} --help{' all' * (self.prog == 'lar run')}` lists what it takes"
        message, is_switch = re.subn("(?s)ignored explicit argument .*", SWITCH, message)
        hint = "leave its value out" if is_switch else hint
        if found := re.search(r"invalid choice: '(.*?)'.* \(choose from (.*)\)", message):
            near = nearest_spelling(found[1], [it.strip("'") for it in found[2].split(", ")])
            hint = f"did you mean {near}?" if near else hint
        raise UsageError(message, hint)


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


def all_parsers() -> dict[str, Parser]:
    """Return the parsers of all commands.

    In the help of `lar run`, each flag is followed by the names of the engines that honour the
    flag.
    """
    from lar.engines import support_of_options  # slow to import

    parsers = {name: parser_of(name) for name in COMMANDS}
    name_supporters(parsers["run"], support_of_options())
    return parsers


def normalize_flags(words: list[str]) -> list[str]:
    """Return the command-line arguments in the form that the parser accepts.

    Each flag is written in the spelling of its declaration. A value that begins with a minus, as in
    `--mean -1,2`, is joined to its flag. The argument `--` and all arguments after it stay as they
    are.
    """
    normal: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return normal + words[index:]
        if re.match(r"-[\d.]", word) and normal and re.fullmatch(r"--[a-z-]+", normal[-1]):
            normal[-1] += "=" + word
        else:
            normal.append(normalize_flag(word))
    return normal


def normalize_flag(word: str) -> str:
    """Return a flag in its declared form, such as `--warmup-iter=1` for `--warmup_iter=1`.

    The flag `--cuda` becomes `--cuda=0`, and `--cuda:1` becomes `--cuda=1`.
    """
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    flag = flag.replace("_", "-")
    if flag.startswith("--cuda:") and not equals:
        return "--cuda=" + flag.partition(":")[2]
    return "--cuda=0" if flag + equals == "--cuda" else flag + equals + value
