"""`lar history`: results that runs with --save have stored: listed, plotted, checked, moved."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone

from lar.cli import gates
from lar.cli.results import FORMATS, add_table_arguments
from lar.options.arguments import add_option
from lar.options.table import STORE, TAG
from lar.options.values import parse_count, parse_positive, parse_tag

NEWEST = 30  # of a list
DURATION = re.compile(r"(\d+)([hdwy])")
HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        metavar="list|show|plot|check|add|export|import|prune", required=True
    )

    def add(name: str, text: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        action.set_defaults(action=name, parser=action)
        add_option(action, STORE, "the file of the store, instead of the user's own")
        return action

    listing = add("list", "list the stored results, newest last")
    add_selection(listing)
    listing.add_argument(
        *("-n", "--newest"),
        metavar="N",
        type=parse_count,
        default=NEWEST,
        help=f"the newest N of them (default {NEWEST}; 0: all)",
    )
    add_format(listing)

    show = add("show", "print stored results side by side, or one as JSON")
    show.add_argument("ids", metavar="ID", nargs="+", type=int, help="its number in the list")
    show.add_argument("--json", metavar="OUT", help="write the one whole result as JSON")
    add_table_arguments(show)

    plot = add("plot", "print how the medians of each kind of run went")
    add_selection(plot)
    plot.add_argument("--html", metavar="OUT", help="write a page with curves")

    check = add(
        "check",
        "compare new runs with stored ones of the same model, options and machine",
    )
    check.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="results of the new runs (default: the newest stored ones)",
    )
    check.add_argument(
        "--baseline",
        metavar="TAG",
        type=parse_tag,
        help="the tag of the runs to compare with; it has to be given, before --run",
    )
    add_option(check, TAG, "the tag of the new runs in the store; with --run they are stored so")
    check.add_argument(
        "--runs",
        metavar="N",
        type=parse_positive,
        default=5,
        help="how often --run runs the model (default 5)",
    )
    check.add_argument(
        "--run",
        dest="run_words",
        metavar="MODEL [flags]",
        nargs=argparse.REMAINDER,
        help="run this model now, with the flags after it; the last of the flags",
    )
    add_completion(check)
    add_format(check)
    gates.add_arguments(check)

    adding = add("add", "store results from files, and logs of C++ load_and_run")
    adding.add_argument("files", metavar="FILE", nargs="+", help="what --json wrote, or a log")
    add_option(adding, TAG, "store them with this tag")
    add_completion(adding)

    export = add("export", "copy stored results, with their tags, into another store")
    add_selection(export)
    export.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="the other store; made if it is missing",
    )

    importing = add("import", "store what other stores have, with its tags")
    importing.add_argument("files", metavar="STORE", nargs="+", help="a store")

    prune = add("prune", "remove results; without --yes print which")
    prune.add_argument("ids", metavar="ID", nargs="*", type=int, help="those of these numbers")
    add_selection(prune)
    prune.add_argument(
        "--older-than", metavar="AGE", type=parse_age, help="those older than 12h, 90d, 8w or 2y"
    )
    prune.add_argument(
        "--keep",
        metavar="N",
        type=parse_count,
        help="all but the newest N of each kind: of a model, its options, engine and machine",
    )
    prune.add_argument("--yes", action="store_true", help="remove them")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what a log does not say."""
    parser.add_argument(
        "--model", metavar="MODEL", help="the model that a log is of: its SHA-256 is what counts"
    )
    parser.add_argument("--machine", metavar="NAME", help="the machine that a log is from")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose results."""
    group = parser.add_argument_group("which results")
    add_option(group, TAG, "those with this tag")
    group.add_argument(
        "--model", metavar="MODEL", default="", help="a file's name, or the first of its SHA-256"
    )
    group.add_argument("--engine", metavar="NAME", default="", help="those of this engine")
    group.add_argument(
        "--machine", metavar="TEXT", default="", help="those of machines with TEXT in their name"
    )
    group.add_argument(
        "--options", metavar="TEXT", default="", help="those with TEXT in their options"
    )
    group.add_argument(
        "--since", metavar="DATE", type=parse_date, help="stored on 2025-06-01 or later"
    )
    group.add_argument("--before", metavar="DATE", type=parse_date, help="stored before that day")


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="the form of the table (default text)"
    )


def parse_date(text: str) -> str:
    """Parse a day, or a day and a time in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2025-06-01") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds")


def parse_age(text: str) -> str:
    """Parse an age; return the time so long ago."""
    found = DURATION.fullmatch(text)
    if found is None or len(found[1]) > 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 12h, 90d, 8w or 2y")
    age = timedelta(hours=int(found[1]) * HOURS[found[2]])
    moment = datetime.now(timezone.utc) - min(age, timedelta(days=365 * 1000))
    return moment.isoformat(timespec="seconds")


def main(arguments: argparse.Namespace) -> int:
    """Do what the action says; return the exit code."""
    from lar.cli.history_actions import ACTIONS  # not before: the help needs none of it

    return ACTIONS[arguments.action](arguments)
