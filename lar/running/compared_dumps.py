"""`lar.compare`: two or more sides are opened or run, and their tensors are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from string import ascii_uppercase as LETTERS
from typing import Any, get_args, overload

from lar.comparison.compare import CollectedItems, Progress, compare_dumps
from lar.comparison.truth import has_coarse_tensors, judge_by_truth
from lar.dumps import Dump
from lar.engines import operator_kinds_of
from lar.errors import UsageError, count_of
from lar.options.given import parse_values
from lar.options.option import is_set
from lar.records.comparison import Comparison, ComparisonOfSides, Only, Tolerance
from lar.running.compared_sides import (
    Asked,
    GivenSide,
    Side,
    SideRuns,
    check_sides,
    check_unchanged,
    describe_cases,
    find_truth_model,
    model_of,
    open_sides,
)


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
        from lar.engines.model_names import give_models

        models = given.models if isinstance(given.models, Mapping) else {"": given.models}
        sides, notes = give_models(sides, models)
    with contextlib.ExitStack() as stack:
        runs = SideRuns(sides, given, stack)
        found = compare_several(runs) if others else compare_two(runs)
        cases = describe_cases(sides, given.case or 0)
        return replace(found, notes=(*notes, *cases, *found.notes, *runs.notes))


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


def compare_two(runs: SideRuns) -> Comparison:
    """Compare two sides, on each item of a data set if they are run on one.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    asked = runs.asked
    if asked.truth:
        # There is one, before anything is run.
        exact = find_truth_model(asked.truth, map(model_of, runs.sides))
        check_unchanged(exact.model, runs.sides)
    if asked.isolate:
        runs.require_operators()
    if items := runs.items():
        return compare_items(items, partial(compare_once, runs), asked.progress)
    return compare_once(runs, None, asked.progress)


def compare_once(runs: SideRuns, item: int | None, progress: Progress) -> Comparison:
    """Run the models of two sides, each once, compare what they computed, and judge it by the truth
    if that is asked for.

    Raises:
        UsageError: it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    asked = replace(runs.asked, progress=progress)
    dumps, notes = runs.run_all(progress, item)
    found = compare_pair(runs, dumps, (0, 1), asked)
    if asked.truth and not found.interrupted:
        found = judge(runs, found, dumps, asked)
    return replace(found, notes=(*notes, *found.notes))


def compare_several(runs: SideRuns) -> ComparisonOfSides:
    """Compare three or more sides with the first one.

    Raises:
        UsageError: they have a data set, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    from lar.comparison.truth import compare_sides  # two sides do not need it

    runs.items()  # several sides have none
    dumps, notes = runs.run_all(runs.asked.progress)
    found = compare_sides(len(dumps), lambda *pair: compare_pair(runs, dumps, pair, runs.asked))
    return replace(found, notes=(*notes, *found.notes))


def compare_pair(
    runs: SideRuns, dumps: Sequence[Dump], numbers: tuple[int, int], asked: Asked
) -> Comparison:
    """Compare two dumps, of sides or of the truth, which has the number behind theirs."""
    one, other = numbers
    names = [*LETTERS[: len(runs.sides)], "the truth"]
    return compare_dumps(
        *(dumps[one], dumps[other], asked, operator_kinds_of),
        lambda side: runs.operators_of(numbers[side]),
        (names[one], names[other]),
    )


def judge(runs: SideRuns, found: Comparison, dumps: Sequence[Dump], asked: Asked) -> Comparison:
    """Compute what the model should give, and return a comparison with how far each side is from
    it.

    Raises:
        UsageError: neither side holds its inputs, or the model takes others.
        LarError: the model cannot be computed.
    """
    # The finer side first, else the expected one.
    order = sorted((1, 0), key=lambda number: has_coarse_tensors(dumps[number]))
    models = [model_of(runs.sides[number]) for number in order]
    exact = find_truth_model(asked.truth, models)
    nearest = order[models.index(exact.model)] if exact.model in models else order[0]
    plainly = replace(asked, isolate=False, case=None, options={}, make_on=None)
    with contextlib.ExitStack() as stack:
        sides: list[Side] = [*(dumps[number] for number in order), exact]
        (*_, truth), _ = SideRuns(sides, plainly, stack).run_all(asked.progress)
        against = [compare_pair(runs, [*dumps, truth], (it, 2), plainly) for it in (0, 1)]
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
