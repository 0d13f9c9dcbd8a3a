"""The width of the output, and whether it is in colour."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from lar.errors import one_line

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Protocol, TextIO

    from lar.reports.text import Screen

    class Stream(Protocol):
        """A stream that may be a terminal."""

        def isatty(self) -> bool: ...
        def fileno(self) -> int: ...


def screen_of_output() -> Screen:
    """Return the width of standard output, and whether it has colours.

    The width is the value of COLUMNS if this variable is set, else the width of the terminal.
    Without COLUMNS, the lines of a pipe or file may have any width. A terminal has colours, unless
    NO_COLOR is set or TERM is dumb.
    """
    from lar.reports.text import Screen  # slow to import: a refusal needs no screen

    is_dumb = os.environ.get("TERM") == "dumb"
    has_colors = sys.stdout.isatty() and not is_dumb and not os.environ.get("NO_COLOR")
    return Screen(width_of(sys.stdout), has_colors)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a text as one line, by default to standard error; escape unprintable characters."""
    print(one_line(text), file=stream or sys.stderr, flush=True)


def width_of(stream: Stream) -> int | None:
    """Return the width of a stream, or None if its lines may have any width.

    The width is the value of COLUMNS if this variable is set, else the width of the terminal.
    """
    width = parse_columns(os.environ.get("COLUMNS", ""))
    if width is None and stream.isatty():
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or None
    return width


def parse_columns(text: str) -> int | None:
    """Return the width in the variable COLUMNS, or None if it is not a number above 0."""
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= 6 else None


def help_width(least: int = 40) -> int:
    """Return the width of help texts: two less than the width of the output, or 98 for a file."""
    return max((width_of(sys.stdout) or 100) - 2, least)


def format_entries(entries: Mapping[str, str]) -> list[str]:
    """Return a line for each name with its description, indented and wrapped."""
    from lar.reports.help_text import wrap_words  # only a help needs it

    column = max(map(len, entries)) + 4
    width = help_width(column + 20) - column
    return [
        f"  {name:{column - 2}}" + f"\n{' ' * column}".join(wrap_words(text, width))
        for name, text in entries.items()
    ]
