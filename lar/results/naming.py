"""Names of results in tables: of their files, as short as distinguishes them, or given by hand."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lar.errors import UsageError
from lar.results.facts import NamedResult
from lar.results.reading import read_parts


def read_named(words: Sequence[str]) -> list[NamedResult]:
    """Return the results in files, each with a name of its own.

    Raises:
        UsageError: a file is no result.
    """
    names, paths = zip(*map(split_name, words), strict=True)
    if sum(path == "-" for path in paths) > 1:
        raise UsageError("standard input is given twice", "give it once", subject="-")
    parts = [
        (f"{name or short} {part.name}".strip(), name, path, part)
        for name, short, path in zip(names, shorten(paths), paths, strict=True)
        for part in read_parts(path)
    ]
    labels = distinguish([label for label, *_ in parts])
    return [
        NamedResult(label, result, path, name)
        for label, (_, name, path, part) in zip(labels, parts, strict=True)
        for result in part.results
    ]


def split_name(word: str) -> tuple[str, str]:
    """Return the name and the path in `NAME=FILE`; what exists is a path."""
    name, equals, path = word.partition("=")
    return ("", word) if not equals or not name or os.path.lexists(word) else (name, path)


def shorten(paths: Sequence[str]) -> list[str]:
    """Return each path as short as distinguishes it from the others."""
    parts = [os.path.normpath(path).split(os.sep) for path in paths]
    short = [its[-1] for its in parts]
    for length in range(2, max(map(len, parts)) + 1):
        alike: dict[str, set[str]] = {}
        for name, its in zip(short, parts, strict=True):
            alike.setdefault(name, set()).add(os.sep.join(its))
        short = [
            os.sep.join(its[-length:]) if len(alike[name]) > 1 else name
            for name, its in zip(short, parts, strict=True)
        ]
    return short


def distinguish(names: Sequence[str]) -> list[str]:
    """Return names without two alike: the second `a` is `a (2)`."""
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    labels = []
    for name in names:
        label, number = name, numbers.get(name, 1)
        while label in seen:
            number += 1
            label = f"{name} ({number})"
        numbers[name] = number
        seen.add(label)
        labels.append(label)
    return labels


def name_of_baseline(asked: str, named: Sequence[NamedResult]) -> str:
    """Return the name of the row that a baseline's path stands for; anything else as it is."""
    if any(each.name == asked for each in named):
        return asked
    return next((each.name for each in named if each.path == asked), asked)
