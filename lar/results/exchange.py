"""Stored results as JSON lines, to take them from one store to another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.records.run import read_result, record_to_json
from lar.results.reading import check_samples
from lar.results.store import Entry, Store, TaggedResult

# History of the format of a line:
#   lar.stored/1  first version
STORED_FORMAT = "lar.stored/1"
HINT = "give what `lar history export` wrote"


def export_lines(store: Store, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a line of JSON for each result."""
    for entry in entries:
        head = {"format": STORED_FORMAT, "saved_at": entry.saved_at, "tag": entry.tag}
        content = record_to_json(store.result(entry.id)).decode()
        yield f'{json.dumps(head)[:-1]}, "result": {content}}}\n'


def read_lines(path: str) -> list[TaggedResult]:
    """Return the results in a file of such lines.

    Raises:
        UsageError: the file is missing, or one of its lines is damaged; the line is named.
    """
    data = read_input(path, what="file of stored results")
    if not data.strip():
        raise UsageError("the file is empty", HINT, subject=path)
    results = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict) or fields.get("format") != STORED_FORMAT:
                raise UsageError(f"line {number} is not a stored result", HINT, subject=path)
            result = read_result(json.dumps(fields["result"]))
            check_samples(result.samples)
            tagged = TaggedResult(result, str(fields["tag"]), str(fields["saved_at"]))
        except (ValueError, KeyError, RecursionError) as error:
            problem = f"line {number} is damaged, or of a newer lar: {error}"
            raise UsageError(problem, HINT, subject=path) from None
        results.append(tagged)
    return results
