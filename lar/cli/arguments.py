"""The arguments of a command, as rows: headings of the help, and what stands there.

Rows that nothing computes are declared in `arguments.json`, by the command or by what several
commands take. There a row is one of

    {"name": "-o --output FILE", "help": ...}   an argument, with keywords of argparse; `choices_of`
                                                names a type that lists them
    {"option": "tag", "text": ...}              an option of `lar run`
    {"heading": ..., "rows": [...]}             a heading with its rows
    {"rows_of": "gates"}                        what several commands take
    {"actions": {"show": [..., [...]]}}         actions, each with a line about it and its rows

A function or type is named as `lar.cli.tune:parse_allowed`, or is one of `lar.options.values`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from lar.cli.commands import read_table

if TYPE_CHECKING:
    from lar.options.option import Option

Row = Callable[[argparse._ActionsContainer], object]
"""Adds an argument to a parser, or to a heading of it; or a heading with its arguments."""


def argument(names: str, text: str, **keywords: Any) -> Row:
    """Return the row of an argument: `-o --output FILE`, or `models MODEL`, a key and a value, for
    one without a flag. A flag without a value is a switch.

    `keywords` are those of argparse.
    """
    words = names.split()
    flags = [word for word in words if word.startswith("-")]
    keywords |= {"help": text.replace("%", "%%")}
    if metavar := " ".join(words[len(flags) or 1 :]):
        keywords |= {"metavar": metavar}
    elif "choices" not in keywords:
        keywords |= {"action": "store_true"}
    return lambda parser: parser.add_argument(*(flags or words[:1]), **keywords)


def option(it: Option[Any], text: str = "", parse: Callable[[str], Any] | None = None) -> Row:
    """Return the row of an option of `lar run`.

    `text` replaces its help. `parse` replaces its parser; the option then has no default, and
    `parse` makes its values.
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
    """Return the row of a heading; a text stands below it."""
    return lambda parser: add_rows(parser.add_argument_group(title, text or None), rows)


def headings_of(options: Iterable[Option[Any]], ending: str = "", **how: Any) -> list[Row]:
    """Return the headings of the groups of options; `ending` goes on with the titles."""
    groups: dict[str, list[Row]] = {}
    for it in options:
        groups.setdefault(it.group.title, []).append(option(it, **how))
    return [heading(f"{title}{ending}", *rows) for title, rows in groups.items()]


def add_rows(parser: argparse._ActionsContainer, rows: Iterable[Row]) -> None:
    """Add rows to a parser, or to a heading of it."""
    for row in rows:
        row(parser)


def name_supporters(
    parser: argparse._ActionsContainer, support: Mapping[str, Sequence[str]]
) -> None:
    """Add the names of the engines or styles that honour a flag to its help, by its key."""
    for action in parser._actions:
        if action.dest in support:
            action.help = f"{action.help} [{', '.join(support[action.dest])}]"


def declared(name: str) -> Row:
    """Return the rows that are declared under a name, as a single row."""
    return partial(add_declared, rows=read_table("arguments")[name])


def add_declared(parser: argparse._ActionsContainer, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of `arguments.json` to a parser, or to a heading of it."""
    for row in rows:
        match row:
            case {"name": names, "help": text, **how}:
                if "type" in how:
                    how["type"] = named(how["type"])
                if "choices_of" in how:
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
    """Return what a name in `arguments.json` stands for."""
    module, _, its = name.rpartition(":")
    return getattr(importlib.import_module(module or "lar.options.values"), its)
