"""Measures the figures of a tool, and prints them as a table."""

from __future__ import annotations

import argparse
import json
import math
import random
import shlex
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import processes
from processes import MIB, make_large, memory_peak_of, seconds_of

Measure = Callable[[], float]

TABLE = Path(__file__).with_suffix(".json")
UNITS = {"us": 1e-6, "s": 1.0, "MB": 1e6, "MiB": MIB}


class Outcome(NamedTuple):
    """The measured value of a figure as text; `holds` is false if the figure is missed.

    `failing` has a line for each case whose result is not as wanted.
    """

    measured: str
    holds: bool = True
    failing: tuple[str, ...] = ()


class Settings(NamedTuple):
    """How a figure is measured.

    `repetitions` is the number of repetitions, and `budget_seconds` the time for each comparison or
    search. Files are made in `folder`. Only cases whose names contain `only` are measured.
    """

    repetitions: int
    budget_seconds: float
    seed: int
    folder: Path
    only: str


MeasureFigure = Callable[[Settings], Outcome]


class Limit(NamedTuple):
    """How lar is compared with a peer, how the value is printed, and its wanted range."""

    compare: Callable[[float, float], float]
    shown: str
    low: float
    high: float


def limit_of(wanted: str) -> Limit:
    """Parse a limit: `under 4x`, `within 2 %`, `under +10 %`, `under 1 us more`, `under 5 s`."""
    _, number, *unit = wanted.removesuffix("x").split()
    high = float(number)
    if not unit:
        return Limit(lambda ours, theirs: ours / theirs, "{:.2f}x", -math.inf, high)
    if unit == ["%"]:
        low = -high if wanted.startswith("within") else -math.inf
        return Limit(lambda ours, theirs: 100 * (ours / theirs - 1), "{:+.1f} %", low, high)
    scale, sign = UNITS[unit[0]], "+" if unit[1:] == ["more"] else ""
    shown = f"{{:{sign}.2f}} {unit[0]}"
    return Limit(lambda ours, theirs: (ours - theirs) / scale, shown, -math.inf, high)


def measure_in_turns(ours: Measure, theirs: Measure, rounds: int) -> Iterator[tuple[float, float]]:
    """Yield the values of both sides for each round.

    The order of the sides in a round is random, so that a drift of the machine's speed favours
    neither side.
    """
    ours(), theirs()  # puts the files of both sides into the page cache
    for _ in range(rounds):
        took = {side: side() for side in random.sample([ours, theirs], 2)}
        yield took[ours], took[theirs]


def measure_of(name: str, command: str, made: object = None) -> Measure:
    """Return a function that measures a whole process: its seconds, or its peak memory.

    The memory is measured if the name of the figure ends with "memory". In the command, a name in
    braces stands for a name in the module `processes`, for the object `made`, or for an empty
    `folder`.
    """
    measure = memory_peak_of if name.endswith("memory") else seconds_of

    def measured() -> float:
        with tempfile.TemporaryDirectory() as folder:
            named = {**vars(processes), "made": made, "folder": folder}
            return measure(*(word.format(**named) for word in shlex.split(command)))

    return measured


class Figures:
    """The figures of a tool, in the order in which they are appended.

    In `figures.json`, the tool's name has an entry for each figure: what is measured, the wanted
    value and the number of repetitions. If whole processes are compared, the entry also has the
    commands of lar and of the peer.
    """

    def __init__(
        self, tool: str, budget_seconds: float = 60.0, table: Path = TABLE, made: object = None
    ) -> None:
        """Read the figures of the tool from `table`.

        `budget_seconds` is the default of `--budget`. `made` is the object whose attributes are the
        files that commands need.
        """
        self.budget_seconds = budget_seconds
        self.declared = json.loads(table.read_text())[tool]
        self.rows: dict[str, MeasureFigure] = {}
        for name, (_, _, _, *commands) in self.declared.items():
            if commands:
                ours, *theirs = (measure_of(name, command, made) for command in commands)
                self.versus(name, ours, *theirs)

    def row(self, name: str) -> Callable[[MeasureFigure], MeasureFigure]:
        """Append a figure that the decorated function measures."""

        def append(measure: MeasureFigure) -> MeasureFigure:
            self.rows[name] = measure
            return measure

        return append

    def versus(self, name: str, ours: Measure, theirs: Measure = float) -> None:
        """Append a figure that compares lar with a peer, or with zero.

        Both are run in each round; the figure is the median over all rounds.
        """
        limit = limit_of(self.declared[name][1])

        @self.row(name)
        def measure(settings: Settings) -> Outcome:
            pairs = measure_in_turns(ours, theirs, settings.repetitions)
            value = statistics.median(limit.compare(*pair) for pair in pairs)
            return Outcome(limit.shown.format(value), limit.low < value < limit.high)

    def main(self, about: str | None) -> int:
        """Measure the figures that the command line names; return 1 if a figure was missed.

        The figures are printed as a table, and after the table the cases with unwanted results.
        The first line of `about` is the description of the tool.
        """
        parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
        parser.add_argument("figures", nargs="*", metavar="FIGURE", help="without: all of them")
        parser.add_argument("--count", type=int, help="repetitions of each figure")
        parser.add_argument(
            *("--budget", "-b"),
            type=float,
            default=self.budget_seconds,
            help="seconds of each comparison or search",
        )
        parser.add_argument("--seed", type=int, default=1, help="seed of what is drawn")
        parser.add_argument("--keep", metavar="FOLDER", help="where what is made is kept")
        parser.add_argument("--only", default="", metavar="TEXT", help="cases named like this")
        arguments = parser.parse_args()
        # Leave in the normal way, so that the processes that disturb the machine are killed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        if unknown := set(arguments.figures) - set(self.rows):
            parser.error(f"no figure {', '.join(sorted(unknown))}; figures: {', '.join(self.rows)}")
        print("| what | wanted | repetitions | measured |\n|---|---|---|---|", flush=True)
        outcomes = []
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments.keep or temporary).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            for name in self.rows:
                if name in (arguments.figures or self.rows):
                    count = arguments.count or self.declared[name][2]
                    asked = arguments.budget, arguments.seed, folder, arguments.only
                    outcomes.append(self.measure(name, Settings(count, *asked)))
        if failing := [line for each in outcomes for line in each.failing]:
            print("\nnot as wanted:\n" + "\n".join(failing))
        return 0 if all(each.holds for each in outcomes) else 1

    def measure(self, name: str, settings: Settings) -> Outcome:
        """Measure a figure, and print its row of the table."""
        what, wanted, *_ = self.declared[name]
        for model in ("ResNet18", "ResNet50"):
            if model in what:
                make_large(model.lower())
        outcome = self.rows[name](settings)
        measured = outcome.measured + ("" if outcome.holds else " (missed)")
        print(f"| {what} | {wanted} | {settings.repetitions} | {measured} |", flush=True)
        return outcome


def repeat(settings: Settings) -> Iterator[int]:
    """Yield the number of each repetition, and show the progress on a terminal."""
    for number in range(settings.repetitions):
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {settings.repetitions} ", end="", file=sys.stderr, flush=True)
        yield number


def note(text: str) -> None:
    """Print a line of detail, unless standard error is a terminal, which shows the progress."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
