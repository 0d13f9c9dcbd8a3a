"""Figures that a tool measures, and the table that it prints of them."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bench import LAR, run_quietly


class Outcome(NamedTuple):
    """What a figure came out as, as text."""

    measured: str
    holds: bool


class Settings(NamedTuple):
    """How a figure is measured: repetitions, seconds for each comparison or search, a seed."""

    repetitions: int
    budget_seconds: float
    seed: int


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    what: str
    wanted: str
    repetitions: int
    measure: Callable[[Settings], Outcome]


def repeat(settings: Settings) -> Iterator[int]:
    """Yield the numbers of the repetitions, and show them on a terminal."""
    for number in range(settings.repetitions):
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {settings.repetitions} ", end="", file=sys.stderr, flush=True)
        yield number


def note(text: str) -> None:
    """Print a line of detail where nobody looks on."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def run_json(*words: str) -> dict[str, Any]:
    """Run a command of lar that prints JSON on its standard output."""
    done = run_quietly([LAR, *words])
    with contextlib.suppress(ValueError):
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    raise SystemExit(f"lar {' '.join(words)}: {done.stderr or done.stdout}")


def measure_figures(figures: Sequence[Figure], what: str, budget_seconds: float) -> int:
    """Measure the figures that the command line names, and print their table; return 1 if one was
    missed.

    `what` is what the tool does, `budget_seconds` the default of --budget.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="all of them if none is named")
    parser.add_argument("--count", type=int, help="repetitions of each figure")
    parser.add_argument(
        "--budget", type=float, default=budget_seconds, help="seconds of each comparison or search"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of what is drawn")
    arguments = parser.parse_args()
    # The processes that disturb the machine end with this one, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = [figure.name for figure in figures]
    if unknown := set(arguments.figures) - set(names):
        parser.error(f"no figure {', '.join(sorted(unknown))}; figures: {', '.join(names)}")
    print("| what | wanted | repetitions | measured |\n|---|---|---|---|", flush=True)
    kept = True
    for figure in figures:
        if figure.name in (arguments.figures or names):
            count = arguments.count or figure.repetitions
            outcome = figure.measure(Settings(count, arguments.budget, arguments.seed))
            kept = kept and outcome.holds
            measured = outcome.measured + ("" if outcome.holds else " (missed)")
            print(f"| {figure.what} | {figure.wanted} | {count} | {measured} |", flush=True)
    return 0 if kept else 1
