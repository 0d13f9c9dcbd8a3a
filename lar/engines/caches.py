"""The cache files of engines: what they contain, and which operations `lar cache` has for them.

A cache file holds one of two things: a model that an engine has prepared, or algorithms that
searches have timed for each operator. The key of a prepared model says for which run the model was
made. `lar.reports.cache_report` prints the contents of cache files as tables and JSON.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lar.errors import UsageError
from lar.options.table import FAST_RUN, FAST_RUN_ALGO_POLICY

if TYPE_CHECKING:
    from lar.engines.driver import Driver

FLAG = FAST_RUN_ALGO_POLICY.flag
ANOTHER_FILE = "choose another file, or remove this one"

Key = Mapping[str, str]


class CacheFiles(abc.ABC):
    """A kind of cache files, which an engine writes so that later runs can use them.

    The methods of this class raise a UsageError if a file is missing or damaged. The class of an
    engine's cache files is either `ModelCacheFiles` or `AlgorithmCacheFiles`.
    """

    @abc.abstractmethod
    def begins(self, head: bytes) -> bool:
        """Return whether a file with these first bytes is a cache file of this engine."""

    def copy(self, path: str, place: str, flag: str) -> None:
        """Copy a cache file, with the files that belong to it, to `place`.

        If a file already exists at `place`, it is replaced in one step.

        Raises:
            LarError: the file at `place` cannot be written; the error names the option `flag`.
        """
        from lar.files.input_file import read_input
        from lar.files.report_file import OutputFile

        with OutputFile(place, flag, is_text=False) as output:
            output.write(read_input(path, what="cache"))


# Cache files that hold one model each


class Size(NamedTuple):
    """A number of bytes, with a note that is printed after the number."""

    size_bytes: int
    note: str = ""


class Contents(NamedTuple):
    """The contents of a cache file of one model.

    `key` says for which run the model was made. `facts` are printed for a person, and `record` is
    printed as JSON.
    """

    key: Key
    facts: Sequence[tuple[str, str | Size]] = ()
    record: Mapping[str, Any] = {}


class ModelCacheFiles(CacheFiles):
    """Cache files of which each holds one model."""

    # The contents of such a file, in words for an error message.
    holds: str = "one model and no algorithms"

    @abc.abstractmethod
    def read(self, path: str) -> Contents:
        """Read the contents of a cache file of one model."""


def differing(first: Key, second: Key) -> list[str]:
    """Return the names of the entries that differ between the keys of two caches."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def damaged(path: str | Path, engine: str) -> UsageError:
    """Return the error for a file that is not a cache of an engine, or that is a damaged cache."""
    problem = f"is not a cache that lar made for {engine}, or is damaged"
    return UsageError(problem, ANOTHER_FILE, subject=path)


def serves(driver: Driver, path: Path, made_for: Key | None, wanted: Key) -> bool:
    """Return whether a cache file can be used for a run.

    If the file was made for a different run, the user gets a note that the file is built again.

    Raises:
        UsageError: the file does not exist (`made_for` is None), and --fast-run is not given.
    """
    if made_for is None and not FAST_RUN.is_given(driver.spec.settings):
        hint = "make it with --fast-run, then run without"
        raise UsageError("no such file", hint, flag=FLAG, subject=path)
    if made_for is not None and made_for != wanted:
        names = ", ".join(differing(made_for, wanted)).replace("_", " ")
        why = f"was made for a run that differs in {names}"
        driver.notes.append(f"{FLAG}: {path}: {why}: it is built again")
    return made_for == wanted


def describe_file(path: Path) -> str:
    """Return a file's name, size and time of change as a text, which changes when the file changes.

    A hash of the file's contents is not used: for a file of gigabytes, computing the hash would
    take longer than loading the model.
    """
    try:
        status = path.stat()
    except OSError:
        return f"{path.name} missing"
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


# Cache files that hold algorithms


@dataclass(frozen=True)
class Algorithm:
    """One algorithm that a search has timed for an operator.

    Attributes:
        winograd: the kind of the Winograd transformation, such as F(4,3); empty for other
            algorithms.
        blob: the engine's own description of the algorithm, as bytes.
        result: the engine's own record of the algorithm's time, as bytes.
        times: the algorithm's time in each search whose result is known; empty if a file is of one
            search only.
        chosen_by: the numbers of the searches that have chosen the algorithm, counted from 0.
    """

    name: str
    seconds: float
    workspace_bytes: int
    attributes: tuple[str, ...]
    winograd: str
    blob: bytes
    result: bytes
    times: tuple[float, ...] = field(default=(), compare=False)
    chosen_by: tuple[int, ...] = field(default=(), compare=False)


class Operand(NamedTuple):
    """One input or output of an operator; its strides are empty if the tensor is dense."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """Format the shape, such as {?,8,32,32}; ? stands for any size."""
        shape = "{" + ",".join(str(size) if size else "?" for size in self.shape) + "}"
        strides = ",".join(map(str, self.strides))
        return f"{shape} strides {{{strides}}}" if strides else shape


@dataclass(frozen=True)
class Operator:
    """An operator whose algorithms one or more searches have timed.

    Attributes:
        number: the operator's number in the file, counted from 1.
        place: the operator's category in the file, and its key in that category.
        shapes: the operator's shapes and parameters, by which a person can distinguish operators
            with the same name.
        settings: the operator's parameters by name; empty if the parameters are unknown.
        algorithms: the operator's algorithms, with the chosen algorithm first. The algorithms of
            several searches are sorted by their median times, as in a merged file.
    """

    number: int
    place: tuple[str, bytes]
    device: str
    name: str
    shapes: str
    operands: tuple[Operand, ...]
    settings: Mapping[str, int | str]
    algorithms: tuple[Algorithm, ...]

    @property
    def chosen(self) -> Algorithm:
        return self.algorithms[0]

    @property
    def next_best(self) -> Algorithm | None:
        """The fastest of the algorithms that are not chosen.

        The returned algorithm may be faster than the chosen algorithm, which a person may have
        picked.
        """
        return min(self.algorithms[1:], key=lambda each: each.seconds, default=None)

    @property
    def searches(self) -> int:
        """The number of searches that have timed this operator."""
        return sum(len(each.chosen_by) for each in self.algorithms)

    @property
    def agree(self) -> bool:
        """Whether all searches have chosen the same algorithm."""
        return sum(bool(each.chosen_by) for each in self.algorithms) == 1

    @property
    def is_within_spread(self) -> bool:
        """Whether the time ranges of all chosen algorithms overlap.

        If the time ranges overlap, the times do not show which algorithm is the fastest.
        """
        ranges = [each.times for each in self.algorithms if each.chosen_by]
        return max(map(min, ranges)) <= min(map(max, ranges))

    def __str__(self) -> str:
        return f"{self.name} {self.shapes}"


Pair = tuple[Operator, Operator]


class Difference(NamedTuple):
    """The difference of two cache files.

    `only_first` has the operators that only the first file contains. `only_second` has the
    operators that only the second file contains. `differing` has the operators for which the files
    choose different algorithms. `same` is the number of operators for which the files choose the
    same algorithm.
    """

    only_first: list[Operator]
    only_second: list[Operator]
    differing: list[Pair]
    same: int


def compare_choices(first: Sequence[Operator], second: Sequence[Operator]) -> Difference:
    """Return the difference between two cache files, in their operators and chosen algorithms."""
    ours, theirs = ({each.place: each for each in it} for it in (first, second))
    both = [(ours[place], theirs[place]) for place in ours if place in theirs]
    differing = [(a, b) for a, b in both if a.chosen.blob != b.chosen.blob]
    return Difference(
        [each for place, each in ours.items() if place not in theirs],
        [each for place, each in theirs.items() if place not in ours],
        differing,
        len(both) - len(differing),
    )


def matching(operators: Sequence[Operator], text: str) -> list[Operator]:
    """Find operators by their number, or by a part of their name or shapes."""
    if text.isdecimal():
        return [each for each in operators if each.number == int(text)]
    return [each for each in operators if text.lower() in str(each).lower()]


# What a merged cache keeps for an operator that several files have:
#
# median   the median of each algorithm's times; the algorithm with the smallest median is first
# fastest  the shortest of each algorithm's times; the algorithm with the shortest time is first
# first    the entry of the first file
# last     the entry of the last file
Preference = Literal["median", "fastest", "first", "last"]


class Searched(NamedTuple):
    """The operators in some cache files, and the number of entries that lar cannot read.

    lar reads an entry only if it knows the version of the search that wrote the entry. `unread` is
    the number of entries in each category that lar cannot read.
    """

    operators: list[Operator]
    unread: Mapping[str, int]


class Merged(NamedTuple):
    """The result of a merge into a cache file.

    `operators` are the operators in the merged files. `total` is the number of operators that the
    cache file has after the merge. `kept` is the number of operators that were already in the cache
    file and are in no other merged file.
    """

    operators: list[Operator]
    total: int
    kept: int


class AlgorithmCacheFiles(CacheFiles):
    """Cache files that hold the timed algorithms of each operator, the chosen algorithm first."""

    @abc.abstractmethod
    def read(self, paths: Sequence[str]) -> Searched:
        """Read the operators of one cache file, or of several cache files together."""

    @abc.abstractmethod
    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> Merged:
        """Add the contents of cache files to the present contents of the file `output`.

        If `output` exists and is not among `paths`, `output` is treated as the first of the merged
        files.
        """

    @abc.abstractmethod
    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> list[Pair]:
        """Choose the algorithm of an operator, in the cache file `path` or in its copy `output`.

        Returns:
            A pair for each operator whose chosen algorithm has changed. Each pair has the operator
            before the change and the operator after the change.
        """


AnyCacheFiles = ModelCacheFiles | AlgorithmCacheFiles
