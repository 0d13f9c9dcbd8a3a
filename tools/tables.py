"""Reads the text files beside modules: lines, in some files in sections.

Lines that begin with `#` are comments.
"""

from __future__ import annotations

from pathlib import Path


def read_lines(module: str) -> list[str]:
    """Return the lines of a module's text file, without comments and empty lines."""
    lines = Path(module).with_suffix(".txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_sections(module: str) -> dict[str, list[str]]:
    """Return the lines of each section; a section begins with a line `[name]`."""
    sections: dict[str, list[str]] = {}
    for line in read_lines(module):
        if line[0] == "[" and line[-1] == "]":
            lines = sections.setdefault(line[1:-1], [])
        else:
            lines.append(line)
    return sections
