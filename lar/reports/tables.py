"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, columns two spaces apart, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def format_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    first, *others = [f"| {' | '.join(row)} |" for row in cells]
    return [first, "|" + "---|" * len(header), *others]


def format_count(value: float | None) -> str:
    """Format a count with its thousands apart, N/A for None."""
    return "N/A" if value is None else f"{value:,.0f}"


def format_bytes(size: float | None) -> str:
    """Format a size in the largest binary unit below it."""
    if size is None:
        return "N/A"
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
