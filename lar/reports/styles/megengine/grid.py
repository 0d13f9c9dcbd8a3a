"""Text tables as MegEngine's tool prints them, which has them made by the `tabulate` package.

A column of nothing but numbers, written as numbers or as text, is right-aligned at its decimal
points, with six significant digits where one has a fraction; any other is left-aligned. Under a
header, a column is two wider than the header at least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

GridCell = str | int | float
EMPTY, INTEGER, FRACTION, TEXT = range(4)


def format_plain(rows: Sequence[Sequence[GridCell]]) -> str:
    """Return rows between two lines of dashes."""
    columns = [pad_column(column) for column in zip(*rows, strict=True)]
    dashes = "  ".join("-" * len(column[0]) for column in columns)
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return "\n".join([dashes, *lines, dashes])


def format_confluence(headers: Sequence[str], rows: Sequence[Sequence[GridCell]]) -> str:
    """Return a table in Confluence markup; the cells of a row may have several lines."""
    stripped = [[str(cell).strip() for cell in row] for row in rows]
    padded, cells = pad_table(headers, [line for row in stripped for line in split_lines(row)])
    rule = "|".join("-" * (len(header) + 2) for header in padded)
    return "\n".join([join("|", padded), f"|{rule}|", *(join("|", line) for line in cells)])


def format_fancy(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with frames; the cells of a row may have several lines."""
    parts = [split_lines(row) for row in rows]
    stripped = [[cell.strip() for cell in line] for part in parts for line in part]
    padded, cells = pad_table(headers, stripped)
    widths = [len(header) + 2 for header in padded]

    def rule(left: str, fill: str, middle: str, right: str) -> str:
        return left + middle.join(fill * width for width in widths) + right

    text = [rule("╒", "═", "╤", "╕"), join("│", padded), rule("╞", "═", "╪", "╡")]
    at = 0
    for part in parts:
        if at:
            text.append(rule("├", "─", "┼", "┤"))
        text += [join("│", line) for line in cells[at : at + len(part)]]
        at += len(part)
    return "\n".join([*text, rule("╘", "═", "╧", "╛")])


def split_lines(row: Sequence[str]) -> list[list[str]]:
    """Return the lines of a row, of which the cells with fewer lines leave the last empty."""
    cells = [cell.split("\n") for cell in row]
    return [list(line) for line in itertools.zip_longest(*cells, fillvalue="")]


def join(bar: str, cells: Sequence[str]) -> str:
    return f"{bar} {f' {bar} '.join(cells)} {bar}"


def pad_table(
    headers: Sequence[str], rows: Sequence[Sequence[GridCell]]
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return headers and rows with each column in its width."""
    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    padded, texts = [], []
    for header, column in zip(headers, columns, strict=True):
        cells = pad_column(column, len(header) + 2)
        width = len(cells[0]) if cells else len(header) + 2
        numeric = kind_of_column(column) in (INTEGER, FRACTION)
        padded.append(header.rjust(width) if numeric else header.ljust(width))
        texts.append(cells)
    return padded, list(zip(*texts, strict=True))


def pad_column(cells: Sequence[GridCell], width: int = 0) -> list[str]:
    """Return the texts of a column, all of one length."""
    kind = kind_of_column(cells)
    if kind not in (INTEGER, FRACTION):
        texts = [str(cell) for cell in cells]
        width = max([width, *map(len, texts)])
        return [text.ljust(width) for text in texts]
    texts = [
        format(float(cell), "g") if kind == FRACTION and cell != "" else str(cell) for cell in cells
    ]
    places = [places_of(text) for text in texts]
    texts = [text + " " * (max(places) - place) for text, place in zip(texts, places, strict=True)]
    width = max([width, *map(len, texts)])
    return [text.rjust(width) for text in texts]


def kind_of_column(cells: Sequence[GridCell]) -> int:
    return max(map(kind_of, cells), default=EMPTY)


def kind_of(cell: GridCell) -> int:
    """Tell what a cell holds; text that reads as a number counts as one."""
    if isinstance(cell, int):
        return INTEGER
    if isinstance(cell, float):
        return FRACTION
    if not cell:
        return EMPTY
    try:
        int(cell)
        return INTEGER
    except ValueError:
        pass
    try:
        value = float(cell)
    except ValueError:
        return TEXT
    return FRACTION if math.isfinite(value) or cell.lower() in ("inf", "-inf", "nan") else TEXT


def places_of(number: str) -> int:
    """Return how many characters stand behind the point, or behind the `e`; -1 without either."""
    if kind_of(number) != FRACTION:
        return -1
    point = number.rfind(".")
    place = point if point >= 0 else number.rfind("e")
    return len(number) - place - 1 if place >= 0 else -1
