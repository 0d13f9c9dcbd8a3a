"""`lar.compare`: two or more sides are opened or run, and their tensors are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING, Any, get_args, overload

from lar.comparison.compare import Progress, compare_dumps
from lar.comparison.items import CollectedItems
from lar.comparison.truth import has_coarse_tensors, judge_by_truth
from lar.dumps.dump import Dump
from lar.engines import operator_kinds_of
from lar.errors import LarError, UsageError, count_of
from lar.options.given import parse_values
from lar.options.option import flag_of, is_set
from lar.options.table import ON, SCHEDULER
from lar.records.comparison import Comparison, ComparisonOfSides, Only, Tolerance
from lar.running.compared_sides import (
    GivenSide,
    ModelRun,
    Side,
    check_any_model,
    check_case,
    describe_cases,
    open_sides,
)
from lar.running.side_runs import (
    Asked,
    SideRuns,
    check_unchanged,
    find_truth_model,
    model_of,
)

if TYPE_CHECKING:
    from lar.comparison.isolation import Operators
    from lar.running.single_operators import IsolatedOperators


@overload
def compare(actual: GivenSide, expected: GivenSide, **asked: Any) -> Comparison: ...


@overload
def compare(
    actual: GivenSide, expected: GivenSide, third: GivenSide, *others: GivenSide, **asked: Any
) -> ComparisonOfSides: ...


def compare(
    actual: GivenSide, expected: GivenSide, *others: GivenSide, **asked: Any
) -> Comparison | ComparisonOfSides:
    """Compare two or more dumps, tensors from elsewhere, or models with their options.

    Args:
        actual: a dump's folder, a tensor's file, a folder of .npy, a .npz, a .npy, the text of
            --io-dump, an array, arrays by name, or a model with its options: "r.mge --cpu".
        expected: the same; what the other should be.
        others: more sides; all are compared with the first, and the odd one out is named.
        asked: these keywords, and flags of `lar run` by key, for the models of all sides, as
            `input="cat.npy"` or `graph_optimization_level="disable"`:

            rtol: how far elements may be apart, relative to the expected one.
            atol: how far elements may be apart besides.
            max_error: instead of both, the most that |a - e| / max(|a|, |e|, 1) may be.
            raw: compare the integers of quantised tensors, not the real numbers that they stand
                for.
            case: the number of the testcase to compare, of sides with several; the first if None.
            isolate: also run each operator of `actual` alone, on the expected values of its
                inputs; an interrupt then ends with what is known (`Comparison.interrupted`).
            only: what decides: "outputs", what the models give (the default), or "common", every
                tensor that both sides have.
            truth: also compute what the model should give, and how far each side is from it: True
                for the .onnx of a side, or the one beside its model; else the model's file.
            progress: is called with a few words on what is being done, again and again.
            models: the model file that dumps and arrays are of, for its names and its graph; or
                such files by the letters of their sides, as {"A": "model.onnx"}.
            make_on: makes the runs of models on other machines.

    Raises:
        UsageError: a side is not one of these, or an option cannot be used.
        LarError: a model's run did not end well.
    """
    given = read_keywords(asked)
    sides = open_sides((actual, expected, *others))
    check_sides(sides, given)
    notes: tuple[str, ...] = ()
    if given.models:
        from lar.running.model_names import give_models

        models = given.models if isinstance(given.models, Mapping) else {"": given.models}
        sides, notes = give_models(sides, models)
    with contextlib.ExitStack() as stack:
        comparing = Comparing(sides, given, stack)
        found = comparing.compare_several() if others else comparing.compare_two()
        cases = describe_cases(sides, given.case or 0)
        return replace(found, notes=(*notes, *cases, *found.notes, *comparing.alone.notes))


def read_keywords(given: Mapping[str, Any]) -> Asked:
    """Return what keywords ask for.

    Raises:
        UsageError: one is not known, or has a wrong value.
    """
    own = {it.name for it in fields(Asked)} - {"tolerance", "options"}
    tolerances = {it.name for it in fields(Tolerance)}
    options = {key: value for key, value in given.items() if key not in own | tolerances}
    parse_values(options, (*own, *tolerances))
    asked = Asked(
        tolerance=Tolerance(**{key: given[key] for key in tolerances & given.keys()}),
        options={key: value for key, value in options.items() if is_set(value)},
        **{key: given[key] for key in own & given.keys()},
    )
    if asked.only not in get_args(Only):
        raise UsageError(f"{asked.only!r} is neither outputs nor common", flag="--only")
    return asked


def check_sides(sides: Sequence[Side], asked: Asked) -> None:
    """Refuse, before anything is run, what sides lack or what cannot be done with them.

    Raises:
        UsageError: naming the flag.
    """
    check_case(sides, asked.case)
    label = next((it.label for it in sides if isinstance(it, ModelRun) and it.label), "")
    if asked.make_on is None and label:
        problem = f"needs {SCHEDULER.flag}: a label is that of a scheduler's workers"
        raise UsageError(problem, f"add {SCHEDULER.usage}", flag=f"{ON.flag} {label}")
    if asked.make_on is not None and asked.isolate:
        problem = "runs operators on this machine, and the models run on others"
        raise UsageError(problem, f"leave it out, or leave {SCHEDULER.flag} out", flag="--isolate")
    for key in asked.options:
        check_any_model(sides, flag_of(key))
    if len(sides) > 2 and asked.isolate:
        raise UsageError("isolates one side from one other", "give two", flag="--isolate")
    if len(sides) > 2 and asked.truth:
        raise UsageError("judges one side and one other", "give two", flag="--truth")


class SidesAlone:
    """Runs single operators of the sides' models. The worker of a side is started when it is first
    asked for, and ends with the comparison."""

    def __init__(self, runs: SideRuns, stack: contextlib.ExitStack) -> None:
        self.runs, self.sides, self.stack = runs, runs.sides, stack
        self.found: dict[int, IsolatedOperators | LarError] = {}
        self.notes: dict[str, None] = {}  # which options are left out where operators were run

    def of(self, number: int) -> Operators | str:
        """Return what runs operators of a side, or why nothing does.

        If there are two sides, both are started with the first, so that they load at the same time.
        """
        if number >= len(self.sides):
            return "the truth is not run alone"
        for each in range(2) if len(self.sides) == 2 else [number]:
            operators = self.find(each)
            if not isinstance(operators, LarError):
                operators.begin()
        found = self.find(number)
        if isinstance(found, LarError):
            return f"{LETTERS[number]} {found.problem}"
        self.notes |= dict.fromkeys(found.notes)
        return found

    def require(self) -> None:
        """Prepare what runs operators of the first side, which the user asked for.

        Raises:
            LarError: there is none.
        """
        found, side = self.find(0), self.sides[0]
        if isinstance(found, UsageError):
            text = side.source if isinstance(side, Dump) else side.text
            hint = found.hint or "give a model with its options as A"
            raise UsageError(found.problem, hint, flag="--isolate", subject=text)
        if isinstance(found, LarError):
            raise found

    def find(self, number: int) -> IsolatedOperators | LarError:
        """Return what runs operators of a side, perhaps not started yet; or why nothing does, as a
        predicate of the side."""
        from lar.running.single_operators import IsolatedOperators, spec_of_dump

        side = self.sides[number]
        if number not in self.found:
            try:
                if isinstance(side, ModelRun) and self.runs.asked.make_on is not None:
                    raise UsageError("ran on another machine")
                found = side.index if isinstance(side, Dump) else None
                spec = spec_of_dump(found) if found else self.runs.specs[number]
                self.found[number] = IsolatedOperators(spec, self.stack)
            except LarError as error:
                self.found[number] = error
        return self.found[number]


class Comparing:
    """A comparison of sides; what it starts and writes goes away with the stack."""

    def __init__(self, sides: Sequence[Side], asked: Asked, stack: contextlib.ExitStack) -> None:
        self.sides, self.asked = sides, asked
        self.runs = SideRuns(sides, asked, stack)
        self.alone = SidesAlone(self.runs, stack)

    def compare_two(self) -> Comparison:
        """Compare two sides, on each item of a data set if they are run on one.

        Raises:
            UsageError: an option cannot be used, or it is not clear what to feed.
            LarError: a model's run did not end well.
        """
        if self.asked.truth:
            # There is one, before anything is run.
            exact = find_truth_model(self.asked.truth, map(model_of, self.sides))
            check_unchanged(exact.path, self.sides)
        if self.asked.isolate:
            self.alone.require()
        if items := self.runs.items():
            return compare_items(items, self.compare_once, self.asked.progress)
        return self.compare_once(None, self.asked.progress)

    def compare_once(self, item: int | None, progress: Progress) -> Comparison:
        """Run the models of two sides, each once, compare what they computed, and judge it by the
        truth if that is asked for.

        Raises:
            UsageError: it is not clear what to feed.
            LarError: a model's run did not end well.
        """
        asked = replace(self.asked, progress=progress)
        dumps, notes = self.runs.run_all(progress, item)
        found = self.compare_pair(dumps, (0, 1), asked)
        if asked.truth and not found.interrupted:
            found = self.judge(found, dumps, asked)
        return replace(found, notes=(*notes, *found.notes))

    def compare_several(self) -> ComparisonOfSides:
        """Compare three or more sides with the first one.

        Raises:
            UsageError: they have a data set, or it is not clear what to feed.
            LarError: a model's run did not end well.
        """
        from lar.comparison.sides import compare_sides  # two sides do not need it

        self.runs.items()  # several sides have none
        dumps, notes = self.runs.run_all(self.asked.progress)
        found = compare_sides(
            len(dumps), lambda one, other: self.compare_pair(dumps, (one, other), self.asked)
        )
        return replace(found, notes=(*notes, *found.notes))

    def compare_pair(
        self, dumps: Sequence[Dump], numbers: tuple[int, int], asked: Asked
    ) -> Comparison:
        """Compare two dumps, of sides or of the truth, which has the number behind theirs."""
        names = [*LETTERS[: len(self.sides)], "the truth"]
        called = names[numbers[0]], names[numbers[1]]
        pair = dumps[numbers[0]], dumps[numbers[1]]
        return compare_dumps(
            *pair, asked, operator_kinds_of, lambda side: self.alone.of(numbers[side]), called
        )

    def judge(self, found: Comparison, dumps: Sequence[Dump], asked: Asked) -> Comparison:
        """Compute what the model should give, and return a comparison with how far each side is
        from it.

        Raises:
            UsageError: neither side holds its inputs, or the model takes others.
            LarError: the model cannot be computed.
        """
        # The finer side first, else the expected one.
        order = sorted((1, 0), key=lambda number: has_coarse_tensors(dumps[number]))
        models = [model_of(self.sides[number]) for number in order]
        exact = find_truth_model(asked.truth, models)
        nearest = order[models.index(exact.path)] if exact.path in models else order[0]
        truth = self.runs.run_truth(exact, [dumps[number] for number in order], asked.progress)
        plainly = replace(asked, isolate=False)
        against = [self.compare_pair([*dumps, truth], (number, 2), plainly) for number in (0, 1)]
        return judge_by_truth(found, against, truth, nearest=nearest)


def compare_items(
    items: Sequence[str], compare_once: Callable[[int, Progress], Comparison], progress: Progress
) -> Comparison:
    """Compare two models on each item of a data set, one after the other, and collect the errors.

    Interrupted, it returns what is known of the items before.

    Raises:
        LarError: a run did not end well.
    """
    collected = CollectedItems()
    for number, name in enumerate(items):

        def say(text: str, start: str = f"item {number + 1} of {len(items)}: ") -> None:
            progress(start + text)

        try:
            found = compare_once(number, say)
        except KeyboardInterrupt:
            if not collected.items:
                raise
            note = f"interrupted: {number} of {count_of(len(items), 'item')} were compared"
            found = collected.sum_up()
            return replace(found, interrupted=True, notes=(*found.notes, note))
        collected.add(name, found)
        if found.interrupted:
            break
    return collected.sum_up()
