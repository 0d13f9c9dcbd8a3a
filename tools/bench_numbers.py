"""Measures what `lar compare` finds: planted faults, and nothing where nothing is wrong.

    uv run python tools/bench_numbers.py [--keep FOLDER] [--only TEXT] [FIGURE ...]

prints a table; the pairs that came out otherwise than wanted stand below it, each with the command
that repeats it. Models and dumps are made anew in a temporary folder, or once in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import re
import shlex
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
import comparison_costs
from bench import PYTHON, RESNET50, ROOT, run_quietly
from bench import Case as Timing
from number_cases import Case, Side, faulty_cases, healthy_cases
from random_edits import SUBJECTS, Edited, draw_edit
from real_pairs import (
    RealSide,
    map_in_processes,
    real_pairs,
    side_of_model,
    write_network,
    write_sides,
)

import lar
from lar.records.comparison import Comparison, Culprit, OperatorFacts

PROCESSES = 2
EDITS = 200
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


class Compared(NamedTuple):
    """A pair that was compared: what it is called, what repeats that, and what was found, or why
    it cannot be compared."""

    name: str
    command: str
    found: Comparison | str

    def describe(self, problem: str) -> str:
        return f"{self.name}: {problem}\n    lar compare {self.command}"


def measure_faults(
    settings: Settings, group: str, most_missed: int = 0, *, isolate: bool = False
) -> Outcome:
    """Count the planted faults that are named in each pair which shows them.

    Of two at once either will do, but both are wanted with `isolate`; no other operator may be
    named.
    """
    cases = [case for case in settings.chosen(faulty_cases()) if case.group == group]
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case, pair in zip(cases, compare_cases(settings.folder, cases, isolate), strict=True):
        problem = find_problem(case, pair.found, isolate=isolate)
        problems = [pair.describe(problem)] if problem else []
        faults[case.actual.network, case.actual.fault] += problems
    failing = tuple(itertools.chain.from_iterable(faults.values()))
    named = sum(not problems for problems in faults.values())
    return Outcome(
        len(cases),
        f"{named} of {len(faults)} ({len(cases) - len(failing)} of {len(cases)} pairs)",
        len(faults) - named <= most_missed,
        failing,
    )


def find_problem(case: Case, found: Comparison | str, *, isolate: bool) -> str:
    """Return what is wrong with what was found of a pair with a fault, empty if nothing is."""
    if isinstance(found, str):
        return found
    wrong = [each for each in found.culprits if not any(names_it(each, it) for it in case.faults)]
    if wrong:
        return f"blamed: {', '.join(map(describe, wrong))}"
    if not found.culprits:
        return f"no culprit: {found.finding}"
    missed = [it for it in case.faults if not any(names_it(each, it) for each in found.culprits)]
    if isolate and missed:
        return f"not named: {', '.join(sorted(min(it) for it in missed))}"
    return ""


# What engines and quantisers add to the name of a tensor or an operator.
ADDED = re.compile(
    r"(_nchwc|_quant(ized)?|_QuantizeLinear(_Input|_Output)?|_DequantizeLinear(_Output)?"
    r"|/duplicated|_matmul|/MatMulAddFusion|\.(scaled|half|narrow|signed))$"
    r"|^.*/(then|else|body)/"
)


def names_it(culprit: Culprit, names: frozenset[str]) -> bool:
    return any(is_one_of(operator, names) for operator in (*culprit.actual, *culprit.expected))


def is_one_of(operator: OperatorFacts, names: frozenset[str]) -> bool:
    return any(is_named(operator, name) for name in names)


def is_named(operator: OperatorFacts, name: str) -> bool:
    """Return whether an operator is that one, or a part of it."""
    words = [
        operator.output.removeprefix("part of "),
        operator.name.partition("[")[0],
        *getattr(operator, "origin", ()),
    ]
    quoted = any(f"{name}.{each}" in operator.name for each in ("weight", "bias"))
    return quoted or any(name in shorter(word) for word in words)


def shorter(word: str) -> Iterator[str]:
    """Yield a name, and what is left of it without what was added, again and again."""
    word = word.removeprefix("part of ")
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
    return count_healthy(compare_cases(settings.folder, settings.chosen(healthy_cases())))


def count_healthy(pairs: Sequence[Compared]) -> Outcome:
    culprits, different, failing = 0, 0, []
    for pair in pairs:
        if isinstance(pair.found, str):
            failing.append(pair.describe(pair.found))
        elif pair.found.culprits or not pair.found.same:
            culprits += bool(pair.found.culprits)
            different += not pair.found.same
            blamed = "; ".join(map(describe, pair.found.culprits[:4])) or pair.found.finding
            failing.append(pair.describe(blamed))
    return Outcome(
        len(pairs),
        f"{culprits} with a culprit, {different} different, {len(failing)} in all",
        not failing,
        tuple(failing),
    )


# Real networks


def measure_real(settings: Settings) -> Outcome:
    """Count the pairs of networks as exporters write them that are not called the same."""
    pairs = [pair for pair in real_pairs() if settings.only in pair.name]
    sides = write_sides(settings.folder, pairs, PROCESSES)
    found = map_in_processes(compare_sides, sides, PROCESSES)
    names = [pair.name for pair in pairs]
    return count_healthy([*map(Compared, names, map(shlex.join, sides), found)])


def compare_sides(
    sides: tuple[str, str], *, isolate: bool = False, only: str = "outputs"
) -> Comparison | str:
    """Compare two command lines; return why that is not possible as text."""
    try:
        found = lar.compare(*sides, isolate=isolate, only=only)
        assert isinstance(found, Comparison)
        return found
    except Exception as error:  # a bug of lar's is a row among the others
        return f"{type(error).__name__}: {error}"


# Random edits

VERDICTS = (
    "named first",
    "first of a group",
    "suspect",
    "neighbour",
    "among many",
    "wrong",
    "the same",
)


class Judged(NamedTuple):
    """What a comparison with an edited model came to: one of `VERDICTS`, whether it names others
    too, and a row that says so."""

    verdict: str
    others: bool
    row: str


def measure_edits(settings: Settings) -> Outcome:
    """Count the random edits whose operator is named first."""
    judge = functools.partial(judge_edit, settings.folder, settings.only)
    found = [each for each in map_in_processes(judge, range(EDITS), PROCESSES) if each]
    counts = {word: sum(each.verdict == word for each in found) for word in VERDICTS}
    named = counts["named first"] + counts["first of a group"]
    measured = ", ".join(f"{count} {word}" for word, count in counts.items())
    return Outcome(
        len(found),
        f"{measured}; {sum(each.others for each in found)} with others",
        named >= 0.95 * len(found) and not counts["wrong"] and not counts["the same"],
        tuple(each.row for each in found if each.others or each.verdict not in VERDICTS[:2]),
    )


def judge_edit(folder: Path, only: str, number: int) -> Judged | None:
    """Compare an edited model with its original."""
    network, form = SUBJECTS[number % len(SUBJECTS)]
    if only not in f"{number:03}: {network} {form}":
        return None
    edit = draw_edit(number)
    edited = folder / f"edit{number:03}.onnx"
    write_network(edited, edit.network)
    sides = side_of_model(edited), RealSide(network, form).command(folder)
    found = compare_sides(sides)
    verdict, blamed = judge_culprits(found, edit)
    near = edit.operators | edit.neighbours
    culprits = () if isinstance(found, str) else found.culprits
    others = any(not names_it(each, near) for each in culprits)
    pair = Compared(f"{verdict}: {number:03}: {network} {form}", shlex.join(sides), found)
    return Judged(verdict, others, pair.describe(f"{edit.what}: {blamed}"))


def judge_culprits(found: Comparison | str, edit: Edited) -> tuple[str, str]:
    """Return one of `VERDICTS`, and what is blamed in words."""
    if isinstance(found, str):
        return "wrong", found
    if not found.culprits:
        return "the same" if found.same else "wrong", f"no culprit: {found.finding}"
    first = found.culprits[0]
    blamed = "; ".join(map(describe, found.culprits[:4]))
    if not names_it(first, edit.operators):
        return "neighbour" if names_it(first, edit.neighbours) else "wrong", blamed
    if not getattr(first, "proven", True):
        return "suspect", blamed
    smaller, larger = sorted((first.actual, first.expected), key=len)
    if len(larger) == 1:
        return "named first", blamed
    near = edit.operators | edit.neighbours
    if len(smaller) <= 1 or all(is_one_of(each, near) for each in (*smaller, *larger)):
        return "first of a group", blamed
    return "among many", blamed


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


def compare_cases(folder: Path, cases: Sequence[Case], isolate: bool = False) -> list[Compared]:
    """Compare the dumps of some cases, which are made where they are not there yet."""
    make_dumps(folder, cases)
    return [compare_case(folder, case, isolate=isolate) for case in cases]


def compare_case(folder: Path, case: Case, *, isolate: bool = False) -> Compared:
    sides = str(dump_of(folder, case.actual)), str(dump_of(folder, case.expected))
    for side in (case.actual, case.expected):
        reason = folder / f"{side.key.replace('/', '_')}.error"
        if reason.exists():
            problem = f"{side.key} could not be made: {reason.read_text()}"
            return Compared(case.name, shlex.join(sides), problem)
    found = compare_sides(sides, isolate=isolate)
    if case.faults and isinstance(found, Comparison) and found.same:
        # What does not reach the outputs shows where all tensors decide.
        found = compare_sides(sides, isolate=isolate, only="common")
    return Compared(case.name, shlex.join(sides), found)


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


def measure_linear(settings: Settings) -> Outcome:
    """Measure a chain with four times the nodes, to the shorter one."""
    times = comparison_costs.measure_growth(settings.folder)
    growths = {way: longer / shorter for way, (shorter, longer) in times.items()}
    measured = [
        f"{way} {growths[way]:.1f}x ({times[way][0]:.1f} s, {times[way][1]:.1f} s)" for way in times
    ]
    return Outcome(len(times), ", ".join(measured), max(growths.values()) <= 4.5)


def measure_default_cost(settings: Settings) -> Outcome:
    value = comparison_costs.measure_proof(settings.folder)
    return Outcome(comparison_costs.ROUNDS, f"{value:.2f}x", value < 4 / 3)


def measure_sweep(_: Settings) -> Outcome:
    """Run the sweep of operators, which prints each that is wrong and ends with a summary."""
    done = run_quietly([PYTHON, str(ROOT / "tools" / "sweep_operators.py")])
    *failing, summary = done.stdout.strip().splitlines() or [done.stderr.strip()]
    return Outcome(1, summary, not done.returncode, tuple(failing))


FIGURES = (
    Figure(
        "faults",
        "planted faults named, as before",
        "40 of 40",
        functools.partial(measure_faults, group="fault"),
    ),
    Figure(
        "new-faults",
        "planted faults named, of other kinds",
        "41 of 45",
        functools.partial(measure_faults, group="new fault", most_missed=4),
    ),
    Figure(
        "isolated-faults",
        "the first again, with `--isolate`",
        "all",
        functools.partial(measure_faults, group="fault", isolate=True),
    ),
    Figure(
        "isolated-new-faults",
        "the others again, with `--isolate`, all of two at once",
        "all",
        functools.partial(measure_faults, group="new fault", isolate=True),
    ),
    Figure("healthy", "pairs without a fault", "0 culprits, 0 different", measure_healthy),
    Figure(
        "real-healthy",
        "networks as exporters write them, without a fault",
        "0 culprits, 0 different",
        measure_real,
    ),
    Figure(
        "edits",
        "random edits of those networks, each against the original",
        "95 % named first, 0 the same",
        measure_edits,
    ),
    Figure(
        "sweep",
        "variants of operators, the truth against ONNX Runtime",
        "0 silently wrong",
        measure_sweep,
    ),
    Figure(
        "linear",
        f"whole process, chains of {' and '.join(map(str, comparison_costs.NODES))} nodes",
        "4.5x at most",
        measure_linear,
    ),
    Figure(
        "default-cost",
        "whole process, ResNet18 with a fault to ResNet18 without",
        "under 1.33x",
        measure_default_cost,
    ),
    Figure(
        "speed",
        "whole process, `lar compare` of two ResNet50 dumps, to `compare_binary_iodump`",
        "under 0.4x",
        functools.partial(measure_timing, name="compare"),
    ),
    Figure(
        "memory",
        "peak memory of `lar compare`, to the largest pair of tensors",
        "under 100 MiB more",
        functools.partial(measure_timing, name="compare-memory"),
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
