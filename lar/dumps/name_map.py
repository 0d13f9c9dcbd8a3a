"""Files that say which tensor of one side is which of the other, for `lar compare --map`.

Two columns, the names in A and in B, with white space between them; names that have some
themselves are separated by a tab. Lines that begin with # and empty ones do not count. Or JSON, an
object of names in A with those in B.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from lar.errors import UsageError
from lar.files.input_file import read_input_lines
from lar.records.run import record_from_json

FLAG = "--map"
FORM = "write the name in A, white space and the name in B in each line, or a JSON object"


def read_name_map(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a map: the names in B by those in A.

    Raises:
        UsageError: it cannot be read, is of another form, or has a name of a side twice.
    """
    lines = read_input_lines(path, FLAG)
    try:
        return parse_names(lines)
    except ValueError as error:
        raise UsageError(str(error), FORM, flag=FLAG, subject=path) from None


def parse_names(lines: Iterable[str]) -> dict[str, str]:
    """Parse the lines of a map.

    Raises:
        ValueError: it is none, or has a name of a side twice.
    """
    text = "\n".join(lines)
    found, taken = dict[str, str](), set[str]()
    is_json = text.lstrip().startswith("{")
    pairs = record_from_json(text, dict[str, str]).items() if is_json else pairs_in(lines)
    for name, other in pairs:
        if name in found or other in taken:
            side, twice = ("A", name) if name in found else ("B", other)
            raise ValueError(f"has the name {twice!r} of {side} twice")
        found[name] = other
        taken.add(other)
    if not found:
        raise ValueError("has no names")
    return found


def pairs_in(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            columns = line.split("\t" if "\t" in line else None)
            names = [*filter(None, map(str.strip, columns))]
            if len(names) != 2:
                raise ValueError(f"line {number} has {len(names)} names, not two")
            yield names[0], names[1]
