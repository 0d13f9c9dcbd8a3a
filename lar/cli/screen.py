"""The width of the output, and whether it is in colour."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.reports.text import Screen


def screen_of_output() -> Screen:
    """Return what standard output is: as wide as COLUMNS says, else as the terminal is.

    A pipe or file without COLUMNS has any width. Colours are for a terminal, unless NO_COLOR is
    set or the terminal is a dumb one.
    """
    from lar.reports.text import Screen  # slow to import: a refusal needs no screen

    is_terminal = sys.stdout.isatty()
    width = parse_columns(os.environ.get("COLUMNS", ""))
    if width is None and is_terminal:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns or None
        except (OSError, ValueError):
            width = None
    is_dumb = os.environ.get("TERM") == "dumb"
    return Screen(width, is_terminal and not is_dumb and not os.environ.get("NO_COLOR"))


def parse_columns(text: str) -> int | None:
    """Return the width in COLUMNS, None if it has none."""
    return (int(text) or None) if re.fullmatch("[0-9]{1,6}", text) else None
