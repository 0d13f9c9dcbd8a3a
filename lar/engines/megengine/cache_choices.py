"""The choices in a fast-run cache, as people see them: listed, found, compared and changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.engines.megengine.cache import (
    Algorithm,
    AlgorithmCache,
    Category,
    Entry,
    Key,
    attributes_of,
    format_key,
    key_of,
    merge_caches,
    profile_of,
    read_cache,
    update_cache,
    value_of,
    winograd_of,
)
from lar.errors import UsageError

MOST_TOLD = 9  # operators in one message

SUMMARY = (
    "",
    "operator",
    "shapes",
    "kept",
    "chosen",
    "ms",
    "workspace",
    "winograd",
    "next best",
    "slower by",
)
CHOICE = ("operator", "shapes", "chosen", "ms")
CANDIDATE = ("", "algorithm", "ms", "slower by", "workspace", "winograd", "attributes")


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
                    Operator(number, category.name, profile.device, profile.operator, key, entry)
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
    chosen = find_algorithm(found, algorithm)
    others = tuple(each for each in found.entry.algorithms if each is not chosen)
    entry = replace(found.entry, algorithms=(chosen, *others))
    return AlgorithmCache((Category(found.category, (entry,)),))


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


class AlgorithmCaches(CacheFiles):
    """Fast-run caches: the algorithm chosen for each operator, and the others that were timed."""

    def begins(self, head: bytes) -> bool:
        # Such a file begins with the number of its categories: nothing marks it.
        return False

    def show(self, path: str, operator: str, *, every_algorithm: bool) -> CacheReport:
        cache = read_cache(path)
        operators = matching(operators_of(cache), operator)
        if operator and not operators:
            names = ", ".join(dict.fromkeys(each.name for each in operators_of(cache)))
            raise UsageError(
                f"no operator of {path} holds {operator!r}",
                f"operators: {names or 'none'}",
                flag="--operator",
            )
        lines = describe_cache(cache, operators, every_algorithm=every_algorithm)
        return CacheReport(lines, {"operators": [record_of(each) for each in operators]})

    def compare(self, first: str, second: str) -> CacheReport:
        difference = compare_caches(read_cache(first), read_cache(second))
        lines: list[str | CacheTable] = []
        for name, only in ((first, difference.only_first), (second, difference.only_second)):
            if only:
                lines.append(f"only in {name}: {len(only)}")
                lines.append(CacheTable(CHOICE, [choice_of(each) for each in only], True))
        if difference.differing:
            lines.append(f"another choice: {len(difference.differing)}")
            header = ["operator", "shapes", first, "ms", second, "ms"]
            rows = [[*choice_of(a), *choice_of(b)[2:]] for a, b in difference.differing]
            lines.append(CacheTable(header, rows, True))
        lines.append(f"same choice: {difference.same}")
        return CacheReport(lines, differs=bool(difference))

    def merge(self, paths: Sequence[str], output: str) -> CacheReport:
        merged = AlgorithmCache()
        for path in paths:
            merged = merge_caches(merged, read_cache(path))
        _, after = update_cache(output, lambda old: merge_caches(old, merged))
        kept = len(compare_caches(after, merged).only_first)
        had = f", and {kept} that it had" if kept else ""
        what = "files" if len(paths) > 1 else "file"
        count = len(operators_of(after))
        return CacheReport([f"{output}: operators: {count}, from {len(paths)} {what}{had}"])

    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> CacheReport:
        source = read_cache(path)

        def picked(old: AlgorithmCache) -> AlgorithmCache:
            entry = pick_entry(old if output is None else source, operator, algorithm)
            return merge_caches(merge_caches(source, old), entry)

        old, after = update_cache(path if output is None else output, picked)
        changes = compare_caches(merge_caches(source, old), after).differing
        if not changes:
            return CacheReport(["this is the choice already"])
        lines = []
        for was, new in changes:
            lines.append(f"{new.number}: {new}")
            for word, each in (("was", was.chosen), ("is", new.chosen)):
                lines.append(f"  {word:3} {each.name}  {format_time(each)} ms")
            if "naive" in attributes_of(new.chosen.attribute):
                lines.append("note: a naive algorithm; the policy OPTIMIZED passes over it")
        return CacheReport(lines)


CACHES = AlgorithmCaches()


def describe_cache(
    cache: AlgorithmCache, operators: Sequence[Operator], *, every_algorithm: bool
) -> list[str | CacheTable]:
    """Return the lines that show a cache."""
    devices = ", ".join(dict.fromkeys(each.device for each in operators))
    other = [
        f"{category.name}: {len(category.entries)} entries that no search made, kept as they are"
        for category in cache.categories
        if any(not entry.algorithms for entry in category.entries)
    ]
    if not operators:
        return ["operators: 0", *other]
    lines: list[str | CacheTable] = [f"operators: {len(operators)}, searched on {devices}", *other]
    if every_algorithm:
        for each in operators:
            lines += ["", f"{each.number}: {each}", table_of_algorithms(each)]
        return lines
    return [*lines, "", CacheTable(SUMMARY, [summary_of(each) for each in operators])]


def summary_of(operator: Operator) -> list[str | Size]:
    """Return one operator's row of the table."""
    chosen, following = operator.chosen, operator.next_best
    return [
        str(operator.number),
        operator.name,
        operator.shapes,
        str(len(operator.entry.algorithms)),
        chosen.name,
        format_time(chosen),
        Size(chosen.workspace_bytes),
        winograd_of(chosen.name),
        following.name if following else "",
        format_slower(following, chosen) if following else "",
    ]


def table_of_algorithms(operator: Operator) -> CacheTable:
    """Return every algorithm that was kept for an operator, the chosen one marked."""
    rows = [
        [
            "" if index else "*",
            each.name,
            format_time(each),
            format_slower(each, operator.chosen) if index else "",
            Size(each.workspace_bytes),
            winograd_of(each.name),
            ", ".join(attributes_of(each.attribute)),
        ]
        for index, each in enumerate(operator.entry.algorithms)
    ]
    return CacheTable(CANDIDATE, rows, True)


def choice_of(operator: Operator) -> list[str]:
    """Return an operator and its choice, as cells."""
    return [operator.name, operator.shapes, operator.chosen.name, format_time(operator.chosen)]


def format_time(algorithm: Algorithm) -> str:
    """Format a time in milliseconds; the engine's clock counts microseconds."""
    return f"{algorithm.seconds * 1e3:.3f}"


def format_slower(algorithm: Algorithm, chosen: Algorithm) -> str:
    """Format how much slower than the choice an algorithm is; -10% is faster than it."""
    if not chosen.seconds:
        return "N/A"
    return f"{algorithm.seconds / chosen.seconds - 1:+.0%}"


def record_of(operator: Operator) -> dict[str, Any]:
    """Return an operator as plain data, the chosen algorithm first."""
    return {
        "number": operator.number,
        "operator": operator.name,
        "category": operator.category,
        "key": operator.entry.key.hex(),
        "operands": [
            {"shape": each.shape, "strides": each.strides, "dtype": each.dtype}
            for each in operator.key.operands
        ],
        "settings": {part.name: value_of(part, number) for part, number in operator.key.settings},
        "algorithms": [
            {
                "name": each.name,
                "seconds": each.seconds,
                "workspace_bytes": each.workspace_bytes,
                "attributes": attributes_of(each.attribute),
                "winograd": winograd_of(each.name),
            }
            for each in operator.entry.algorithms
        ],
    }
