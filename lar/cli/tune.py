"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

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
    """Parse what --allow takes."""
    names = split_names(text)
    known = get_args(Allowed)
    for name in names:
        require(name in known, f"{name!r} cannot be allowed; give {', '.join(known)}")
    return names


# Options are texts: each run parses them together with its own.
ARGUMENTS = (declared("tune"), *headings_of(BENCH_OPTIONS, ", of all candidates", parse=str))


def main(arguments: argparse.Namespace) -> int:
    """Search for each model, or list what would be tried; return the exit code."""
    # Imported here, as what follows: the help needs none of it.
    from lar.options.rules import SHARED, Asked, check_rules

    check_rules(SHARED, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    for each in (SETTINGS, FORCE):
        if each.is_given(options):
            hint = "leave it out; `lar bench` compares settings"
            raise UsageError("a search finds settings, and begins without", hint, flag=each.flag)
    from lar.cli.tune_search import search_all

    return search_all(arguments, options)
