"""Comparison of a run's outputs with the outputs that its testcase expects, as in MegEngine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lar.errors import CheckFailed, UsageError
from lar.inputs import Array, Loaded
from lar.inputs.dtypes import kind_of, name_of
from lar.inputs.readers import read_path
from lar.options.table import DISABLE_ASSERT_THROW
from lar.records.events import Emit, Judged
from lar.records.run import Case, Expected, RunSpec, Verdict, format_shape

# The default limit of an error: ONNX uses this relative error for its own test data.
DEFAULT_LIMIT = 1e-3

# The limit that `lar pack` writes into a .pb, in the tensor's doc_string.
LIMIT_TEXT = r"max_error=(inf|nan|\d+(?:\.\d+)?(?:e[-+]?\d+)?)( silent)?"


@dataclass(eq=False)
class Judge:
    """Compares the outputs of each run of one testcase.

    If a failure is not raised as an error, a line for the first failure is added to `notes`. With
    `is_exact`, the engine gives float64 for every floating-point type.
    """

    number: int
    case: Case
    spec: RunSpec
    emit: Emit
    notes: list[str]
    is_exact: bool = False
    failed: bool = False

    def __post_init__(self) -> None:
        """Read the expected outputs; an expected sequence has several arrays.

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
        """The names of the judged outputs, as they are recorded in the result."""
        return self.case.variables or tuple(
            f"{expected.name}{format_shape(array.shape)}" for expected, array in self.wanted
        )

    def __call__(self, outputs: Mapping[str, Any]) -> None:
        """Compare the outputs of a run.

        Raises:
            CheckFailed: an output is not as expected, unless --disable-assert-throw is given.
            UsageError: the model does not have one of the expected outputs.
        """
        verdicts = tuple(judge(*each, outputs, is_exact=self.is_exact) for each in self.wanted)
        self.emit(Judged(self.number, self.case.name, verdicts))
        wrong = next((verdict for verdict in verdicts if not verdict.passed), None)
        if wrong is None or self.failed:
            return
        text, self.failed = describe_failure(self.number, wrong), True
        if not DISABLE_ASSERT_THROW.is_given(self.spec.settings):
            raise CheckFailed(text, "--disable-assert-throw warns and goes on")
        self.notes.append(text)


def describe_failure(number: int, verdict: Verdict) -> str:
    """Return one line that names the wrong element."""
    place = f"[{','.join(map(str, verdict.index))}]" if verdict.index else ""
    found = f"{verdict.output}{place} is {verdict.actual}, expected {verdict.expected}"
    error = "" if verdict.error is None else f" (err={verdict.error:g}, allowed {verdict.limit:g})"
    return f"test #{number}: {found}{error}"


def complete(expected: Expected, loaded: Loaded) -> Expected:
    """Return an expected output, completed with the name and the error limit in its file.

    An expected output that already has an error limit is returned unchanged. The file holds an ONNX
    tensor.
    """
    if expected.limit is not None:
        return expected
    found = re.fullmatch(LIMIT_TEXT, loaded.note)
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

    With `is_exact`, the output is float64, whatever floating-point type is expected.

    Raises:
        UsageError: the model has no output with the name or the number of the expected output.
    """
    name, names = expected.output, list(outputs)  # a missing name may raise any error
    if name not in names:
        if expected.id >= len(names):
            problem = f"the model has no such output; it has {', '.join(names)}"
            hint = "remove the file, or give the model that it was made with"
            raise UsageError(problem, hint, subject=expected.file)
        name = names[expected.id]
    limit = DEFAULT_LIMIT if expected.limit is None else expected.limit
    verdict = partial(
        Verdict, output=name, name=expected.name, id=expected.id, shown=expected.shown, limit=limit
    )
    actual = outputs[name]
    if is_exact and kind_of(array.dtype) == "f":
        array = array.astype(np.float64)
        if not isinstance(actual, str) and kind_of(actual.dtype) == "f":
            actual = actual.astype(np.float64)
    found, asked = describe(actual), describe(array)
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


def describe(value: Any) -> str:
    """Return the dtype and shape of an array as text; return a text, such as a type, unchanged."""
    if isinstance(value, str):
        return value
    return f"{name_of(value.dtype)}{format_shape(value.shape)}"


def errors_of(actual: Array, expected: Array) -> Array:
    """Return |e-a| / max(min(|e|,|a|), 1) for each element, as MegEngine computes it.

    MegEngine computes in float32; lar computes in float64 if the dtype has more digits than
    float32. A NaN or infinity on both sides gives the error 0; on one side alone, it gives an
    infinite error.
    """
    if kind_of(actual.dtype) == "O":
        return np.where(actual == expected, 0, np.inf)
    kind = np.float32 if actual.dtype in (np.float16, np.float32) else np.float64
    a: Array = actual.astype(kind)
    e: Array = expected.astype(kind)
    with np.errstate(all="ignore"):
        errors = np.abs(e - a) / np.maximum(np.minimum(np.abs(e), np.abs(a)), 1)
    same = (actual == expected) | (np.isnan(a) & np.isnan(e))
    return np.where(same, 0, np.where(np.isnan(errors), np.inf, errors))
