"""The baseline of each row of a table, to which its ratio is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from lar.errors import UsageError, nearest
from lar.results.facts import is_option
from lar.results.rows import Row


def find_baselines(rows: Sequence[Row], varying: Sequence[str], asked: str) -> list[Row | None]:
    """Return the baseline of each row, None for a row without one.

    By default it is the first row of the same model: other engines read it in another format.

    Raises:
        UsageError: no row fits, or several do.
    """
    if not asked:
        firsts: dict[str, Row] = {}
        stems = [os.path.splitext(row.facts["model"])[0] for row in rows]
        return [*map(firsts.setdefault, stems, rows)]
    named = [row for row in rows if row.name == asked]
    if len(named) == 1:
        return [*named * len(rows)]
    for wanted in facts_asked(asked, varying):
        if any(has(row, wanted) for row in rows):
            return match(rows, varying, asked, wanted)
    raise no_row(asked, rows, varying)


def facts_asked(asked: str, varying: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield what the words may mean: a value of a fact that varies, or no options."""
    for fact in varying:
        yield {fact: value_asked(asked, fact)}
    if asked == "none":
        yield {fact: "" for fact in varying if is_option(fact)}


def value_asked(asked: str, fact: str) -> str:
    """Return the asked value of a fact: by `machine=...`, `--fast-run` or the value alone."""
    name, equals, value = asked.partition("=")
    if equals and name in (fact, fact.lstrip("-")):
        return value
    is_flag = is_option(fact) and asked.lstrip("-").replace("_", "-") == fact[2:]
    return "yes" if is_flag else asked


def match(
    rows: Sequence[Row], varying: Sequence[str], asked: str, wanted: Mapping[str, str]
) -> list[Row | None]:
    """Return for each row the row that has the wanted facts and agrees with it in all others.

    Raises:
        UsageError: several rows do.
    """
    keys = [tuple(row.facts[name] for name in varying if name not in wanted) for row in rows]
    found: dict[tuple[str, ...], list[Row]] = {}
    for row, key in zip(rows, keys, strict=True):
        if has(row, wanted):
            found.setdefault(key, []).append(row)

    def choose(row: Row, key: tuple[str, ...]) -> Row | None:
        same = [row] if has(row, wanted) else found.get(key, [])
        if len(same) > 1:
            problem, names = f"stands for {len(same)} rows", ", ".join(it.name for it in same)
            raise UsageError(problem, f"give one of: {names}", flag="--baseline", subject=asked)
        return same[0] if same else None

    return [*map(choose, rows, keys)]


def has(row: Row, wanted: Mapping[str, str]) -> bool:
    """Return whether a row has these facts."""
    return all(row.facts[name] == value for name, value in wanted.items())


def no_row(asked: str, rows: Sequence[Row], varying: Sequence[str]) -> UsageError:
    """Return the error for a baseline that fits no row, with the rows that there are."""
    names = [row.name for row in rows]
    near = nearest(asked, names)
    values = dict.fromkeys(row.facts[fact] for row in rows for fact in varying if row.facts[fact])
    hint = f"give one of: {', '.join(names)}"
    hint += f"; or a value: {', '.join(values)}" * bool(values)
    hint = f"did you mean {near}?" if near else hint
    return UsageError("names no row", hint, flag="--baseline", subject=asked)
