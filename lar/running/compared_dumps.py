"""The sides of a comparison: a dump, tensors from elsewhere, or a model that is run for it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, overload

from lar.comparison.compare import Progress, compare_dumps, ignore
from lar.comparison.items import CollectedItems, collect_runs
from lar.comparison.truth import has_coarse_tensors, judge_by_truth
from lar.dumps.arrays import ONE_ARRAY, dump_of_arrays
from lar.dumps.dump import Dump
from lar.dumps.index import SUFFIX, open_dump, open_tensors
from lar.dumps.name_map import read_name_map
from lar.engines import operator_kinds_of
from lar.engines.formats import HEAD_SIZE, format_in, format_named
from lar.errors import UsageError, count_of
from lar.files.input_file import cannot_read, check_input, open_input
from lar.graphs.graph import Graph
from lar.options.option import Option, flag_of, is_set
from lar.options.suggestions import suggest_flag
from lar.options.table import FLAGS, ON, SCHEDULER, option_of
from lar.records.comparison import Comparison, ComparisonOfSides, Only, Tolerance
from lar.records.run import RunContext, RunResult, TensorInfo
from lar.testcases.paths import source_of

if TYPE_CHECKING:
    from lar.records.run import RunSpec
    from lar.running.truth import TruthModel

# Behind the name's length and the type, a dumped tensor's file has the most axes there can be.
TENSOR_HEAD = (7).to_bytes(4, "little")


@dataclass(frozen=True)
class ModelRun:
    """A model and the options to run it with, by key, as texts.

    A model with testcases brings its own inputs; of several testcases one is compared. `item`
    counts the item of a data set to run it on, None without one. `label` is that of the worker
    which runs it, where a scheduler has some.
    """

    text: str
    model: str
    options: Mapping[str, Any]
    case_count: int = 0
    item: int | None = None
    label: str = ""

    @property
    def has_testcases(self) -> bool:
        return self.case_count > 0


if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

Side: TypeAlias = Dump | ModelRun

MakeOn: TypeAlias = Callable[["RunSpec", RunContext, str], RunResult]
"""What makes a run on another machine, one that has a label."""
GivenSide: TypeAlias = "str | os.PathLike[str] | Array | Mapping[str, Any] | Side"


@overload
def compare(actual: GivenSide, expected: GivenSide, **options: Any) -> Comparison: ...


@overload
def compare(
    actual: GivenSide,
    expected: GivenSide,
    third: GivenSide,
    *others: GivenSide,
    **options: Any,
) -> ComparisonOfSides: ...


def compare(
    actual: GivenSide,
    expected: GivenSide,
    *others: GivenSide,
    rtol: float | None = None,
    atol: float | None = None,
    max_error: float | None = None,
    raw: bool = False,
    case: int | None = None,
    isolate: bool = False,
    only: Only = "outputs",
    truth: bool | str | os.PathLike[str] = False,
    progress: Progress = ignore,
    name_map: Mapping[str, str] | str | os.PathLike[str] | None = None,
    models: Mapping[str, str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    make_on: MakeOn | None = None,
    **options: Any,
) -> Comparison | ComparisonOfSides:
    """Compare two or more dumps, tensors from elsewhere, or models with their options.

    Args:
        actual: a dump's folder, a tensor's file, a folder of .npy, a .npz, a .npy, the text of
            --io-dump, an array, arrays by name, or a model with its options: "r.mge --cpu".
        expected: the same; what the other should be.
        others: more sides; all are compared with the first, and the odd one out is named.
        rtol: how far elements may be apart, relative to the expected one.
        atol: how far elements may be apart besides.
        max_error: instead of both, the most that |a - e| / max(|a|, |e|, 1) may be.
        raw: compare the integers of quantised tensors, not the real numbers that they stand for.
        case: the number of the testcase to compare, of sides with several; the first if None.
        isolate: also run each operator of `actual` alone, on the expected values of its inputs; an
            interrupt then ends with what is known (`Comparison.interrupted`).
        only: what the verdict rests on: "common", every tensor that both sides have, or "outputs",
            what the models give.
        truth: also compute what the model should give, and how far each side is from it: True for
            the .onnx of a side, or the one beside its model; else the model's file.
        progress: is called with a few words on what is being done, again and again.
        name_map: names of tensors in `actual` with those of the same ones in `expected`, or a
            file with them, as `--map` takes it.
        models: the model file that dumps and arrays are of, for its names and its graph; or such
            files by the letters of their sides, as {"A": "model.onnx"}.
        make_on: makes the runs of models on other machines.
        options: flags of `lar run` by key, for models of both sides, as `input="cat.npy"`.

    Raises:
        UsageError: a side is not one of these, or an option cannot be used.
        LarError: a model's run did not end well.
    """
    if options:
        from lar.running.plan import parse_values  # two dumps need none

        known: tuple[str, ...] = ("rtol", "atol", "max_error", "raw", "case", "isolate", "only")
        known += ("truth", "progress", "name_map", "models", "make_on")
        parse_values(options, known)
    if only not in get_args(Only):
        raise UsageError(f"{only!r} is neither common nor outputs", flag="--only")
    tolerance = Tolerance(rtol=rtol, atol=atol, max_error=max_error)
    if len(others) > len(ascii_uppercase) - 2:
        raise UsageError(f"{len(others) + 2} sides", f"give {len(ascii_uppercase)} at most")
    sides = [
        open_side(side, letter)
        for side, letter in zip((actual, expected, *others), ascii_uppercase, strict=False)
    ]
    check_case(sides, case)
    check_labels(sides, make_on, isolate=isolate)
    notes: tuple[str, ...] = ()
    if models:
        from lar.running.model_names import give_models, notes_on_models

        by_letter = models if isinstance(models, Mapping) else {"": models}
        sides = give_models(sides, ascii_uppercase, by_letter)
        notes = (*notes_on_models(sides, ascii_uppercase, by_letter),)
    compare_two = partial(
        compare_dumps, tolerance=tolerance, kinds_of=operator_kinds_of, raw=raw, only=only
    )
    if others:
        if isolate:
            raise UsageError("isolates one side from one other", "give two", flag="--isolate")
        if name_map:
            raise UsageError("has the names of two sides", "give two", flag="--map")
        if truth:
            raise UsageError("judges one side and one other", "give two", flag="--truth")
        several = compare_several(sides, compare_two, options, case or 0, progress, make_on)
        return replace(several, notes=(*notes, *several.notes))
    names = read_name_map(name_map) if isinstance(name_map, (str, os.PathLike)) else name_map
    alone, left_out = spec_to_isolate(sides[0], options) if isolate else (None, ())
    if truth:
        # There is one, before anything is run.
        check_unchanged(truth_model_for(truth, sides).path, sides)
    if (
        False
        and not truth
        and alone is None
        and isinstance(sides[0], Dump)
        and isinstance(sides[1], Dump)
    ):
        found = compare_two(sides[0], sides[1], progress=progress, name_map=names)
        found = collect_runs(found, sides[0], sides[1])
        return replace(found, notes=(*notes, *found.notes)) if notes else found
    items = items_of_sides(sides, options)
    from lar.files.work_folders import work_folder  # two dumps need none

    with work_folder() as folder, contextlib.ExitStack() as stack:

        def operators_of(side: int) -> Any:
            from lar.running.single_operators import IsolatedOperators

            try:
                spec, _ = spec_to_isolate(sides[side], options)
            except UsageError as error:
                return str(error)
            place = Path(folder) / f"alone{side}"
            place.mkdir(exist_ok=True)
            return stack.enter_context(IsolatedOperators(spec, place))

        def compare_once(sides: list[Side], place: Path, progress: Progress) -> Comparison:
            dumps, fed = open_sides(sides, options, place, case or 0, progress, make_on)
            found = compare_two(
                dumps[0],
                dumps[1],
                progress=progress,
                operators_of=operators_of,
                isolate=isolate,
                name_map=names,
            )
            if truth and not found.interrupted:

                def judge(one: Dump, exact: Dump, twins: Mapping[str, str]) -> Comparison:
                    letter = "A" if one is dumps[0] else "B"
                    called = letter, "the truth"
                    return compare_two(one, exact, progress=progress, name_map=twins, names=called)

                # The finer side first, else the expected one.
                order = sorted((1, 0), key=lambda number: has_coarse_tensors(dumps[number]))
                exact = truth_model_for(truth, [sides[number] for number in order])
                nearest = next((it for it in order if model_of(sides[it]) == exact.path), order[0])
                third = run_truth(exact, [dumps[number] for number in order], place, progress)
                found = judge_by_truth(found, dumps, third, judge, nearest=nearest)
            return replace(found, notes=(*join_notes(fed), *left_out, *found.notes))

        if items:
            found = compare_items(sides, items, compare_once, Path(folder), progress)
        else:
            found = compare_once(sides, Path(folder), progress)
    return replace(found, notes=(*notes, *describe_cases(sides, case or 0), *found.notes))


def compare_items(
    sides: Sequence[Side],
    items: Sequence[str],
    compare_once: Callable[[list[Side], Path, Progress], Comparison],
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


def items_of_sides(sides: Sequence[Side], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the items of the data set that both sides are run on, empty without one.

    Raises:
        UsageError: one side has a data set and the other does not, or one of another length.
    """
    shared = {key: value for key, value in options.items() if is_set(value)}
    given = [
        isinstance(side, ModelRun) and bool(side.options.get("input") or shared.get("input"))
        for side in sides
    ]
    if not any(given):
        return ()
    from lar.running.plan import parse_values, plan_run

    specs = [
        plan_run(
            side.model,
            parse_values({"iter": 1, "warmup_iter": 0, **shared, **side.options}),
            elsewhere=True,
        )
        if isinstance(side, ModelRun) and has_input
        else None
        for side, has_input in zip(sides, given, strict=True)
    ]
    counts = [len(spec.items) if spec else 0 for spec in specs]
    if not any(counts):
        return ()
    if len(sides) == 2 and len(set(counts)) == 1 and specs[1]:
        return specs[1].item_names
    number, spec = next((place, each) for place, each in enumerate(specs) if each and each.items)
    side = sides[number]
    others = "more than two sides are" if len(sides) > 2 else "the other side is"
    raise UsageError(
        f"--input {';'.join(spec.inputs)} is a data set of {count_of(len(spec.items), 'item')}, "
        f"and {others} not run on as many",
        "give both sides one; or run the data set with --bin-out-dump DIR for each side, and "
        "compare the folders",
        subject=side.text if isinstance(side, ModelRun) else "",
    )


def truth_model_for(asked: bool | str | os.PathLike[str], sides: Sequence[Side]) -> TruthModel:
    """Return the model whose truth judges two sides: the one that is asked for, else that of the
    first side that has one.

    Raises:
        UsageError: there is none.
    """
    from lar.running.truth import find_truth_model  # few comparisons need it

    named = "" if isinstance(asked, bool) else os.fspath(asked)
    return find_truth_model(named, filter(None, map(model_of, sides)))


def check_unchanged(model: str, sides: Sequence[Side]) -> None:
    """Refuse the model of a dump that has been written anew since.

    Raises:
        UsageError: naming the dump.
    """
    from lar.measurement.machine import read_model_file

    for side in sides:
        known = isinstance(side, Dump) and side.index.model == model and side.index.model_sha256
        if known and read_model_file(Path(model)).sha256 != known:
            raise UsageError(
                f"its model {model} has changed since",
                "name the one that it was made with: --truth MODEL",
                flag="--truth",
                subject=side.source if isinstance(side, Dump) else "",
            )


def model_of(side: Side) -> str:
    """Return the path of a side's model, empty if it is not known."""
    return side.index.model if isinstance(side, Dump) else side.model


def run_truth(
    model: TruthModel, dumps: Sequence[Dump], folder: Path, progress: Progress = ignore
) -> Dump:
    """Compute what a model should give of what one of the dumps was made of, the first first.

    Raises:
        UsageError: neither dump holds its inputs, or the model takes others.
        LarError: the model cannot be computed.
    """
    from lar.running.truth import rename_inputs

    side = ModelRun(model.path, model.path, {"engine": model.engine.name})
    sources = (
        inputs_in(dump) if dump.index.operators else inputs_among_arrays(side, dump)
        for dump in dumps
    )
    fed = next(filter(None, sources), None)
    if fed is None:
        raise UsageError(
            "neither side holds what it was fed with",
            "give a model, or a dump with its inputs, as A or B",
            flag="--truth",
        )
    progress(f"computing what {model.path} should give")
    items = items_in(rename_inputs(fed, model), folder / "truth_inputs")
    dump, _ = run_side(side, {"input": items}, folder / "truth", 0)
    return dump


def spec_to_isolate(side: Side, options: Mapping[str, Any]) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec for the worker that runs a side's operators alone, and notes about it.

    Raises:
        UsageError: the side is no model, and names none; or its engine cannot do it.
    """
    from lar.running.plan import parse_values, plan_run
    from lar.running.single_operators import spec_for_isolation, spec_of_dump

    if isinstance(side, Dump):
        spec = spec_of_dump(side.index, side.source)
    else:
        shared = {key: value for key, value in options.items() if is_set(value)}
        spec = plan_run(side.model, parse_values({**shared, **side.options}))
    return spec_for_isolation(spec)


def compare_several(
    sides: list[Side],
    compare_two: Callable[..., Comparison],
    options: Mapping[str, Any],
    case: int,
    progress: Progress = ignore,
    make_on: MakeOn | None = None,
) -> ComparisonOfSides:
    """Compare three or more sides with the first one; `compare_two` is `compare_dumps` with what
    holds for each pair of them.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a model's run did not end well.
    """
    items_of_sides(sides, options)  # several sides have none
    from lar.comparison.sides import compare_sides  # two sides need neither
    from lar.files.work_folders import work_folder

    with work_folder() as folder:
        dumps, fed = open_sides(sides, options, Path(folder), case, progress, make_on)

        def compare_numbered(one: int, other: int) -> Comparison:
            names = ascii_uppercase[one], ascii_uppercase[other]
            return compare_two(dumps[one], dumps[other], progress=progress, names=names)

        found = compare_sides(len(dumps), compare_numbered)
    notes = (*describe_cases(sides, case), *join_notes(fed), *found.notes)
    return replace(found, notes=notes)


def describe_cases(sides: Iterable[Side], case: int) -> Iterator[str]:
    """Yield which testcase was compared, of each side with several."""
    for letter, side in zip(ascii_uppercase, sides, strict=False):
        if isinstance(side, ModelRun) and side.case_count > 1:
            yield (
                f"{letter} has {side.case_count} testcases, of which number {case} was compared; "
                "--case N compares another"
            )


def join_notes(fed: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield the notes of the sides that were run, each with its sides where not all have it."""
    for note in dict.fromkeys(note for number in sorted(fed) for note in fed[number]):
        sides = [chr(ord("A") + number) for number in sorted(fed) if note in fed[number]]
        yield note if len(sides) == len(fed) else f"{', '.join(sides)}: {note}"


def describe_fed(result: RunResult, generated: str) -> tuple[str, ...]:
    """Return what nobody said of the data that a model was fed with: that it was generated, and the
    sizes of axes that may have any. With `generated` all of it was, in that way."""
    infos = {info.name: info for info in result.inputs}
    notes = []
    for each in result.fed:
        shape = describe_axes(each.shape)
        if generated or each.generated:
            notes.append(
                f"the data of {each.name} {shape} was generated: {generated or each.source}"
            )
        info = infos.get(each.name)
        if info and None in info.shape:
            axes = describe_axes(info.shape)
            notes.append(f"axes of any size: {each.name} {axes} was run as {shape}")
    return tuple(notes)


def describe_fill(options: Mapping[str, Any]) -> str:
    """Return how data is generated with the options of both sides."""
    from lar.inputs.generation import describe_source

    return describe_source(options.get("fill", "uniform"), int(options.get("seed", 0)))


def describe_axes(shape: Iterable[int | None]) -> str:
    return "{" + ",".join("?" if size is None else str(size) for size in shape) + "}"


def check_case(sides: Sequence[Side], case: int | None) -> None:
    """Refuse the number of a testcase that a side does not have.

    Raises:
        UsageError: naming the side.
    """
    if case is None:
        return
    runs = [side for side in sides if isinstance(side, ModelRun) and side.has_testcases]
    if not runs:
        raise UsageError("no side has testcases", "leave it out", flag=f"--case {case}")
    for side in runs:
        if not 0 <= case < side.case_count:
            raise UsageError(
                f"{side.model} has {count_of(side.case_count, 'testcase')}",
                "they are counted from 0",
                flag=f"--case {case}",
            )


def check_labels(sides: Sequence[Side], make_on: MakeOn | None, *, isolate: bool) -> None:
    """Refuse labels where there is no scheduler, and what is done on this machine alone.

    Raises:
        UsageError: naming the flag.
    """
    label = next((it.label for it in sides if isinstance(it, ModelRun) and it.label), "")
    if make_on is None and label:
        raise UsageError(
            f"needs {SCHEDULER.flag}: a label is that of a scheduler's workers",
            f"add {SCHEDULER.usage}",
            flag=f"{ON.flag} {label}",
        )
    if make_on is not None and isolate:
        raise UsageError(
            "runs operators on this machine, and the models run on others",
            f"leave it out, or leave {SCHEDULER.flag} out",
            flag="--isolate",
        )


def open_side(side: GivenSide, letter: str) -> Side:
    """Return a side as it is compared.

    Raises:
        UsageError: it cannot be compared.
    """
    if isinstance(side, (Dump, ModelRun)):
        return side
    if isinstance(side, (str, os.PathLike)):
        return side_of(os.fspath(side))
    arrays = side if isinstance(side, Mapping) else {ONE_ARRAY: side}
    return dump_of_arrays(arrays, f"arrays of {letter}")


def side_of(text: str) -> Side:
    """Detect what a side is, and open a dump.

    Raises:
        UsageError: it cannot be compared.
    """
    path = Path(text)
    try:
        os.stat(path)
    except PermissionError as failure:
        raise cannot_read(text, failure) from None
    except (OSError, ValueError):
        pass  # a model with its options is no path
    is_folder = os.path.isdir(path)
    if is_folder and source_of(text).case_count:
        return model_run(text, text, {})
    if is_folder or text.endswith(SUFFIX):
        return open_tensors(path)
    if os.path.exists(path):
        check_input(path)
        return model_run(text, text, {}) if is_model(path) else open_tensors(path)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            str(error), "quote a model with its options as one word", subject=text
        ) from None
    if len(words) < 2:
        raise UsageError(
            "no such dump, tensor file or model",
            'give a folder, a file, or a model with its options: "model.mge --cpu"',
            subject=text,
        )
    return model_run(text, words[0], parse_words(words[1:]))


def model_run(text: str, model: str, options: dict[str, Any]) -> ModelRun:
    """Return a side that is run; a failing testcase does not stop it.

    Raises:
        UsageError: an option is not that of a side.
    """
    count = source_of(model).case_count
    judged = {"disable_assert_throw": True} if count else {}
    if SCHEDULER.key in options:
        raise UsageError("is for all sides", "give it beside them", flag=SCHEDULER.flag)
    label = options.pop(ON.key, "")
    return ModelRun(text, model, {**judged, **options}, count, label=label)


def is_model(path: Path) -> bool:
    """Distinguish a model from the file of a tensor."""
    if format_named(path):
        return True
    with open_input(path) as file:
        head = file.read(HEAD_SIZE)
    return head[8:12] != TENSOR_HEAD and format_in(head) is not None


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """Return the options that the words of a command line set, by key and as texts.

    Raises:
        UsageError: a word is not a flag, or a flag is unknown or lacks its value.
    """
    values: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("--"):
            raise UsageError(f"{word!r} is one argument too many", "flags begin with --")
        flag, equals, value = word[2:].partition("=")
        if flag.startswith("cuda"):  # its value is optional, and stands behind a colon
            flag, _, number = flag.partition(":")
            equals, value = "=", value or number or "0"
        key = flag.replace("-", "_")
        option = option_of(key)
        if option is None:
            hint = suggest_flag(flag_of(key), FLAGS)
            raise UsageError(
                f"unknown flag {flag_of(key)}", hint or "`lar run --help all` lists the flags"
            )
        if option.parse is None:
            values[option.key] = True
            continue
        if not equals:
            value = next(left, "")
        if not value:
            raise UsageError("expected one argument", flag=flag_of(key))
        add_value(values, option, value)
    return values


def add_value(values: dict[str, Any], option: Option[Any], value: str) -> None:
    if option.repeatable:
        values.setdefault(option.key, []).append(value)
    else:
        values[option.key] = value


def open_sides(
    sides: list[Side],
    options: Mapping[str, Any],
    folder: Path,
    case: int,
    progress: Progress = ignore,
    make_on: MakeOn | None = None,
) -> tuple[list[Dump], dict[int, tuple[str, ...]]]:
    """Run the models among the sides, on the same inputs; their dumps go into a folder.

    Returns the dumps, and notes on what each model that was run was fed with.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a run did not end well.
    """
    shared = {key: value for key, value in options.items() if is_set(value)}
    dumps: dict[int, Dump] = {}
    fed: dict[int, tuple[str, ...]] = {}
    # A dump, and a run that brings its own inputs, come first: the other side gets the same.
    order = sorted(range(len(sides)), key=lambda number: brings_inputs(sides[number]), reverse=True)
    for number in order:
        side = sides[number]
        if isinstance(side, ModelRun):
            inputs = inputs_for(number, sides, dumps, shared, folder)
            values = {**shared, **({"input": inputs} if inputs else {})}
            # What is given to two models without a word of the user is generated for both.
            untold = bool(inputs) and not any(map(brings_inputs, sides))
            generated = describe_fill(shared) if untold else ""
            progress(f"running {side.text}")
            side, result = run_side(side, values, folder / f"side{number}", case, make_on)
            fed[number] = describe_fed(result, generated)
        dumps[number] = side
    return [dumps[number] for number in range(len(sides))], fed


def brings_inputs(side: Side) -> bool:
    """Return whether a side's inputs are settled."""
    return isinstance(side, Dump) or side.has_testcases


def run_side(
    side: ModelRun,
    options: Mapping[str, Any],
    folder: Path,
    case: int,
    make_on: MakeOn | None = None,
) -> tuple[Dump, RunResult]:
    """Run a model once and open what it dumped; its own options come before those of both.

    Raises:
        UsageError: an option cannot be used.
        LarError: it did not run.
    """
    # Not before: two dumps are compared without what a run needs.
    from lar.running.plan import parse_values, plan_run
    from lar.running.steps import make_run
    from lar.running.tasks import failure_of

    values = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(folder), **options, **side.options}
    spec = plan_run(side.model, parse_values(values), elsewhere=make_on is not None)
    if side.item is not None:
        spec = replace(spec, items=spec.items[side.item : side.item + 1])
    # What an `--input` expects is not judged: the two sides are compared.
    cases = spec.cases[case : case + 1] if side.has_testcases else ()
    context = RunContext(overwrite=values.get("overwrite", False))
    spec = replace(spec, cases=cases)
    result = make_on(spec, context, side.label) if make_on else make_run(spec, context)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status != "ok":
        failure = failure_of(result).called({side.model: ""})  # which the side's text names
        raise failure.within(side.text).to_error()
    return open_dump(values["bin_io_dump"]), result


def inputs_for(
    number: int,
    sides: Sequence[Side],
    dumps: Mapping[int, Dump],
    options: Mapping[str, Any],
    folder: Path,
) -> list[str]:
    """Return the `--input` items for a model besides its own options, empty if it needs none.

    Where nobody says what to feed, it gets the inputs of a dump on another side, and models whose
    inputs have other names get the same generated data.

    Raises:
        UsageError: the inputs of the models are not alike, or a dump does not hold them.
    """
    models = [side for side in sides if isinstance(side, ModelRun)]
    if "input" in options or any(
        "input" in side.options or (side.has_testcases and side is sides[number]) for side in models
    ):
        return []
    for other, side in enumerate(sides):
        if brings_inputs(side):
            dump, place = dumps[other], folder / f"inputs{number}"
            if not dump.index.operators and (fed := inputs_among_arrays(sides[number], dump)):
                return items_in(fed, place)
            return inputs_of_dump(dump, place)
    if len({side.model for side in models}) > 1:
        return generated_inputs(number, models, options, folder)
    return []


def inputs_of_dump(dump: Dump, place: Path) -> list[str]:
    """Return `--input` items with what the run was fed with that made a dump, from a new folder.

    Raises:
        UsageError: the dump does not record it.
    """
    fed = inputs_in(dump)
    if not fed:
        raise UsageError(
            "the dump does not hold what its run was fed with",
            "give --input, with the same data",
            subject=dump.source,
        )
    return items_in(fed, place)


def inputs_in(dump: Dump) -> dict[str, Array]:
    """Return what the run was fed with that made a dump, empty if the dump does not hold it all."""
    graph = Graph(dump, operator_kinds_of(dump.index.engine))
    inputs = [node for node in graph.nodes if node.is_input and node.operator]
    fed = {
        node.tensor.name: dump.read(node.tensor.key) for node in inputs if node.tensor is not None
    }
    return fed if len(fed) == len(inputs) else {}


def items_in(fed: Mapping[str, Array], place: Path) -> list[str]:
    """Write arrays into a new folder; return the `--input` items that name them."""
    from lar.running.array_inputs import items_of

    place.mkdir()
    return items_of(fed, place)


def inputs_among_arrays(side: Side, dump: Dump) -> dict[str, Array]:
    """Return the arrays of a dump without operators that bear the names of a model's inputs,
    empty if an input is not among them."""
    from lar.running.api import read_info

    if dump.excerpts or not isinstance(side, ModelRun) or not os.path.exists(side.model):
        return {}
    folders = side.options.get("allow_external_data")
    wanted = [each.name for each in read_info(side.model, allow_external_data=folders).inputs]
    keys = {tensor.name: tensor.key for tensor in dump}
    found = {name: dump.read(keys[name]) for name in wanted if name in keys}
    return found if len(found) == len(wanted) else {}


def generated_inputs(
    number: int, models: Sequence[ModelRun], options: Mapping[str, Any], folder: Path
) -> list[str]:
    """Return `--input` items for one of the models with the same data for all, by the places of
    the inputs; none where the names are the same, because the data is generated alike then.

    Raises:
        UsageError: the inputs of the models are not alike.
    """
    from lar.inputs.generation import generate_array, shape_to_generate
    from lar.running.api import read_info
    from lar.running.array_inputs import items_of

    allowed = [side.options.get("allow_external_data") for side in models]
    infos = [
        read_info(side.model, allow_external_data=folders).inputs
        for side, folders in zip(models, allowed, strict=True)
    ]
    if len({frozenset(each.name for each in info) for info in infos}) == 1:
        return []
    for model, info in zip(models, infos, strict=True):
        if list(map(describe_input, info)) != list(map(describe_input, infos[-1])):
            raise UsageError(
                f"{model.model} and {models[-1].model} take different inputs",
                'say what to feed, in the options of each side: "model.mge --input a:a.npy"',
            )
    import numpy as np

    fill, seed = options.get("fill", "uniform"), int(options.get("seed", 0))
    place = folder / f"inputs{number}"
    place.mkdir()
    fed = {
        mine.name: generate_array(
            theirs.name,
            np.dtype(theirs.dtype),
            shape_to_generate(theirs.shape),
            fill=fill,
            seed=seed,
        )
        for mine, theirs in zip(infos[number], infos[-1], strict=True)
    }
    return items_of(fed, place)


def describe_input(info: TensorInfo) -> tuple[str, tuple[int, ...]]:
    return info.dtype, tuple(1 if size is None else size for size in info.shape)
