"""The sides of a comparison: a dump, tensors from elsewhere, or a model that is run for it."""

from __future__ import annotations

import os
import shlex
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
from lar.inputs.loaded import Array
from lar.options.option import flag_of
from lar.options.paths import INDEX_SUFFIX
from lar.options.suggestions import suggest_flag
from lar.options.table import FLAGS, ON, SCHEDULER, option_of
from lar.records.run import RunSpec
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

    @property
    def has_testcases(self) -> bool:
        return self.case_count > 0


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
        UsageError: it cannot be compared.
    """
    if not text.strip():
        raise UsageError("the name of a side is empty", "give a folder, a file or a model")
    path = Path(text)
    try:
        os.stat(path)
    except PermissionError as failure:
        raise cannot_read(text, failure) from None
    except (OSError, ValueError):
        return side_of_words(text)
    is_folder = os.path.isdir(path)
    if is_folder or text.endswith(INDEX_SUFFIX):
        has_cases = is_folder and source_of(text).case_count
        return model_run(text, text, {}) if has_cases else open_dump(path)
    check_input(path)
    return model_run(text, text, {}) if is_model(path) else open_dump(path)


def side_of_words(text: str) -> Side:
    """Return a model with its options, as `"model.mge --cpu"`; or a dump whose index alone has the
    name that is given.

    Raises:
        UsageError: it is neither, or an option is not one of a side.
    """
    if text.endswith(INDEX_SUFFIX):
        return open_dump(Path(text))
    words = split_words(text)
    if len(words) < 2:
        hint = 'give a folder, a file, or a model with its options: "model.mge --cpu"'
        raise UsageError("no such dump, tensor file or model", hint, subject=text)
    return model_run(text, words[0], parse_words(words[1:]))


def split_words(text: str) -> list[str]:
    """Return the words of a model with its options.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        hint = "quote a model with its options as one word"
        raise UsageError(str(error), hint, subject=text) from None


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
            hint = suggest_flag(flag_of(key), FLAGS) or "`lar run --help all` lists the flags"
            raise UsageError(f"unknown flag {flag_of(key)}", hint)
        if option.parse is None:
            values[option.key] = True
            continue
        if not equals:
            value = next(left, "")
        if not value:
            raise UsageError("expected one argument", flag=flag_of(key))
        values[option.key] = [*values.get(option.key, []), value] if option.repeatable else value
    return values


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


def plan_of(side: ModelRun, options: Mapping[str, Any], *, elsewhere: bool = False) -> RunSpec:
    """Return the spec of a side's run, of one iteration if nothing else is said; its own options
    come before those for all.

    Raises:
        UsageError: an option cannot be used.
    """
    from lar.running.plan import parse_values, plan_run  # two dumps need none

    values = {"iter": 1, "warmup_iter": 0, **options, **side.options}
    return plan_run(side.model, parse_values(values), elsewhere=elsewhere)
