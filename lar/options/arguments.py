"""Options as arguments of argparse's parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.options.option import Group, Option
from lar.options.table import OPTIONS


def add_arguments(
    parser: argparse.ArgumentParser,
    support: Mapping[str, Sequence[str]],
    options: Sequence[Option[Any]] = OPTIONS,
) -> None:
    """Add options to a parser, under the headings of their groups.

    `support` gives the names of the engines that honour an engine option, shown after its help.
    """
    groups: dict[Group, argparse._ArgumentGroup] = {}
    for option in options:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group.title)
        engines = support.get(option.key)
        text = option.help + (f" [{', '.join(engines)}]" if engines else "")
        add_option(groups[option.group], option, text)


def add_option(
    parser: argparse._ActionsContainer,
    option: Option[Any],
    text: str = "",
    *,
    parse: Callable[[str], Any] | None = None,
) -> None:
    """Add one option to a parser or a group.

    `text` takes the place of its help. `parse` takes the place of its parser; the option then has
    no default, and its values are what `parse` makes of them.
    """
    keywords: dict[str, Any] = {
        "dest": option.key,
        "help": (text or option.help).replace("%", "%%"),
    }
    if option.parse is None:
        keywords |= {"action": "store_true", "default": False}
    else:
        default = None if parse else option.default
        keywords |= {"type": parse or option.parse, "default": default}
        keywords |= {"choices": option.choices} if option.choices else {}
        keywords |= {"metavar": option.metavar} if option.metavar else {}
        keywords |= {"action": "append", "default": None} if option.repeatable else {}
    parser.add_argument(*option.flags, **keywords)
