"""Results side by side: rows of runs, the facts in which they differ, ratios and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lar.errors import UsageError, nearest
from lar.results.baselines import find_baselines
from lar.results.facts import NAMES, NamedResult, describe_options, facts_of, is_option
from lar.results.figures import Figure, Run, figure_of
from lar.results.regressions import are_in_turns, compare_sides
from lar.results.rows import Row

SEVERAL = "several"  # the fact of a row whose runs have several values of it

DISTURBED = "too few iterations were undisturbed"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of results.

    `figure` is that of all rows. `varying` are the names of the facts that differ between rows,
    `common` has the other facts. Rows that pool results have no names of their own.
    """

    figure: Figure
    rows: tuple[Row, ...]
    varying: tuple[str, ...]
    common: Mapping[str, str]
    has_names: bool


def compare_results(
    named: Sequence[NamedResult], by: Sequence[str] = (), baseline: str = ""
) -> SideBySide:
    """Return results side by side: a row for each, or a row for all that agree in `by`.

    Raises:
        UsageError: `by` names no fact, or `baseline` no row.
    """
    figure, runs = figure_of([each.result for each in named])
    facts = facts_of_all(named)
    rows = rows_of(named, runs, facts, names_by(by, list(facts[0])))
    every = list(rows[0].facts)
    varying = tuple(name for name in every if len({row.facts[name] for row in rows}) > 1)
    rows = compare_rows(rows, find_baselines(rows, varying, baseline))
    return SideBySide(
        figure=figure,
        rows=tuple(rows),
        varying=varying,
        common={name: rows[0].facts[name] for name in every if name not in varying},
        has_names=not by,
    )


def order_of(name: str) -> tuple[int, str]:
    """Return the place of a fact's column."""
    return (NAMES.index("option" if is_option(name) else name), name)


def facts_of_all(named: Sequence[NamedResult]) -> list[dict[str, str]]:
    """Return the facts of results, with the same names for all, in the order of the columns.

    Two models of one name are distinguished by the beginning of their hashes.
    """
    facts = [facts_of(each.result, each.given_name) for each in named]
    names = sorted({name for its in facts for name in its}, key=order_of)
    models = [(each.result.model.sha256 if each.result.model else "") for each in named]
    known = {(its["model"], sha256) for its, sha256 in zip(facts, models, strict=True) if sha256}
    several = Counter(model for model, _ in known)
    for its, sha256 in zip(facts, models, strict=True):
        if sha256 and several[its["model"]] > 1:
            its["model"] += f" ({sha256[:8]})"
    return [{name: its.get(name, "") for name in names} for its in facts]


def names_by(by: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the facts that `by` asks for.

    Raises:
        UsageError: `by` names no fact.
    """
    chosen: list[str] = []
    for word in by:
        flag = "--" + word.lstrip("-").replace("_", "-")
        options = [name for name in names if is_option(name)] if word == "option" else []
        found = options or [name for name in names if name in (word, flag)]
        if not found and word != "option":
            near = nearest(word, [*NAMES, *names])
            hint = f"did you mean {near}?" if near else f"facts: {', '.join(NAMES)}"
            raise UsageError(
                "no result has such an option, and no fact has that name",
                f"{hint}; or the flag of an option",
                flag="--by",
                subject=word,
            )
        chosen += found
    return list(dict.fromkeys(chosen))


def rows_of(
    named: Sequence[NamedResult],
    runs: Sequence[Run],
    facts: Sequence[dict[str, str]],
    by: Sequence[str],
) -> list[Row]:
    """Return a row for the results that agree in the facts `by`, or for those of each name.

    Rows come in the order of their first results.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, (each, its) in enumerate(zip(named, facts, strict=True)):
        key = tuple(its[name] for name in by) if by else (each.name,)
        groups.setdefault(key, []).append(place)
    rows = []
    for (first, *_), places in groups.items():
        shared = shared_facts(facts, places)
        name = name_of_row(shared, by) if by else first
        rows.append(Row(name=name, facts=shared, runs=tuple(runs[place] for place in places)))
    return rows


def shared_facts(facts: Sequence[Mapping[str, str]], places: Sequence[int]) -> dict[str, str]:
    """Return the facts of several results, `several` for those that differ."""
    return {
        name: value if all(facts[at][name] == value for at in places) else SEVERAL
        for name, value in facts[places[0]].items()
    }


def name_of_row(facts: Mapping[str, str], by: Sequence[str]) -> str:
    """Return the name of a row of several results: the facts that distinguish it."""
    words = [facts[name] for name in by if not is_option(name) and facts[name]]
    options = describe_options({name: facts[name] for name in by})
    return ", ".join([*words, *([options] if options else [])]) or "no options"


def compare_rows(rows: Sequence[Row], baselines: Sequence[Row | None]) -> list[Row]:
    """Return rows with the ratio of each to its baseline, and the verdict on it."""
    pairs = list(zip(rows, baselines, strict=True))
    comparisons = sum(base is not None and base is not row for row, base in pairs)
    compared = []
    for row, base in pairs:
        difference = ratio = None
        if base is not None and base is not row:
            a, b = ([run for run in it.runs if run.is_trusted] for it in (base, row))
            same = row.facts["machine"] == base.facts["machine"]
            difference, _ = compare_sides(a, b, comparisons=comparisons, one_machine=same)
        if base is not None and row.median and base.median:
            ratio = difference.ratio if difference else row.median / base.median
        name = base.name if base else ""
        compared.append(replace(row, baseline=name, ratio=ratio, difference=difference))
    return compared


def is_apart(row: Row, base: Row) -> bool:
    """Return whether two rows of one machine were run one after the other."""
    same = row.facts["machine"] == base.facts["machine"]
    return same and not are_in_turns(row.timed, base.timed)
