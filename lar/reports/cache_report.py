"""The reports of `lar cache`: contents and differences of files, merges, and manual choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from lar.engines import caches
from lar.engines.caches import Algorithm, Operator, Searched
from lar.errors import UsageError, count_of
from lar.reports.model import INDENTED, PLAIN, AnyTable, Layout, table_of_values
from lar.reports.report import Part, Report
from lar.reports.text import format_bytes

Row = tuple[Operator, Algorithm]
Text = Callable[[Operator, Algorithm], str]

# The fields of an algorithm in JSON.
IN_JSON = ("name", "seconds", "times", "chosen_by", "workspace_bytes", "attributes", "winograd")


def format_name(_: Operator, algorithm: Algorithm) -> str:
    return algorithm.name


def format_time(_: Operator, algorithm: Algorithm) -> str:
    """Format a time in milliseconds with three decimals, as the engine counts microseconds."""
    return f"{algorithm.seconds * 1e3:.3f}"


def format_range(_: Operator, algorithm: Algorithm) -> str:
    """Format the shortest and the longest time in milliseconds, such as 0.011..0.014.

    If only one time was measured, the text is empty.
    """
    times = algorithm.times
    return f"{min(times) * 1e3:.3f}..{max(times) * 1e3:.3f}" if len(times) > 1 else ""


def format_slower(operator: Operator, algorithm: Algorithm) -> str:
    """Format how much slower an algorithm is than the chosen one; -10% means faster."""
    if algorithm is operator.chosen:
        return ""
    chosen = operator.chosen.seconds
    return f"{algorithm.seconds / chosen - 1:+.0%}" if chosen else "N/A"


def format_others(operator: Operator, chosen: Algorithm) -> str:
    """Format how many searches chose other algorithms, such as `2 DIRECT, 1 NAIVE`."""
    names = Counter[str]()
    for each in sorted(operator.algorithms, key=lambda each: each.chosen_by):
        if each.chosen_by and each is not chosen:
            names[each.name] += len(each.chosen_by)
    text = ", ".join(f"{count} {name}" for name, count in names.items())
    return f"{text} (within the spread)" if names and operator.is_within_spread else text


def of_next_best(text: Text) -> Text:
    """Return a function that applies `text` to the next best algorithm of an operator.

    The text is empty if an operator has only one algorithm.
    """
    return lambda operator, _: text(operator, it) if (it := operator.next_best) else ""


# The columns of the tables of operators and of algorithms. The third field of a column is ONE if
# only reports of one file have the column, SEVERAL if only reports of several files have it.
ONE, SEVERAL = "one", "several"
Columns = tuple[tuple[str, Text, str], ...]
OPERATORS: Columns = (
    ("", lambda it, _: str(it.number), ""),
    ("operator", lambda it, _: it.name, ""),
    ("shapes", lambda it, _: it.shapes, ""),
    ("kept", lambda it, _: str(len(it.algorithms)), ONE),
    ("searches", lambda it, _: str(it.searches), SEVERAL),
    ("chosen", format_name, ""),
    ("by", lambda _, each: str(len(each.chosen_by)), SEVERAL),
    ("ms", format_time, ""),
    ("min..max", format_range, SEVERAL),
    ("workspace", lambda _, each: format_bytes(each.workspace_bytes), ONE),
    ("winograd", lambda _, each: each.winograd, ONE),
    ("next best", of_next_best(format_name), ""),
    ("slower by", of_next_best(format_slower), ONE),
    ("ms", of_next_best(format_time), SEVERAL),
    ("min..max", of_next_best(format_range), SEVERAL),
    ("chosen otherwise", format_others, SEVERAL),
)
ALGORITHMS: Columns = (
    ("", lambda it, each: "*" if each is it.chosen else "", ""),
    ("algorithm", format_name, ""),
    ("chosen by", lambda _, each: str(len(each.chosen_by) or ""), SEVERAL),
    ("kept by", lambda _, each: str(len(each.times)), SEVERAL),
    ("ms", format_time, ""),
    ("min..max", format_range, SEVERAL),
    ("slower by", format_slower, ONE),
    ("workspace", lambda _, each: format_bytes(each.workspace_bytes), ""),
    ("winograd", lambda _, each: each.winograd, ""),
    ("attributes", lambda _, each: ", ".join(each.attributes), ONE),
)
CHOICE = (*OPERATORS[1:3], OPERATORS[5], OPERATORS[7])


def table_of(
    columns: Columns, rows: Iterable[Row], files: str = ONE, layout: Layout = INDENTED
) -> AnyTable:
    """Return a table with the columns for one file or for several files, as `files` says."""
    shown = [it for it in columns if it[2] in ("", files)]
    cells = [[text(*row) for _, text, _ in shown] for row in rows]
    return replace(table_of_values("", "", [title for title, _, _ in shown], cells), layout=layout)


def report_of(*body: Part, document: Any = None) -> Report:
    return Report(style="cache", body=body, document=document)


def report_model(found: caches.Contents) -> Report:
    """Return the report of a prepared model: the engine, machine and options it was made for."""
    facts = [
        (name, format_bytes(it.size_bytes) + it.note if isinstance(it, caches.Size) else it)
        for name, it in (*found.key.items(), *found.facts)
        if it
    ]
    table = table_of_values("", "", ("made for", ""), facts)
    return report_of(table, document={"key": dict(found.key), **found.record})


def compare_models(keys: Sequence[caches.Key], names: tuple[str, str]) -> tuple[Report, bool]:
    """Return a report on how the keys of two models' caches differ, and whether any key differs."""
    differs = caches.differing(*keys)
    facts = [(name.replace("_", " "), *(key.get(name, "") for key in keys)) for name in differs]
    tables = [table_of_values("", "", ("differs in", *names), facts)] if facts else []
    same = len({*keys[0], *keys[1]}) - len(differs)
    return report_of(*tables, f"the same: {same}"), bool(differs)


def report_operators(
    found: Searched, paths: Sequence[str], text: str = "", *, every_algorithm: bool = False
) -> Report:
    """Return the report of all operators in files, or of the operators that match `text`.

    The report of several files also shows how far these files agree.
    """
    files = SEVERAL if len(paths) > 1 else ONE
    operators = find_operators(found.operators, text, ", ".join(paths))
    among = f", of {len(paths)} files" if files == SEVERAL else ""
    devices = ", ".join(dict.fromkeys(each.device for each in operators))
    searched = f"{among}, searched on {devices}" if operators else ""
    body: list[Part] = [f"operators: {len(operators)}{searched}"]
    for name, count in sorted(found.unread.items()):
        body.append(f"{name}: {count} entries that no search made, kept as they are")
    if operators and files == SEVERAL:
        body.append(describe_disagreements(operators))
    if operators and not every_algorithm:
        body += ["", table_of(OPERATORS, [(it, it.chosen) for it in operators], files, PLAIN)]
    for each in operators if every_algorithm else ():
        table = table_of(ALGORITHMS, [(each, it) for it in each.algorithms], files)
        body += ["", f"{each.number}: {each}", table]
    return report_of(*body, document={"operators": [record_of(each) for each in operators]})


def compare_operators(
    first: Searched, second: Searched, both: Searched, names: tuple[str, str]
) -> tuple[Report, bool]:
    """Return a report on how two files of algorithms differ, and whether they differ at all.

    `both` has the operators of both files, as if joined into one file.
    """
    body: list[Part] = []
    found = caches.compare_choices(first.operators, second.operators)
    for name, only in zip(names, (found.only_first, found.only_second), strict=True):
        if only:
            table = table_of(CHOICE, [(each, each.chosen) for each in only])
            body += [f"only in {name}: {len(only)}", table]
    if found.differing:
        joined = {each.place: each for each in both.operators}
        header = ["operator", "shapes"]
        for name in names:
            header += [name, "ms", "of both"]
        rows = [cells_of(joined[a.place], a.chosen, b.chosen) for a, b in found.differing]
        table = replace(table_of_values("", "", [*header, "spread"], rows), layout=INDENTED)
        body += [f"another choice: {len(rows)}", table, describe_disagreements(both.operators)]
    return report_of(*body, f"same choice: {found.same}"), bool(body)


def cells_of(joined: Operator, *sides: Algorithm) -> list[str]:
    """Return the table cells of an operator for which two files have different algorithms."""
    cells = [joined.name, joined.shapes]
    known = {each.blob: each for each in joined.algorithms}
    for side in sides:
        cells += [side.name, format_time(joined, side), format_range(joined, known[side.blob])]
    return [*cells, "within" if joined.is_within_spread else ""]


def describe_merge(merged: caches.Merged, count: int, output: str) -> Report:
    """Return the report of a file to which `count` other files were added."""
    had = f", and {merged.kept} that it had" if merged.kept else ""
    said = f"{output}: operators: {merged.total}, from {count_of(count, 'file')}{had}"
    if all(each.agree for each in merged.operators):
        return report_of(said)
    return report_of(said, describe_disagreements(merged.operators))


def describe_pick(changed: Iterable[caches.Pair]) -> Report:
    """Return the report of operators whose algorithm was chosen by hand."""
    lines = []
    for before, now in changed:
        lines.append(f"{now.number}: {now}")
        for word, each in (("was", before.chosen), ("is", now.chosen)):
            lines.append(f"  {word:3} {each.name}  {format_time(now, each)} ms")
        if "naive" in now.chosen.attributes:
            lines.append("note: a naive algorithm; the policy OPTIMIZED passes over it")
    return report_of(*(lines or ["this is the choice already"]))


def find_operators(operators: Sequence[Operator], text: str, where: str) -> list[Operator]:
    """Return the operators with a given number, or with a string in their name or shapes.

    Raises:
        UsageError: no operator matches; `where` names the files in the message.
    """
    found = caches.matching(operators, text)
    if text and not found:
        names = ", ".join(dict.fromkeys(each.name for each in operators)) or "none"
        problem = f"no operator of {where} holds {text!r}"
        raise UsageError(problem, f"operators: {names}", flag="--operator")
    return found


def describe_disagreements(operators: Sequence[Operator]) -> str:
    """Return as text how many operators got different algorithms in different searches.

    An example is `20 of 34 operators disagree, 14 of them within the spread`.
    """
    several = [each for each in operators if each.searches > 1]
    apart = [each for each in several if not each.agree]
    verb = "disagrees" if 1 in (len(apart), len(several)) else "disagree"
    text = f"{len(apart)} of {count_of(len(several), 'operator')} {verb}"
    within = sum(each.is_within_spread for each in apart)
    return f"{text}, {within} of them within the spread" if apart else text


def record_of(operator: Operator) -> dict[str, Any]:
    """Return an operator as plain data, with the chosen algorithm first."""
    return {
        "number": operator.number,
        "operator": operator.name,
        "category": operator.place[0],
        "key": operator.place[1].hex(),
        "operands": [each._asdict() for each in operator.operands],
        "settings": operator.settings,
        "searches": operator.searches,
        "agree": operator.agree,
        "within_spread": operator.is_within_spread,
        "algorithms": [
            {it: getattr(each, it) for it in IN_JSON} | {"chosen_by": len(each.chosen_by)}
            for each in operator.algorithms
        ],
    }
