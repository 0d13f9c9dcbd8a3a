"""The feeds of a run, one after the other: inputs, testcases, items of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.datasets.classes import classes_of
from lar.engines import engine_named
from lar.errors import Note, UsageError
from lar.options.table import DISABLE_ASSERT_THROW
from lar.records.dataset import Item
from lar.records.events import Classified, Emit, Judged
from lar.records.run import FedInput, RunSpec, TensorInfo
from lar.records.testcase import Case

if TYPE_CHECKING:
    from lar.inputs.feed import Feed
    from lar.inputs.grammar import Item as Given
    from lar.inputs.loaded import Loaded
    from lar.worker.judging import Judge

Look = Callable[[Mapping[str, Any]], None]

STACK_HINT = "the first axes of a stack count items; for one run, give each array as a .npy"


class NamedFeed(NamedTuple):
    """The arrays for the iterations of one item or testcase.

    `judge` looks at the outputs of each iteration, `classify` at those of the last. `guessed` are
    axes of any size that were taken as 1.
    """

    number: int
    name: str
    arrays: dict[str, Any]
    fed: tuple[FedInput, ...]
    warnings: tuple[str, ...]
    guessed: tuple[str, ...] = ()
    judge: Judge | None = None
    classify: Look | None = None

    @property
    def look(self) -> Look | None:
        return self.judge.look if self.judge else None


def feeds_of(
    spec: RunSpec,
    infos: Sequence[TensorInfo],
    emit: Emit,
    notes: list[str],
    names: Mapping[str, str],
) -> Iterator[NamedFeed]:
    """Yield what is fed, one after the other; each is read when it is asked for.

    `notes` is given what the user should know in the end. Warnings and sources have the names
    that the user knows.

    Raises:
        UsageError: it is wrong, or does not fit the model.
    """
    if spec.items:
        yield from feeds_of_items(spec, infos, emit)
    elif not spec.cases:
        yield feed_of_inputs(spec, infos, names)
    for number, case in enumerate(spec.cases):
        yield feed_of_case(spec, number, case, infos, emit, notes, names)


def feed_of_inputs(
    spec: RunSpec, infos: Sequence[TensorInfo], names: Mapping[str, str]
) -> NamedFeed:
    """Read what the inputs of a run are fed with.

    Raises:
        UsageError: it is wrong, or does not fit the model.
    """
    from lar.inputs.loaded import UnnamedInput

    try:
        feed = read_feed(spec, spec.inputs, infos)
    except UnnamedInput as error:
        if "--input" not in names:
            raise
        hint = f"give a mapping from names to arrays{error.more}"
        raise UsageError(error.problem, hint, flag=error.flag, subject=error.subject) from None
    fed = tuple(replace(each, source=names.get(each.source, each.source)) for each in feed.fed)
    return NamedFeed(0, "", feed.arrays, fed, lines_of(feed.notes, names), feed.guessed)


def read_feed(
    spec: RunSpec,
    given: Sequence[str | Given],
    infos: Sequence[TensorInfo],
    *,
    generates: bool = True,
) -> Feed:
    """Read what a model is fed with, repeated for the batch that is asked for. Unless it
    `generates`, what is given must be all, if anything is.

    Raises:
        UsageError: it is wrong, or does not fit the model.
    """
    from lar.inputs.axes import AxisSizes
    from lar.inputs.batching import repeat_batches, without_batch
    from lar.inputs.feed import feed_of

    size = spec.batch_size
    taken = without_batch(infos, size) if given else infos
    feed = feed_of(given, taken, spec, generates=generates)
    if size is None:
        return feed
    arrays, fed = repeat_batches(feed.arrays, feed.fed, infos, size)
    sizes = AxisSizes(infos, spec.shape)
    for info in infos:
        if info.name in arrays and spec.shape:
            sizes.learn(info, arrays[info.name].shape)
    return replace(feed, arrays=arrays, fed=fed)


def lines_of(notes: Iterable[Note], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings as whole lines, with the names that the user knows."""
    return tuple(note.called(names).message for note in notes)


def feed_of_case(
    spec: RunSpec,
    number: int,
    case: Case,
    infos: Sequence[TensorInfo],
    emit: Emit,
    notes: list[str],
    names: Mapping[str, str],
) -> NamedFeed:
    """Read a testcase.

    Raises:
        UsageError: a file of it is wrong, or does not fit the model.
    """
    from lar.inputs.grammar import PathItem
    from lar.worker.judging import Judge

    # A folder has no inputs where the model needs none.
    needed = [info for info in infos if not info.optional]
    items = [
        PathItem(name, file)
        for name, file in case.inputs
        if needed or os.path.exists(os.path.join(file, "input_0.pb"))
    ]
    try:
        feed = read_feed(spec, items, infos, generates=False)
    except UsageError as error:
        raise UsageError(error.problem, error.hint, subject=error.subject) from None
    judge = Judge(
        number,
        case,
        lambda verdicts: emit(Judged(number, case.name, verdicts)),
        notes,
        raises=not DISABLE_ASSERT_THROW.is_given(spec.settings),
        is_exact=engine_named(spec.engine).is_exact,
    )
    fed = tuple(replace(each, source=case.name) for each in feed.fed)
    warnings = lines_of(feed.notes, names)
    return NamedFeed(number, case.name, feed.arrays, fed, warnings, judge=judge)


def feeds_of_items(spec: RunSpec, infos: Sequence[TensorInfo], emit: Emit) -> Iterator[NamedFeed]:
    """Yield the items of a data set, each read when the one before it is done.

    Raises:
        UsageError: a file is wrong, or does not fit the model.
    """
    from lar.inputs.grammar import LoadedItem, PathItem

    stack = () if spec.items[0].inputs else read_stack(spec)
    for item in spec.items:
        given: list[Given] = [LoadedItem(each.name, (slice_of(each, item),)) for each in stack]
        given += [PathItem(name, file) for name, file in item.inputs]
        try:
            feed = read_feed(spec, given, infos)
        except UsageError as error:
            hint = STACK_HINT if stack else error.hint
            raise UsageError(error.problem, hint, flag=error.flag, subject=error.subject) from None
        classify = classifier_of(item, emit) if spec.tell_classes else None
        yield NamedFeed(
            item.number, item.name, feed.arrays, feed.fed, feed.warnings, classify=classify
        )


def read_stack(spec: RunSpec) -> tuple[Loaded, ...]:
    """Read the arrays of a stack, or of one for each input, named as `--input` names their input.

    Raises:
        UsageError: the file is wrong.
    """
    from lar.inputs.grammar import PathItem, items_of
    from lar.inputs.readers import read_path

    return tuple(
        replace(loaded, name=item.name or loaded.name)
        for item in items_of(spec.inputs)
        if isinstance(item, PathItem)
        for loaded in read_path(item.path, item.name)
    )


def slice_of(stack: Loaded, item: Item) -> Loaded:
    """Return one item of a stack, with its first axis."""
    array = stack.array[item.number : item.number + 1]
    return replace(stack, array=array, source=f"{stack.source}, item {item.number}")


def classifier_of(item: Item, emit: Emit) -> Look:
    """Return the function that reports an item's classes from the outputs of its run."""

    def classify(outputs: Mapping[str, Any]) -> None:
        emit(Classified(classes_of(item, outputs[next(iter(outputs))])))

    return classify
