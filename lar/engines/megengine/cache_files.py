"""Fast-run caches as `lar cache` shows, compares, merges and edits them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Preference, Size
from lar.engines.megengine import cache_operators
from lar.engines.megengine.cache import Algorithm, AlgorithmCache, read_cache, update_cache
from lar.engines.megengine.cache_operators import Operator, compare_caches, operators_of
from lar.errors import UsageError, count_of

Cell = str | Size
Rows = Iterable[tuple[Operator, Algorithm]]
CellOf = Callable[[Operator, Algorithm], Cell]


class Column(NamedTuple):
    """A column of a table of operators or of one's algorithms; some are for one file alone, or
    for several searches."""

    title: str
    cell: CellOf
    files: str = ""


ONE, SEVERAL = "one", "several"


def format_time(algorithm: Algorithm) -> str:
    """Format a time in milliseconds; the engine's clock counts microseconds."""
    return f"{algorithm.seconds * 1e3:.3f}"


def format_range(operator: Operator, algorithm: Algorithm) -> str:
    """Format the shortest and the longest time in milliseconds: 0.011..0.014; one time alone has
    no range."""
    times = operator.times[algorithm.blob]
    return f"{min(times) * 1e3:.3f}..{max(times) * 1e3:.3f}" if len(times) > 1 else ""


def format_slower(operator: Operator, algorithm: Algorithm) -> str:
    """Format how much slower than the choice an algorithm is; -10% is faster than it."""
    if algorithm is operator.chosen:
        return ""
    chosen = operator.chosen.seconds
    return f"{algorithm.seconds / chosen - 1:+.0%}" if chosen else "N/A"


def count_choices(operator: Operator, algorithm: Algorithm) -> int:
    """Return how many searches have chosen an algorithm."""
    return sum(each.blob == algorithm.blob for each in operator.choices)


def format_others(operator: Operator, chosen: Algorithm) -> str:
    """Format the choices of the searches that have chosen otherwise: 2 DIRECT, 1 NAIVE."""
    names = Counter(each.name for each in operator.choices if each.blob != chosen.blob)
    text = ", ".join(f"{count} {name}" for name, count in names.items())
    return f"{text} (within the spread)" if names and operator.is_within_spread else text


def of_next_best(cell: CellOf) -> CellOf:
    """Return a cell for the next best algorithm; it is empty if an operator has only one."""
    return lambda operator, _: cell(operator, it) if (it := operator.next_best) else ""


SUMMARY = (
    Column("", lambda it, _: str(it.number)),
    Column("operator", lambda it, _: it.name),
    Column("shapes", lambda it, _: it.shapes),
    Column("kept", lambda it, _: str(len(it.algorithms)), ONE),
    Column("searches", lambda it, _: str(len(it.choices)), SEVERAL),
    Column("chosen", lambda _, chosen: chosen.name),
    Column("by", lambda it, chosen: str(count_choices(it, chosen)), SEVERAL),
    Column("ms", lambda _, chosen: format_time(chosen)),
    Column("min..max", format_range, SEVERAL),
    Column("workspace", lambda _, chosen: Size(chosen.workspace_bytes), ONE),
    Column("winograd", lambda _, chosen: chosen.winograd, ONE),
    Column("next best", of_next_best(lambda _, best: best.name)),
    Column("slower by", of_next_best(format_slower), ONE),
    Column("ms", of_next_best(lambda _, best: format_time(best)), SEVERAL),
    Column("min..max", of_next_best(format_range), SEVERAL),
    Column("chosen otherwise", format_others, SEVERAL),
)
CANDIDATES = (
    Column("", lambda it, each: "*" if each is it.chosen else ""),
    Column("algorithm", lambda _, each: each.name),
    Column("chosen by", lambda it, each: str(count_choices(it, each) or ""), SEVERAL),
    Column("kept by", lambda it, each: str(len(it.times[each.blob])), SEVERAL),
    Column("ms", lambda _, each: format_time(each)),
    Column("min..max", format_range, SEVERAL),
    Column("slower by", format_slower, ONE),
    Column("workspace", lambda _, each: Size(each.workspace_bytes)),
    Column("winograd", lambda _, each: each.winograd),
    Column("attributes", lambda _, each: ", ".join(each.attributes), ONE),
)
CHOICE = (*SUMMARY[1:3], SUMMARY[5], SUMMARY[7])


def table_of(
    columns: Sequence[Column], rows: Rows, files: str = ONE, *, is_indented: bool = True
) -> CacheTable:
    """Return a table of those of the columns that are for so many files."""
    shown = [column for column in columns if column.files in ("", files)]
    cells = [[column.cell(*row) for column in shown] for row in rows]
    return CacheTable([column.title for column in shown], cells, is_indented)


class AlgorithmCaches(CacheFiles):
    """Fast-run caches: the algorithm chosen for each operator, and the others that were timed."""

    def begins(self, head: bytes) -> bool:
        # Nothing marks such a file: it begins with the number of its categories, and the length
        # of the first one's name. An empty one, and what was cut short, are refused as that.
        return head[2:4] == head[6:8] == bytes(2) if len(head) > 4 else True

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        caches = [read_cache(path) for path in paths]
        operators = find_operators(operators_of(*caches), operator, ", ".join(paths))
        files = SEVERAL if len(paths) > 1 else ONE
        among = f", of {len(paths)} files" if files == SEVERAL else ""
        devices = ", ".join(dict.fromkeys(each.device for each in operators))
        searched = f"{among}, searched on {devices}" if operators else ""
        lines: list[str | CacheTable] = [f"operators: {len(operators)}{searched}"]
        lines += describe_unread(caches)
        if operators and files == SEVERAL:
            lines.append(describe_disagreements(operators))
        if operators and not every_algorithm:
            rows = [(each, each.chosen) for each in operators]
            lines += ["", table_of(SUMMARY, rows, files, is_indented=False)]
        for each in operators if every_algorithm else ():
            rows = [(each, algorithm) for algorithm in each.algorithms]
            lines += ["", f"{each.number}: {each}", table_of(CANDIDATES, rows, files)]
        return CacheReport(lines, {"operators": [record_of(each) for each in operators]})

    def compare(self, first: str, second: str) -> CacheReport:
        caches = [read_cache(first), read_cache(second)]
        difference = compare_caches(*caches)
        lines: list[str | CacheTable] = []
        for name, only in ((first, difference.only_first), (second, difference.only_second)):
            if only:
                rows = [(each, each.chosen) for each in only]
                lines += [f"only in {name}: {len(only)}", table_of(CHOICE, rows)]
        if pairs := difference.differing:
            joined = {each.place: each for each in operators_of(*caches)}
            side = ("ms", "of both")
            header = ["operator", "shapes", first, *side, second, *side, "spread"]
            cells = [row_of(a, b, joined[a.place]) for a, b in pairs]
            lines += [f"another choice: {len(pairs)}", CacheTable(header, cells, True)]
            lines.append(describe_disagreements([*joined.values()]))
        same = f"same choice: {difference.same}"
        return CacheReport([*lines, same], differs=bool(lines))

    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> CacheReport:
        caches = [read_cache(path) for path in paths]
        merged = cache_operators.join_caches(caches, prefer)
        is_among = os.path.realpath(output) in map(os.path.realpath, paths)

        def join_with(old: AlgorithmCache) -> AlgorithmCache:
            if is_among or prefer == "last":
                return {**old, **merged}
            return cache_operators.join_caches([old, *caches], prefer)

        _, after = update_cache(output, join_with)
        kept = len(compare_caches(after, merged).only_first)
        had = f", and {kept} that it had" if kept else ""
        count = f"operators: {len(operators_of(after))}, from {count_of(len(paths), 'file')}"
        operators = operators_of(*caches)
        disagree = not all(each.agree for each in operators)
        more = [describe_disagreements(operators)] if disagree else []
        return CacheReport([f"{output}: {count}{had}", *more])

    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> CacheReport:
        source = read_cache(path)

        def picked(old: AlgorithmCache) -> AlgorithmCache:
            edited = old if output is None else source
            return {**source, **old, **cache_operators.pick_entry(edited, operator, algorithm)}

        old, after = update_cache(path if output is None else output, picked)
        lines = []
        for was, new in compare_caches({**source, **old}, after).differing:
            lines.append(f"{new.number}: {new}")
            for word, each in (("was", was.chosen), ("is", new.chosen)):
                lines.append(f"  {word:3} {each.name}  {format_time(each)} ms")
            if "naive" in new.chosen.attributes:
                lines.append("note: a naive algorithm; the policy OPTIMIZED passes over it")
        return CacheReport(lines or ["this is the choice already"])


CACHES = AlgorithmCaches()


def find_operators(operators: Sequence[Operator], text: str, where: str) -> list[Operator]:
    """Return the operators that a number, or a piece of the name or shapes, means.

    Raises:
        UsageError: it means none; `where` names the files.
    """
    found = cache_operators.matching(operators, text)
    if text and not found:
        names = ", ".join(dict.fromkeys(each.name for each in operators)) or "none"
        problem = f"no operator of {where} holds {text!r}"
        raise UsageError(problem, f"operators: {names}", flag="--operator")
    return found


def describe_unread(caches: Iterable[AlgorithmCache]) -> list[str]:
    """Return a line for each category whose values are not read."""
    unread = {place for it in caches for place, entry in it.items() if isinstance(entry, bytes)}
    return [
        f"{name}: {count} entries that no search made, kept as they are"
        for name, count in sorted(Counter(category for category, _ in unread).items())
    ]


def describe_disagreements(operators: Sequence[Operator]) -> str:
    """Return how many operators several searches have chosen differently for, in a line: 20 of 34
    operators disagree, 14 of them within the spread."""
    several = [each for each in operators if len(each.choices) > 1]
    differing = [each for each in several if not each.agree]
    verb = "disagrees" if 1 in (len(differing), len(several)) else "disagree"
    text = f"{len(differing)} of {count_of(len(several), 'operator')} {verb}"
    within = sum(each.is_within_spread for each in differing)
    return f"{text}, {within} of them within the spread" if differing else text


def row_of(first: Operator, second: Operator, joined: Operator) -> list[Cell]:
    """Return the row of an operator that two caches have other choices for."""
    cells: list[Cell] = [first.name, first.shapes]
    for side in (first.chosen, second.chosen):
        cells += [side.name, format_time(side), format_range(joined, side)]
    return [*cells, "within" if joined.is_within_spread else ""]


def record_of(operator: Operator) -> dict[str, Any]:
    """Return an operator as plain data, the chosen algorithm first."""
    return {
        "number": operator.number,
        "operator": operator.name,
        "category": operator.place[0],
        "key": operator.place[1].hex(),
        "operands": [each._asdict() for each in operator.operands],
        "settings": {
            field.rpartition(".")[2]: cache_operators.value_of(field, number)
            for field, number in operator.settings.items()
        },
        "searches": len(operator.choices),
        "agree": operator.agree,
        "within_spread": operator.is_within_spread,
        "algorithms": [
            {
                "name": each.name,
                "seconds": each.seconds,
                "times": operator.times[each.blob],
                "chosen_by": count_choices(operator, each),
                "workspace_bytes": each.workspace_bytes,
                "attributes": each.attributes,
                "winograd": each.winograd,
            }
            for each in operator.algorithms
        ],
    }
