"""Stored results as JSON lines, to take them from one store to another."""

from __future__ import annotations

from lar.errors import UsageError
from lar.files.database import HEAD
from lar.files.input_file import read_input
from lar.records.run import record_of_format
from lar.results.reading import check_samples
from lar.results.store import STORED_FORMAT, StoredResult, open_store

HINT = "give what `lar history export` wrote, or a store"


def read_stored(path: str) -> list[StoredResult]:
    """Return the results in a file of such lines, or in a store.

    Raises:
        UsageError: the file is missing, or one of its lines is damaged; the line is named.
    """
    data = read_input(path, what="file of stored results")
    if data.startswith(HEAD):
        with open_store(path) as store:
            return list(store.stored(store.entries()))
    if not data.strip():
        raise UsageError("the file is empty", HINT, subject=path)
    return [
        stored_in(line, f"line {number}", path)
        for number, line in enumerate(data.splitlines(), start=1)
        if line.strip()
    ]


def stored_in(line: bytes, named: str, path: str) -> StoredResult:
    """Return the result in a line.

    Raises:
        UsageError: it is damaged.
    """
    try:
        stored = record_of_format(line, StoredResult, STORED_FORMAT)
        check_samples(stored.result.samples)
    except (ValueError, RecursionError) as error:
        problem = f"{named} is no stored result, is damaged, or of a newer lar: {error}"
        raise UsageError(problem, HINT, subject=path) from None
    return stored
