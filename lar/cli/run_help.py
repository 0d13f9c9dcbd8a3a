"""The help of `lar run`: the common options, the options of a group, or all options."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lar.cli import MODEL
from lar.cli.screen import format_entries, help_width
from lar.errors import UsageError
from lar.options.option import Group, Option
from lar.options.suggestions import nearest_spelling
from lar.options.table import COMMON, OPTIONS

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any

GROUPS: tuple[Group, ...] = tuple(dict.fromkeys(option.group for option in OPTIONS))


def print_run_help(asked: str) -> None:
    """Print the help for `--help`, `--help GROUP` or `--help all`.

    A model after `--help` is not taken for the name of a group.
    """
    is_model = "." in asked or os.sep in asked or os.path.exists(asked)
    print(format_run_help("" if is_model else asked), end="")


def format_run_help(asked: str = "") -> str:
    """Return the help of the common options, of a group, of one option, or of all options.

    Raises:
        UsageError: no group and no option has the name `asked`.
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
    """Return the help of options, under the headings of their groups."""
    from lar.engines import ENGINES, support_of_options
    from lar.reports.help_text import format_headings, name_with_value, wrap_words

    # An option that every engine honours needs no remark. Engines that time nothing do not count,
    # since they lack many options.
    engines = {engine.name for engine in ENGINES if not engine.is_exact}
    remarks = {
        key: f" [{', '.join(names)}]"
        for key, names in support_of_options().items()
        if not engines <= set(names)
    }
    headings = {"positional arguments": {"MODEL": MODEL}}
    for option in options:
        rows = headings.setdefault(option.group.title, {})
        rows[name_with_value(option)] = option.help + remarks.get(option.key, "")
    width = help_width(least=20)
    lines = ["usage: lar MODEL [flags]", *format_headings(headings, width)]
    if any(option.key in remarks for option in options):
        lines += ["", *wrap_words("[NAME]: only the engine of that name honours the flag", width)]
    return "\n".join([*lines, ""])


def format_groups() -> str:
    """Return the list of the groups of options, as wide as the terminal."""
    from lar.reports.help_text import wrap_words

    counted = {
        group.name: f"{group.title} ({sum(option.group == group for option in OPTIONS)} flags)"
        for group in GROUPS
    }
    text = "more flags: `lar run --help GROUP` prints one group, `lar run --help all` prints all"
    return "\n".join(["", *wrap_words(text, help_width()), *format_entries(counted), ""])
