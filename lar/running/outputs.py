"""Whether two runs of different variants gave the same outputs, as far as their files say."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lar.inputs.loaded import Array
from lar.records.bench import Agreement, OutputDifference
from lar.records.comparison import Tolerance
from lar.records.run import OutputSummary

Outputs = Sequence[OutputSummary]

DEFAULT_TOLERANCE = Tolerance()  # of the types


def compare_outputs(
    actual: Outputs,
    actual_folder: str,
    expected: Outputs,
    expected_folder: str,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
) -> OutputDifference | None:
    """Compare outputs, by default with the tolerance of their types; None if a side has none.

    They are paired by their names, or by their places where the names are others. A folder holds
    them in their order, as `summarize_outputs` of the worker writes them; it is read only where
    the hashes differ.
    """
    if not actual or not expected:
        return None
    if len(actual) != len(expected):
        return OutputDifference(
            agreement="different", reason=f"{len(actual)} outputs instead of {len(expected)}"
        )
    places = {each.name: place for place, each in enumerate(actual)}
    is_named = places.keys() == {each.name for each in expected}
    found = []
    for place, each in enumerate(expected):
        mine = places[each.name] if is_named else place
        files = file_of(actual_folder, mine), file_of(expected_folder, place)
        found.append(compare_pair(actual[mine], each, files, tolerance))
    ranks = ("equal", "within the tolerance", "different")

    def distance(each: OutputDifference) -> tuple[int, float]:
        error = math.inf if each.max_error is None else each.max_error
        return ranks.index(each.agreement), error

    return max(found, key=distance)


def read_outputs(folder: str, outputs: Outputs) -> dict[str, Array]:
    """Return the outputs that a worker has written, without those that no array holds."""
    import numpy as np

    from lar.inputs.dtypes import NARROW, dtype_of

    files = {each: file_of(folder, place) for place, each in enumerate(outputs)}
    arrays = {each: np.load(file) for each, file in files.items() if file.is_file()}
    return {
        each.name: array.astype(dtype_of(each.dtype)) if each.dtype in NARROW else array
        for each, array in arrays.items()
    }


def file_of(folder: str, place: int) -> Path:
    """Return where a worker has written the output of that place."""
    return Path(os.path.join(folder, f"{place:03}.npy"))


def compare_pair(
    actual: OutputSummary, expected: OutputSummary, files: tuple[Path, Path], tolerance: Tolerance
) -> OutputDifference:
    """Compare one output of two runs."""
    found = OutputDifference(agreement="different", output=expected.name)
    same = [(each.dtype, each.shape, each.sha256) for each in (actual, expected)]
    if same[0] == same[1] and expected.sha256:
        return replace(found, agreement="equal", max_error=0.0)
    if actual.shape != expected.shape:
        reason = f"shape {describe(actual.shape)} instead of {describe(expected.shape)}"
        return replace(found, reason=reason)
    if not all(file.is_file() for file in files):
        return replace(found, reason=f"{expected.dtype} is no array of numbers")
    if "string" in (actual.dtype, expected.dtype):
        return replace(found, reason="other texts")
    import numpy as np  # most variants give the same bits

    from lar.comparison.metrics import bounds_of, measure

    bounds = bounds_of(tolerance, actual.dtype, expected.dtype)
    figures = measure(np.load(files[0]), np.load(files[1]), bounds)
    agreement: Agreement = "different" if figures.mismatches else "within the tolerance"
    error = None if figures.nonfinite_mismatches else figures.max_error
    return replace(found, agreement=agreement, max_error=error)


def describe(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
