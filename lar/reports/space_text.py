"""What a search would try, as text: the choices of each model, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lar.errors import count_of, printable
from lar.options.command_line import format_flags
from lar.options.option import flag_of
from lar.records.choices import Choice
from lar.records.tuning import ModelSpace, NotTried
from lar.reports.model import WRAPPED
from lar.reports.text import PAPER, Screen, format_rows


def format_spaces(
    spaces: Sequence[ModelSpace], not_tried: Sequence[NotTried], screen: Screen = PAPER
) -> list[str]:
    """Return the lines of the spaces of models."""
    lines: list[str] = []
    for number, space in enumerate(spaces):
        left_out = [each for each in not_tried if each.model == number]
        lines += [*([""] if lines else []), *format_space(space, left_out, screen)]
    return lines


def format_space(space: ModelSpace, not_tried: Sequence[NotTried], screen: Screen) -> Iterator[str]:
    rows = [
        ["" if index else dimension.name, choice.name, describe_choice(choice)]
        for dimension in space.dimensions
        for index, choice in enumerate(dimension.choices)
    ]
    yield printable(f"{space.model} on {space.engine}: {count_choices(space)}")
    if space.options:
        yield printable(f"all candidates: {format_flags(space.options)}")
    if rows:
        yield from format_rows(["dimension", "choice", "flags"], rows, WRAPPED, screen)
    if not_tried:
        yield "not tried:"
        left_out = [[each.choice, each.why] for each in not_tried]
        yield from format_rows(["choice", "why"], left_out, WRAPPED, screen)


def count_choices(space: ModelSpace) -> str:
    """Return how many choices there are, and how many ways to combine them."""
    counts = [len(dimension.choices) for dimension in space.dimensions]
    combinations = math.prod(count + 1 for count in counts)
    return f"{count_of(sum(counts), 'choice')}, at most {count_of(combinations, 'combination')}"


def describe_choice(choice: Choice) -> str:
    """Return the flags of a choice; a search fills its cache once."""
    flags = format_flags({**choice.options, **choice.search})
    return f"{flags}, kept in {flag_of(choice.cache)}" if choice.cache else flags
