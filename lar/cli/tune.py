"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

from __future__ import annotations

import argparse
from typing import get_args

from lar.cli.bench import add_run_options
from lar.errors import UsageError
from lar.options.arguments import add_option
from lar.options.rules import Asked, check_rules, needs
from lar.options.table import FORCE, ON, PACKED_MODEL_DUMP, SAVE, SCHEDULER, SETTINGS, STORE, TAG
from lar.options.values import parse_duration, parse_error, parse_path, parse_share
from lar.options.variants import BENCH_KEYS
from lar.records.choices import Allowed, Objective

RULES = (needs(ON, any_of=(SCHEDULER,), why="a label is that of a scheduler's workers"),)

FORMATS = ("json", "csv", "html", "markdown")
SEVERAL = "; of several models a folder, with a file for each"
MODELS = "a model, with its twin in another format if there is one; several, or a folder of them"

# What has gone, and what does the same.
GONE = {
    "--resume": "`lar tune MODEL --session FILE` goes on with what FILE holds",
    "--algorithms": "`lar bench MODEL --vary fast-run-algo-policy=A,B` compares caches",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODELS)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--budget",
        type=parse_duration,
        default=120.0,
        metavar="S",
        help="search for at most S seconds, or 2m, for each model (default 120)",
    )
    group.add_argument(
        "--space",
        default="quick",
        metavar="quick|full|FILE",
        help="what is tried: what often helps (the default), all, or what a file says",
    )
    group.add_argument(
        "--list-space", action="store_true", help="print what would be tried, and measure nothing"
    )
    group.add_argument(
        "--engines",
        type=split_names,
        action="extend",
        default=[],
        metavar="A,B",
        help="try these engines alone",
    )
    group.add_argument(
        "--objective",
        choices=get_args(Objective),
        default="latency",
        help="what is to be small (throughput: large): latency is the median (default latency)",
    )
    group.add_argument(
        "--allow",
        type=parse_allowed,
        action="extend",
        default=[],
        metavar="A,B",
        help=f"try what needs your permission too: {', '.join(get_args(Allowed))}",
    )
    group.add_argument(
        "--tolerance",
        type=parse_error,
        metavar="E",
        help="take outputs for right whose |a - e| / max(|a|, |e|, 1) is at most E",
    )
    group.add_argument(
        "--margin",
        type=parse_share,
        default=0.01,
        metavar="SHARE",
        help="end when nothing that is left can win by as much (default 1%%)",
    )
    group.add_argument(
        "--session",
        type=parse_path,
        metavar="FILE",
        help="keep what is measured in this store, and go on with what it holds; `lar results "
        "FILE` shows it",
    )
    group = parser.add_argument_group("report")
    group.add_argument(
        "-o",
        "--output",
        type=parse_path,
        metavar="FILE",
        help="write the best settings, for `lar MODEL --settings FILE`" + SEVERAL,
    )
    for key in FORMATS:
        text = f"write what was found as {key}; - is standard output"
        group.add_argument(f"--{key}", type=parse_path, metavar="FILE", help=text)
    add_option(
        group,
        PACKED_MODEL_DUMP,
        "write the model with the best settings and their cache into one file, as far as the "
        "engine has one; what it cannot hold is printed" + SEVERAL,
    )
    add_option(group, SAVE, "keep the winner's results, and the plain run's, for `lar history`")
    add_option(group, TAG, "keep the results with this tag")
    add_option(group, STORE, "keep them in this store instead of the user's own")
    group = parser.add_argument_group("other machines")
    add_option(group, SCHEDULER, "measure on workers of this Dask scheduler (`lar help farm`)")
    add_option(group, ON)
    add_run_options(parser, "all candidates")


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


def main(arguments: argparse.Namespace) -> int:
    """Search for each model, or list what would be tried; return the exit code."""
    check_rules(RULES, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    for option in (SETTINGS, FORCE):
        if option.is_given(options):
            raise UsageError(
                "a search finds settings, and begins without",
                "leave it out; `lar bench` compares settings",
                flag=option.flag,
            )
    from lar.cli.tune_search import search_all  # the help needs none of it

    return search_all(arguments, options, FORMATS)
