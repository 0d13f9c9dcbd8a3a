"""A search for the fastest settings as text, CSV and Markdown: the ranking, and what follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from lar.errors import printable
from lar.options.command_line import format_command, format_flags
from lar.options.table import BY_KEY, SETTINGS
from lar.records.bench import OutputDifference
from lar.records.choices import Objective, OptionValue
from lar.records.summary import Difference, Interval
from lar.records.tuning import (
    BASELINE,
    NOT_FASTER,
    Contribution,
    Ending,
    NotTried,
    RankedCandidate,
    TuneResult,
    choices_by_name,
    options_of,
)
from lar.reports.csv import format_table as format_csv_table
from lar.reports.markdown import format_markdown as format_report
from lar.reports.model import INDENTED, Cell, Column, Table
from lar.reports.report import Report
from lar.reports.text import PAPER, Screen, format_bytes, format_table
from lar.reports.verdicts import color_of_verdict, describe_difference, format_interval
from lar.results.facts import describe_machine

GOES_ON = "`lar tune --resume SESSION` goes on"
ENDS: Mapping[Ending, str] = {
    "settled": "nothing that is left can win by {margin}",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": f"interrupted; {GOES_ON}",
    "failed": "the plain run cannot be measured",
}
TOO_LITTLE_LEFT = (
    "what is left of the budget of {budget:g} s is too short for another trial and its proof; "
    "--budget S gives more"
)
# The figure of each objective in the table, and its unit.
FIGURES: Mapping[Objective, str] = {
    "latency": "median ms",
    "throughput": "ms/iteration",
    "p99": "p99 ms",
    "memory": "memory",
}
WHAT: Mapping[Objective, str] = {
    "latency": "the median time of an iteration",
    "throughput": "the time of all copies of the model, divided by their iterations",
    "p99": "the 99th percentile of the times of iterations",
    "memory": "the most memory that a process held",
}
# The last sentence: what won, and by how much; {plain} is the plain run.
WINS: Mapping[Objective, tuple[str, str]] = {
    "latency": ("fastest", "{times} times as fast as {plain}"),
    "throughput": ("highest throughput", "{times} times that of {plain}"),
    "p99": ("lowest p99", "{plain} has one {times} times as long"),
    "memory": ("least memory", "{plain} needs {times} times as much"),
}
STATUSES: Mapping[str, str] = {"too slow": "too slow, given up", "timed_out": "timed out"}
NOTHING: Mapping[Objective, str] = {
    "latency": "none was shown to be faster",
    "throughput": "none was shown to have a higher one",
    "p99": "none was shown to have a lower one",
    "memory": "none was shown to need less",
}


def format_tune(
    result: TuneResult,
    screen: Screen = PAPER,
    *,
    settings: str = "",
    caches: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the lines of a search; the last one says what won.

    Args:
        result: of the search.
        screen: as wide as it the lines are; command lines are never wrapped.
        settings: the settings file that was written, empty if none was.
        caches: the files of the winner's caches beside it, by the key of their option.
    """
    lines = [line for text in head_of(result) for line in screen.wrap(text)]
    lines += ["", *format_table(ranking_of(result), screen), ""]
    if result.contributions:
        lines += [*screen.wrap(CONTRIBUTIONS)]
        lines += [*format_table(contributions_of(result), screen), ""]
    lines += [line for text in notes_of(result) for line in screen.wrap(text, "  ")]
    lines += [printable_command(each) for each in commands_of(result, settings, caches)]
    return [*lines, *screen.wrap(verdict_of(result), "  ")]


CONTRIBUTIONS = "what each choice does, from candidates that differ in it alone:"


def format_csv(result: TuneResult) -> str:
    """Return the ranking as CSV; times are seconds, unknown cells are empty."""
    rows = result.rows()
    columns = tuple(Column[dict[str, Cell]](key, cell_of(key)) for key in (rows or [{}])[0])
    return format_csv_table(
        Table(name="ranking", title="Ranking", columns=columns, rows=tuple(rows))
    )


def cell_of(key: str) -> Callable[[dict[str, Cell]], Cell]:
    return lambda row: row.get(key)


def format_markdown(
    result: TuneResult, *, settings: str = "", caches: Mapping[str, str] | None = None
) -> str:
    """Return a search as Markdown: its tables, and what else the text has."""
    notes = [*notes_of(result), *commands_of(result, settings, caches), verdict_of(result)]
    body: tuple[str | Table[RankedCandidate] | Table[Contribution], ...]
    body = (*head_of(result), ranking_of(result))
    if result.contributions:
        body = (*body, CONTRIBUTIONS, contributions_of(result))
    return format_report(Report(style="tune", body=(*body, *notes)))


def head_of(result: TuneResult) -> Iterator[str]:
    """Yield what was searched for, with what and where."""
    request = result.request
    models = " and ".join(printable(space.model) for space in request.spaces)
    engines = {
        f"{it.name} {it.version}": None
        for trial in result.trials
        for row in trial.rows
        if (it := row.engine)
    }
    names = " and ".join(engines) or " and ".join(space.engine for space in request.spaces)
    where = f", {describe_machine(result.machine)}" if result.machine else ""
    yield f"{models} on {names}{where}"
    candidates, trials = len(result.ranking), len(result.trials)
    yield (
        f"made small: {WHAT[request.objective]}; {count(candidates, 'candidate')} in "
        f"{count(trials, 'trial')}, {result.wall_seconds:.0f} of {request.budget_seconds:g} s"
    )


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ranking_of(result: TuneResult) -> Table[RankedCandidate]:
    """Return the table of the candidates, the winner first."""
    return Table(
        name="ranking",
        title="Ranking",
        columns=tuple(columns_of(result)),
        rows=result.ranking,
        color=lambda it: "red" if it.status != "ok" else color_of_verdict(it.difference),
    )


def columns_of(result: TuneResult) -> Iterator[Column[RankedCandidate]]:
    """Yield the columns of the ranking."""
    objective = result.request.objective
    yield Column("candidate", lambda it: it.name, lambda it: printable(it.name), rank=0)
    yield Column(
        FIGURES[objective],
        lambda it: figure_of(it, objective),
        lambda it: format_figure(it, objective),
        align="right",
        digits=0 if objective == "memory" else 3,
        rank=0,
    )
    yield Column(
        "ratio",
        lambda it: it.difference.ratio if it.difference else None,
        lambda it: f"{it.difference.ratio:.3f}" if it.difference else "",
        align="right",
        digits=3,
        rank=1,
    )
    yield Column(
        "interval",
        lambda it: interval_of(it.difference) or None,
        lambda it: interval_of(it.difference),
        rank=2,
    )
    yield Column("processes", lambda it: it.looks, str_of_looks, align="right", rank=6, digits=0)
    if objective != "memory":
        yield Column(
            "memory",
            lambda it: it.peak_memory_bytes,
            lambda it: format_bytes(it.peak_memory_bytes) if it.peak_memory_bytes else "",
            unit="bytes",
            align="right",
            digits=0,
            rank=7,
        )
    yield Column(
        "outputs",
        lambda it: describe_numbers(it.output_difference) or None,
        lambda it: describe_numbers(it.output_difference),
        rank=3,
    )
    yield Column("verdict", lambda it: describe_verdict(it, result), rank=0)


def str_of_looks(ranked: RankedCandidate) -> str:
    return str(ranked.looks) if ranked.looks else ""


def figure_of(ranked: RankedCandidate, objective: Objective) -> float | None:
    """Return the objective of a candidate, times in ms."""
    if ranked.value is None:
        return None
    return ranked.value if objective == "memory" else 1e3 * ranked.value


def format_figure(ranked: RankedCandidate, objective: Objective) -> str:
    if ranked.value is None:
        return ""
    return format_bytes(ranked.value) if objective == "memory" else f"{1e3 * ranked.value:.3f}"


def interval_of(difference: Difference | None) -> str:
    return format_interval(difference.interval) if difference else ""


def describe_numbers(outputs: OutputDifference | None) -> str:
    """Return how outputs compare with the plain run's, in two words."""
    if outputs is None:
        return ""
    if outputs.agreement == "equal":
        return "equal"
    word = "differ" if outputs.agreement == "different" else "agree"
    return f"{word} ({describe_error(outputs)})"


def describe_error(outputs: OutputDifference) -> str:
    """Return by how much outputs are off."""
    if outputs.reason:
        return printable(f"{outputs.output} {outputs.reason}")
    return "NaN or infinities" if outputs.max_error is None else f"{outputs.max_error:.1e}"


def describe_verdict(ranked: RankedCandidate, result: TuneResult) -> str:
    """Return what was shown of a candidate, or how it ended."""
    if ranked.status == "wrong":
        outputs = ranked.output_difference
        return f"wrong numbers ({describe_error(outputs)})" if outputs else "wrong numbers"
    if ranked.status != "ok":
        return STATUSES.get(ranked.status, ranked.status)
    if ranked.candidate == BASELINE:
        winner = result.winner
        return "the plain run" if winner and winner.candidate != BASELINE else "the plain run; best"
    winner = result.winner
    if winner is not None and ranked.candidate == winner.candidate:
        return "best"
    shown = describe_difference(ranked.difference) if ranked.difference else ""
    return printable(ranked.verdict or shown or "measured once")


def contributions_of(result: TuneResult) -> Table[Contribution]:
    """Return the table of what each choice contributes."""
    spaces = result.request.spaces

    def name(it: Contribution) -> str:
        return f"{spaces[it.model].engine}: {it.choice}" if len(spaces) > 1 else it.choice

    columns = (
        Column[Contribution]("choice", lambda it: printable(name(it)), rank=0),
        Column[Contribution](
            "ratio",
            lambda it: it.ratio,
            lambda it: f"{it.ratio:.3f}",
            align="right",
            rank=0,
            digits=3,
        ),
        Column[Contribution](
            "range",
            lambda it: range_of(it),
            rank=1,
        ),
        Column[Contribution]("pairs", lambda it: it.pairs, align="right", rank=2, digits=0),
        Column[Contribution]("effect", describe_effect, rank=3),
    )
    return Table(
        name="contributions",
        title="Contributions",
        columns=columns,
        rows=result.contributions,
        layout=INDENTED,
    )


def range_of(contribution: Contribution) -> str:
    if contribution.pairs < 2:
        return ""
    return format_interval(Interval(contribution.low, contribution.high))


def describe_effect(contribution: Contribution) -> str:
    """Return what a choice does in words, as far as several pairs say the same and their processes
    show it. Where they do not, noise may be why as well as what it is combined with."""
    if contribution.pairs < 2:
        return "one pair alone"
    if contribution.effect:
        return "helps" if contribution.effect == "faster" else "harms"
    is_agreed = contribution.high < 1 or contribution.low > 1
    return "not shown" if is_agreed else "helps in some pairs, harms in others"


def notes_of(result: TuneResult) -> Iterator[str]:
    """Yield what was not tried, what ended the search, and warnings."""
    if result.ranking:
        yield "ratio: that of the objective to the plain run's, measured in turns with it"
    for ranked in result.ranking:
        if ranked.failure is not None:
            word = STATUSES.get(ranked.status, ranked.status)
            yield printable(f"{word}: {ranked.name}: {ranked.failure.message}")
    for each in result.not_tried:
        if each.allow:
            yield describe_not_tried(each, result)
    request = result.request
    end = TOO_LITTLE_LEFT if has_time_left(result) else ENDS[result.ending]
    text = end.format(margin=f"{request.margin:.1%}", budget=request.budget_seconds)
    if result.ending == "interrupted" and result.failure is not None:
        text = f"{result.failure.message}; {GOES_ON}"
    yield printable(f"ended: {text}")
    warnings = (text for trial in result.trials for row in trial.rows for text in row.warnings)
    for text in dict.fromkeys(warnings):
        yield printable(f"warning: {text}")


def has_time_left(result: TuneResult) -> bool:
    """Return whether a search for want of time left more than a tenth of its budget."""
    return result.ending == "budget" and result.wall_seconds < 0.9 * result.request.budget_seconds


def describe_not_tried(each: NotTried, result: TuneResult) -> str:
    """Return that a choice applies here and was not tried, and what would have it tried."""
    spaces = result.request.spaces
    name = f"{spaces[each.model].engine}: {each.choice}" if len(spaces) > 1 else each.choice
    return printable(f"not tried: {name}, which needs --allow {each.allow}")


def commands_of(
    result: TuneResult, settings: str, caches: Mapping[str, str] | None
) -> Iterator[str]:
    """Yield the best settings as they would be typed."""
    winner = result.winner
    if winner is None or winner.status != "ok":
        return
    space = result.request.spaces[winner.candidate.model]
    chosen = {**winner_options(result, caches or {})}
    own = {key: value for key, value in chosen.items() if space.options.get(key) != value}
    none = "none: the plain run" if winner.candidate == BASELINE else f"none: {space.model}"
    yield f"settings: {format_flags(own) or none}"
    yield f"command: {command_of(result, caches)}"
    if settings:
        fed = {key: value for key, value in space.options.items() if is_input(key)}
        yield f"the same: {format_command(space.model, {**fed, SETTINGS.key: settings})}"
    elif any(choices_by_name(space)[name].cache for name in winner.candidate.choices):
        yield "--output FILE keeps what the search for algorithms has found"


def is_input(key: str) -> bool:
    return key in BY_KEY and BY_KEY[key].purpose == "input"


def command_of(result: TuneResult, caches: Mapping[str, str] | None = None) -> str:
    """Return the command line that the winner stands for, empty without one.

    `caches` are the files of its caches, by the key of their option; where there is none, a run
    searches again.
    """
    winner = result.winner
    if winner is None:
        return ""
    space = result.request.spaces[winner.candidate.model]
    return format_command(space.model, winner_options(result, caches or {}))


def winner_options(result: TuneResult, caches: Mapping[str, str]) -> dict[str, OptionValue]:
    """Return the options of the winner, with its caches or the searches that fill them."""
    assert result.winner is not None
    candidate = result.winner.candidate
    space = result.request.spaces[candidate.model]
    found = options_of(candidate, space)
    choices = choices_by_name(space)
    for choice in (choices[name] for name in candidate.choices):
        if choice.cache and choice.cache in caches:
            found[choice.cache] = caches[choice.cache]
        else:
            found.update(choice.search)
    return found


def printable_command(line: str) -> str:
    """Return a command line on one line; it is never cut, since it is copied."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def verdict_of(result: TuneResult) -> str:
    """Return one sentence: what won, by how much, and whether its outputs are right."""
    winner, plain = result.winner, result.baseline
    objective = result.request.objective
    title, sentence = WINS[objective]
    if result.ending == "failed" or winner is None:
        message = result.failure.message if result.failure else "nothing was measured"
        return printable(f"{title}: none: {message}")
    so_far = " so far" if result.ending == "interrupted" else ""
    several = len(result.request.spaces) > 1
    name_of_plain = plain.name if plain and several else "the plain run"
    if winner.candidate == BASELINE:
        is_alone = all(each.difference is None for each in result.ranking)
        shown = "nothing was measured beside it" if is_alone else NOTHING[objective]
        return printable(f"{title}{so_far}: {name_of_plain}: {shown}{describe_promise(result)}")
    difference = winner.difference
    if difference is None:
        return printable(f"{title}{so_far}: {winner.name}")
    said = sentence.format(times=format_times(1 / difference.ratio), plain=name_of_plain)
    return printable(
        f"{title}{so_far}: {winner.name}: {said}{describe_range(difference.interval)}, "
        f"{describe_agreement(winner.output_difference)}"
    )


def describe_promise(result: TuneResult) -> str:
    """Return which candidate more time may show to be better than the plain run, empty for none: of
    those that seem better the first of the ranking, which goes by all that was measured. The
    smallest ratio may be that of one process that was lucky."""
    if result.ending != "budget":
        return ""
    seen = (
        (each.difference.ratio, each)
        for each in result.ranking
        if each.status == "ok" and each.difference and each.verdict != NOT_FASTER
    )
    promising = ((ratio, each) for ratio, each in seen if ratio < 1 - result.request.margin)
    ratio, first = next(promising, (1.0, None))
    if first is None:
        return ""
    processes = f"{first.looks} {'process' if first.looks == 1 else 'processes'}"
    return (
        f"; {first.name} seems better, with a ratio of {ratio:.2f} in {processes}, and "
        f"--budget {3 * result.request.budget_seconds:g} may show it"
    )


def describe_range(interval: Interval | None) -> str:
    """Return the interval of how many times as fast, of that of a ratio of times."""
    if interval is None or interval.low <= 0:
        return ""
    low, high = 1 / interval.high, 1 / interval.low
    digits = digits_of(low, high)
    return f" ({low:.{digits}f} to {high:.{digits}f})"


def digits_of(*values: float) -> int:
    """Return how many digits behind the point numbers of times need."""
    return 2 if min(values) < 2 else 1 if min(values) < 20 else 0


def format_times(value: float) -> str:
    return f"{value:.{digits_of(value)}f}" if math.isfinite(value) else "?"


def describe_agreement(outputs: OutputDifference | None) -> str:
    """Return how the winner's outputs compare with the plain run's."""
    if outputs is None:
        return "outputs not compared"
    if outputs.agreement == "equal":
        return "same outputs bit by bit"
    if outputs.agreement == "different":
        return "other outputs"
    error = f" ({outputs.max_error:.1e})" if outputs.max_error is not None else ""
    return f"same outputs within the tolerance{error}"
