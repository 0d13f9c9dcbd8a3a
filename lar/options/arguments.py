"""Options as arguments of argparse's parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from lar.options.option import Option


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
