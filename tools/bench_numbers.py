"""Measures whether `lar compare` finds planted faults, and finds nothing in correct models.

    uv run python tools/bench_numbers.py [--keep FOLDER] [--only TEXT] [FIGURE ...]

prints a table, and below the table each pair with an unwanted result, with the command that repeats
the comparison. Models and dumps are made anew in a temporary folder; with --keep, they are made
once, in FOLDER.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from figures import Figures, Outcome, Settings
from number_cases import Case, faulty_cases, healthy_cases
from number_dumps import PROCESSES, dump_of, error_of, make_dumps
from processes import map_in_processes
from random_edits import SUBJECTS, Edited, draw_edit
from real_pairs import (
    RealSide,
    real_pairs,
    side_of_model,
    write_network,
    write_sides,
)

import lar
from lar.records.comparison import Comparison, Culprit, OperatorFacts

FIGURES = Figures("bench_numbers")


# Faults


class Compared(NamedTuple):
    """A pair that was compared.

    `name` is the name of the pair, and `command` has the arguments of `lar compare` that repeat the
    comparison. `found` is the comparison, or a text that says why the pair cannot be compared.
    """

    name: str
    command: str
    found: Comparison | str

    def describe(self, problem: str) -> str:
        return f"{self.name}: {problem}\n    lar compare {self.command}"


def measure_faults(group: str, most_missed: int, isolate: bool, settings: Settings) -> Outcome:
    """Count the planted faults that lar names in every pair that shows the fault.

    If a pair has two faults, it is enough that lar names one; with `isolate`, lar must name both.
    A pair fails if lar names an operator without a fault.
    """
    cases = [each for each in chosen(settings, faulty_cases()) if each.group == group]
    faults: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case, pair in zip(cases, compare_cases(settings.folder, cases, isolate), strict=True):
        problem = find_problem(case, pair.found, isolate=isolate)
        problems = [pair.describe(problem)] if problem else []
        faults[case.actual.network, case.actual.fault] += problems
    failing = tuple(itertools.chain.from_iterable(faults.values()))
    named = sum(not problems for problems in faults.values())
    return Outcome(
        f"{named} of {len(faults)} ({len(cases) - len(failing)} of {len(cases)} pairs)",
        len(faults) - named <= most_missed,
        failing,
    )


def chosen(settings: Settings, cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if settings.only in case.name]


for name, group, most_missed in (
    ("faults", "fault", 0),
    ("new-faults", "new fault", 4),
    ("isolated-faults", "fault", 0),
    ("isolated-new-faults", "new fault", 0),
):
    isolate = name.startswith("isolated")
    FIGURES.row(name)(partial(measure_faults, group, most_missed, isolate))


def find_problem(case: Case, found: Comparison | str, *, isolate: bool) -> str:
    """Return why the result for a pair with a fault is wrong; empty if the result is right."""
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


# Texts that engines and quantisers add to the name of a tensor or an operator.
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
    """Return whether an operator has this name, or is a part of the operator with this name."""
    words = [
        operator.output.removeprefix("part of "),
        operator.name.partition("[")[0],
        *operator.origin,
    ]
    quoted = any(f"{name}.{each}" in operator.name for each in ("weight", "bias"))
    return quoted or any(name in shorter(word) for word in words)


def shorter(word: str) -> Iterator[str]:
    """Yield a name, then the name without the last text in `ADDED`, until none is left."""
    word = word.removeprefix("part of ")
    yield word
    while ADDED.search(word):
        word = ADDED.sub("", word)
        yield word


def describe(culprit: Culprit) -> str:
    return " + ".join(f"{it.type} {it.output}" for it in culprit.actual or culprit.expected)


# Pairs in which nothing is wrong


@FIGURES.row("healthy")
def measure_healthy(settings: Settings) -> Outcome:
    return count_healthy(compare_cases(settings.folder, chosen(settings, healthy_cases())))


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
        f"{culprits} with a culprit, {different} different, {len(failing)} of {len(pairs)} in all",
        not failing,
        tuple(failing),
    )


# Real networks


@FIGURES.row("real-healthy")
def measure_real(settings: Settings) -> Outcome:
    pairs = [pair for pair in real_pairs() if settings.only in pair.name]
    sides = write_sides(settings.folder, pairs, PROCESSES)
    found = map_in_processes(compare_sides, sides, PROCESSES)
    names = [pair.name for pair in pairs]
    return count_healthy([*map(Compared, names, map(shlex.join, sides), found)])


def compare_sides(
    sides: tuple[str, str], *, isolate: bool = False, only: str = "outputs"
) -> Comparison | str:
    """Compare the models of two command lines; return a text if they cannot be compared."""
    try:
        found = lar.compare(*sides, isolate=isolate, only=only)
        assert isinstance(found, Comparison)
        return found
    except Exception as error:  # a bug of lar is reported as a row
        return f"{type(error).__name__}: {error}"


# Random edits

VERDICTS = (
    *("named first", "first of a group", "suspect", "neighbour", "among many"),
    *("wrong", "the same"),
)


class Judged(NamedTuple):
    """The result of a comparison with an edited model.

    `verdict` is one of `VERDICTS`. `others` is true if lar also named operators that are neither
    edited nor next to an edited operator. `row` is the line to print.
    """

    verdict: str
    others: bool
    row: str


@FIGURES.row("edits")
def measure_edits(settings: Settings) -> Outcome:
    judge = partial(judge_edit, settings.folder, settings.only)
    numbers = range(settings.repetitions)
    found = [each for each in map_in_processes(judge, numbers, PROCESSES) if each]
    counts = Counter(each.verdict for each in found)
    named = counts["named first"] + counts["first of a group"]
    measured = ", ".join(f"{counts[word]} {word}" for word in VERDICTS)
    return Outcome(
        f"{measured}; {sum(each.others for each in found)} with others",
        named >= 0.95 * len(found) and not counts["wrong"] and not counts["the same"],
        tuple(each.row for each in found if each.others or each.verdict not in VERDICTS[:2]),
    )


def judge_edit(folder: Path, only: str, number: int) -> Judged | None:
    """Compare an edited model with the original model, and judge what lar found."""
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
    """Return one of `VERDICTS`, and a text that lists the operators that lar blames."""
    if isinstance(found, str):
        return "wrong", found
    if not found.culprits:
        return "the same" if found.same else "wrong", f"no culprit: {found.finding}"
    first = found.culprits[0]
    blamed = "; ".join(map(describe, found.culprits[:4]))
    if not names_it(first, edit.operators):
        return "neighbour" if names_it(first, edit.neighbours) else "wrong", blamed
    if not first.proven:
        return "suspect", blamed
    smaller, larger = sorted((first.actual, first.expected), key=len)
    if len(larger) == 1:
        return "named first", blamed
    near = edit.operators | edit.neighbours
    if len(smaller) <= 1 or all(is_one_of(each, near) for each in (*smaller, *larger)):
        return "first of a group", blamed
    return "among many", blamed


# Dumps


def compare_cases(folder: Path, cases: Sequence[Case], isolate: bool = False) -> list[Compared]:
    """Compare the dumps of some cases; dumps that do not exist yet are made first."""
    make_dumps(folder, cases)
    return [compare_case(folder, case, isolate=isolate) for case in cases]


def compare_case(folder: Path, case: Case, *, isolate: bool = False) -> Compared:
    sides = str(dump_of(folder, case.actual)), str(dump_of(folder, case.expected))
    for side in (case.actual, case.expected):
        reason = error_of(folder, side)
        if reason.exists():
            problem = f"{side.key} could not be made: {reason.read_text()}"
            return Compared(case.name, shlex.join(sides), problem)
    found = compare_sides(sides, isolate=isolate)
    if case.faults and isinstance(found, Comparison) and found.same:
        # A fault that does not reach the outputs shows if all tensors are compared.
        found = compare_sides(sides, isolate=isolate, only="common")
    return Compared(case.name, shlex.join(sides), found)


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
