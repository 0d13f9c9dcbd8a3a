"""`lar.compare`: two or more sides are opened or run, and their tensors are compared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING, Any, get_args, overload

from lar.comparison.compare import Progress, Request, compare_dumps
from lar.comparison.items import CollectedItems
from lar.comparison.metrics import bounds_of, measure
from lar.comparison.truth import has_coarse_tensors, judge_by_truth
from lar.dumps.dump import Dump
from lar.engines import operator_kinds_of
from lar.errors import LarError, UsageError, count_of
from lar.options.option import is_set
from lar.options.table import ON, SCHEDULER
from lar.records.comparison import Comparison, ComparisonOfSides, Only, Tolerance
from lar.running.compared_sides import (
    GivenSide,
    ModelRun,
    Side,
    check_case,
    check_options,
    describe_cases,
    open_sides,
    plan_of,
)
from lar.running.shared_inputs import items_of_sides, join_notes
from lar.running.side_runs import MakeOn, Place, run_sides

if TYPE_CHECKING:
    from lar.comparison.isolation import Operators
    from lar.running.single_operators import IsolatedOperators


@dataclass(frozen=True, kw_only=True)
class Asked(Request):
    """What a comparison is asked for, besides its sides: see `compare`.

    `options` are the flags of `lar run` for all models, by key.
    """

    case: int | None = None
    truth: bool | str | os.PathLike[str] = False
    models: Mapping[str, str | os.PathLike[str]] | str | os.PathLike[str] | None = None
    make_on: MakeOn | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where the models are run, and of which testcase."""
        return Place(self.case or 0, self.make_on)


@overload
def compare(actual: GivenSide, expected: GivenSide, **asked: Any) -> Comparison: ...


@overload
def compare(
    actual: GivenSide,
    expected: GivenSide,
    third: GivenSide,
    *others: GivenSide,
    **asked: Any,
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
    check_case(sides, given.case)
    check_labels(sides, given)
    check_options(sides, given.options, elsewhere=given.make_on is not None)
    sides, notes = name_sides(sides, given)
    found = compare_several(sides, given) if others else compare_two(sides, given)
    found = replace(found, notes=(*describe_cases(sides, given.case or 0), *found.notes))
    return replace(found, notes=(*notes, *found.notes))


def read_keywords(given: Mapping[str, Any]) -> Asked:
    """Return what keywords ask for.

    Raises:
        UsageError: one is not known, or has a wrong value.
    """
    tolerances = {it.name: given[it.name] for it in fields(Tolerance) if it.name in given}
    own = {it.name for it in fields(Asked)} - {"tolerance", "options"}
    options = {key: value for key, value in given.items() if key not in {*own, *tolerances}}
    if options:
        from lar.running.plan import parse_values  # two dumps need none

        parse_values(options, (*own, *(it.name for it in fields(Tolerance))))
    asked = Asked(
        tolerance=Tolerance(**tolerances),
        options={key: value for key, value in options.items() if is_set(value)},
        **{key: value for key, value in given.items() if key in own},
    )
    if asked.only not in get_args(Only):
        raise UsageError(f"{asked.only!r} is neither outputs nor common", flag="--only")
    return asked


def check_labels(sides: Sequence[Side], asked: Asked) -> None:
    """Refuse labels where there is no scheduler, and what is done on this machine alone.

    Raises:
        UsageError: naming the flag.
    """
    label = next((it.label for it in sides if isinstance(it, ModelRun) and it.label), "")
    if asked.make_on is None and label:
        raise UsageError(
            f"needs {SCHEDULER.flag}: a label is that of a scheduler's workers",
            f"add {SCHEDULER.usage}",
            flag=f"{ON.flag} {label}",
        )
    if asked.make_on is not None and asked.isolate:
        raise UsageError(
            "runs operators on this machine, and the models run on others",
            f"leave it out, or leave {SCHEDULER.flag} out",
            flag="--isolate",
        )


def name_sides(sides: list[Side], asked: Asked) -> tuple[list[Side], tuple[str, ...]]:
    """Return the sides with the names of the models that were given for them, and notes on these.

    Raises:
        UsageError: a model is for no dump, cannot be read, or is another one.
    """
    if not asked.models:
        return sides, ()
    from lar.running.model_names import give_models, notes_on_models

    models = asked.models if isinstance(asked.models, Mapping) else {"": asked.models}
    named = give_models(sides, LETTERS, models)
    return named, tuple(notes_on_models(named, LETTERS, models))


def compare_two(sides: Sequence[Side], asked: Asked) -> Comparison:
    """Compare two sides, on each item of a data set if they are run on one.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    if asked.truth:
        from lar.running.truth import check_unchanged, truth_model_for  # few need it

        # There is one, before anything is run.
        check_unchanged(truth_model_for(asked.truth, sides).path, sides)
    with contextlib.ExitStack() as stack:
        alone = SidesAlone(sides, asked, stack)
        if asked.isolate:
            alone.require(0)
        if not asked.truth and isinstance(sides[0], Dump) and isinstance(sides[1], Dump):
            found = compare_dumps(sides[0], sides[1], asked, operator_kinds_of, alone.of)
        else:
            items = items_of_sides(sides, asked.options)
            folder = enter_work_folder(stack)
            compare_once = partial(compare_made, asked=asked, alone=alone)
            if items:
                found = compare_items(sides, items, compare_once, folder, asked.progress)
            else:
                found = compare_once(sides, folder, asked.progress)
        return replace(found, notes=(*found.notes, *alone.notes))


def enter_work_folder(stack: contextlib.ExitStack) -> Path:
    """Return a new folder that is removed with a stack."""
    from lar.files.work_folders import work_folder  # two dumps need none

    return Path(stack.enter_context(work_folder()))


class SidesAlone:
    """What runs single operators of the sides' models: each is started when it is first asked for,
    and ends with the comparison. `notes` say which options it does without."""

    def __init__(self, sides: Sequence[Side], asked: Asked, stack: contextlib.ExitStack) -> None:
        self.sides, self.asked, self.stack = sides, asked, stack
        self.left_out: dict[int, tuple[str, ...]] = {}
        self.used: set[int] = set()
        self.found: dict[int, IsolatedOperators | str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Which options are left out where operators were run alone."""
        used = (self.left_out.get(each, ()) for each in sorted(self.used))
        return tuple(dict.fromkeys(note for notes in used for note in notes))

    def begin(self, numbers: Iterable[int]) -> None:
        """Start what runs operators of sides; it loads while the caller goes on."""
        for each in numbers:
            if each not in self.found:
                self.found[each] = self.try_to_prepare(each)
            operators = self.found[each]
            if not isinstance(operators, str):
                operators.begin()

    def of(self, number: int) -> Operators | str:
        """Return what runs operators of a side, or why nothing does.

        Of two sides both are started with the first, so that they load at the same time.
        """
        self.begin(range(2) if len(self.sides) == 2 else [number])
        self.used.add(number)
        return self.found[number]

    def try_to_prepare(self, number: int) -> IsolatedOperators | str:
        try:
            return self.prepare(number)
        except LarError as error:
            return f"{LETTERS[number]} {error.problem}"

    def require(self, number: int) -> None:
        """Prepare what runs operators of a side, which the user asked for.

        Raises:
            UsageError: there is none.
        """
        try:
            self.found[number] = self.prepare(number)
        except UsageError as error:
            side = self.sides[number]
            text = side.source if isinstance(side, Dump) else side.text
            hint = error.hint or f"give a model with its options as {LETTERS[number]}"
            raise UsageError(error.problem, hint, flag="--isolate", subject=text) from None

    def prepare(self, number: int) -> IsolatedOperators:
        """Return what runs operators of a side; it starts nothing before it has to run one.

        Raises:
            UsageError: a predicate of the side, as "ran on another machine".
        """
        from lar.running.single_operators import IsolatedOperators, spec_for_isolation, spec_of_dump

        side = self.sides[number]
        if isinstance(side, Dump):
            spec = spec_of_dump(side.index)
        elif self.asked.make_on is not None:
            raise UsageError("ran on another machine")
        else:
            spec = plan_of(side, self.asked.options)
        spec, notes = spec_for_isolation(spec)
        self.left_out[number] = notes
        return self.stack.enter_context(IsolatedOperators(spec, enter_work_folder(self.stack)))


def compare_made(
    sides: Sequence[Side], folder: Path, progress: Progress, *, asked: Asked, alone: SidesAlone
) -> Comparison:
    """Run the models of two sides, each once, compare what they computed, and judge it by the
    truth if that is asked for.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    asked = replace(asked, progress=progress)
    dumps, fed = run_sides(sides, folder, asked.options, asked.place, progress)
    if outputs_differ(dumps[0], dumps[1], asked.tolerance):
        alone.begin(range(2))
    found = compare_dumps(dumps[0], dumps[1], asked, operator_kinds_of, alone.of)
    if asked.truth and not found.interrupted:
        found = judge(found, sides, dumps, folder, asked, alone)
    return replace(found, notes=(*join_notes(fed), *found.notes))


def outputs_differ(actual: Dump, expected: Dump, tolerance: Tolerance) -> bool:
    """Return whether an output differs from that of its name, as numbers: a culprit is likely."""
    others = {it.name: it for it in expected}
    for one in actual:
        other = others.get(one.name)
        if one.name not in actual.index.outputs or other is None:
            continue
        arrays = actual.read(one.key), expected.read(other.key)
        are_numbers = all(array.dtype.kind in "iuf" for array in arrays)
        is_comparable = are_numbers and arrays[0].shape == arrays[1].shape
        bounds = bounds_of(tolerance, one.dtype, other.dtype)
        if is_comparable and measure(*arrays, bounds).mismatches:
            return True
    return False


def judge(
    found: Comparison,
    sides: Sequence[Side],
    dumps: Sequence[Dump],
    folder: Path,
    asked: Asked,
    alone: SidesAlone,
) -> Comparison:
    """Compute what the model should give, and return a comparison with how far each side is from
    it.

    Raises:
        UsageError: neither side holds its inputs, or the model takes others.
        LarError: the model cannot be computed.
    """
    from lar.running.truth import model_of, run_truth, truth_model_for

    # The finer side first, else the expected one.
    order = sorted((1, 0), key=lambda number: has_coarse_tensors(dumps[number]))
    exact = truth_model_for(asked.truth, [sides[number] for number in order])
    nearest = next((it for it in order if model_of(sides[it]) == exact.path), order[0])
    truth = run_truth(exact, [dumps[number] for number in order], folder, asked.progress)

    def judge_side(one: Dump, exact: Dump) -> Comparison:
        number = dumps.index(one)
        return compare_dumps(
            one,
            exact,
            replace(asked, isolate=False),
            operator_kinds_of,
            lambda side: "the truth is not run alone" if side else alone.of(number),
            (LETTERS[number], "the truth"),
        )

    return judge_by_truth(found, (dumps[0], dumps[1]), truth, judge_side, nearest=nearest)


def compare_items(
    sides: Sequence[Side],
    items: Sequence[str],
    compare_once: Callable[[Sequence[Side], Path, Progress], Comparison],
    folder: Path,
    progress: Progress,
) -> Comparison:
    """Compare two models on each item of a data set, one after the other, and collect the errors.

    Interrupted, it returns what is known of the items before.

    Raises:
        LarError: a run did not end well.
    """
    import shutil  # slow to import, and few comparisons are of a data set

    collected = CollectedItems()
    place = folder / "item"
    for number, name in enumerate(items):
        runs: list[Side] = [
            replace(side, item=number) if isinstance(side, ModelRun) else side for side in sides
        ]

        def say(text: str, start: str = f"item {number + 1} of {len(items)}: ") -> None:
            progress(start + text)

        place.mkdir()
        try:
            found = compare_once(runs, place, say)
        except KeyboardInterrupt:
            if not collected.items:
                raise
            note = f"interrupted: {number} of {count_of(len(items), 'item')} were compared"
            found = collected.sum_up()
            return replace(found, interrupted=True, notes=(*found.notes, note))
        shutil.rmtree(place)
        collected.add(name, found)
        if found.interrupted:
            break
    return collected.sum_up()


def compare_several(sides: Sequence[Side], asked: Asked) -> ComparisonOfSides:
    """Compare three or more sides with the first one.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    if asked.isolate:
        raise UsageError("isolates one side from one other", "give two", flag="--isolate")
    if asked.truth:
        raise UsageError("judges one side and one other", "give two", flag="--truth")
    items_of_sides(sides, asked.options)  # several sides have none
    from lar.comparison.sides import compare_sides  # two sides need neither

    with contextlib.ExitStack() as stack:
        alone = SidesAlone(sides, asked, stack)
        folder = enter_work_folder(stack)
        dumps, fed = run_sides(sides, folder, asked.options, asked.place, asked.progress)

        def compare_numbered(*numbers: int) -> Comparison:
            one, other = numbers
            names = LETTERS[one], LETTERS[other]
            return compare_dumps(
                dumps[one],
                dumps[other],
                asked,
                operator_kinds_of,
                lambda side: alone.of(numbers[side]),
                names,
            )

        found = compare_sides(len(dumps), compare_numbered)
    return replace(found, notes=(*join_notes(fed), *found.notes, *alone.notes))
