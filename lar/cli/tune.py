"""`lar tune MODEL` finds the fastest settings that keep the model's outputs right."""

from __future__ import annotations

import argparse
from typing import get_args

from lar.cli.arguments import declared, headings_of
from lar.errors import UsageError
from lar.options.table import BENCH_KEYS, BENCH_OPTIONS, FORCE, SETTINGS
from lar.options.values import require
from lar.records.goals import Allowed


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse the names after --allow, and refuse unknown names."""
    names = split_names(text)
    known = get_args(Allowed)
    for name in names:
        require(name in known, f"{name!r} cannot be allowed; give {', '.join(known)}")
    return names


# Options stay texts: each run parses them together with its own options.
ARGUMENTS = (declared("tune"), *headings_of(BENCH_OPTIONS, ", of all candidates", parse=str))


def main(arguments: argparse.Namespace) -> int:
    """Find the best settings of each model, or list the settings to try; return the exit code."""
    # Imported here, like the module below: the help needs none of them.
    from lar.options.rules import SHARED, Asked, check_rules

    check_rules(SHARED, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    for each in (SETTINGS, FORCE):
        if each.is_given(options):
            hint = "leave the flag out; `lar bench` compares settings files"
            raise UsageError("`lar tune` reads no settings file", hint, flag=each.flag)
    from lar.cli.tune_search import search_all

    return search_all(arguments, options)
