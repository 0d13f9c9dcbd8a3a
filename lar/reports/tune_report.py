"""The report of a search for the fastest settings: the ranking, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lar.errors import count_of, printable
from lar.options.command_line import format_command, format_flags
from lar.options.table import BY_KEY, SETTINGS
from lar.records.choices import Objective, OptionValue
from lar.records.tuning import (
    Ending,
    ModelSpace,
    RankedCandidate,
    TuneResult,
    choices_by_name,
)
from lar.reports.model import Column, Table
from lar.reports.report import Report
from lar.reports.text import format_bytes
from lar.results.facts import describe_machine

ENDS: Mapping[Ending, str] = {
    "settled": "nothing that is left can win by {margin:.1%}",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": "interrupted; the same command with --session FILE goes on",
    "failed": "the plain run cannot be measured",
}
# What is made small, its figure in the table, the best of it, and how the best compares.
TITLES: Mapping[Objective, tuple[str, str, str, str]] = {
    "latency": (
        "smallest median latency",
        "median ms",
        "fastest",
        "{times} times as fast as {plain}",
    ),
    "throughput": (
        "highest throughput",
        "ms/iteration",
        "highest throughput",
        "{times} times that of {plain}",
    ),
    "p99": ("lowest p99", "p99 ms", "lowest p99", "{plain} has one {times} times as long"),
    "memory": ("least memory", "memory", "least memory", "{plain} needs {times} times as much"),
}
FIGURE_NOTE = (
    "each figure is the plain run's times the ratio; the ratio is of processes that took turns"
)
# The rows of the first ranking, which is printed while the search goes on.
MOST_FIRST_ROWS = 5
FIRST_COLUMNS = ("candidate", *(it[1] for it in TITLES.values()), "ratio", "memory", "outputs")


def build_report(
    result: TuneResult, *, settings: str = "", caches: Mapping[str, str] | None = None
) -> Report:
    """Return the report of a search.

    Args:
        result: of the search.
        settings: the settings file that was written, empty if none was.
        caches: the files of the best candidate's caches that stay, by the key of their option.
    """
    table = ranking_of(result.ranking, result.request.objective)
    head, best = tuple(head_of(result)), verdict_of(result)
    notes = (*notes_of(result), *commands_of(result, settings, caches or {}))
    return Report(
        style="tune",
        title="lar tune",
        body=(*head, "", table, "", *notes, best),
        tables=(replace(table, notes=(*head, *notes, best)),),
        document=result,
    )


def build_first_report(ranking: tuple[RankedCandidate, ...], objective: Objective) -> Report:
    """Return the report of a search that has only begun."""
    table = ranking_of(ranking[:MOST_FIRST_ROWS], objective)
    shown = tuple(each for each in table.text_columns if each.title in FIRST_COLUMNS)
    return Report(style="tune", body=(replace(table, shown=shown),))


def describe_best(row: RankedCandidate, objective: Objective) -> str:
    """Return a candidate with its figure, in a few words."""
    unit = "" if objective == "memory" else " ms"
    return printable(
        f"{row.name}, {format_figure(row, objective)}{unit}, ratio {row.ratio or 1:.2f}"
    )


def head_of(result: TuneResult) -> Iterator[str]:
    """Yield what was searched for, with what and where."""
    request = result.request
    models = " and ".join(dict.fromkeys(space.model for space in request.spaces))
    engines = [f"{it.name} {it.version}" for it in result.engines]
    names = " and ".join(engines or [space.engine for space in request.spaces])
    where = f", {describe_machine(result.machine)}" if result.machine else ""
    yield printable(f"{models} on {names}{where}")
    yield (
        f"goal: {TITLES[request.objective][0]}; {count_of(len(result.ranking), 'candidate')} in "
        f"{count_of(result.rounds, 'round')}, {result.wall_seconds:.0f} of "
        f"{request.budget_seconds:g} s"
    )


def ranking_of(
    ranking: tuple[RankedCandidate, ...], objective: Objective
) -> Table[RankedCandidate]:
    """Return the table of the candidates, in the order of their figures."""
    figure = Column[RankedCandidate](
        TITLES[objective][1],
        lambda it: figure_of(it, objective),
        lambda it: format_figure(it, objective),
        align="right",
        digits=0 if objective == "memory" else 3,
        rank=0,
    )
    memory = Column[RankedCandidate](
        "memory",
        lambda it: it.memory_bytes,
        lambda it: format_bytes(it.memory_bytes) if it.memory_bytes else "",
        key="memory_bytes",
        align="right",
        digits=0,
        rank=7,
    )
    columns = (
        Column[RankedCandidate]("candidate", lambda it: printable(it.name), rank=0),
        figure,
        Column[RankedCandidate](
            "ratio", lambda it: it.ratio, format_ratio, align="right", digits=3, rank=1
        ),
        Column[RankedCandidate](
            "interval",
            text=format_interval,
            parts=(
                Column("ratio_low", lambda it: it.ratio_low, digits=3),
                Column("ratio_high", lambda it: it.ratio_high, digits=3),
            ),
            rank=2,
        ),
        Column[RankedCandidate](
            "processes", lambda it: it.processes or None, align="right", digits=0, rank=6
        ),
        *(() if objective == "memory" else (memory,)),
        Column[RankedCandidate](
            "outputs",
            text=describe_outputs,
            parts=(
                Column("outputs", lambda it: it.outputs or None),
                Column("output_error", lambda it: it.output_error),
            ),
            rank=3,
        ),
        Column[RankedCandidate]("verdict", lambda it: printable(it.verdict), rank=0),
        Column[RankedCandidate]("status", lambda it: it.status, in_text=False),
        Column[RankedCandidate]("engine", lambda it: it.engine, in_text=False),
        Column[RankedCandidate]("options", lambda it: format_flags(it.options), in_text=False),
        Column[RankedCandidate]("error", lambda it: it.error, in_text=False),
    )
    return Table(name="ranking", title="Ranking", columns=columns, rows=ranking, color=color_of)


def color_of(row: RankedCandidate) -> str:
    if row.status != "ok":
        return "red"
    return "green" if row.is_best else ""


def figure_of(row: RankedCandidate, objective: Objective) -> float | None:
    """Return the objective of a candidate, times in ms."""
    if row.value is None:
        return None
    return row.value if objective == "memory" else 1e3 * row.value


def format_figure(row: RankedCandidate, objective: Objective) -> str:
    if row.value is None:
        return ""
    return format_bytes(row.value) if objective == "memory" else f"{1e3 * row.value:.3f}"


def format_ratio(row: RankedCandidate) -> str:
    return "" if row.ratio is None else f"{row.ratio:.3f}"


def format_interval(row: RankedCandidate) -> str:
    if row.ratio_low is None or row.ratio_high is None:
        return ""
    return f"{row.ratio_low:.3f} .. {row.ratio_high:.3f}"


def describe_outputs(row: RankedCandidate) -> str:
    """Return how outputs compare with the plain run's, in two words."""
    if row.outputs in ("", "equal"):
        return row.outputs
    word = "differ" if row.outputs == "different" else "agree"
    return word if row.output_error is None else f"{word} ({row.output_error:.1e})"


def notes_of(result: TuneResult) -> Iterator[str]:
    """Yield what the figures are, what was not tried, what ended the search, and warnings."""
    if result.best:
        yield FIGURE_NOTE
    for row in result.ranking:
        if row.error:
            yield printable(f"{row.verdict}: {row.name}: {row.error}")
    spaces = result.request.spaces
    for each in result.not_tried:
        if each.allow:
            name = f"{spaces[each.model].engine}: {each.choice}" if len(spaces) > 1 else each.choice
            yield printable(f"not tried: {name}, which needs --allow {each.allow}")
    request = result.request
    text = ENDS[result.ending].format(margin=request.margin, budget=request.budget_seconds)
    if result.ending == "interrupted" and result.failure is not None:
        text = f"{result.failure.message}; {text}"
    yield printable(f"ended: {text}")
    for text in result.warnings:
        yield printable(f"warning: {text}")


def commands_of(result: TuneResult, settings: str, caches: Mapping[str, str]) -> Iterator[str]:
    """Yield the best settings as they would be typed."""
    best, space = result.best, best_space(result)
    if best is None or space is None:
        return
    chosen = {**best.options, **caches_of(best, space, caches)}
    yield f"settings: {format_flags(chosen) or f'none: the plain run of {space.model}'}"
    yield f"command: {format_command(space.model, {**space.options, **chosen})}"
    if settings:
        fed = {key: value for key, value in space.options.items() if is_input(key)}
        yield f"the same: {format_command(space.model, {**fed, SETTINGS.key: settings})}"
    elif any(choices_by_name(space)[name].cache for name in best.choices):
        yield "--output FILE keeps what the search for algorithms has found"


def is_input(key: str) -> bool:
    return key in BY_KEY and BY_KEY[key].purpose == "input"


def best_space(result: TuneResult) -> ModelSpace | None:
    """Return the space of the best candidate."""
    best = result.best
    if best is None:
        return None
    spaces = result.request.spaces
    return next(it for it in spaces if (it.model, it.engine) == (best.model, best.engine))


def caches_of(
    best: RankedCandidate, space: ModelSpace, caches: Mapping[str, str]
) -> dict[str, OptionValue]:
    """Return the files of caches, or the searches that fill them where those do not stay."""
    found: dict[str, OptionValue] = {}
    for choice in (choices_by_name(space)[name] for name in best.choices):
        if choice.cache in caches:
            found[choice.cache] = caches[choice.cache]
        else:
            found.update(choice.search)
    return found


def verdict_of(result: TuneResult) -> str:
    """Return one sentence: what won, by how much, and whether its outputs are right."""
    best, request = result.best, result.request
    _, _, title, sentence = TITLES[request.objective]
    if best is None:
        message = result.failure.message if result.failure else "nothing was measured"
        return printable(f"{title}: none: {message}")
    title += " so far" if result.ending == "interrupted" else ""
    plain = f"{request.spaces[0].engine}: plain" if len(request.spaces) > 1 else "the plain run"
    if best.ratio is None or best.ratio_low is None or best.ratio_high is None:
        shown = "none was shown to be better" if len(result.ranking) > 1 else "measured alone"
        return printable(f"{title}: {plain}: {shown}{describe_promise(result)}")
    said = sentence.format(times=format_times(1 / best.ratio), plain=plain)
    low, high = format_times(1 / best.ratio_high), format_times(1 / best.ratio_low)
    return printable(f"{title}: {best.name}: {said} ({low} to {high}), {describe_agreement(best)}")


def describe_promise(result: TuneResult) -> str:
    """Return which candidate more time may show to be better than the plain run, empty for none."""
    first = result.ranking[0]
    limit = 1 - result.request.margin
    if result.ending != "budget" or first.ratio is None or first.ratio >= limit:
        return ""
    return (
        f"; {first.name} seems better, with a ratio of {first.ratio:.2f} in "
        f"{first.processes} process{'es' * (first.processes > 1)}, and --budget "
        f"{3 * result.request.budget_seconds:g} may show it"
    )


def format_times(value: float) -> str:
    """Return a number of times with two digits behind the point, with fewer from 20 on."""
    if not math.isfinite(value):
        return "?"
    return f"{value:.{2 if value < 2 else 1 if value < 20 else 0}f}"


def describe_agreement(best: RankedCandidate) -> str:
    """Return how the outputs of the best compare with the plain run's."""
    if best.outputs == "equal":
        return "same outputs bit by bit"
    if not best.outputs:
        return "outputs not compared"
    error = f" ({best.output_error:.1e})" if best.output_error is not None else ""
    return f"same outputs within the tolerance{error}"
