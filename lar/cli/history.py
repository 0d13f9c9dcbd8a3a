"""`lar history`: list, plot, check and move the results that runs with --save have stored."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone

from lar.cli.arguments import declared

DURATION = re.compile(r"(\d+)([hdwy])")
HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


def parse_date(text: str) -> str:
    """Parse a day, or a day with a time; the time zone is UTC by default."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2025-06-01") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds")


def parse_age(text: str) -> str:
    """Parse an age such as 90d; return the date and time of 90 days ago."""
    found = DURATION.fullmatch(text)
    if found is None or len(found[1]) > 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 12h, 90d, 8w or 2y")
    age = timedelta(hours=int(found[1]) * HOURS[found[2]])
    moment = datetime.now(timezone.utc) - min(age, timedelta(days=365 * 1000))
    return moment.isoformat(timespec="seconds")


ARGUMENTS = (declared("history"),)


def main(arguments: argparse.Namespace) -> int:
    """Run the function of the action; return the exit code."""
    from lar.cli import history_actions  # imported here: the help needs none of it

    code: int = getattr(history_actions, f"{arguments.action}_results")(arguments)
    return code
