"""The feeds of a run, one after the other: inputs, testcases, items of a data set. Also compares
outputs with those that a testcase expects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lar.engines import engine_named
from lar.errors import CheckFailed, UsageError
from lar.inputs import dtypes
from lar.inputs.axes import AxisSizes
from lar.inputs.batching import repeat_batches, without_batch
from lar.inputs.feed import Feed, feed_of
from lar.inputs.grammar import Item as Given
from lar.inputs.grammar import LoadedItem, PathItem, items_of
from lar.inputs.loaded import Array, Loaded, UnnamedInput
from lar.inputs.readers import read_path
from lar.options.table import DISABLE_ASSERT_THROW
from lar.records.dataset import Item
from lar.records.events import Emit, Judged
from lar.records.run import RunSpec, TensorInfo, format_shape
from lar.records.testcase import Case, Expected, Verdict, describe_failure

Look = Callable[[Mapping[str, Any]], None]

STACK_HINT = "the first axes of a stack count items; for one run, give each array as a .npy"

# The default limit of a file: ONNX compares its own test data with this relative error.
DEFAULT_LIMIT = 1e-3

# The limit in a packed .pb, in the field of a tensor that is for readers.
LIMIT_TEXT = re.compile(r"max_error=(inf|nan|\d+(?:\.\d+)?(?:e[-+]?\d+)?)( silent)?")


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
                error.hint = f"give a mapping from names to arrays{error.more}"
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
        fed = tuple(replace(each, source=names.get(each.source, each.source)) for each in fed)
        notes = tuple(note.called(names) for note in feed.notes)
        return replace(feed, arrays=arrays, fed=fed, notes=notes)

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
            judge = Judge(number, case, self.spec, self.emit, self.notes)
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
            given: list[Given] = [LoadedItem(each.name, (slice_of(each, item),)) for each in stack]
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
        replace(loaded, name=item.name or loaded.name)
        for item in items_of(spec.inputs)
        if isinstance(item, PathItem)
        for loaded in read_path(item.path, item.name)
    )


def slice_of(stack: Loaded, item: Item) -> Loaded:
    """Return one item of a stack, with its first axis."""
    array = stack.array[item.number : item.number + 1]
    return replace(stack, array=array, source=f"{stack.source}, item {item.number}")


@dataclass(eq=False)
class Judge:
    """Compares the outputs of each run of one testcase.

    Where failures are not raised, `notes` receives a line for the first.
    """

    number: int
    case: Case
    spec: RunSpec
    emit: Emit
    notes: list[str]
    failed: bool = False

    def __post_init__(self) -> None:
        """Read what is expected; an expected sequence has several items.

        Raises:
            UsageError: a file cannot be read.
        """
        self.wanted = [
            (complete(expected, each), each.array)
            for expected in self.case.expected
            for each in read_path(expected.file)
        ]

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the outputs that are looked at, as they are reported."""
        return self.case.variables or tuple(
            f"{expected.name}{format_shape(array.shape)}" for expected, array in self.wanted
        )

    def __call__(self, outputs: Mapping[str, Any]) -> None:
        """Compare the outputs of a run.

        Raises:
            CheckFailed: one is not as expected, and that is to be raised.
            UsageError: the model has no such output.
        """
        is_exact = engine_named(self.spec.engine).is_exact
        verdicts = tuple(judge(*each, outputs, is_exact=is_exact) for each in self.wanted)
        self.emit(Judged(self.number, self.case.name, verdicts))
        wrong = next((verdict for verdict in verdicts if not verdict.passed), None)
        if wrong is None or self.failed:
            return
        text, self.failed = describe_failure(self.number, wrong), True
        if not DISABLE_ASSERT_THROW.is_given(self.spec.settings):
            raise CheckFailed(text, "--disable-assert-throw goes on all the same")
        self.notes.append(text)


def complete(expected: Expected, loaded: Loaded) -> Expected:
    """Return an expected value with what its file, an ONNX tensor of test data, says of itself, if
    that is left to the file."""
    if expected.limit is not None:
        return expected
    found = LIMIT_TEXT.fullmatch(loaded.note)
    return replace(
        expected,
        output=loaded.name,
        limit=float(found[1]) if found else DEFAULT_LIMIT,
        name=loaded.name or os.path.splitext(os.path.basename(expected.file))[0],
        shown=not (found and found[2]),
    )


def judge(
    expected: Expected, array: Array, outputs: Mapping[str, Any], *, is_exact: bool = False
) -> Verdict:
    """Compare one output with the expected array.

    With `is_exact` the engine gives float64 for whatever floating-point type is expected.

    Raises:
        UsageError: the model has no such output.
    """
    name, names = expected.output, list(outputs)  # an engine may raise for a name that it lacks
    if name not in names:
        if expected.id >= len(names):
            raise UsageError(
                f"the model has no such output; it has {', '.join(names)}",
                "remove the file, or give the model that it was made with",
                subject=expected.file,
            )
        name = names[expected.id]
    limit = DEFAULT_LIMIT if expected.limit is None else expected.limit
    verdict = partial(
        Verdict, output=name, name=expected.name, id=expected.id, shown=expected.shown, limit=limit
    )
    actual = outputs[name]
    if is_exact and dtypes.kind_of(array.dtype) == "f":
        array = array.astype(np.float64)
        if not isinstance(actual, str) and dtypes.kind_of(actual.dtype) == "f":
            actual = actual.astype(np.float64)
    found, asked = kind_of(actual), kind_of(array)
    if found != asked:
        return verdict(error=None, passed=False, actual=found, expected=asked)
    errors = errors_of(actual, array)
    largest = float(errors.max(initial=0))
    error = largest if np.isfinite(largest) else None
    wrong = np.flatnonzero(~(errors <= limit))
    if not wrong.size:
        return verdict(error=error, passed=True)
    index = tuple(int(axis) for axis in np.unravel_index(wrong[0], array.shape))
    actual, wished = str(actual[index]), str(array[index])
    return verdict(error=error, passed=False, index=index, actual=actual, expected=wished)


def kind_of(value: Any) -> str:
    """Return the dtype and shape of an array as text, or the type of anything else."""
    if isinstance(value, str):
        return value
    return f"{dtypes.name_of(value.dtype)}{format_shape(value.shape)}"


def errors_of(actual: Array, expected: Array) -> Array:
    """Return |e-a| / max(min(|e|,|a|), 1) of each element, computed as MegEngine does it.

    MegEngine computes it in float32; here it is float64 if the type holds more. The same NaN or
    infinity on both sides is error 0; on one side alone it is an infinite error.
    """
    if dtypes.kind_of(actual.dtype) == "O":
        return np.where(actual == expected, 0, np.inf)
    kind = np.float32 if actual.dtype in (np.float16, np.float32) else np.float64
    a: Array = actual.astype(kind)
    e: Array = expected.astype(kind)
    with np.errstate(all="ignore"):
        errors = np.abs(e - a) / np.maximum(np.minimum(np.abs(e), np.abs(a)), 1)
    same = (actual == expected) | (np.isnan(a) & np.isnan(e))
    return np.where(same, 0, np.where(np.isnan(errors), np.inf, errors))
