"""The width of the output, and whether it is in colour."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

from lar.errors import one_line

if TYPE_CHECKING:
    from lar.cli.output_stream import Outlet
    from lar.reports.text import Screen


def screen_of_output() -> Screen:
    """Return what standard output is: as wide as COLUMNS says, else as the terminal is.

    A pipe or file without COLUMNS has any width. Colours are for a terminal, unless NO_COLOR is
    set or the terminal is a dumb one.
    """
    from lar.reports.text import Screen  # slow to import: a refusal needs no screen

    is_dumb = os.environ.get("TERM") == "dumb"
    has_colors = sys.stdout.isatty() and not is_dumb and not os.environ.get("NO_COLOR")
    return Screen(width_of(sys.stdout), has_colors)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print one line, by default to standard error, whatever names it holds."""
    print(one_line(text), file=stream or sys.stderr, flush=True)


def width_of(stream: TextIO | Outlet) -> int | None:
    """Return how many letters a line of a stream may have: as COLUMNS says, else as its terminal
    has; None for any number."""
    width = parse_columns(os.environ.get("COLUMNS", ""))
    if width is None and stream.isatty():
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or None
    return width


def parse_columns(text: str) -> int | None:
    """Return the width in COLUMNS, None if it has none."""
    return (int(text) or None) if re.fullmatch("[0-9]{1,6}", text) else None
