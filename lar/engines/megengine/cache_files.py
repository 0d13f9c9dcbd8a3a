"""Fast-run caches as `lar cache` shows, compares, merges and edits them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lar.engines.engine import (
    CacheFiles,
    CacheReport,
    CacheTable,
    Preference,
    Size,
)
from lar.engines.megengine.cache import (
    Algorithm,
    AlgorithmCache,
    attributes_of,
    merge_caches,
    read_cache,
    update_cache,
    value_of,
    winograd_of,
)
from lar.engines.megengine.cache_choices import (
    Operator,
    compare_caches,
    matching,
    operators_of,
    pick_entry,
)
from lar.engines.megengine.cache_searches import (
    SearchedAlgorithm,
    SearchedOperator,
    describe_disagreements,
    join_caches,
    search_results_of,
)
from lar.errors import UsageError, count_of

if TYPE_CHECKING:
    pass

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
SEARCHES = (
    "",
    "operator",
    "shapes",
    "searches",
    "chosen",
    "by",
    "ms",
    "min..max",
    "next best",
    "ms",
    "min..max",
    "chosen otherwise",
)
SEARCHED = ("", "algorithm", "chosen by", "kept by", "ms", "min..max", "workspace", "winograd")
CHOICE = ("operator", "shapes", "chosen", "ms")
CANDIDATE = ("", "algorithm", "ms", "slower by", "workspace", "winograd", "attributes")


class AlgorithmCaches(CacheFiles):
    """Fast-run caches: the algorithm chosen for each operator, and the others that were timed."""

    def begins(self, head: bytes) -> bool:
        # Nothing marks such a file: it begins with the number of its categories, and the length
        # of the first one's name. An empty one, and what was cut short, are refused as that.
        return head[2:4] == head[6:8] == bytes(2) if len(head) > 4 else True

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        if len(paths) > 1:
            return self.show_several(paths, operator, every_algorithm=every_algorithm)
        path = paths[0]
        cache = read_cache(path)
        operators = find_operators(operators_of(cache), operator, path)
        lines = describe_cache(cache, operators, every_algorithm=every_algorithm)
        return CacheReport(lines, {"operators": [record_of(each) for each in operators]})

    def show_several(
        self, paths: Sequence[str], operator: str, *, every_algorithm: bool
    ) -> CacheReport:
        results = search_results_of([read_cache(path) for path in paths])
        known = [each.operator for each in results]
        numbers = {each.number for each in find_operators(known, operator, ", ".join(paths))}
        shown = [each for each in results if each.operator.number in numbers]
        lines = describe_searches(shown, len(paths), every_algorithm=every_algorithm)
        return CacheReport(lines, {"operators": [searches_record_of(each) for each in shown]})

    def compare(self, first: str, second: str) -> CacheReport:
        caches = [read_cache(first), read_cache(second)]
        difference = compare_caches(*caches)
        lines: list[str | CacheTable] = []
        for name, only in ((first, difference.only_first), (second, difference.only_second)):
            if only:
                lines.append(f"only in {name}: {len(only)}")
                lines.append(CacheTable(CHOICE, [choice_of(each) for each in only], True))
        if difference.differing:
            lines.append(f"another choice: {len(difference.differing)}")
            searched = {
                (each.operator.category, each.operator.entry.key): each
                for each in search_results_of(caches)
            }
            side = ("ms", "of both")
            header = ["operator", "shapes", first, *side, second, *side, "spread"]
            rows = []
            for a, b in difference.differing:
                result = searched[a.category, a.entry.key]
                ranges = [format_range(result.find(each.chosen)) for each in (a, b)]
                spread = "within" if result.is_within_spread else ""
                rows.append([*choice_of(a), ranges[0], *choice_of(b)[2:], ranges[1], spread])
            lines.append(CacheTable(header, rows, True))
            lines.append(describe_disagreements([*searched.values()]))
        lines.append(f"same choice: {difference.same}")
        return CacheReport(lines, differs=bool(difference))

    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> CacheReport:
        caches = [read_cache(path) for path in paths]
        merged = join_caches(caches, prefer)
        is_among = any(is_same_file(path, output) for path in paths)

        def join_with(old: AlgorithmCache) -> AlgorithmCache:
            if is_among or prefer == "last":
                return merge_caches(old, merged)
            return join_caches([old, *caches], prefer)

        _, after = update_cache(output, join_with)
        kept = len(compare_caches(after, merged).only_first)
        had = f", and {kept} that it had" if kept else ""
        what = "files" if len(paths) > 1 else "file"
        count = len(operators_of(after))
        lines = [f"{output}: operators: {count}, from {len(paths)} {what}{had}"]
        results = search_results_of(caches)
        if not all(each.agree for each in results):
            lines.append(describe_disagreements(results))
        return CacheReport(lines)

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


def is_same_file(path: str, other: str) -> bool:
    """Return whether two names are of one file."""
    return os.path.realpath(path) == os.path.realpath(other)


def find_operators(operators: Sequence[Operator], text: str, where: str) -> list[Operator]:
    """Return the operators that a number, or a piece of the name or shapes, means.

    Raises:
        UsageError: it means none; `where` names the files.
    """
    found = matching(operators, text)
    if text and not found:
        names = ", ".join(dict.fromkeys(each.name for each in operators))
        raise UsageError(
            f"no operator of {where} holds {text!r}",
            f"operators: {names or 'none'}",
            flag="--operator",
        )
    return found


def describe_searches(
    results: Sequence[SearchedOperator], files: int, *, every_algorithm: bool
) -> list[str | CacheTable]:
    """Return the lines that show several searches."""
    if not results:
        return ["operators: 0"]
    devices = ", ".join(dict.fromkeys(each.operator.device for each in results))
    lines: list[str | CacheTable] = [
        f"operators: {len(results)}, of {count_of(files, 'file')}, searched on {devices}",
        describe_disagreements(results),
    ]
    if not every_algorithm:
        return [*lines, "", CacheTable(SEARCHES, [searches_row_of(each) for each in results])]
    for each in results:
        lines += ["", f"{each.operator.number}: {each.operator}", table_of_searches(each)]
    return lines


def searches_row_of(result: SearchedOperator) -> list[str | Size]:
    """Return one operator's row: the best proven algorithm, and the next one."""
    counts = Counter(each.blob for each in result.choices)
    chosen, *others = result.algorithms
    following = [others[0].algorithm.name, *times_of(others[0])] if others else ["", "", ""]
    names = [each.name for each in result.choices if each.blob != chosen.algorithm.blob]
    otherwise = ", ".join(f"{count} {name}" for name, count in Counter(names).items())
    if not result.agree:
        otherwise += " (within the spread)" if result.is_within_spread else ""
    return [
        str(result.operator.number),
        result.operator.name,
        result.operator.shapes,
        str(len(result.choices)),
        chosen.algorithm.name,
        str(counts[chosen.algorithm.blob]),
        *times_of(chosen),
        *following,
        otherwise,
    ]


def table_of_searches(result: SearchedOperator) -> CacheTable:
    """Return every algorithm of an operator with its times in all searches."""
    counts = Counter(each.blob for each in result.choices)
    rows = [
        [
            "" if index else "*",
            each.algorithm.name,
            str(counts[each.algorithm.blob] or ""),
            str(len(each.times)),
            *times_of(each),
            Size(each.algorithm.workspace_bytes),
            winograd_of(each.algorithm.name),
        ]
        for index, each in enumerate(result.algorithms)
    ]
    return CacheTable(SEARCHED, rows, True)


def times_of(algorithm: SearchedAlgorithm) -> tuple[str, str]:
    """Return the median and the range of an algorithm's times, as cells."""
    return f"{algorithm.median * 1e3:.3f}", format_range(algorithm)


def format_range(algorithm: SearchedAlgorithm) -> str:
    """Format the shortest and the longest time in milliseconds: 0.011..0.014; one time alone has
    no range."""
    if len(algorithm.times) < 2:
        return ""
    return f"{algorithm.low * 1e3:.3f}..{algorithm.high * 1e3:.3f}"


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


def searches_record_of(result: SearchedOperator) -> dict[str, Any]:
    """Return an operator of several searches as plain data: as that of one, with all times."""
    counts = Counter(each.blob for each in result.choices)
    record = record_of(result.operator)
    for content, each in zip(record["algorithms"], result.algorithms, strict=True):
        content.update(times=each.times, seconds=each.median, chosen_by=counts[each.algorithm.blob])
    return {
        **record,
        "searches": len(result.choices),
        "agree": result.agree,
        "within_spread": result.is_within_spread,
    }
