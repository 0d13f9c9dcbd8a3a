"""What `lar cache` does with fast-run cache files of MegEngine: show, compare, merge and edit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from lar.cli.cached_model import (
    diff_cached_models,
    is_cached_model,
    refuse_cached_models,
    show_cached_model,
)
from lar.engines.megengine.cache import Algorithm, AlgorithmCache, merge_caches, read_cache
from lar.engines.megengine.cache_choices import (
    Operator,
    compare_caches,
    matching,
    operators_of,
    pick_entry,
)
from lar.engines.megengine.cache_key import attributes_of, value_of, winograd_of
from lar.engines.megengine.cache_write import update_cache
from lar.errors import UsageError
from lar.files.report_file import OutputFile
from lar.reports.tables import format_bytes, format_table

# History of what `show --json` writes:
#   lar.cache/1  first version
CACHE_FORMAT = "lar.cache/1"

SUMMARY = (
    "",
    "operator",
    "shapes",
    "kept",
    "chosen",
    "ms",
    "workspace",
    "winograd",
    "next best",
    "slower by",
)
CHOICE = ("operator", "shapes", "chosen", "ms")
CANDIDATE = ("", "algorithm", "ms", "slower by", "workspace", "winograd", "attributes")


def show_cache(arguments: argparse.Namespace) -> int:
    """Print the choices of a file."""
    if is_cached_model(arguments.file):
        return show_cached_model(arguments, CACHE_FORMAT)
    cache = read_cache(arguments.file)
    operators = matching(operators_of(cache), arguments.operator)
    if arguments.operator and not operators:
        names = ", ".join(dict.fromkeys(each.name for each in operators_of(cache)))
        raise UsageError(
            f"--operator: no operator of {arguments.file} holds {arguments.operator!r}",
            f"operators: {names or 'none'}",
        )
    text = "\n".join(format_cache(cache, operators, arguments.all))
    if arguments.json is None:
        print(text)
        return 0
    with OutputFile(arguments.json, "--json") as file:
        if not file.to_stdout:
            print(text)
        records = [record_of(each) for each in operators]
        content = {"format": CACHE_FORMAT, "file": arguments.file, "operators": records}
        file.write(json.dumps(content, indent=2) + "\n")
    return 0


def diff_caches(arguments: argparse.Namespace) -> int:
    """Print what two files choose differently; return 1 when they do."""
    first, second = arguments.first, arguments.second
    if is_cached_model(first) or is_cached_model(second):
        return diff_cached_models(first, second)
    difference = compare_caches(read_cache(first), read_cache(second))
    for name, only in ((first, difference.only_first), (second, difference.only_second)):
        if only:
            print(f"only in {name}: {len(only)}")
            print(indented([choice_of(each) for each in only], CHOICE))
    if difference.differing:
        print(f"another choice: {len(difference.differing)}")
        header = ["operator", "shapes", first, "ms", second, "ms"]
        rows = [[*choice_of(a), *choice_of(b)[2:]] for a, b in difference.differing]
        print(indented(rows, header))
    print(f"same choice: {difference.same}")
    return 1 if difference else 0


def merge_files(arguments: argparse.Namespace) -> int:
    """Add to one file what all of them know; it keeps what it has besides."""
    refuse_cached_models([*arguments.files, arguments.output], "merge")
    merged = AlgorithmCache()
    for name in arguments.files:
        merged = merge_caches(merged, read_cache(name))
    _, after = update_cache(arguments.output, lambda old: merge_caches(old, merged))
    kept = len(compare_caches(after, merged).only_first)
    had = f", and {kept} that it had" if kept else ""
    count, files = len(operators_of(after)), len(arguments.files)
    what = "files" if files > 1 else "file"
    print(f"{arguments.output}: operators: {count}, from {files} {what}{had}")
    return 0


def pick_algorithm(arguments: argparse.Namespace) -> int:
    """Change one choice in a file, or in another, which gets what it lacks of the first."""
    in_place = arguments.output is None
    place = arguments.file if in_place else arguments.output
    refuse_cached_models([arguments.file, place], "pick from")
    source = read_cache(arguments.file)

    def pick(old: AlgorithmCache) -> AlgorithmCache:
        picked = pick_entry(old if in_place else source, arguments.operator, arguments.algorithm)
        return merge_caches(merge_caches(source, old), picked)

    old, after = update_cache(place, pick)
    changes = compare_caches(merge_caches(source, old), after).differing
    if not changes:
        print("this is the choice already")
    for was, new in changes:
        print(f"{new.number}: {new}")
        for word, each in (("was", was.chosen), ("is", new.chosen)):
            print(f"  {word:3} {each.name}  {format_time(each)} ms")
        if "naive" in attributes_of(new.chosen.attribute):
            print("note: a naive algorithm; the policy OPTIMIZED passes over it")
    return 0


def format_cache(
    cache: AlgorithmCache, operators: Sequence[Operator], every_algorithm: bool
) -> list[str]:
    """Return the lines that show a cache."""
    devices = ", ".join(dict.fromkeys(each.device for each in operators))
    other = [
        f"{category.name}: {len(category.entries)} entries that are no search, kept as they are"
        for category in cache.categories
        if any(not entry.algorithms for entry in category.entries)
    ]
    if not operators:
        return ["operators: 0", *other]
    facts = [f"operators: {len(operators)}, searched on {devices}", *other]
    if every_algorithm:
        blocks = [line for each in operators for line in ["", *format_operator(each)]]
        return [*facts, *blocks]
    return [*facts, "", *format_table(SUMMARY, [summary_of(each) for each in operators])]


def summary_of(operator: Operator) -> list[str]:
    """Return one operator's row of the table."""
    chosen, following = operator.chosen, operator.next_best
    return [
        str(operator.number),
        operator.name,
        operator.shapes,
        str(len(operator.entry.algorithms)),
        chosen.name,
        format_time(chosen),
        format_bytes(chosen.workspace_bytes),
        winograd_of(chosen.name),
        following.name if following else "",
        format_slower(following, chosen) if following else "",
    ]


def format_operator(operator: Operator) -> list[str]:
    """Return the lines of one operator with every algorithm that was kept."""
    rows = [
        [
            "" if index else "*",
            each.name,
            format_time(each),
            format_slower(each, operator.chosen) if index else "",
            format_bytes(each.workspace_bytes),
            winograd_of(each.name),
            ", ".join(attributes_of(each.attribute)),
        ]
        for index, each in enumerate(operator.entry.algorithms)
    ]
    return [f"{operator.number}: {operator}", indented(rows, CANDIDATE)]


def choice_of(operator: Operator) -> list[str]:
    """Return an operator and its choice, as cells."""
    return [operator.name, operator.shapes, operator.chosen.name, format_time(operator.chosen)]


def indented(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in format_table(header, rows))


def format_time(algorithm: Algorithm) -> str:
    """Format a time in milliseconds; the engine's clock counts microseconds."""
    return f"{algorithm.seconds * 1e3:.3f}"


def format_slower(algorithm: Algorithm, chosen: Algorithm) -> str:
    """Format how much slower than the choice an algorithm is; -10% is faster than it."""
    if not chosen.seconds:
        return "N/A"
    return f"{algorithm.seconds / chosen.seconds - 1:+.0%}"


def record_of(operator: Operator) -> dict[str, Any]:
    """Return an operator as plain data, the chosen algorithm first."""
    return {
        "number": operator.number,
        "operator": operator.name,
        "category": operator.category,
        "key": operator.entry.key.hex(),
        "operands": [
            {"shape": each.shape, "strides": each.strides, "dtype": each.dtype}
            for each in operator.key.operands
        ],
        "settings": {part.name: value_of(part, number) for part, number in operator.key.settings},
        "algorithms": [
            {
                "name": each.name,
                "seconds": each.seconds,
                "workspace_bytes": each.workspace_bytes,
                "attributes": attributes_of(each.attribute),
                "winograd": winograd_of(each.name),
            }
            for each in operator.entry.algorithms
        ],
    }
