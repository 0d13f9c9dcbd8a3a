"""`lar history`: results that runs with --save have stored: listed, plotted, checked, moved."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone

from lar.cli import gates
from lar.cli.arguments import argument, heading, option
from lar.cli.results import FORMAT, TABLE
from lar.options.table import STORE, TAG
from lar.options.values import parse_count, parse_positive, parse_tag

NEWEST = 30  # of a list
DURATION = re.compile(r"(\d+)([hdwy])")
HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


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


# fmt: off
IN_STORE = option(STORE, "use this store instead of the user's own")
# What a log does not say.
COMPLETION = (
    argument("--model MODEL", "the model of a log; its SHA-256 identifies it"),
    argument("--machine NAME", "the machine of a log"),
)
# What chooses results.
SELECTION = heading("which results",
    option(TAG, "those with this tag"),
    argument("--model MODEL", "those of this model: a file's name, or the beginning of its SHA-256",
             default=""),
    argument("--engine NAME", "those of this engine", default=""),
    argument("--machine TEXT", "those of machines with TEXT in their name", default=""),
    argument("--options TEXT", "those with TEXT in their options", default=""),
    argument("--since DATE", "those stored on this day or later, as 2025-06-01", parse_date),
    argument("--before DATE", "those stored before this day", parse_date),
)
ACTIONS = {
    "list": ("list the stored results, newest last", (
        IN_STORE,
        SELECTION,
        argument("-n --newest N", f"the newest N of them (default {NEWEST}; 0: all)", parse_count,
                 default=NEWEST),
        FORMAT,
    )),
    "show": ("print stored results side by side, or one as JSON", (
        IN_STORE,
        argument("ids ID", "a result's number in `lar history list`", int, nargs="+"),
        argument("--json OUT", "write one whole result as JSON"),
        *TABLE,
    )),
    "plot": ("print how the medians of each kind of run have changed", (
        IN_STORE,
        SELECTION,
        argument("--html OUT", "write a page with curves"),
    )),
    "check": ("compare new runs with stored ones of the same model, options and machine", (
        IN_STORE,
        argument("files FILE", "results of the new runs (default: the newest stored ones)",
                 nargs="*"),
        argument("--baseline TAG", "the tag of the runs to compare with; required, and before "
                 "--run", parse_tag),
        option(TAG, "the tag of the new runs in the store; --run stores them with it"),
        argument("--runs N", "how often --run runs the model (default 5)", parse_positive,
                 default=5),
        argument("--run MODEL [flags]", "run this model now with these flags; put --run last",
                 dest="run_words", nargs=argparse.REMAINDER),
        *COMPLETION,
        FORMAT,
        *gates.ARGUMENTS,
    )),
    "add": ("store results from files, and logs of C++ load_and_run", (
        IN_STORE,
        argument("files FILE", "what --json wrote, or a log", nargs="+"),
        option(TAG, "store them with this tag"),
        *COMPLETION,
    )),
    "export": ("copy stored results, with their tags, into another store", (
        IN_STORE,
        SELECTION,
        argument("-o --output OUT", "the other store; made if it is missing", required=True),
    )),
    "import": ("copy the results of other stores, with their tags", (
        IN_STORE,
        argument("files STORE", "a store", nargs="+"),
    )),
    "prune": ("remove results; without --yes print which", (
        IN_STORE,
        argument("ids ID", "the results of these numbers", int, nargs="*"),
        SELECTION,
        argument("--older-than AGE", "those older than 12h, 90d, 8w or 2y", parse_age),
        argument("--keep N", "all but the newest N of each kind: same model, options, engine and "
                 "machine", parse_count),
        argument("--yes", "remove the results instead of printing them"),
    )),
}
# fmt: on


def main(arguments: argparse.Namespace) -> int:
    """Do what the action says; return the exit code."""
    from lar.cli import history_actions  # not before: the help needs none of it

    code: int = getattr(history_actions, f"{arguments.action}_results")(arguments)
    return code
