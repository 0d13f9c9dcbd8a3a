"""The flags of `lar report` that choose what a report shows, each declared once.

The row of a style (`lar.reports.styles`) names those that it honours.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lar.errors import UsageError
from lar.options.option import flag_of
from lar.options.values import parse_duration, parse_pattern
from lar.reports.styles import STYLES, Style


class ReportOption(NamedTuple):
    """One flag; without `parse` it is a switch. `flags` are its other names."""

    key: str
    help: str
    parse: Callable[[str], Any] | None = None
    metavar: str = ""
    choices: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    repeatable: bool = False


def parse_time(text: str) -> float:
    """Parse a time in seconds, which may have a unit, or be 0, negative or infinite, as a bound."""
    with contextlib.suppress(argparse.ArgumentTypeError):
        return parse_duration(text)
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if value != value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def parse_rows(text: str) -> int:
    """Parse a number of rows; 0 means all, which is more than there can be."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows; 0 shows all")
    return int(text) or sys.maxsize


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names between commas."""
    return tuple(name.strip() for name in text.split(","))


# fmt: off
REPORT_OPTIONS: tuple[ReportOption, ...] = (
    ReportOption("sort", "sort by this column or key (the end of this help lists them)", str, "KEY",
                 flags=("--order-by",)),
    ReportOption("top", "show the first N rows; 0: all", parse_rows, "N", flags=("-t",)),
    ReportOption("group_by", "make one row of all that agree in this", str, "KEY"),
    ReportOption("filter", "show only operators whose name or type matches", parse_pattern,
                 "REGEX"),
    ReportOption("view", "show only this part of the report; may be given again", str, "NAME",
                 repeatable=True),
    ReportOption("metrics", "print these metrics of each row, A,B,...", parse_names, "A,B"),
    ReportOption("columns", "print these figures beside those of the style", parse_names, "A,B"),
    ReportOption("time_unit", "unit of times", str, choices=("s", "ms", "us", "ns")),
    ReportOption("type", "show only operators of this type; may be given again", str, "TYPE",
                 repeatable=True),
    ReportOption("aggregate_by", "put the operators of one type together", str, choices=("type",)),
    ReportOption("aggregate", "how --aggregate-by combines times", str,
                 choices=("max", "min", "sum", "mean")),
    ReportOption("opr_name", "show only operators whose name matches", parse_pattern, "REGEX"),
    ReportOption("input_dtype", "show only operators with an input of this dtype", str, "DTYPE"),
    ReportOption("top_end_key", "what counts as an operator's time: to its end, or its wait alone",
                 str, choices=("end", "kern")),
    ReportOption("copy_time", "show the time that copies take"),
    ReportOption("min_time", "show only operators that take at least this many seconds", parse_time,
                 "SECONDS"),
    ReportOption("max_time", "show only operators that take at most this many seconds", parse_time,
                 "SECONDS"),
    ReportOption("show_host", "show the host's times"),
    ReportOption("dump_only_opr", "print only the operators' names, for a diff of two profiles"),
    ReportOption("confluence", "print tables in Confluence markup", flags=("--wiki",)),
    ReportOption("print_only", "print only this part", str, choices=("host", "device", "summary")),
)
# fmt: on
BY_KEY: Mapping[str, ReportOption] = {option.key: option for option in REPORT_OPTIONS}


def add_report_options(parser: argparse._ActionsContainer) -> None:
    """Add the flags to a parser; each help says which styles honour it."""
    group = parser.add_argument_group("what is shown")
    for option in REPORT_OPTIONS:
        able = [name for name, style in STYLES.items() if option.key in style.options]
        text = option.help if len(able) == len(STYLES) else f"{option.help} [{', '.join(able)}]"
        names = [flag_of(option.key), *option.flags]
        given: dict[str, Any] = {"dest": option.key, "help": text, "default": None}
        if option.parse is None:
            given |= {"action": "store_true"}
        else:
            given |= {"type": option.parse, "metavar": option.metavar or None}
            if option.choices:
                given |= {"choices": option.choices}
            if option.repeatable:
                given |= {"action": "append"}
        group.add_argument(*names, **given)


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
        UsageError: the style does not honour one, or has no such sort key, group, view or column.
    """
    given = {key: values[key] for key in BY_KEY if values.get(key) is not None}
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
        UsageError: with the nearest that it knows, and all of them.
    """
    plain = re.sub(r"^[+-]", "", value or "")
    if value is None or not known or plain in known:
        return
    from lar.options.suggestions import nearest_spelling  # a mistake alone needs it

    near = nearest_spelling(plain, known)
    raise UsageError(
        f"the style {name} does not know it",
        f"{near and f'did you mean {near}? '}it knows {', '.join(known)}",
        flag=f"{flag_of(key)} {value}",
    )
