"""The choices in a fast-run cache: listed, found, compared and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lar.engines.megengine.cache import (
    Algorithm,
    AlgorithmCache,
    Category,
    Entry,
    Key,
    format_key,
    key_of,
    profile_of,
    winograd_of,
)
from lar.errors import UsageError

MOST_TOLD = 9  # operators in one message


@dataclass(frozen=True)
class Operator:
    """One searched operator; `number` counts them from 1, in the order of the file."""

    number: int
    category: str
    device: str
    name: str
    key: Key
    entry: Entry

    @property
    def chosen(self) -> Algorithm:
        return self.entry.algorithms[0]

    @property
    def next_best(self) -> Algorithm | None:
        """The fastest of the others, which a choice by hand may have passed over."""
        return min(self.entry.algorithms[1:], key=lambda each: each.seconds, default=None)

    @property
    def shapes(self) -> str:
        return format_key(self.key)

    def __str__(self) -> str:
        return f"{self.name} {self.shapes}"


@dataclass(frozen=True)
class CacheDifference:
    """The difference of two caches: operators of one only, and those with another choice."""

    only_first: tuple[Operator, ...]
    only_second: tuple[Operator, ...]
    differing: tuple[tuple[Operator, Operator], ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.differing)


def operators_of(cache: AlgorithmCache) -> list[Operator]:
    """Return the searched operators, in the order of the file."""
    operators: list[Operator] = []
    for category in cache.categories:
        profile = profile_of(category.name)
        for entry in category.entries:
            if profile and entry.algorithms:
                key = key_of(profile.operator, entry.key)
                number = len(operators) + 1
                operators.append(
                    Operator(
                        number,
                        category.name,
                        profile.device,
                        profile.operator,
                        key,
                        entry,
                    )
                )
    return operators


def matching(operators: Iterable[Operator], text: str) -> list[Operator]:
    """Return the operators that a number, or a piece of the name or shapes, means."""
    if text.isdecimal():
        return [each for each in operators if each.number == int(text)]
    return [each for each in operators if text.lower() in str(each).lower()]


def find_operator(cache: AlgorithmCache, text: str) -> Operator:
    """Find the one operator that a text means; a whole name counts more than a piece of one.

    Raises:
        UsageError: none or more than one is meant.
    """
    operators = operators_of(cache)
    exact = [each for each in operators if text in (str(each), each.shapes)]
    found = exact if len(exact) == 1 else matching(operators, text)
    if len(found) == 1:
        return found[0]
    candidates = "; ".join(f"{each.number}: {each}" for each in (found or operators)[:MOST_TOLD])
    more = len(found or operators) - MOST_TOLD
    raise UsageError(
        f"{text!r} means {len(found)} operators, not one",
        f"operators: {candidates or 'none'}" + (f"; and {more} more" if more > 0 else ""),
    )


def find_algorithm(operator: Operator, text: str) -> Algorithm:
    """Find the one algorithm that a name, or a piece of it, means.

    Raises:
        UsageError: none or more than one is meant.
    """
    algorithms = operator.entry.algorithms
    exact = [each for each in algorithms if each.name == text]
    found = exact or [each for each in algorithms if text.lower() in each.name.lower()]
    if len(found) == 1:
        return found[0]
    candidates = ", ".join(each.name for each in found or algorithms)
    raise UsageError(
        f"{text!r} means {len(found)} algorithms of {operator}, not one",
        f"algorithms: {candidates}",
    )


def pick_entry(cache: AlgorithmCache, operator: str, algorithm: str) -> AlgorithmCache:
    """Return a cache of one operator alone, with another choice for it.

    Raises:
        UsageError: none or more than one operator or algorithm is meant.
    """
    found = find_operator(cache, operator)
    return with_choice(found, find_algorithm(found, algorithm).name)


def with_choice(operator: Operator, name: str) -> AlgorithmCache:
    """Return a cache of one operator alone, with the algorithm of that name first."""
    algorithms = operator.entry.algorithms
    chosen = next(each for each in algorithms if each.name == name)
    others = tuple(each for each in algorithms if each is not chosen)
    entry = replace(operator.entry, algorithms=(chosen, *others))
    return AlgorithmCache((Category(operator.category, (entry,)),))


def fits(shape: tuple[int, ...], known: tuple[int, ...]) -> bool:
    """Return whether a shape is the one that a key gives, in which 0 stands for any batch."""
    return len(shape) == len(known) and all(
        size in (real, 0) for size, real in zip(known, shape, strict=True)
    )


def compare_caches(first: AlgorithmCache, second: AlgorithmCache) -> CacheDifference:
    """Compare the choices of two caches."""
    ours = {(each.category, each.entry.key): each for each in operators_of(first)}
    theirs = {(each.category, each.entry.key): each for each in operators_of(second)}
    both = [(ours[key], theirs[key]) for key in ours if key in theirs]
    differing = [(a, b) for a, b in both if a.chosen.blob != b.chosen.blob]
    return CacheDifference(
        only_first=tuple(each for key, each in ours.items() if key not in theirs),
        only_second=tuple(each for key, each in theirs.items() if key not in ours),
        differing=tuple(differing),
        same=len(both) - len(differing),
    )


def is_winograd(algorithm: Algorithm) -> bool:
    return bool(winograd_of(algorithm.name))


def is_direct(algorithm: Algorithm) -> bool:
    return not is_winograd(algorithm)


def best_of(entry: Entry, is_fit: Callable[[Algorithm], bool]) -> Algorithm | None:
    """Return the fastest fitting algorithm, but the chosen one, perhaps by hand, where it fits."""
    fitting = [each for each in entry.algorithms if is_fit(each)]
    if fitting and fitting[0] is entry.algorithms[0]:
        return fitting[0]
    return min(fitting, key=lambda each: each.seconds, default=None)


def prefer_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache with a winograd algorithm first wherever there is one."""

    def prefer(entry: Entry) -> Entry:
        first = best_of(entry, is_winograd)
        others = tuple(each for each in entry.algorithms if each is not first)
        return replace(entry, algorithms=(first, *others)) if first else entry

    return change_entries(cache, prefer)


def without_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache without winograd algorithms, except for operators that have no other."""

    def leave_out(entry: Entry) -> Entry:
        first = best_of(entry, is_direct)
        others = tuple(each for each in entry.algorithms if is_direct(each) and each is not first)
        return replace(entry, algorithms=(first, *others)) if first else entry

    return change_entries(cache, leave_out)


def change_entries(cache: AlgorithmCache, change: Callable[[Entry], Entry]) -> AlgorithmCache:
    return AlgorithmCache(
        tuple(
            replace(category, entries=tuple(map(change, category.entries)))
            for category in cache.categories
        )
    )
