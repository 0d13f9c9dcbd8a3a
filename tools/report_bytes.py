"""Compares what `lar report` prints and writes before a change with what it does after it.

    uv run python tools/report_bytes.py record FOLDER PROFILE ...
    uv run python tools/report_bytes.py compare FOLDER [WORD ...]

The first makes every style's text, CSV and JSON of the profiles, with each option on its own, and
keeps them in FOLDER with copies of the profiles. The second makes them again and prints each that
is not the same to the byte; WORDs choose the commands that have them all. Large profiles, and
comparisons of two, get fewer options.
"""

from __future__ import annotations

import difflib
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lar.reports.styles import EXPORTS, STYLES, Style
from tests.command_lines import run_here

KEPT = "outputs.jsonl.gz"
LARGE_BYTES = 150_000
MOST_LINES = 12  # of a difference
LIMIT_SECONDS = 600  # of a command

# The words of each line: a flag and its values, or a style and options that act on each other.
TABLE = [
    line.split()
    for line in Path(__file__).with_name("report_options.txt").read_text().splitlines()
    if not line.startswith("#")
]
VALUES = {flag: values for flag, *values in TABLE if flag.startswith("--")}


class Output(NamedTuple):
    """What one command printed and wrote, and its exit code."""

    words: list[str]
    code: int
    text: str
    csv: str
    json: str


def main(words: Sequence[str]) -> int:
    if len(words) < 2 or words[0] not in ("record", "compare"):
        print(__doc__)
        return 2
    os.environ.pop("COLUMNS", None)
    action, folder = words[0], Path(words[1])
    return record(folder, words[2:]) if action == "record" else compare(folder, words[2:])


def record(folder: Path, profiles: Sequence[str]) -> int:
    """Keep copies of the profiles and every output; return the exit code."""
    folder.mkdir(parents=True)
    for path in profiles:
        shutil.copy(path, folder)
    names = sorted(Path(path).name for path in profiles)
    with gzip.open(folder / KEPT, "wt", compresslevel=3) as file:
        for command in commands_of(folder, names):
            file.write(json.dumps(run_command(folder, command)) + "\n")
    return 0


def compare(folder: Path, words: Sequence[str] = ()) -> int:
    """Print the outputs that are not as kept; return 0 if all are."""
    count, different = 0, 0
    with gzip.open(folder / KEPT, "rt") as file:
        for line in file:
            kept = Output(*json.loads(line))
            if not set(words) <= set(kept.words):
                continue
            made = run_command(folder, kept.words)
            count += 1
            for field, before, after in zip(Output._fields, kept, made, strict=True):
                if before != after:
                    different += 1
                    print(f"{' '.join(kept.words)}: {field}")
                    print_difference(str(before), str(after))
    print(f"{count} commands, {different} different outputs")
    return 1 if different else 0


def print_difference(before: str, after: str) -> None:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    for line in [*lines][2 : 2 + MOST_LINES]:
        print(f"    {line[:200]}")


def commands_of(folder: Path, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments of `lar report`: of each profile, then of each with the next one."""
    for count in (1, 2):
        for group in zip(*(names[first:] for first in range(count)), strict=False):
            is_large = any((folder / name).stat().st_size > LARGE_BYTES for name in group)
            for name, style in STYLES.items():
                is_short = is_large or (count == 2 and name != "diff")
                for options in options_of(name, style, is_short) if count in style.profiles else ():
                    yield [*group, "--style", name, *options]
            if count == 1:
                yield from ([*group, "--export", export] for export in EXPORTS)


def options_of(name: str, style: Style, is_large: bool) -> Iterator[list[str]]:
    """Yield each option of a style on its own, and some together."""
    yield []
    if style.views:
        yield [word for view in style.views for word in ("--view", view) if view != "diff"]
    if is_large:
        return
    sorts = [way for each in style.sorts for way in (each, f"+{each}")]
    chosen = {"--sort": sorts, "--group-by": style.groups, "--view": style.views}
    for flag in sorted("--" + key.replace("_", "-") for key in style.options):
        values = VALUES.get(flag, ())
        if values == []:
            yield [flag]
        yield from ([flag, value] for value in chosen.get(flag) or values)
    yield from (words[1:] for words in TABLE if words[0] == name)


def run_command(folder: Path, words: list[str]) -> Output:
    """Run one `lar report` in this process."""
    paths = [str(folder / word) if word.endswith(".json") else word for word in words]
    with tempfile.TemporaryDirectory() as place:
        csv, document = Path(place, "csv"), Path(place, "json")
        asked = ["--csv", str(csv), "--json", str(document)]
        if "--export" in words:
            asked = ["-o", str(document)]
        done = run_here(["report", *paths, *asked], timeout=LIMIT_SECONDS)
        text = done.stdout.replace(place, "").replace(str(folder), "")
        contents = [file.read_text() if file.exists() else "" for file in (csv, document)]
    return Output(words, done.returncode, text, *contents)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
