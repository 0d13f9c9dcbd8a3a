"""Compares what `lar report` prints and writes before a change with what it does after it.

    uv run python tools/report_bytes.py record FOLDER PROFILE ...
    uv run python tools/report_bytes.py compare FOLDER [WORD ...]

The first makes every style's text, CSV and JSON of the profiles, with each option on its own, and
keeps them in FOLDER with copies of the profiles. The second makes them again and prints each that
is not the same to the byte; WORDs choose the commands that have them all. Large profiles, and
comparisons of two, get fewer options.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lar.cli.main import main as run_lar
from lar.reports.styles import EXPORTS, STYLES, Style

KEPT = "outputs.jsonl.gz"
LARGE_BYTES = 150_000
MOST_LINES = 12  # of a difference

# What the options that take a value are given; those of a style's own row come from there.
VALUES = {
    "top": ("1", "3", "0"),
    "filter": ("(?i)conv", "zzz"),
    "columns": ("median,disturbed",),
    "time_unit": ("s", "ms", "us", "ns"),
    "iteration": ("0",),
    "type": ("ConvolutionForward", "Convolution"),
    "aggregate_by": ("type",),
    "aggregate": ("max", "mean"),
    "opr_name": ("(?i)conv",),
    "input_dtype": ("float32",),
    "top_end_key": ("end", "kern"),
    "min_time": ("1e-5",),
    "max_time": ("1e-5",),
    "print_only": ("host", "device", "summary"),
}
AGGREGATES = ("max", "min", "sum", "mean")
SWITCHES = ("copy_time", "show_host", "dump_only_opr", "confluence")
# Options that act on each other.
TOGETHER = {
    "megengine": (
        *(["--aggregate-by", "type", "--aggregate", each] for each in AGGREGATES),
        ["--aggregate-by", "type", "--aggregate", "sum", "--confluence", "--show-host"],
        ["--show-host", "--top-end-key", "kern", "--copy-time", "--confluence"],
        ["--dump-only-opr", "--order-by", "+opr_id"],
        ["--order-by", "-flops", "-t", "0"],
    ),
    "paddle": (
        ["--view", "log", "--view", "perf", "--top", "2"],
        *(["--group-by", each, "--sort", "cpu_min", "--top", "5"] for each in ("name", "thread")),
        ["--view", "operator", "--filter", "(?i)conv", "--time-unit", "us"],
    ),
    "torch": (["--group-by", "shape", "--sort", "count", "--top", "4", "--time-unit", "us"],),
    "nsys": (
        ["--view", "api_calls", "--sort", "+average"],
        ["--view", "ranges", "--view", "memory_size", "--top", "3"],
    ),
    "ncu": (
        *(["--group-by", each, "--top", "0"] for each in ("type", "range")),
        ["--metrics", "cpu__time_duration.sum,cpu__launch_count", "--time-unit", "us"],
        ["--view", "metrics", "--filter", "(?i)conv"],
    ),
    "tensorboard": (["--view", "operator", "--view", "kernel", "--group-by", "input_shape"],),
    "diff": (
        ["--group-by", "type", "--time-unit", "ms"],
        ["--sort", "percent", "--top", "3"],
    ),
}


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
    for name in names:
        is_large = (folder / name).stat().st_size > LARGE_BYTES
        for style in STYLES:
            if 1 in STYLES[style].profiles:
                for options in options_of(style, STYLES[style], is_large):
                    yield [name, "--style", style, *options]
        for export in EXPORTS:
            yield [name, "--export", export]
    for first, second in itertools.pairwise(names):
        is_large = any((folder / it).stat().st_size > LARGE_BYTES for it in (first, second))
        for style in STYLES:
            if 2 in STYLES[style].profiles:
                is_short = is_large or style != "diff"
                for options in options_of(style, STYLES[style], is_short):
                    yield [first, second, "--style", style, *options]


def options_of(name: str, style: Style, is_large: bool) -> Iterator[list[str]]:
    """Yield each option of a style on its own, and some together."""
    yield []
    if style.views:
        yield [word for view in style.views for word in ("--view", view) if view != "diff"]
    if is_large:
        return
    chosen = {"sort": style.sorts, "group_by": style.groups, "view": style.views}
    for key in sorted(style.options):
        flag = "--" + key.replace("_", "-")
        if key in SWITCHES:
            yield [flag]
        for value in chosen.get(key) or VALUES.get(key, ()):
            yield [flag, value]
            if key == "sort":
                yield [flag, f"+{value}"]
    yield from TOGETHER.get(name, ())


def run_command(folder: Path, words: list[str]) -> Output:
    """Run one `lar report` in this process."""
    printed, errors = io.StringIO(), io.StringIO()
    paths = [str(folder / word) if word.endswith(".json") else word for word in words]
    with tempfile.TemporaryDirectory() as place:
        csv, document = Path(place, "csv"), Path(place, "json")
        asked = ["--csv", str(csv), "--json", str(document)]
        if "--export" in words:
            asked = ["-o", str(document)]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code = run_lar(["report", *paths, *asked])
        text = printed.getvalue().replace(place, "").replace(str(folder), "")
        contents = [file.read_text() if file.exists() else "" for file in (csv, document)]
    return Output(words, code, text, *contents)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
