"""The feeds of a run, one after the other: inputs, testcases, items of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lar.datasets.judging import Judge
from lar.engines import engine_named
from lar.errors import UsageError
from lar.inputs import NAME_IT, Loaded, UnnamedInput
from lar.inputs.feed import Feed, feed_of, repeat_batches, without_batch
from lar.inputs.grammar import Item as Given
from lar.inputs.grammar import PathItem, items_of
from lar.inputs.model_inputs import AxisSizes
from lar.inputs.readers import read_path
from lar.records.events import Emit
from lar.records.run import Case, Item, RunSpec, TensorInfo

Look = Callable[[Mapping[str, Any]], None]

STACK_HINT = "the first axes of a stack count items; for one run, give each array as a .npy"


@dataclass(frozen=True, eq=False)
class NumberedFeed(Feed):
    """The arrays for the iterations of one item or testcase; `judge` looks at the outputs of each
    iteration."""

    number: int = 0
    item: Item | None = None
    judge: Judge | None = None


@dataclass(frozen=True, eq=False)
class Feeder:
    """Reads what a run is fed with.

    `notes` takes what the user should know in the end. `names` has the names that the user knows,
    for warnings and sources.
    """

    spec: RunSpec
    infos: Sequence[TensorInfo]
    names: Mapping[str, str]
    emit: Emit
    notes: list[str]

    def feeds(self) -> Iterator[NumberedFeed]:
        """Yield what is fed, one after the other; each is read when it is asked for.

        Raises:
            UsageError: it is wrong, or does not fit the model.
        """
        if self.spec.items:
            yield from self.feeds_of_items()
        elif not self.spec.cases:
            yield self.feed_of_inputs()
        for number, case in enumerate(self.spec.cases):
            yield self.feed_of_case(number, case)

    def feed_of_inputs(self) -> NumberedFeed:
        """Read what the inputs of a run are fed with.

        Raises:
            UsageError: it is wrong, or does not fit the model.
        """
        try:
            feed = self.read(self.spec.inputs)
        except UnnamedInput as error:
            if "--input" in self.names:
                error.hint = error.hint.replace(NAME_IT, "give a mapping from names to arrays")
            raise
        return NumberedFeed(**vars(feed))

    def read(self, given: Sequence[str | Given], *, generates: bool = True) -> Feed:
        """Read what a model is fed with, repeated for the batch that is asked for. Unless it
        `generates`, either all inputs are given or none.

        Raises:
            UsageError: it is wrong, or does not fit the model.
        """
        spec, infos, names, size = self.spec, self.infos, self.names, self.spec.batch_size
        taken = without_batch(infos, size) if given else infos
        feed = feed_of(given, taken, spec, generates=generates)
        arrays, fed = feed.arrays, feed.fed
        if size is not None:
            arrays, fed = repeat_batches(arrays, fed, infos, size)
            sizes = AxisSizes(infos, spec.shape)
            for info in infos:
                if info.name in arrays and spec.shape:
                    sizes.learn(info, arrays[info.name].shape)
        if names:
            fed = tuple(replace(each, source=names.get(each.source, each.source)) for each in fed)
        notes = tuple(note.called(names) for note in feed.notes)
        return Feed(arrays, fed, notes, feed.guessed)

    def feed_of_case(self, number: int, case: Case) -> NumberedFeed:
        """Read a testcase.

        Raises:
            UsageError: a file of it is wrong, or does not fit the model.
        """
        # A folder has no inputs where the model needs none.
        needed = [info for info in self.infos if not info.optional]
        items = [
            PathItem(name, file)
            for name, file in case.inputs
            if needed or os.path.exists(os.path.join(file, "input_0.pb"))
        ]
        try:
            feed = self.read(items, generates=False)
            is_exact = engine_named(self.spec.engine).is_exact
            judge = Judge(number, case, self.spec, self.emit, self.notes, is_exact)
        except UsageError as error:
            error.flag = ""
            raise
        fed = tuple(replace(each, source=case.name) for each in feed.fed)
        return NumberedFeed(feed.arrays, fed, feed.notes, number=number, judge=judge)

    def feeds_of_items(self) -> Iterator[NumberedFeed]:
        """Yield the items of a data set, each read when the one before it is done.

        Raises:
            UsageError: a file is wrong, or does not fit the model.
        """
        spec = self.spec
        stack = () if spec.items[0].inputs else read_stack(spec)
        for item in spec.items:
            given: list[Given] = [slice_of(each, item) for each in stack]
            given += [PathItem(name, file) for name, file in item.inputs]
            try:
                feed = self.read(given)
            except UsageError as error:
                error.hint = STACK_HINT if stack else error.hint
                raise
            yield NumberedFeed(**vars(feed), number=item.number, item=item)


def read_stack(spec: RunSpec) -> tuple[Loaded, ...]:
    """Read the arrays of a stack, or of one for each input, named as `--input` names their input.

    Raises:
        UsageError: the file is wrong.
    """
    return tuple(
        loaded._replace(name=item.name or loaded.name, name_binds=True)
        for item in items_of(spec.inputs)
        if isinstance(item, PathItem)
        for loaded in read_path(item.path, item.name)
    )


def slice_of(stack: Loaded, item: Item) -> Loaded:
    """Return one item of a stack, with its first axis."""
    array = stack.array[item.number : item.number + 1]
    return stack._replace(array=array, source=f"{stack.source}, item {item.number}")
