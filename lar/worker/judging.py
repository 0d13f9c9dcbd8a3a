"""Judging the outputs of a run by those that a testcase expects; in the worker process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lar.errors import CheckFailed, UsageError
from lar.files.input_file import read_input
from lar.inputs import dtypes
from lar.inputs.loaded import Array
from lar.inputs.readers import read_path
from lar.records.run import format_shape
from lar.records.testcase import Case, Expected, Verdict, describe_failure

if TYPE_CHECKING:
    from lar.inputs.loaded import Loaded

# Allowed where a file says nothing: ONNX compares its own test data with a relative error of this.
DEFAULT_LIMIT = 1e-3

# What a packed .pb says of its limit, in the field of a tensor that is for readers.
LIMIT_TEXT = re.compile(r"max_error=(\S+)( silent)?")


class Wanted(NamedTuple):
    """The expected value of an output."""

    expected: Expected
    array: Array


class Judge:
    """Compares the outputs of each run of one testcase.

    `report` receives the verdicts. Where failures are not raised, `notes` receives a line for the
    first. With `is_exact`, the engine gives float64 for whatever floating-point type is expected.
    """

    def __init__(
        self,
        number: int,
        case: Case,
        report: Callable[[tuple[Verdict, ...]], None],
        notes: list[str],
        *,
        raises: bool,
        is_exact: bool = False,
    ) -> None:
        """Read what is expected.

        Raises:
            UsageError: a file cannot be read.
        """
        self.number, self.case, self.report, self.notes = number, case, report, notes
        self.raises, self.failed = raises, False
        self.wanted = [wanted for expected in case.expected for wanted in read_expected(expected)]
        self.is_exact = is_exact

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the outputs that are looked at, as they are reported."""
        return self.case.variables or tuple(
            f"{wanted.expected.name}{format_shape(wanted.array.shape)}" for wanted in self.wanted
        )

    def look(self, outputs: Mapping[str, Any]) -> None:
        """Compare the outputs of a run.

        Raises:
            CheckFailed: one is not as expected, and that is to be raised.
            UsageError: the model has no such output.
        """
        verdicts = tuple(judge(wanted, outputs, is_exact=self.is_exact) for wanted in self.wanted)
        self.report(verdicts)
        wrong = next((verdict for verdict in verdicts if not verdict.passed), None)
        if wrong is None or self.failed:
            return
        text, self.failed = describe_failure(self.number, wrong), True
        if self.raises:
            raise CheckFailed(text, "--disable-assert-throw goes on all the same")
        self.notes.append(text)


def read_expected(expected: Expected) -> list[Wanted]:
    """Read an expected output, of a sequence its items; what the file says about them fills what
    was left open.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        found = read_path(expected.file)
    except UsageError as error:
        raise UsageError(error.problem, error.hint, subject=error.subject) from None
    return [
        Wanted(complete(expected, each) if expected.limit is None else expected, each.array)
        for each in found
    ]


def complete(expected: Expected, loaded: Loaded) -> Expected:
    """Return what an ONNX tensor of test data says of itself."""
    import onnx

    text = onnx.TensorProto.FromString(read_input(expected.file)).doc_string
    found = LIMIT_TEXT.fullmatch(text)
    try:
        limit = float(found[1]) if found else DEFAULT_LIMIT
    except ValueError:
        limit = DEFAULT_LIMIT
    stem = os.path.splitext(os.path.basename(expected.file))[0]
    return replace(
        expected,
        output=loaded.name,
        limit=limit,
        name=loaded.name or stem,
        shown=not (found and found[2]),
    )


def judge(wanted: Wanted, outputs: Mapping[str, Any], *, is_exact: bool = False) -> Verdict:
    """Compare one output; with `is_exact`, also float64 with a floating-point type of less digits.

    Raises:
        UsageError: the model has no such output.
    """
    expected, array = wanted
    names = list(outputs)
    name = expected.output
    if name not in names:
        if expected.id >= len(names):
            raise UsageError(
                f"the model has no such output; it has {', '.join(names)}",
                "remove the file, or give the model that it was made with",
                subject=expected.file,
            )
        name = names[expected.id]
    limit = DEFAULT_LIMIT if expected.limit is None else expected.limit
    verdict = Verdict(
        output=name,
        name=expected.name,
        id=expected.id,
        shown=expected.shown,
        error=None,
        limit=limit,
        passed=False,
    )
    actual = outputs[name]
    if is_exact and dtypes.kind_of(array.dtype) == "f":
        array = array.astype(np.float64)
        if not isinstance(actual, str) and dtypes.kind_of(actual.dtype) == "f":
            actual = actual.astype(np.float64)
    found, asked = kind_of(actual), kind_of(array)
    if found != asked:
        return replace(verdict, actual=found, expected=asked)
    errors = errors_of(actual, array)
    largest = float(errors.max(initial=0))
    wrong = np.flatnonzero(~(errors <= limit))
    verdict = replace(verdict, error=largest if np.isfinite(largest) else None)
    if not wrong.size:
        return replace(verdict, passed=True)
    index = tuple(int(axis) for axis in np.unravel_index(wrong[0], array.shape))
    return replace(verdict, index=index, actual=str(actual[index]), expected=str(array[index]))


def kind_of(value: Any) -> str:
    """Return dtype and shape as text; of anything but an array, its type."""
    return (
        value
        if isinstance(value, str)
        else f"{dtypes.name_of(value.dtype)}{format_shape(value.shape)}"
    )


def errors_of(actual: Array, expected: Array) -> Array:
    """Return |e-a| / max(min(|e|,|a|), 1) of each element, computed as MegEngine does it.

    That is in float32, here in float64 where the type holds more. The same NaN or infinity on both
    sides is error 0; on one side alone it is an infinite error.
    """
    if dtypes.kind_of(actual.dtype) == "O":
        return np.where(actual == expected, 0, np.inf)
    kind = np.float32 if actual.dtype in (np.float16, np.float32) else np.float64
    a: NDArray[np.floating[Any]] = actual.astype(kind)
    e: NDArray[np.floating[Any]] = expected.astype(kind)
    with np.errstate(all="ignore"):
        errors = np.abs(e - a) / np.maximum(np.minimum(np.abs(e), np.abs(a)), 1)
    same = (actual == expected) | (np.isnan(a) & np.isnan(e))
    return np.where(same, 0, np.where(np.isnan(errors), np.inf, errors))
