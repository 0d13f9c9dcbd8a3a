"""Pages of the documentation, taken apart and carried out: commands, Python, what both print.

A block of `sh` holds command lines of lar, one a line; `# exit code N` after one says how it ends.
A block of `python` is a program. A block without a language is what the last command or program
before it prints, with any numbers in place of the numbers, and any lines in place of `...`. A block
of `text` is an example of what is printed; only its first line is looked for.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.command_lines import ROOT, run_lar


class Block(NamedTuple):
    """A block of code: its language, empty for what is printed, and its lines."""

    language: str
    lines: list[str]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of code of a page."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(language, text.splitlines()) for language, text in found]


def commands_of(page: Path) -> Iterator[list[str]]:
    """The command lines of lar in a page, as words after `lar`."""
    for block in blocks_of(page):
        if block.language == "sh":
            for line in block.lines:
                yield words_of(line)


def words_of(line: str) -> list[str]:
    """The words after `lar` or `uv run lar` of a command line."""
    words = shlex.split(line, comments=True)
    words = words[2:] if words[:2] == ["uv", "run"] else words
    assert words[0] == "lar", line
    return words[1:]


def make_workplace(folder: Path) -> None:
    """Give a folder the repository's models and inputs, in links to their files."""
    for name in ("models", "inputs"):
        (folder / name).mkdir()
        for path in sorted((ROOT / name).iterdir()):
            if path.is_file():
                (folder / name / path.name).symlink_to(path)


def carry_out(page: Path) -> None:
    """Run all that a page has, in its order, in the current folder; check how it ends."""
    last = ""
    for block in blocks_of(page):
        if block.language == "sh":
            for line in block.lines:
                done = run_lar(*words_of(line))
                # What was measured may decide: then the line names several.
                _, _, codes = line.partition("# exit code ")
                expected = [int(code) for code in re.findall(r"\d+", codes)]
                last = done.stdout
                assert done.returncode in (expected or [0]), f"{line}\n{done}"
                assert "no operator's name matches" not in done.stderr, line
        elif block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n".join(block.lines), str(page), "exec"), {"__name__": "__main__"})
            last = printed.getvalue()
        elif not block.language:
            check_printed(block.lines, last.splitlines(), page)
        elif block.language == "text":
            assert mask(block.lines[0]) in map(mask, last.splitlines()), f"{block.lines[0]}\n{last}"


def check_printed(shown: list[str], printed: list[str], page: Path) -> None:
    """Check that what a page shows is what is printed.

    Numbers and spaces may differ, `...` stands for any lines, ` ...` at the end of a line for the
    rest of it. Notes, as that other programs took the CPU, depend on the machine.
    """
    pattern = "".join(map(pattern_of, shown))
    real = "".join(f"{mask(line)}\n" for line in printed if not line.startswith("note: "))
    message = "\n".join([f"{page.name} shows", *shown, "", "but this is printed:", *printed])
    assert re.fullmatch(pattern, real), message


def pattern_of(line: str) -> str:
    """The regular expression for a line that a page shows."""
    if line == "...":
        return r"(?:.*\n)*?"
    if line.endswith(" ..."):
        return re.escape(mask(line.removesuffix("..."))) + r".*\n"
    return re.escape(mask(line)) + r"\n"


def mask(line: str) -> str:
    """A line in which every number and time is N, with one or several of something, spaces have no
    length, and rules neither, nor columns: how many of these there is room for may depend on what
    was measured."""
    number = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    line = re.sub(rf"[0-9a-f]{{64}}|N/A|{number}(?:[num]?s\b)?", "N", line)
    line = re.sub(r"\bN ([a-z]+)s\b", r"N \1", line)  # one round, where the machine is busy
    line = re.sub(r" interval=N,N", "", line)  # there is none of few, or of disturbed, iterations
    return re.sub(r"-{3,}( -{3,})*", "---", re.sub(r"\s+", " ", line)).strip()
