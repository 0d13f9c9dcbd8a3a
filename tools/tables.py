"""The texts beside modules: lines, some of them in sections, and comments after `#`."""

from __future__ import annotations

from pathlib import Path


def read_lines(module: str) -> list[str]:
    """Return the lines of the text beside a module, without comments and empty ones."""
    lines = Path(module).with_suffix(".txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_sections(module: str) -> dict[str, list[str]]:
    """Return the lines of each section, which a line with its name in brackets begins."""
    sections: dict[str, list[str]] = {}
    for line in read_lines(module):
        if line[0] == "[" and line[-1] == "]":
            lines = sections.setdefault(line[1:-1], [])
        else:
            lines.append(line)
    return sections
