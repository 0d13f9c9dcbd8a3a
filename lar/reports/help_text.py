"""The help of options as text, as argparse prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any

    from lar.options.option import Option

# The column where descriptions begin. After a longer name, the description begins on a new line.
COLUMN = 24


def name_with_value(option: Option[Any]) -> str:
    """Return the flags of an option, each with the name or the choices of its value."""
    value = option.metavar or f"{{{','.join(option.choices)}}}"
    shown = f"[{value}]" if value.startswith(":") else f" {value}"
    return ", ".join(flag + shown if option.parse else flag for flag in option.flags)


def format_headings(headings: Mapping[str, Mapping[str, str]], width: int) -> Iterator[str]:
    """Yield the lines of names and their descriptions, under headings."""
    longest = max(len(name) for rows in headings.values() for name in rows)
    column = min(longest + 4, COLUMN, max(width - 20, 4))
    for heading, rows in headings.items():
        yield f"\n{heading}:"
        for name, text in rows.items():
            lines = wrap_words(text, max(width - column, 11))
            if len(name) > column - 4:
                yield f"  {name}"
            else:
                yield f"  {name:{column - 2}}{lines.pop(0)}"
            yield from (" " * column + line for line in lines)


def wrap_words(text: str, width: int) -> list[str]:
    """Return the lines of a text; only a line with a single word may be longer than `width`.

    The function replaces `textwrap`, whose import takes longer than printing a help text.
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and len(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
