"""What ratios of a table are against: the baseline of each row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from lar.errors import UsageError, nearest
from lar.results.facts import is_option


class Row(Protocol):
    """A row of the table, and the facts about its runs."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, str]: ...


R = TypeVar("R", bound=Row)


def find_baselines(rows: Sequence[R], varying: Sequence[str], asked: str) -> list[R | None]:
    """Return the baseline of each row, None for a row that has none.

    Without one asked for, it is the first row of the same model.

    Raises:
        UsageError: no row is it, or it is not clear which.
    """
    if not asked:
        firsts: dict[str, R] = {}
        return [firsts.setdefault(stem_of(row), row) for row in rows]
    named = [row for row in rows if row.name == asked]
    if len(named) == 1:
        return [named[0]] * len(rows)
    for fact in varying:
        wanted = value_asked(asked, fact)
        if any(row.facts[fact] == wanted for row in rows):
            return match(rows, varying, asked, {fact: wanted})
    plain = {fact: "" for fact in varying if is_option(fact)}
    if asked == "none" and any(has(row, plain) for row in rows):
        return match(rows, varying, asked, plain)
    raise no_row(asked, rows, varying)


def value_asked(asked: str, fact: str) -> str:
    """Return the value of a fact that `machine=...`, `--fast-run` or the value alone asks for."""
    name, equals, value = asked.partition("=")
    if equals and name in (fact, fact.lstrip("-")):
        return value
    is_flag = is_option(fact) and asked.lstrip("-").replace("_", "-") == fact[2:]
    return "yes" if is_flag else asked


def match(
    rows: Sequence[R],
    varying: Sequence[str],
    asked: str,
    wanted: Mapping[str, str],
) -> list[R | None]:
    """Return for each row the one that has the wanted facts and agrees with it in all others.

    Raises:
        UsageError: several do.
    """
    fixed = [name for name in varying if name not in wanted]
    found: dict[tuple[str, ...], list[R]] = {}
    for row in rows:
        if has(row, wanted):
            found.setdefault(tuple(row.facts[name] for name in fixed), []).append(row)
    chosen: list[R | None] = []
    for row in rows:
        same = found.get(tuple(row.facts[name] for name in fixed), [])
        if len(same) > 1 and not has(row, wanted):
            raise UsageError(
                f"stands for {len(same)} rows",
                f"give one of: {', '.join(it.name for it in same)}",
                flag="--baseline",
                subject=asked,
            )
        chosen.append(row if has(row, wanted) else next(iter(same), None))
    return chosen


def has(row: Row, wanted: Mapping[str, str]) -> bool:
    """Return whether a row has these facts."""
    return all(row.facts[name] == value for name, value in wanted.items())


def no_row(asked: str, rows: Sequence[R], varying: Sequence[str]) -> UsageError:
    """Return the error for a baseline that no row is, with those that there are."""
    names = [row.name for row in rows]
    near = nearest(asked, names)
    values = dict.fromkeys(row.facts[fact] for row in rows for fact in varying if row.facts[fact])
    hint = f"give one of: {', '.join(names)}"
    hint += f"; or a value: {', '.join(values)}" * bool(values)
    hint = f"did you mean {near}?" if near else hint
    return UsageError("names no row", hint, flag="--baseline", subject=asked)


def stem_of(row: Row) -> str:
    """Return the name of a row's model without its suffix: other engines read it in another
    format."""
    return os.path.splitext(row.facts["model"])[0]
