"""The reports of `lar tune`: the result of a search, and the choices that a search would try.

The report of a search has a ranking, the best command and a verdict. The list of choices has the
choices for each model, and the choices that are left out, with the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from lar.errors import count_of, one_line
from lar.options.command_line import format_command, format_flags
from lar.options.option import flag_of
from lar.records.goals import Objective
from lar.records.tuning import (
    Choice,
    ModelSpace,
    NotTried,
    OptionValue,
    RankedCandidate,
    TuneRequest,
    TuneResult,
    choices_by_name,
    space_of,
)
from lar.reports.model import WRAPPED, Column, Table, number, table_of_values
from lar.reports.report import Part, Report
from lar.reports.text import format_bytes
from lar.results import describe_machine


def report_space(requests: Sequence[TuneRequest]) -> Report:
    """Return the report of the choices that searches would try, for each model."""
    parts: list[Part] = []
    for request in requests:
        for model, space in enumerate(request.spaces):
            left_out = [each for each in request.not_tried if each.model == model]
            parts += [*([""] if parts else []), *describe_space(space, left_out)]
    return Report(
        style="tune",
        title="lar tune --list-space",
        body=tuple(parts),
        page_of_text=True,
        tables=tuple(part for part in parts if isinstance(part, Table)),
        document=[{"spaces": it.spaces, "not_tried": it.not_tried} for it in requests],
    )


def describe_space(space: ModelSpace, not_tried: Sequence[NotTried]) -> Iterator[Part]:
    """Yield the lines and tables on the choices for one model."""
    title = f"{space.model} on {space.engine}"
    yield f"{title}: {count_of(sum(len(it.choices) for it in space.dimensions), 'choice')}"
    rows = [
        ("" if index else dimension.name, choice.name, describe_choice(choice))
        for dimension in space.dimensions
        for index, choice in enumerate(dimension.choices)
    ]
    if rows:
        table = table_of_values("space", title, ("dimension", "choice", "flags"), rows)
        yield replace(table, layout=WRAPPED)
    if not_tried:
        yield "not tried:"
        left_out = [(each.choice, each.why) for each in not_tried]
        table = table_of_values("not_tried", f"{title}: not tried", ("choice", "why"), left_out)
        yield replace(table, layout=WRAPPED)


def describe_choice(choice: Choice) -> str:
    """Return the flags of a choice; if the choice needs a search, also the flag of its cache."""
    flags = format_flags({**choice.options, **choice.search})
    return f"{flags}, kept in {flag_of(choice.cache)}" if choice.cache else flags


ENDS: Mapping[str, str] = {
    "settled": "no candidate that is left can win by {margin:.1%}",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": "interrupted; the same command with --session FILE goes on",
    "failed": "the plain run cannot be measured",
}

FAST = "{times} times as fast as {plain}"

# For each objective: the goal, the title of its column, the name of the best candidate, and the
# sentence that compares the best candidate with the plain run.
GOALS: Mapping[Objective, tuple[str, str, str, str]] = {
    "latency": ("smallest median latency", "median ms", "fastest", FAST),
    "throughput": ("highest throughput", "ms/iteration", "highest throughput", FAST),
    "p99": ("lowest p99", "p99 ms", "lowest p99", "{plain} takes {times} times as long"),
    "memory": ("least memory", "held", "least memory", "{plain} holds {times} times as much"),
}

Row = RankedCandidate


def report_tuning(result: TuneResult, *, caches: Mapping[str, str] | None = None) -> Report:
    """Return the report of a search.

    Args:
        result: the result of the search.
        caches: those cache files of the best candidate that stay after the search, by the key of
            the option that names the file.
    """
    table = Table(
        name="ranking",
        title="Ranking",
        columns=tuple(columns_of(result.request.objective)),
        rows=result.ranking,
        color=color_of,
    )
    notes = (*notes_of(result), *command_of(result, caches or {}), verdict_of(result))
    return Report(
        style="tune",
        title="lar tune",
        body=(*head_of(result), "", table, "", *notes),
        page_of_text=True,
        tables=(table,),
        document=result,
    )


def describe_best(row: Row, objective: Objective) -> str:
    """Return a candidate's name, figure and ratio as text."""
    unit = "" if objective == "memory" else " ms"
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
    return one_line(f"{row.name}, {format_figure(row, objective)}{unit}, ratio {ratio}")


def head_of(result: TuneResult) -> Iterator[str]:
    """Yield the headlines: models, engines, machine, goal, and the spent budget."""
    request = result.request
    models = " and ".join(dict.fromkeys(space.model for space in request.spaces))
    engines = [f"{it.name} {it.version}" for it in result.engines]
    names = " and ".join(engines or [space.engine for space in request.spaces])
    where = f", {describe_machine(result.machine)}" if result.machine else ""
    yield one_line(f"{models} on {names}{where}")
    counts = f"{count_of(len(result.ranking), 'candidate')} in {count_of(result.rounds, 'round')}"
    spent = f"{result.wall_seconds:.0f} of {request.budget_seconds:g} s"
    yield f"goal: {GOALS[request.objective][0]}; {counts}, {spent}"


def columns_of(objective: Objective) -> Iterator[Column[Row]]:
    """Yield the columns of the ranking: the figure to minimise, its ratio, and further facts."""
    in_ms = objective != "memory"

    def field(key: str, *, in_text: bool = False) -> Column[Row]:
        return Column(key, attrgetter(key), in_text=in_text)

    yield Column("candidate", lambda it: it.name, rank=0)
    yield Column(
        GOALS[objective][1],
        lambda it: it.value and it.value * (1e3 if in_ms else 1),
        lambda it: format_figure(it, objective),
        align="right",
        digits=3 if in_ms else None,
        rank=0,
    )
    yield number("ratio", "ratio", 3, unknown="", rank=1)
    yield Column("interval", text=format_interval)
    yield from map(field, ("ratio_low", "ratio_high"))
    yield Column("processes", lambda it: it.processes or None, align="right", rank=6)
    yield Column(
        "memory", lambda it: it.memory_bytes, format_memory, align="right", key="memory_bytes"
    )
    yield Column("outputs", lambda it: it.outputs, describe_outputs)
    yield field("output_error")
    yield Column("verdict", lambda it: one_line(it.verdict), rank=0)
    yield from map(field, ("status", "engine", "error"))
    yield Column("options", lambda it: format_flags(it.options), in_text=False)


def color_of(row: Row) -> str:
    return "red" if row.status != "ok" else "green" if row.is_best else ""


def format_figure(row: Row, objective: Objective) -> str:
    if row.value is None:
        return ""
    return format_bytes(row.value) if objective == "memory" else f"{1e3 * row.value:.3f}"


def format_memory(row: Row) -> str:
    return format_bytes(row.memory_bytes) if row.memory_bytes else ""


def format_interval(row: Row) -> str:
    return "" if row.ratio_low is None else f"{row.ratio_low:.3f} .. {row.ratio_high:.3f}"


def describe_outputs(row: Row) -> str:
    """Return in a word how outputs compare with the plain run's, with the error if known."""
    if row.outputs in ("", "equal"):
        return row.outputs
    word = "differ" if row.outputs == "different" else "agree"
    return word if row.output_error is None else f"{word} ({row.output_error:.1e})"


def notes_of(result: TuneResult) -> Iterator[str]:
    """Yield lines on failures, choices not tried, the end of the search, and warnings."""
    request = result.request
    for row in result.ranking:
        if row.error:
            yield one_line(f"{row.verdict}: {row.name}: {row.error}")
    for each in request.not_tried:
        if each.allow:
            yield one_line(f"not tried: {each.choice}, which needs --allow {each.allow}")
    text = ENDS[result.ending].format(margin=request.margin, budget=request.budget_seconds)
    yield one_line(f"ended: {text}")
    for text in result.warnings:
        yield one_line(f"warning: {text}")


def command_of(result: TuneResult, caches: Mapping[str, str]) -> Iterator[str]:
    """Yield the line with the command of the best settings."""
    best, space = result.best, space_of(result)
    if best is None or space is None:
        return
    chosen = {**best.options, **caches_of(best, space, caches)}
    yield f"command: {format_command(space.model, {**space.options, **chosen})}"


def caches_of(best: Row, space: ModelSpace, caches: Mapping[str, str]) -> dict[str, OptionValue]:
    """Return the options for caches: the file of a kept cache, or options for a new search."""
    found: dict[str, OptionValue] = {}
    for choice in (choices_by_name(space)[name] for name in best.choices):
        stays = choice.cache in caches
        found.update({choice.cache: caches[choice.cache]} if stays else choice.search)
    return found


def verdict_of(result: TuneResult) -> str:
    """Return one sentence on the winner: how much better it is, and whether its outputs agree."""
    best, request = result.best, result.request
    _, _, title, sentence = GOALS[request.objective]
    title += " so far" * (result.ending == "interrupted")
    if best is None:
        message = result.failure.message if result.failure else "nothing was measured"
        return one_line(f"{title}: none: {message}")
    plain = f"{request.spaces[0].engine}: plain" if len(request.spaces) > 1 else "the plain run"
    if best.ratio is None or (not best.choices and best.model == request.spaces[0].model):
        shown = "none was shown to be better" if len(result.ranking) > 1 else "measured alone"
        return one_line(f"{title}: {plain}: {shown}")
    compared = sentence.format(times=f"{1 / best.ratio:.3g}", plain=plain)
    if best.ratio_low and best.ratio_high:
        compared += f" ({1 / best.ratio_high:.3g} to {1 / best.ratio_low:.3g})"
    outputs = f"outputs {describe_outputs(best) or 'not compared'}"
    doubt = "; likely, not proven" if best.verdict == "likely best" else ""
    return one_line(f"{title}: {best.name}: {compared}, {outputs}{doubt}")
