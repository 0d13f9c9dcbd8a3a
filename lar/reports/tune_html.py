"""A search for the fastest settings as an HTML page: what won, its course, what choices do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from lar.measurement.objectives import log_ratios_for
from lar.measurement.statistics import percentile_of
from lar.records.tuning import (
    BASELINE,
    Candidate,
    Trial,
    TrialRow,
    TuneRequest,
    TuneResult,
    name_of,
)
from lar.reports.pages import Section, format_list, format_page, read_resource
from lar.reports.pages.tables import page_table
from lar.reports.tune_text import (
    columns_of,
    commands_of,
    contributions_of,
    head_of,
    notes_of,
    verdict_of,
)

# What a candidate is called in the course: the winner, one with right outputs, or why it is none.
FATES = {"ok": "ok", "wrong": "wrong numbers", "too slow": "given up"}


def format_html(
    result: TuneResult, *, settings: str = "", caches: Mapping[str, str] | None = None
) -> str:
    """Return the page of a search; the settings file and the caches beside it are named in it."""
    columns = tuple(columns_of(result))
    figures: dict[str, Any] = {
        "ranking": page_table("ranking", columns, result.ranking, order="place").figures()
    }
    sections = [Section("result", "Result", words=format_words(result, settings, caches))]
    if result.trials:
        sections.append(
            Section(
                "course",
                "Course",
                "Each candidate's ratio to the plain run in each trial, when the trial ended; the "
                "line is the best that was known. Crosses: no ratio, since it failed, or wrong "
                "numbers. Below: trials, and searches for algorithms.",
            )
        )
        figures["course"] = course_of(result)
    if ratios := [*ratios_of(result)]:
        sections.append(
            Section(
                "ratios",
                "Ratios",
                "The objective over the plain run's, with its interval, of all trials together. An "
                "interval that does not reach 1 is a verdict.",
            )
        )
        figures["ratios"] = ratios
    if result.contributions:
        sections.append(
            Section(
                "contributions",
                "Contributions",
                "What each choice does: the ratio of candidates that differ in it alone, and the "
                "lowest and the highest of them.",
            )
        )
        table = contributions_of(result)
        figures["contributions"] = {
            "lanes": [*contribution_lanes(result)],
            "table": page_table("choices", table.columns, table.rows, order="effect").figures(),
        }
    script = read_resource("lar.reports.pages", "tune.js")
    return format_page("lar tune", "Settings", sections, figures, [script])


def format_words(result: TuneResult, settings: str, caches: Mapping[str, str] | None) -> str:
    """Return what won and what else to know, as HTML."""
    head = "".join(f"<p>{escape(text)}</p>" for text in head_of(result))
    won = f'<p class="result">{escape(verdict_of(result))}</p>'
    commands = "".join(
        f"<p>{escape(name)}: <code>{escape(rest)}</code></p>"
        for name, _, rest in (
            text.partition(": ") for text in commands_of(result, settings, caches)
        )
        if rest
    )
    return won + head + commands + format_list(notes_of(result))


def course_of(result: TuneResult) -> dict[str, Any]:
    """Return the ratios of candidates over time, the best known, the trials and the searches."""
    request = result.request
    fates = {each.candidate: each.status for each in result.ranking}
    winner = result.winner.candidate if result.winner else None
    lanes: dict[Candidate, list[list[float | None]]] = {}
    best: list[list[Any]] = []
    known: dict[Candidate, list[float]] = {BASELINE: [0.0]}
    for trial in result.trials:
        at = round(trial.began + trial.seconds, 3)
        for candidate, ratio in ratios_in(trial, request):
            lanes.setdefault(candidate, []).append([at, ratio])
            if ratio is not None and fates.get(candidate, "ok") == "ok":
                known.setdefault(candidate, []).append(math.log(ratio))
        first = min(known, key=lambda each: math.fsum(known[each]) / len(known[each]))
        value = math.exp(math.fsum(known[first]) / len(known[first]))
        best.append([at, value, name_of(first, request.spaces)])
    return {
        "lanes": [
            {
                "name": name_of(candidate, request.spaces),
                "kind": kind_of(fates.get(candidate, "ok"), is_winner=candidate == winner),
                "points": points,
            }
            for candidate, points in lanes.items()
        ],
        "best": best,
        "trials": [*bars_of(result.trials, request)],
    }


def kind_of(status: str, *, is_winner: bool) -> str:
    """Return how a candidate is drawn, and what the legend says of it."""
    return "best" if is_winner else FATES.get(status, "failed")


def ratios_in(trial: Trial, request: TuneRequest) -> Iterator[tuple[Candidate, float | None]]:
    """Yield the candidates that were measured in a trial, with their ratios to the plain run in
    it; None for one that failed."""
    if trial.kind == "search":
        return
    plain = next((row for row in trial.rows if row.candidate == BASELINE), None)
    for row in trial.rows:
        if row.candidate != BASELINE and row.status != "refused":
            is_measured = plain is not None and row.status == "ok"
            yield row.candidate, ratio_of(plain, row, request) if plain and is_measured else None


def ratio_of(plain: TrialRow, row: TrialRow, request: TuneRequest) -> float | None:
    """Return the ratio of two rows of a trial, of turns that were neighbours; None if there were
    none."""
    pairs = log_ratios_for(request.objective, [(plain, row)]).rounds
    ratios = sorted(each for turns in pairs for each in turns)
    return math.exp(percentile_of(ratios, 50)) if ratios else None


def bars_of(trials: Sequence[Trial], request: TuneRequest) -> Iterator[dict[str, Any]]:
    """Yield when each trial was made, and for what."""
    for trial in trials:
        names = [name_of(row.candidate, request.spaces) for row in trial.rows]
        yield {
            "kind": trial.kind,
            "from": round(trial.began, 3),
            "to": round(trial.began + trial.seconds, 3),
            "text": f"trial {trial.number + 1}, {trial.kind}: {', '.join(names)}",
        }


def ratios_of(result: TuneResult) -> Iterator[dict[str, Any]]:
    """Yield the name, the ratio and the interval of each candidate that has one."""
    for each in result.ranking:
        difference = each.difference
        if difference and difference.interval and each.candidate != BASELINE:
            wrong = each.status != "ok"
            yield {
                "name": each.name,
                "ratio": difference.ratio,
                "low": difference.interval.low,
                "high": difference.interval.high,
                "verdict": FATES.get(each.status, each.status) if wrong else difference.verdict,
            }


def contribution_lanes(result: TuneResult) -> Iterator[dict[str, Any]]:
    """Yield the name, the ratio and the range of each choice."""
    spaces = result.request.spaces
    for each in result.contributions:
        engine = f"{spaces[each.model].engine}: " if len(spaces) > 1 else ""
        verdict = each.effect or "either"
        yield {
            "name": f"{engine}{each.choice}",
            "ratio": each.ratio,
            "low": each.low,
            "high": each.high,
            "verdict": verdict,
        }
