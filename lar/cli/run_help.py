"""The help of `lar run`: the options that most people use, or those of a group, or all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from lar.cli.arguments import (
    MODEL,
    Parser,
    add_rows,
    argument,
    headings_of,
    name_supporters,
    parser_of,
)
from lar.cli.commands import COMMANDS
from lar.cli.screen import format_entries, help_width
from lar.errors import UsageError
from lar.options.option import Group, Option
from lar.options.suggestions import nearest_spelling
from lar.options.table import COMMON, OPTIONS

GROUPS: tuple[Group, ...] = tuple(dict.fromkeys(option.group for option in OPTIONS))


class RunHelp(argparse.Action):
    """`--help`, `--help GROUP` and `--help all`: print the help and leave."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        is_model = "." in values or os.sep in values or os.path.exists(values)
        print(format_run_help("" if is_model else values), end="")
        parser.exit()
        raise AssertionError("argparse leaves")


# fmt: off
HELP = argument("-h --help GROUP", "print the options that most people use, those of GROUP, or all",
                action=RunHelp, nargs="?", const="")
# fmt: on


def format_run_help(asked: str = "") -> str:
    """Return the common options, or with `asked` those of a group, one by its name, or all.

    Raises:
        UsageError: there is no such group and no such option.
    """
    if not asked:
        return format_options(COMMON) + format_groups()
    if asked == "all":
        return format_options(OPTIONS)
    key = asked.lstrip("-").replace("-", "_")
    chosen = [option for option in OPTIONS if option.group.name == asked]
    chosen = chosen or [option for option in OPTIONS if option.key == key]
    if not chosen:
        names = [group.name for group in GROUPS]
        near = nearest_spelling(asked, [*names, "all"])
        raise UsageError(
            f"there is no group of options {asked!r}",
            f"did you mean `lar run --help {near}`?" if near else f"groups: {', '.join(names)}",
            flag="--help",
        )
    return format_options(chosen)


def format_options(options: Sequence[Option[Any]]) -> str:
    """Return the help of some options, under the headings of their groups."""
    from lar.engines import ENGINES, support_of_options  # slow to import, and only help asks them

    support = support_of_options()
    # An option that every engine honours needs no remark; one that times nothing lacks many.
    engines = {engine.name for engine in ENGINES if not engine.is_exact}
    partial = {key: names for key, names in support.items() if not engines <= set(names)}
    parser = Parser(prog="lar run", usage="lar MODEL [flags]", add_help=False)
    add_rows(parser, (MODEL, *headings_of(options)))
    name_supporters(parser, partial)
    if any(option.key in partial for option in options):
        parser.epilog = "[NAME]: only the engine of that name honours the flag"
    return parser.format_help()


def all_parsers() -> dict[str, Parser]:
    """Return the parsers of all commands, that of `lar run` with the names of engines."""
    from lar.engines import support_of_options  # slow to import

    parsers = {name: parser_of(name) for name in COMMANDS}
    name_supporters(parsers["run"], support_of_options())
    return parsers


def format_groups() -> str:
    """Return the list of the groups of options, as wide as the terminal."""
    import textwrap  # slow to import

    counted = {
        group.name: f"{group.title} ({sum(option.group == group for option in OPTIONS)} flags)"
        for group in GROUPS
    }
    text = "more flags: `lar run --help GROUP` prints those of a group, `lar run --help all` all"
    return "\n".join(["", textwrap.fill(text, help_width()), *format_entries(counted), ""])
