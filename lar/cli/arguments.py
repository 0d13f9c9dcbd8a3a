"""The arguments of a command, as rows of a table: headings of the help, and what stands there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lar.options.option import Option

Row = Callable[[argparse._ActionsContainer], object]
"""Adds an argument to a parser, or to a heading of it; or a heading with its arguments."""


# What the files of a report may be.
FORMS = ("json", "csv", "html", "markdown")


def argument(
    names: str, text: str, parse: Callable[[str], Any] | None = None, **keywords: Any
) -> Row:
    """Return the row of an argument: `-o --output FILE`, or `models MODEL` for one without a flag,
    whose key comes first. A flag without a value is a switch.

    `parse` makes the value of a text; `keywords` are those of argparse.
    """
    words = names.split()
    flags = [word for word in words if word.startswith("-")]
    keywords |= {"help": text.replace("%", "%%")}
    keywords |= {"type": parse} if parse else {}
    if metavar := " ".join(words[len(flags) or 1 :]):
        keywords |= {"metavar": metavar}
    elif "choices" not in keywords:
        keywords |= {"action": "store_true"}
    return lambda parser: parser.add_argument(*(flags or words[:1]), **keywords)


def option(it: Option[Any], text: str = "", parse: Callable[[str], Any] | None = None) -> Row:
    """Return the row of an option of `lar run`; see `add_option`."""
    from lar.options.arguments import add_option  # `lar --help` does without

    return partial(add_option, option=it, text=text, parse=parse)


def heading(title: str, *rows: Row, text: str = "") -> Row:
    """Return the row of a heading; a text stands below it."""

    def add(parser: argparse._ActionsContainer) -> None:
        add_rows(parser.add_argument_group(title, text or None), rows)

    return add


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
