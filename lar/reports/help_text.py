"""The help of options as text, as argparse prints it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from lar.options.option import Option

# The column where descriptions begin. After a longer name, the description begins on a new line.
COLUMN = 24


def name_with_value(option: Option[Any]) -> str:
    """Return the flags of an option, each with the name or the choices of its value."""
    value = option.metavar or f"{{{','.join(option.choices)}}}"
    return ", ".join(f"{flag} {value}" if option.parse else flag for flag in option.flags)


def format_headings(headings: Mapping[str, Mapping[str, str]], width: int) -> Iterator[str]:
    """Yield the lines of names and their descriptions, under headings."""
    longest = max(len(name) for rows in headings.values() for name in rows)
    column = min(longest + 4, COLUMN, max(width - 20, 4))
    for heading, rows in headings.items():
        yield f"\n{heading}:"
        for name, text in rows.items():
            lines = textwrap.wrap(text, max(width - column, 11))
            if len(name) > column - 4:
                yield f"  {name}"
            else:
                yield f"  {name:{column - 2}}{lines.pop(0)}"
            yield from (" " * column + line for line in lines)
