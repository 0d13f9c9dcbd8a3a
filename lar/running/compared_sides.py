"""The sides of a comparison: a dump, tensors from elsewhere, or a model that is run for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, TypeAlias

from lar.dumps.dump import Dump
from lar.dumps.index import open_dump
from lar.engines import formats_of
from lar.engines.formats import HEAD_SIZE, format_named
from lar.errors import UsageError, count_of
from lar.files.input_file import cannot_read, check_input, open_input
from lar.files.path_conflicts import INDEX_SUFFIX
from lar.inputs.loaded import Array
from lar.options.given import split_command
from lar.options.table import ON, SCHEDULER
from lar.testcases.paths import source_of

# A dumped tensor's file has the largest number of axes behind the name's length and the type.
TENSOR_HEAD = (7).to_bytes(4, "little")


@dataclass(frozen=True)
class ModelRun:
    """A model and the options to run it with, by key, as texts.

    A model with testcases brings its own inputs; of several testcases one is compared. `label` is
    that of the worker which runs it, where a scheduler has some.
    """

    text: str
    model: str
    options: Mapping[str, Any]
    case_count: int = 0
    label: str = ""


Side: TypeAlias = Dump | ModelRun
GivenSide: TypeAlias = "str | os.PathLike[str] | Array | Mapping[str, Any] | Side"


def open_sides(given: Sequence[GivenSide]) -> list[Side]:
    """Return all sides as they are compared.

    Raises:
        UsageError: one cannot be compared, or there are too many.
    """
    if len(given) > len(ascii_uppercase):
        raise UsageError(f"{len(given)} sides", f"give {len(ascii_uppercase)} at most")
    return [open_side(*each) for each in zip(given, ascii_uppercase, strict=False)]


def open_side(side: GivenSide, letter: str) -> Side:
    """Return a side as it is compared.

    Raises:
        UsageError: it cannot be compared.
    """
    if isinstance(side, (Dump, ModelRun)):
        return side
    if isinstance(side, (str, os.PathLike)):
        return side_of(os.fspath(side))
    from lar.dumps.arrays import dump_of_arrays  # few sides are arrays

    arrays = side if isinstance(side, Mapping) else {"array": side}
    return dump_of_arrays(arrays, f"arrays of {letter}")


def side_of(text: str) -> Side:
    """Detect what a side is, and open a dump.

    Raises:
        UsageError: it cannot be compared, or an option is not one of a side.
    """
    if not text.strip():
        raise UsageError("the name of a side is empty", "give a folder, a file or a model")
    path = Path(text)
    if text.endswith(INDEX_SUFFIX):
        return open_dump(path)
    try:
        os.stat(path)
    except PermissionError as failure:
        raise cannot_read(text, failure) from None
    except (OSError, ValueError):
        model, options = split_command(text)
        if not options:
            hint = 'give a folder, a file, or a model with its options: "model.mge --cpu"'
            raise UsageError("no such dump, tensor file or model", hint, subject=text) from None
        return model_run(text, model, options)
    if os.path.isdir(path):
        is_run = source_of(text).case_count > 0
    else:
        check_input(path)
        is_run = is_model(path)
    return model_run(text, text, {}) if is_run else open_dump(path)


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
    is_tensors = head[8:12] == TENSOR_HEAD or path.suffix.lower() in (".npy", ".npz")
    return not is_tensors and any(formats_of(path, head))


def check_case(sides: Sequence[Side], case: int | None) -> None:
    """Refuse the number of a testcase that a side does not have.

    Raises:
        UsageError: naming the side.
    """
    if case is None:
        return
    runs = [side for side in sides if isinstance(side, ModelRun) and side.case_count]
    if not runs:
        raise UsageError("no side has testcases", "leave it out", flag=f"--case {case}")
    for side in runs:
        if not 0 <= case < side.case_count:
            problem = f"{side.model} has {count_of(side.case_count, 'testcase')}"
            raise UsageError(problem, "they are counted from 0", flag=f"--case {case}")


def describe_cases(sides: Iterable[Side], case: int) -> Iterator[str]:
    """Yield which testcase was compared, for each side with several."""
    for letter, side in zip(ascii_uppercase, sides, strict=False):
        if isinstance(side, ModelRun) and side.case_count > 1:
            one = f"{side.case_count} testcases, of which number {case} was compared"
            yield f"{letter} has {one}; --case N compares another"


def check_any_model(sides: Iterable[Side], flag: str) -> None:
    """Refuse a flag for models where there is none.

    Raises:
        UsageError: naming the flag.
    """
    if not any(isinstance(side, ModelRun) for side in sides):
        problem = "no side is a model, and only a model is run"
        raise UsageError(problem, f"leave {flag} out, or give a model as a side", flag=flag)
