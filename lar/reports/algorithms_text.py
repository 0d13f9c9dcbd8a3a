"""Algorithms that were timed again, as text: the gain of each operator, and what was written."""

from __future__ import annotations

from collections.abc import Iterator

from lar.errors import count_of, printable
from lar.records.algorithms import AlgorithmsResult, TimedOperator
from lar.records.summary import Difference
from lar.reports.model import Column, Table
from lar.reports.text import PAPER, Screen, format_table

ENDS = {
    "settled": "every algorithm that could matter is decided",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": "interrupted",
    "failed": "nothing could be timed",
}
CUT = "an error has ended it; what was timed before stands above"


def format_algorithms(result: AlgorithmsResult, screen: Screen = PAPER) -> list[str]:
    """Return the lines: what was timed, a row for each operator, what was out, the whole model."""
    lines = [line for text in head_of(result) for line in screen.wrap(text)]
    if result.operators:
        lines += ["", *format_table(table_of(result), screen), ""]
    return lines + [line for text in notes_of(result) for line in screen.wrap(text, "  ")]


def head_of(result: AlgorithmsResult) -> Iterator[str]:
    """Yield what was timed."""
    engine = result.engine
    name = printable(result.model.path) if result.model else ""
    where = f" on {engine.name} {engine.version} {engine.driver}" if engine else ""
    total = len(result.operators) + result.left_out
    tried = sum(len(each.tried) for each in result.operators)
    yield (
        f"{name}{where}: {len(result.operators)} of {count_of(total, 'operator')} in the cache "
        f"timed again, {count_of(tried, 'other algorithm')}, {count_of(result.rounds, 'round')} of "
        f"fresh processes, {result.wall_seconds:.1f} s"
    )


def table_of(result: AlgorithmsResult) -> Table[TimedOperator]:
    """Return the table of the operators."""
    columns = (
        Column[TimedOperator]("operator", lambda it: it.name, rank=2),
        Column[TimedOperator]("shapes", lambda it: it.shapes, rank=1),
        Column[TimedOperator](
            "share", lambda it: it.share, lambda it: f"{it.share:.1%}", align="right", rank=0
        ),
        Column[TimedOperator](
            "ms",
            lambda it: it.seconds and 1e3 * it.seconds,
            lambda it: f"{1e3 * it.seconds:.4f}" if it.seconds else "",
            align="right",
            rank=3,
        ),
        Column[TimedOperator]("algorithm", lambda it: it.before, rank=0),
        Column[TimedOperator](
            "faster one", lambda it: it.after if it.after != it.before else "", rank=0
        ),
        Column[TimedOperator](
            "ratio",
            lambda it: it.difference.ratio if it.difference else None,
            lambda it: f"{it.difference.ratio:.3f}" if it.difference else "",
            align="right",
            rank=0,
        ),
        Column[TimedOperator]("interval", lambda it: format_interval(it.difference), rank=3),
        Column[TimedOperator](
            "gain",
            lambda it: it.gain or None,
            lambda it: f"{it.gain:.2%}" if it.difference else "",
            align="right",
            rank=0,
        ),
        Column[TimedOperator]("others", count_verdicts, rank=1),
    )
    return Table(
        name="operators",
        title="Operators",
        columns=columns,
        rows=result.operators,
        color=lambda it: "green" if it.after != it.before else "",
    )


def count_verdicts(operator: TimedOperator) -> str:
    """Return what was found of the other algorithms: 2 slower, 1 no difference shown."""
    counts: dict[str, int] = {}
    for each in operator.tried:
        if each.name != operator.after:
            counts[each.verdict] = counts.get(each.verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def format_interval(difference: Difference | None) -> str:
    if difference is None or difference.interval is None:
        return ""
    return f"{difference.interval.low:.3f}..{difference.interval.high:.3f}"


def notes_of(result: AlgorithmsResult) -> Iterator[str]:
    """Yield what was out, how the whole model does, and what became of the file."""
    yield from (f"warning: {each}" for each in result.warnings)
    is_cut = result.ending == "failed" and result.rounds > 0
    yield CUT if is_cut else ENDS[result.ending].format(budget=result.budget_seconds)
    for operator in result.operators:
        for each in operator.tried:
            if each.failure is not None:
                yield f"out: {each.name} of {operator.name} {operator.shapes}: " + printable(
                    each.failure.message
                )
    if result.failure is not None:
        yield f"error: {printable(result.failure.message)}"
    changed = len(result.changed)
    what = "operator" if changed == 1 else "operators"
    if changed:
        ends = result.gain_interval
        reach = f" ({ends[0]:.2%} to {ends[1]:.2%})" if ends else ""
        gain = f"{result.gain:.2%}{reach} of the time of all operators"
        yield f"gain of {changed} {what} with a faster algorithm: {gain}"
    whole = result.whole
    if whole is not None:
        before, after = result.seconds_before, result.seconds_after
        times = f"{1e3 * before:.3f} -> {1e3 * after:.3f} ms, " if before and after else ""
        interval = f" ({text})" if (text := format_interval(whole)) else ""
        yield f"whole model: {times}ratio {whole.ratio:.3f}{interval}: {whole.verdict}"
    if result.output_difference is not None:
        difference = result.output_difference
        error = f", error {difference.max_error:.2g}" if difference.max_error else ""
        yield f"outputs, against a run without a cache: {difference.agreement}{error}"
    if result.written:
        yield f"written: {printable(result.output)}, with another choice for {changed} {what}"
    elif result.searched and result.failure is None:
        yield f"{printable(result.output)} has the choices of the searches: {result.reason}"
    elif result.output_exists:
        yield f"{printable(result.output)} is not changed: {result.reason}"
    else:
        yield f"{printable(result.output)} is not written: {result.reason}"
