"""The report of what a search would try: the choices of each model, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lar.errors import count_of
from lar.options.command_line import format_flags
from lar.options.option import flag_of
from lar.records.choices import Choice
from lar.records.tuning import ModelSpace, NotTried, TuneRequest
from lar.reports.model import WRAPPED, Table, table_of_values
from lar.reports.report import Part, Report


def report_space(requests: Sequence[TuneRequest]) -> Report:
    """Return the report of the spaces of models."""
    parts: list[Part] = []
    for request in requests:
        for number, space in enumerate(request.spaces):
            left_out = [each for each in request.not_tried if each.model == number]
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
    """Yield the lines and tables of a space."""
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
    """Return the flags of a choice; for a search, that it fills the cache once."""
    flags = format_flags({**choice.options, **choice.search})
    return f"{flags}, kept in {flag_of(choice.cache)}" if choice.cache else flags
