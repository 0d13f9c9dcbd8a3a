"""Names of results in tables: the user's, or the files' in a form just long enough to differ."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, count

from lar.errors import UsageError
from lar.results.facts import NamedResult
from lar.results.reading import read_parts


def read_named(words: Sequence[str]) -> list[NamedResult]:
    """Return the results in files, each with its own name.

    Raises:
        UsageError: a file is no result.
    """
    names, paths = [split_name(word)[0] for word in words], paths_of(words)
    shorts = shorten(paths) if len(paths) > 1 else [""]  # runs in one file have names
    parts = [
        (f"{name or short} {part.name}".strip() or os.path.basename(path), name, path, part)
        for name, short, path in zip(names, shorts, paths, strict=True)
        for part in read_parts(path)
    ]
    labels = distinguish([label for label, *_ in parts])
    return [
        NamedResult(label, result, path, name)
        for label, (_, name, path, part) in zip(labels, parts, strict=True)
        for result in part.results
    ]


def paths_of(words: Sequence[str]) -> list[str]:
    """Return the paths in words, each of which may name its file, as `NAME=FILE`.

    Raises:
        UsageError: standard input is among them twice.
    """
    paths = [split_name(word)[1] for word in words]
    if paths.count("-") > 1:
        raise UsageError("standard input is given twice", "give it once", subject="-")
    return paths


def split_name(word: str) -> tuple[str, str]:
    """Return the name and the path in `NAME=FILE`; a word that exists as a file is a path."""
    name, equals, path = word.partition("=")
    return ("", word) if not equals or not name or os.path.lexists(word) else (name, path)


def shorten(paths: Sequence[str]) -> list[str]:
    """Return each path in the shortest form that distinguishes it from the others."""
    normal = [os.path.normpath(path) for path in paths]
    counts = Counter(chain.from_iterable(map(endings_of, set(normal))))
    return [
        next((ending for ending in endings_of(path) if counts[ending] == 1), path)
        for path in normal
    ]


def endings_of(path: str) -> list[str]:
    """Return the last part of a path, its last two parts, and so on."""
    parts = path.split(os.sep)
    return [os.sep.join(parts[-count:]) for count in range(1, len(parts) + 1)]


def distinguish(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal: the second `a` is `a (2)`."""
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    labels: dict[str, None] = {}
    for name in names:
        label = name
        while label in labels:
            label = f"{name} ({next(numbers[name])})"
        labels[label] = None
    return [*labels]


def name_of_baseline(asked: str, named: Sequence[NamedResult]) -> str:
    """Return the name of the row for a baseline's path; any other text as it is."""
    if any(each.name == asked for each in named):
        return asked
    return next((each.name for each in named if each.path == asked), asked)
