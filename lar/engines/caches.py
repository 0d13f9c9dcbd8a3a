"""Cache files of engines, for `lar cache`: what such a file holds, and what an engine does with it.

A file holds either one model, as an engine has prepared it, with a key: what it was made for. Or it
holds the algorithms that searches have timed, operator by operator. What is read here becomes
tables and JSON in `lar.reports.cache_report`.
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
    """The files in which an engine keeps what it has found for later runs.

    Their methods raise a UsageError for a file that is missing or damaged. An engine's files are
    `ModelCacheFiles` or `AlgorithmCacheFiles`.
    """

    @abc.abstractmethod
    def begins(self, head: bytes) -> bool:
        """Return whether the first bytes of a file show that it is one of these."""

    def copy(self, path: str, place: str, flag: str) -> None:
        """Copy a file with all that belongs to it; what stands at the place is replaced as a whole.

        Raises:
            LarError: the place cannot be written; the flag is named.
        """
        from lar.files.input_file import read_input
        from lar.files.report_file import OutputFile

        with OutputFile(place, flag) as output:
            output.write(read_input(path, what="cache"))


# Files of one model each


class Size(NamedTuple):
    """A number of bytes, with a note."""

    size_bytes: int
    note: str = ""


class Contents(NamedTuple):
    """What a file holds: what its model was made for, and facts about it for a person, and as they
    are for JSON."""

    key: Key
    facts: Sequence[tuple[str, str | Size]] = ()
    record: Mapping[str, Any] = {}


class ModelCacheFiles(CacheFiles):
    """Files of one model each."""

    # What a refusal says that such a file holds.
    holds: str = "one model and no algorithms"

    @abc.abstractmethod
    def read(self, path: str) -> Contents:
        """Read what a file holds."""


def differing(first: Key, second: Key) -> list[str]:
    """Return the names of the entries in which two keys differ, in their order."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def damaged(path: str | Path, engine: str) -> UsageError:
    """Return the error of a file that is no cache of an engine."""
    problem = f"is not a cache that lar made for {engine}, or is damaged"
    return UsageError(problem, ANOTHER_FILE, subject=path)


def serves(driver: Driver, path: Path, made_for: Key | None, wanted: Key) -> bool:
    """Return whether a file serves a run, and note it where it has to be built again.

    Raises:
        UsageError: there is no file (`made_for` is None), and the run is not asked to make one.
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
    """Return a file's name, size and time: a hash of gigabytes would take longer than the load."""
    try:
        status = path.stat()
    except OSError:
        return f"{path.name} missing"
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


# Files of algorithms


@dataclass(frozen=True)
class Algorithm:
    """One algorithm that was timed.

    Attributes:
        winograd: which winograd it is, empty for another algorithm.
        blob: what describes it to the engine.
        result: what the engine writes about its time.
        times: one for each search that has kept it, if several may have.
        chosen_by: the searches that have chosen it, counted from 0.
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
    """One input or output; strides are given only if they are not the dense ones."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """Format a shape as {?,8,32,32}, ? where any size goes."""
        shape = "{" + ",".join(str(size) if size else "?" for size in self.shape) + "}"
        strides = ",".join(map(str, self.strides))
        return f"{shape} strides {{{strides}}}" if strides else shape


@dataclass(frozen=True)
class Operator:
    """An operator that one or more searches have timed.

    Attributes:
        number: counted from 1, in the order of the file.
        place: where it stands in a file: its category, and its key there.
        shapes: what distinguishes it from others of its name, for a person.
        settings: the parameters by name; empty if they are not known.
        algorithms: the chosen one first; of several searches in the order of their medians, as a
            merged file has them.
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
        """The fastest of the others, which a choice by hand may have passed over."""
        return min(self.algorithms[1:], key=lambda each: each.seconds, default=None)

    @property
    def searches(self) -> int:
        """How many searches have timed it."""
        return sum(len(each.chosen_by) for each in self.algorithms)

    @property
    def agree(self) -> bool:
        """Whether all searches have made the same choice."""
        return sum(bool(each.chosen_by) for each in self.algorithms) == 1

    @property
    def is_within_spread(self) -> bool:
        """Whether the ranges of all that were chosen overlap, so that the times tell none of them
        apart."""
        ranges = [each.times for each in self.algorithms if each.chosen_by]
        return max(map(min, ranges)) <= min(map(max, ranges))

    def __str__(self) -> str:
        return f"{self.name} {self.shapes}"


Pair = tuple[Operator, Operator]


class Difference(NamedTuple):
    """The difference of two files: operators of one only, and those with another choice."""

    only_first: list[Operator]
    only_second: list[Operator]
    differing: list[Pair]
    same: int


def compare_choices(first: Sequence[Operator], second: Sequence[Operator]) -> Difference:
    """Compare the choices of two files."""
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
    """Return the operators that a number, or a piece of the name or shapes, means."""
    if text.isdecimal():
        return [each for each in operators if each.number == int(text)]
    return [each for each in operators if text.lower() in str(each).lower()]


# What a merged cache keeps for an operator that several files know:
#
# median   the median of each algorithm's times, the fastest by that first
# fastest  the shortest of each algorithm's times
# first    the entry of the first file
# last     the entry of the last file
Preference = Literal["median", "fastest", "first", "last"]


class Searched(NamedTuple):
    """What files hold, and how many entries they have in each category that no search made."""

    operators: list[Operator]
    unread: Mapping[str, int]


class Merged(NamedTuple):
    """The operators of the files that were merged, how many the file now has, and how many of them
    it alone had."""

    operators: list[Operator]
    total: int
    kept: int


class AlgorithmCacheFiles(CacheFiles):
    """Files of the algorithm chosen for each operator, and the others that were timed."""

    @abc.abstractmethod
    def read(self, paths: Sequence[str]) -> Searched:
        """Read what a file holds, or what several files say of the same operators."""

    @abc.abstractmethod
    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> Merged:
        """Add the contents of files to another file, and keep what it already has.

        A file `output` that is there counts as the first of the files, unless it is one of them.
        """

    @abc.abstractmethod
    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> list[Pair]:
        """Choose the algorithm of an operator, in the file itself or in a copy of it; return the
        operators whose choice has changed, as they were and as they are."""


AnyCacheFiles = ModelCacheFiles | AlgorithmCacheFiles
