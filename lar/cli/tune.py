"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

from __future__ import annotations

import argparse
from typing import get_args

from lar.cli.arguments import FORMS, argument, heading, headings_of, option
from lar.errors import UsageError
from lar.options.rules import Asked, check_rules, needs
from lar.options.table import FORCE, ON, PACKED_MODEL_DUMP, SAVE, SCHEDULER, SETTINGS, STORE, TAG
from lar.options.values import parse_duration, parse_error, parse_path, parse_share
from lar.options.variants import BENCH_KEYS, BENCH_OPTIONS
from lar.records.choices import Allowed, Objective

RULES = (needs(ON, any_of=SCHEDULER).because("a label is that of a scheduler's workers"),)

SEVERAL = "; for several models a folder with a file for each"
MODELS = "a model, its twins in other formats, several models, or a folder of them"


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse what --allow takes."""
    names = split_names(text)
    for name in names:
        if name not in get_args(Allowed):
            known = ", ".join(get_args(Allowed))
            raise argparse.ArgumentTypeError(f"{name!r} cannot be allowed; give {known}")
    return names


# fmt: off
ARGUMENTS = (
    argument("models MODEL", MODELS, nargs="+"),
    heading("search",
        argument("--budget S", "search for at most S seconds, or 2m, for each model (default 120)",
                 parse_duration, default=120.0),
        argument("--space quick|full|FILE", "try what often helps (quick, the default), all that "
                 "can matter, or what a file lists", default="quick"),
        argument("--list-space", "print what a search would try, and measure nothing"),
        argument("--engines A,B", "try only these engines", split_names, action="extend",
                 default=[]),
        argument("--objective", "the goal: smallest latency (the median; the default), memory or "
                 "p99, or largest throughput", choices=get_args(Objective), default="latency"),
        argument("--allow A,B", "try what needs your permission too: "
                 f"{', '.join(get_args(Allowed))}", parse_allowed, action="extend", default=[]),
        argument("--tolerance E", "accept outputs whose |a - e| / max(|a|, |e|, 1) is at most "
                 "E", parse_error),
        argument("--margin SHARE", "end when no remaining candidate can win by this much (default "
                 "1%)",
                 parse_share, default=0.01),
        argument("--session FILE", "keep all measured processes in this store, and go on with "
                 "those it holds; `lar results FILE` shows them", parse_path),
    ),
    heading("report",
        argument("-o --output FILE", "write the best settings, for `lar MODEL --settings FILE`"
                 + SEVERAL, parse_path),
        *(argument(f"--{key} FILE", f"write the ranking as {key}; - is standard output",
                   parse_path) for key in FORMS),
        option(PACKED_MODEL_DUMP, "write the model with the best settings and their cache into one "
               "file of the engine; lar prints what the file cannot hold" + SEVERAL),
        option(SAVE, "keep the results of the winner and of the plain run for `lar history`"),
        option(TAG, "keep the results with this tag"),
        option(STORE, "keep the results in this store instead of the user's own"),
    ),
    heading("other machines",
        option(SCHEDULER, "measure on workers of this Dask scheduler (`lar help farm`)"),
        option(ON),
    ),
    # Texts: each run parses them together with its own.
    *headings_of(BENCH_OPTIONS, ", of all candidates", parse=str),
)
# fmt: on


def main(arguments: argparse.Namespace) -> int:
    """Search for each model, or list what would be tried; return the exit code."""
    check_rules(RULES, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    for each in (SETTINGS, FORCE):
        if each.is_given(options):
            raise UsageError(
                "a search finds settings, and begins without",
                "leave it out; `lar bench` compares settings",
                flag=each.flag,
            )
    from lar.cli.tune_search import search_all  # the help needs none of it

    return search_all(arguments, options)
