"""Several searches of one model: what they agree on, and one cache made of all.

A search times each algorithm once, so that two searches of a busy machine choose differently. The
median of an algorithm's times is better proven than any of them. In the file of a search the
algorithms stand in the order of their times; where one stands first that is not the fastest of its
own entry, it was chosen by hand, which no search overrules.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lar.engines.engine import Preference
from lar.engines.megengine.cache import Algorithm, AlgorithmCache, Category, Entry
from lar.engines.megengine.cache_choices import Operator, operators_of
from lar.errors import count_of


@dataclass(frozen=True)
class SearchedAlgorithm:
    """An algorithm with its times in several searches, the earliest file's first."""

    algorithm: Algorithm
    times: tuple[float, ...]

    @property
    def low(self) -> float:
        return min(self.times)

    @property
    def high(self) -> float:
        return max(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


@dataclass(frozen=True)
class SearchedOperator:
    """An operator that one or more searches have timed.

    Attributes:
        operator: with the algorithms in the order of their medians, as a merged file has them.
        algorithms: the same ones with all their times, in the same order.
        choices: the algorithm that each search has chosen.
    """

    operator: Operator
    algorithms: tuple[SearchedAlgorithm, ...]
    choices: tuple[Algorithm, ...]

    @property
    def agree(self) -> bool:
        """Whether all searches have made the same choice."""
        return len({each.blob for each in self.choices}) == 1

    @property
    def is_within_spread(self) -> bool:
        """Whether the ranges of all that were chosen overlap, so that the times tell none of them
        apart."""
        chosen = {each.blob for each in self.choices}
        ranges = [each for each in self.algorithms if each.algorithm.blob in chosen]
        return max(each.low for each in ranges) <= min(each.high for each in ranges)

    def find(self, algorithm: Algorithm) -> SearchedAlgorithm:
        """Return an algorithm with all its times."""
        return next(each for each in self.algorithms if each.algorithm.blob == algorithm.blob)


def is_decided(entry: Entry) -> bool:
    """Return whether something else than the times of a search has decided what stands first."""
    first, *others = entry.algorithms
    return any(each.seconds < first.seconds for each in others)


def join_algorithms(entries: Iterable[Entry]) -> list[SearchedAlgorithm]:
    """Return the algorithms of one operator in the order of their medians.

    One that fewer than half of the searches have kept comes after the others. An algorithm is
    described as the last file describes it.
    """
    found: dict[bytes, SearchedAlgorithm] = {}
    count = 0
    for entry in entries:
        count += 1
        for each in entry.algorithms:
            known = found.get(each.blob)
            times = (*known.times, each.seconds) if known else (each.seconds,)
            found[each.blob] = SearchedAlgorithm(each, times)
    return sorted(found.values(), key=lambda each: (2 * len(each.times) < count, each.median))


def join_entries(entries: Sequence[Entry], prefer: Preference) -> Entry:
    """Return one entry of those that several files have for one operator, in their order."""
    if prefer == "first":
        return entries[0]
    if prefer == "last" or len(entries) == 1 or not all(each.algorithms for each in entries):
        return entries[-1]
    joined = join_algorithms(entries)
    if prefer == "fastest":
        joined.sort(key=lambda each: each.low)
    decided = [each.algorithms[0].blob for each in entries if is_decided(each)]
    if decided:
        joined.sort(key=lambda each: each.algorithm.blob != decided[-1])
    return replace(
        entries[-1],
        algorithms=tuple(
            with_seconds(each.algorithm, each.low if prefer == "fastest" else each.median)
            for each in joined
        ),
    )


def with_seconds(algorithm: Algorithm, seconds: float) -> Algorithm:
    """Return an algorithm with another time."""
    if seconds == algorithm.seconds:
        return algorithm
    text = f"{seconds:.6g}"
    result = f":{algorithm.attribute};{text};{algorithm.workspace_bytes}:\0".encode()
    return replace(algorithm, seconds=float(text), result=result)


def join_caches(caches: Sequence[AlgorithmCache], prefer: Preference) -> AlgorithmCache:
    """Return what any of the caches knows; `prefer` is for the operators that several know."""
    found: dict[str, dict[bytes, list[Entry]]] = {}
    for cache in caches:
        for category in cache.categories:
            entries = found.setdefault(category.name, {})
            for entry in category.entries:
                entries.setdefault(entry.key, []).append(entry)
    return AlgorithmCache(
        tuple(
            Category(name, tuple(join_entries(each, prefer) for each in entries.values()))
            for name, entries in found.items()
        )
    )


def search_results_of(caches: Sequence[AlgorithmCache]) -> list[SearchedOperator]:
    """Return the operators of several searches, each with what all of them say of it."""
    found: dict[tuple[str, bytes], list[Entry]] = {}
    for cache in caches:
        for operator in operators_of(cache):
            found.setdefault((operator.category, operator.entry.key), []).append(operator.entry)
    joined = operators_of(join_caches(caches, "median"))
    results = []
    for operator in joined:
        entries = found[operator.category, operator.entry.key]
        times = {each.algorithm.blob: each for each in join_algorithms(entries)}
        results.append(
            SearchedOperator(
                operator,
                tuple(times[each.blob] for each in operator.entry.algorithms),
                tuple(each.algorithms[0] for each in entries),
            )
        )
    return results


def count_disagreements(operators: Sequence[SearchedOperator]) -> tuple[int, int, int]:
    """Return how many operators several searches have timed, on how many of them they disagree,
    and on how many of these within the spread of the times."""
    several = [each for each in operators if len(each.choices) > 1]
    differing = [each for each in several if not each.agree]
    return len(several), len(differing), sum(each.is_within_spread for each in differing)


def describe_disagreements(operators: Sequence[SearchedOperator]) -> str:
    """Return it in a line: 20 of 34 operators disagree, 14 of them within the spread."""
    several, differing, within = count_disagreements(operators)
    verb = "disagrees" if 1 in (differing, several) else "disagree"
    text = f"{differing} of {count_of(several, 'operator')} {verb}"
    return f"{text}, {within} of them within the spread" if differing else text
