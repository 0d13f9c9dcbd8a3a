"""Searches for the fastest settings side by side: a row for each candidate, columns for each
search."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lar.options.command_line import format_flags
from lar.records.summary import Interval
from lar.records.tuning import RankedCandidate, TuneResult
from lar.reports.model import Column, Table
from lar.reports.pages import Section, format_facts, format_list, format_page
from lar.reports.pages.tables import page_table
from lar.reports.report import Report
from lar.reports.results_report import format_figure, format_ms
from lar.reports.text import format_bytes
from lar.reports.tune_text import FIGURES
from lar.reports.verdicts import format_interval, high_of, low_of
from lar.results.facts import describe_machine

TITLE = "Searches side by side"
SCRIPT = """
drawSection("searches", () => [makeTable(figures.table, "rows")]);
finishPage();
"""


class NamedTune(NamedTuple):
    """What a search found, and the name that tables give it."""

    name: str
    result: TuneResult


class CandidateRow(NamedTuple):
    """A candidate with what each search found of it; None where it was not tried."""

    name: str
    found: tuple[RankedCandidate | None, ...]


def build_sessions_report(tunes: Sequence[NamedTune], *, with_page: bool = False) -> Report:
    """Return the report: what the searches have in common, a line for each of them, the table."""
    facts = [facts_of(tune.result) for tune in tunes]
    varying = [name for name in facts[0] if len({its[name] for its in facts}) > 1]
    common = tuple(f"{name}: {text}" for name, text in facts[0].items() if name not in varying)
    own = tuple(
        f"{tune.name}: {'; '.join([*(its[name] for name in varying), outcome_of(tune.result)])}"
        for tune, its in zip(tunes, facts, strict=True)
    )
    notes: tuple[str, ...] = ()
    if "machine" in varying or "model" in varying:
        notes = ("a ratio is to the plain run of the same search, whose times were taken in turns",)
    table = Table(
        name="searches",
        title=TITLE,
        columns=tuple(columns_of(tunes)),
        rows=rows_of(tunes),
        notes=(*common, *own, *notes),
    )
    return Report(
        style="searches",
        title=TITLE,
        page=page_of(table, (*common, *own), notes) if with_page else "",
        body=(*common, "", *own, "", table, *(("", *notes) if notes else ())),
        tables=(table,),
    )


def page_of(table: Table[CandidateRow], facts: Sequence[str], notes: Sequence[str]) -> str:
    """Return a page with the columns of the text."""
    columns = [
        Column(f"{column.group} {column.title}".strip(), column.cell)
        for column in table.text_columns
    ]
    pairs = (text.partition(": ") for text in facts)
    words = format_facts((name, value) for name, _, value in pairs) + format_list(notes)
    figures = page_table("searches", columns, table.rows, order="first search")
    return format_page(
        TITLE,
        TITLE,
        [Section("searches", TITLE, words=words)],
        {"table": figures._replace(missing=()).figures()},
        [SCRIPT],
    )


def facts_of(result: TuneResult) -> dict[str, str]:
    """Return what a search was made of, by name."""
    engines = {
        row.engine.name: row.engine.version
        for trial in result.trials
        for row in trial.rows
        if row.engine
    }
    request = result.request
    hashes = [f"{file.sha256[:8]}" for file in result.models]
    names = [os.path.basename(space.model) for space in request.spaces]
    return {
        "model": ", ".join(
            f"{name} ({digest})" if digest else name
            for name, digest in zip(names, hashes or [""] * len(names), strict=True)
        ),
        "options": " | ".join(
            dict.fromkeys(format_flags(space.options) or "none" for space in request.spaces)
        ),
        "objective": request.objective,
        "machine": describe_machine(result.machine) if result.machine else "not known",
        "engine": ", ".join(f"{name} {version}".strip() for name, version in engines.items())
        or ", ".join(dict.fromkeys(space.engine for space in request.spaces)),
        "lar": result.lar_version or "not known",
    }


def outcome_of(result: TuneResult) -> str:
    """Return when a search was made, how far it came, and what won."""
    count = len(result.trials)
    trials = "1 trial" if count == 1 else f"{count or 'no'} trials"
    spent = f"{trials} in {result.wall_seconds:.0f} s"
    words = [result.started_at[:16].replace("T", " "), spent]
    winner = result.winner
    if winner is not None and winner.looks:
        ratio = winner.difference.ratio if winner.difference else None
        words.append(f"best: {winner.name}" + (f", ratio {ratio:.3f}" if ratio else ""))
    return "; ".join(filter(None, words))


def rows_of(tunes: Sequence[NamedTune]) -> tuple[CandidateRow, ...]:
    """Return a row for each candidate, by the mean of its ratios; those of one name that set
    different options in two searches have a row each."""
    found = [
        {(each.name, format_flags(each.options)): each for each in tune.result.ranking}
        for tune in tunes
    ]
    keys = list(dict.fromkeys(key for each in found for key in each))
    count = Counter(name for name, _ in keys)
    rows = (
        CandidateRow(
            f"{name} ({flags or 'no options'})" if count[name] > 1 else name,
            tuple(each.get((name, flags)) for each in found),
        )
        for name, flags in keys
    )
    return tuple(sorted(rows, key=mean_of_ratios))


def mean_of_ratios(row: CandidateRow) -> float:
    """Return the mean logarithm of a candidate's ratios, infinity where it has none."""
    ratios = [math.log(ratio) for ratio in map(ratio_in, row.found) if ratio]
    return math.fsum(ratios) / len(ratios) if ratios else math.inf


def ratio_in(found: RankedCandidate | None) -> float | None:
    """Return the ratio of a candidate to the plain run in a search, None without figures."""
    if found is None or found.value is None or found.status not in ("ok", "too slow"):
        return None
    return found.difference.ratio if found.difference else 1.0


def columns_of(tunes: Sequence[NamedTune]) -> Iterator[Column[CandidateRow]]:
    """Yield the columns: the candidate's name, then those of each search."""
    yield Column("candidate", lambda row: row.name, rank=0)
    for place, tune in enumerate(tunes):
        yield from columns_of_search(place, tune)


def columns_of_search(place: int, tune: NamedTune) -> Iterator[Column[CandidateRow]]:
    """Yield the columns of a search; a candidate that has no figure has its status there."""
    name, objective = tune.name, tune.result.request.objective
    is_memory = objective == "memory"

    def value_of(row: CandidateRow) -> float | None:
        found = row.found[place]
        return found.value if found and found.status in ("ok", "too slow") else None

    def text_of(row: CandidateRow) -> str:
        found, value = row.found[place], value_of(row)
        if found is None or (value is None and found.status == "interrupted"):
            return "-"
        if value is None:
            return found.status if found.status != "ok" else "N/A"
        return format_bytes(value) if is_memory else format_ms(value)

    def ratio_of(row: CandidateRow) -> float | None:
        return ratio_in(row.found[place])

    def interval_of(row: CandidateRow) -> Interval | None:
        found = row.found[place]
        known = found is not None and found.difference is not None and value_of(row) is not None
        return found.difference.interval if known and found and found.difference else None

    def status_of(row: CandidateRow) -> str | None:
        found = row.found[place]
        return found.status if found else None

    def known(text: Callable[[CandidateRow], str]) -> Callable[[CandidateRow], str]:
        return lambda row: text(row) if ratio_of(row) is not None else ""

    unit = "bytes" if is_memory else "seconds"
    yield Column(
        FIGURES[objective],
        value_of,
        text_of,
        key=f"{name} {unit}",
        align="right",
        group=name,
        rank=0,
    )
    yield Column(
        "ratio",
        ratio_of,
        known(lambda row: format_figure(ratio_of(row), 3)),
        key=f"{name} ratio",
        align="right",
        group=name,
        rank=0,
    )
    yield Column(
        "95 % interval",
        text=lambda row: format_interval(interval_of(row)),
        parts=(
            Column("low", lambda row: low_of(interval_of(row)), key=f"{name} ratio low"),
            Column("high", lambda row: high_of(interval_of(row)), key=f"{name} ratio high"),
        ),
        group=name,
        rank=3,
    )
    yield Column("status", status_of, key=f"{name} status", in_text=False)
