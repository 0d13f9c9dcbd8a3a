"""Measures what `lar compare` finds: planted faults, and nothing where nothing is wrong.

    uv run python tools/bench_numbers.py [--keep FOLDER] [--only TEXT] [FIGURE ...]

prints a table; the pairs that came out otherwise than wanted stand below it, each with the command
that repeats it. Models and dumps are made anew in a temporary folder, or once in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import bench_dumps
from bench import PYTHON, RESNET50, ROOT
from bench import Case as Timing
from number_cases import Case, Side, faulty_cases, healthy_cases

import lar
from lar.errors import LarError
from lar.records.comparison import Comparison, Culprit, OperatorFacts

PROCESSES = 2
STANDSTILL_SECONDS = 30  # after which a process that has made no dump is ended
ATTEMPTS = 8
CPP_DUMPS = ROOT / "tests" / "data" / "load_and_run" / "dumps.tar.xz"


class Outcome(NamedTuple):
    """What a figure came out as, as text; `failing` has a line for each pair that is not as
    wanted."""

    pairs: int
    measured: str
    holds: bool
    failing: tuple[str, ...] = ()


class Settings(NamedTuple):
    """Where the dumps are, and which pairs to compare."""

    folder: Path
    only: str

    def chosen(self, cases: Iterator[Case]) -> list[Case]:
        return [case for case in cases if self.only in case.name]


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    what: str
    wanted: str
    measure: Callable[[Settings], Outcome]


# Faults


def measure_faults(
    settings: Settings, group: str, most_missed: int = 0, *, isolate: bool = False
) -> Outcome:
    """Count the planted faults that are named in each pair which shows them.

    Of two at once either will do, but both are wanted with `isolate`; no other operator may be
    named.
    """
    cases = [case for case in settings.chosen(faulty_cases()) if case.group == group]
    make_dumps(settings.folder, cases)
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    pairs = 0
    for case in cases:
        problem = judge_fault(settings.folder, case, isolate=isolate)
        pairs += not problem
        faults[case.actual.network, case.actual.fault] += [problem] if problem else []
    named = sum(not problems for problems in faults.values())
    return Outcome(
        len(cases),
        f"{named} of {len(faults)} ({pairs} of {len(cases)} pairs)",
        len(faults) - named <= most_missed,
        tuple(itertools.chain.from_iterable(faults.values())),
    )


def judge_fault(folder: Path, case: Case, *, isolate: bool) -> str:
    """Compare a pair with a fault; return what is wrong with the answer, empty if nothing is."""
    found = compare(folder, case, isolate=isolate)
    if isinstance(found, str):
        return describe_failing(folder, case, found)
    wrong = [each for each in found.culprits if not any(names_it(each, it) for it in case.faults)]
    if wrong:
        return describe_failing(folder, case, f"blamed: {', '.join(map(describe, wrong))}")
    if not found.culprits:
        return describe_failing(folder, case, f"no culprit: {found.finding}")
    missed = [it for it in case.faults if not any(names_it(each, it) for each in found.culprits)]
    if isolate and missed:
        names = ", ".join(sorted(min(it) for it in missed))
        return describe_failing(folder, case, f"not named: {names}")
    return ""


# What engines and quantisers add to the name of a tensor or an operator.
ADDED = re.compile(
    r"(_nchwc|_quant(ized)?|_QuantizeLinear(_Input|_Output)?|_DequantizeLinear(_Output)?"
    r"|/duplicated|_matmul|\.(scaled|half|narrow|signed))$"
)


def names_it(culprit: Culprit, names: frozenset[str]) -> bool:
    operators = (*culprit.actual, *culprit.expected)
    return any(is_named(operator, name) for operator in operators for name in names)


def is_named(operator: OperatorFacts, name: str) -> bool:
    """Return whether an operator is that one, or a part of it."""
    words = [operator.output, operator.name.partition("[")[0], *getattr(operator, "origin", ())]
    quoted = any(f"{name}.{each}" in operator.name for each in ("weight", "bias"))
    return quoted or any(name in shorter(word) for word in words)


def shorter(word: str) -> Iterator[str]:
    """Yield a name, and what is left of it without what was added, again and again."""
    yield word
    while ADDED.search(word):
        word = ADDED.sub("", word)
        yield word


def describe(culprit: Culprit) -> str:
    operators = culprit.actual or culprit.expected
    return " + ".join(f"{each.type} {each.output}" for each in operators)


# Pairs in which nothing is wrong


def measure_healthy(settings: Settings) -> Outcome:
    """Count the pairs without a fault that are not called the same."""
    cases = settings.chosen(healthy_cases())
    make_dumps(settings.folder, cases)
    culprits, different, failing = 0, 0, []
    for case in cases:
        found = compare(settings.folder, case)
        if isinstance(found, str):
            failing.append(describe_failing(settings.folder, case, found))
            continue
        culprits += bool(found.culprits)
        different += not found.same
        if found.culprits or not found.same:
            blamed = "; ".join(map(describe, found.culprits[:4])) or found.finding
            failing.append(describe_failing(settings.folder, case, blamed))
    return Outcome(
        len(cases),
        f"{culprits} with a culprit, {different} different, {len(failing)} in all",
        not failing,
        tuple(failing),
    )


# Dumps


def make_dumps(folder: Path, cases: Sequence[Case]) -> None:
    """Make the dumps of some cases that are not there yet, in processes of their own: MegEngine
    changes how the process that loads it computes."""
    if CPP_DUMPS.exists() and not (folder / "int8_nchw").exists():
        with tarfile.open(CPP_DUMPS) as archive:
            archive.extractall(folder)
    sides = {side for case in cases for side in (case.actual, case.expected) if side.form}
    missing = {side.network for side in sides if not dump_of(folder, side).exists()}
    missing = {name for name in missing if not (folder / f"{name.replace('/', '_')}.made").exists()}
    names = sorted(missing)
    waiting = [names[number::PROCESSES] for number in range(PROCESSES) if names[number::PROCESSES]]
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda each: run_maker(folder, each), waiting))
    for name in names:
        (folder / f"{name.replace('/', '_')}.made").touch()


def run_maker(folder: Path, networks: Sequence[str]) -> None:
    """Make the dumps of some networks.

    MegEngine now and then waits for ever where one process traces and runs many networks: a process
    that stands still is ended, and another one goes on behind what it has made.
    """
    command = [PYTHON, str(ROOT / "tools" / "number_dumps.py"), str(folder), *networks]
    for _ in range(ATTEMPTS):
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # the engines' warnings
        ) as process:
            made = -1
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STANDSTILL_SECONDS)
                if process.poll() is None and made == (made := len(os.listdir(folder))):
                    process.kill()
            if process.returncode == 0:
                return
    raise SystemExit(f"the dumps of {', '.join(networks)} could not be made")


def dump_of(folder: Path, side: Side) -> Path:
    """Return where the dump of a side is."""
    if side.form:
        return folder / side.key.replace("/", "_")
    return ROOT / side.network if "/" in side.network else folder / side.network


def compare(folder: Path, case: Case, *, isolate: bool = False) -> Comparison | str:
    """Compare the dumps of a case; return why that is not possible as text."""
    sides = [str(dump_of(folder, side)) for side in (case.actual, case.expected)]
    for side in (case.actual, case.expected):
        reason = folder / f"{side.key.replace('/', '_')}.error"
        if reason.exists():
            return f"{side.key} could not be made: {reason.read_text()}"
    try:
        found = lar.compare(*sides, isolate=isolate)
        assert isinstance(found, Comparison)
        return found
    except LarError as error:
        return str(error)


def describe_failing(folder: Path, case: Case, problem: str) -> str:
    command = " ".join(str(dump_of(folder, side)) for side in (case.actual, case.expected))
    return f"{case.name}: {problem}\n    lar compare {command}"


# Time and memory


def measure_timing(_: Settings, name: str) -> Outcome:
    """Measure a row of the table of dumps, on ResNet50."""
    if not Path(RESNET50).exists():
        return Outcome(0, "needs tools/make_models.py resnet50", False)
    timing: Timing = next(each for each in bench_dumps.CASES if each.name == name)
    value = statistics.median(
        timing.compare(timing.lar(), timing.other()) for _ in range(timing.rounds)
    )
    return Outcome(timing.rounds, timing.format(value), timing.holds(value))


FIGURES = (
    Figure(
        "faults",
        "planted faults named, as before",
        "40 of 40",
        lambda settings: measure_faults(settings, "fault"),
    ),
    Figure(
        "new-faults",
        "planted faults named, of other kinds",
        "41 of 45",
        lambda settings: measure_faults(settings, "new fault", 4),
    ),
    Figure(
        "isolated-faults",
        "the first again, with `--isolate`",
        "all",
        lambda settings: measure_faults(settings, "fault", isolate=True),
    ),
    Figure(
        "isolated-new-faults",
        "the others again, with `--isolate`, all of two at once",
        "all",
        lambda settings: measure_faults(settings, "new fault", isolate=True),
    ),
    Figure("healthy", "pairs without a fault", "0 culprits, 0 different", measure_healthy),
    Figure(
        "speed",
        "whole process, `lar compare` of two ResNet50 dumps, to `compare_binary_iodump`",
        "under 0.4x",
        lambda settings: measure_timing(settings, "compare"),
    ),
    Figure(
        "memory",
        "peak memory of `lar compare`, to the largest pair of tensors",
        "under 100 MiB more",
        lambda settings: measure_timing(settings, "compare-memory"),
    ),
)


def main() -> int:
    """Measure the figures that the command line names, and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="all of them if none is named")
    parser.add_argument("--keep", metavar="FOLDER", help="where models and dumps are kept")
    parser.add_argument("--only", default="", metavar="TEXT", help="pairs with this in their name")
    arguments = parser.parse_args()
    names = [figure.name for figure in FIGURES]
    if unknown := set(arguments.figures) - set(names):
        parser.error(f"no figure {', '.join(sorted(unknown))}; figures: {', '.join(names)}")
    print("| what | wanted | pairs | measured |\n|---|---|---|---|", flush=True)
    failing: list[str] = []
    kept = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for figure in FIGURES:
            if figure.name in (arguments.figures or names):
                outcome = figure.measure(Settings(folder, arguments.only))
                kept = kept and outcome.holds
                failing += outcome.failing
                measured = outcome.measured + ("" if outcome.holds else " (missed)")
                print(
                    f"| {figure.what} | {figure.wanted} | {outcome.pairs} | {measured} |",
                    flush=True,
                )
        if failing:
            print("\nnot as wanted:\n" + "\n".join(failing))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
