"""The paths in options: the files that `--input` names, and clashes between paths of a command.

A command must not write over a path that it reads, or write one path twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

from lar.errors import UsageError

INDEX_SUFFIX = ".index.json"  # the path of a dump's index ends with this
# A path with more semicolons than this is split, even if its file exists.
MOST_SEMICOLONS = 8
RAW_FORM = re.compile(r",\w+,\d+(x\d+)*\s*\Z")


class Place(NamedTuple):
    """A file or folder that a command reads or writes.

    `flag` is the flag whose output goes to this place, or empty if the command only reads the
    place. `what` describes a place that is not the flag's own file, such as the index of a dump.
    """

    path: str
    flag: str = ""
    what: str = ""


def places_of_dump(folder: str, flag: str = "", what: str = "") -> tuple[Place, Place]:
    """Return the places of a dump: the folder, and the index beside it."""
    index = Place(str(index_place(folder)), flag, f"the index of {what or flag}")
    return Place(folder, flag, what), index


def index_place(folder: str | Path) -> Path:
    """Return the path of the index that belongs to a dump's folder."""
    return Path(os.path.abspath(folder) + INDEX_SUFFIX)


def refuse_clashes(places: Sequence[Place], read: Iterable[str] = ()) -> None:
    """Refuse a command whose outputs would damage each other, or files that the command reads.

    No path may be written twice, no output may be inside another output, and no file that is read
    may be replaced.

    `read` are files that the command only reads, and folders with ONNX tensors.

    Raises:
        UsageError: naming the flags.
    """
    for first, second in combinations(places, 2):
        refuse_clash(first, second)
    replaced = {file_at(place.path): place for place in places if place.flag}
    replaced.pop(None, None)
    if not replaced:
        return  # saves a look at each file of a data set
    for path in paths_of_files(read):
        if place := replaced.get(file_at(path)):
            raise UsageError(
                "the command also reads this file",
                "choose another name",
                flag=place.flag,
                subject=place.path,
            )


def refuse_clash(first: Place, second: Place) -> None:
    """Refuse two places if writing to one place would damage the other place.

    Raises:
        UsageError: naming the flags.
    """
    if not first.flag and not second.flag:
        return
    if is_same(first.path, second.path):
        # The message describes the place that is only read; if both are written, the index.
        taken = min(first, second, key=lambda place: (bool(place.flag), not place.what))
        if not taken.what:
            raise UsageError(
                f"{first.flag} and {second.flag} both write to {second.path}",
                "give each flag its own path",
            )
        written = second if taken is first else first
        raise UsageError(
            f"this is {taken.what}", "choose another name", flag=written.flag, subject=written.path
        )
    for inner, outer in ((first, second), (second, first)):
        if inner.flag and is_below(inner.path, outer.path):
            raise UsageError(
                f"is inside {outer.path}, {outer.what or f'into which {outer.flag} writes'}",
                "choose a path outside of that folder",
                flag=inner.flag,
                subject=inner.path,
            )


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is inside a folder, after all links are resolved."""
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def is_same(path: str, other: str) -> bool:
    """Return whether two paths lead to one file or folder, which need not exist yet."""
    file = file_at(path)
    return os.path.realpath(path) == os.path.realpath(other) or (
        file is not None and file == file_at(other)
    )


def file_at(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it is missing; links are followed."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a ValueError if the path holds a zero byte
        return None
    return status.st_dev, status.st_ino


def split_items(*texts: str) -> list[str]:
    """Split the texts of an input flag at semicolons, but not the path of an existing file.

    For example, if `a;b.npy` exists, it is one item.
    """
    items: list[str] = []
    for text in texts:
        pieces = text.split(";")
        while pieces:
            most = min(len(pieces), MOST_SEMICOLONS + 1)
            joined = (";".join(pieces[:count]).strip() for count in range(most, 1, -1))
            items.append(next(filter(find_path, joined), pieces[0].strip()))
            pieces = pieces[items[-1].count(";") + 1 :]
    return [item for item in items if item]


def find_path(item: str) -> slice | None:
    """Return the slice of an item that is the path of an existing file, or None.

    An item with a path has the form `PATH`, `NAME:PATH` or `PATH,float32,1x3`.
    """
    form = RAW_FORM.search(item)
    # The colon after a name comes before the first semicolon.
    begins = [0, *(colon.end() for colon in re.finditer(":", item.partition(";")[0]))]
    ends = [len(item), *([form.start()] if form else [])]
    places = (slice(*place) for place in product(begins, ends))
    return next((place for place in places if os.path.exists(item[place].strip())), None)


def paths_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield the existing files that texts of `--input` name.

    A text of `--input` is for example `NAME:FILE;NAME:FILE.bin,float32,1x3`.
    """
    for item in split_items(*texts):
        if place := find_path(item):
            yield item[place].strip()


def paths_of_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield each path, and after the path of a folder also the tensor files (.pb) in it."""
    for path in paths:
        yield path
        if os.path.isdir(path):
            yield from (entry.path for entry in os.scandir(path) if entry.name.endswith(".pb"))
