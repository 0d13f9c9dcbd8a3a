"""The options of `lar report` that choose what a report shows.

Each style names the options that it honours (`lar.reports.styles`).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from lar.errors import UsageError
from lar.options.option import flag_of
from lar.options.values import parse_duration, read_number, require
from lar.reports.styles import STYLES, Style

# The keys of the options that every style honours.
KEYS = frozenset().union(*(style.options for style in STYLES.values()))


def parse_time(text: str) -> float:
    """Parse a time in seconds as a bound: it may have a unit, or be 0, negative or infinite."""
    with contextlib.suppress(argparse.ArgumentTypeError):
        return parse_duration(text)
    problem = f"{text!r} is not a number of seconds"
    value = read_number(text, problem)
    require(not math.isnan(value), problem)
    return value


def parse_rows(text: str) -> int:
    """Parse a number of rows; 0 means all, which is more than there can be."""
    require(re.fullmatch(r"[0-9]{1,9}", text), f"{text!r} is not a number of rows; 0 shows all")
    return int(text) or sys.maxsize


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names with commas between them."""
    return tuple(name.strip() for name in text.split(","))


def describe_choices() -> str:
    """Return what --sort, --group-by, --view and --columns accept, one paragraph for each style."""
    paragraphs = []
    for name, style in STYLES.items():
        kinds = (
            *(("--sort", style.sorts), ("--group-by", style.groups), ("--view", style.views)),
            ("--columns", style.columns),
        )
        choices = [f"{flag} {', '.join(known)}" for flag, known in kinds if known]
        if choices:
            text = f"{name}: {'; '.join(choices)}"
            paragraphs.append(textwrap.fill(text, 98, subsequent_indent="  "))
    return "\n".join(["keys of the styles:", *paragraphs])


def collect_report_options(values: Mapping[str, Any], name: str, style: Style) -> dict[str, Any]:
    """Return the options that are set.

    Raises:
        UsageError: the style does not honour an option, or does not know its value.
    """
    given = {key: it for key, it in values.items() if key in KEYS and it is not None}
    for key in given:
        if key not in style.options:
            able = [other for other, each in STYLES.items() if key in each.options]
            raise UsageError(
                f"the style {name} does not know this",
                f"styles that do: {', '.join(able)}",
                flag=flag_of(key),
            )
    check_choice("sort", given.get("sort"), style.sorts, name)
    check_choice("group_by", given.get("group_by"), style.groups, name)
    for view in given.get("view", ()):
        if now := style.former_views.get(view):
            hint = f"--view {now} has it now"
            raise UsageError("is a view no more", hint, flag=f"--view {view}")
        check_choice("view", view, style.views, name)
    for column in given.get("columns", ()):
        check_choice("columns", column, style.columns, name)
    return given


def check_choice(key: str, value: str | None, known: tuple[str, ...], name: str) -> None:
    """Refuse a value that a style does not know; a sort key may begin with + or -.

    Raises:
        UsageError: with the nearest known value, and all of them.
    """
    plain = re.sub(r"^[+-]", "", value or "")
    if value is None or not known or plain in known:
        return
    from lar.options.suggestions import nearest_spelling  # needed only for a mistake

    near = nearest_spelling(plain, known)
    raise UsageError(
        f"the style {name} does not know it",
        f"{near and f'did you mean {near}? '}it knows {', '.join(known)}",
        flag=f"{flag_of(key)} {value}",
    )
