"""Result files of all kinds: what `--json` wrote, and what an engine's own program printed."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from lar.engines import ENGINES, all_engines
from lar.engines.engine import Engine
from lar.errors import UsageError, printable
from lar.files.input_file import read_input
from lar.records.run import RunResult, read_result

WHAT = "result file"
HINT = "give what `lar run MODEL --json FILE` wrote, or what load_and_run printed"
MOST_BYTES = 1 << 32

# The formats that lar writes and that are no results, by the beginning of their names.
OTHERS = {
    "lar.comparison/": "a comparison of tensors",
    "lar.profile/": "a profile; `lar report` prints it",
    "lar.cache/": "the content of a cache",
}


def read_results(path: str) -> tuple[RunResult, ...]:
    """Return the results in a file, in their order; `-` is standard input.

    Raises:
        UsageError: the file is missing, empty, cut short, damaged or of another kind.
    """
    if path == "-":
        return results_in(sys.stdin.buffer.read(), "standard input")
    return results_in(read_input(path, what=WHAT, limit=MOST_BYTES), os.fspath(path))


def results_in(data: bytes, name: str) -> tuple[RunResult, ...]:
    """Return the results in the content of a file; `name` is for messages.

    Raises:
        UsageError: it holds none, or is damaged.
    """
    text = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise UsageError("the file is empty", HINT, subject=name)
    if text.startswith(b"{"):
        return (result_in(text, name),)
    engine = printer_of(data)
    if engine is not None:
        return engine.read_log(data, name)
    if re.match(rb"lar \S+: using ", text):
        raise UsageError(
            "is what lar printed, which is not the whole result",
            "write the result with --json FILE",
            subject=name,
        )
    raise UsageError("is not a result that lar reads", HINT, subject=name)


def printer_of(data: bytes) -> Engine | None:
    """Return the engine whose program prints such lines."""
    own = next((engine for engine in ENGINES if engine.prints_log(data)), None)
    # The engines of other packages are looked at last: finding them is slow.
    return own or next((each for each in all_engines() if each.prints_log(data)), None)


def result_in(text: bytes, name: str) -> RunResult:
    """Return the result that JSON holds.

    Raises:
        UsageError: it is cut short, damaged, or holds something else.
    """
    try:
        return read_result(text)
    except RecursionError:
        raise UsageError("is not a result: it is nested too deeply", HINT, subject=name) from None
    except ValueError as error:
        content = parse(text, name)
        kind = content.get("format") if isinstance(content, dict) else None
        for begin, what in OTHERS.items():
            if isinstance(kind, str) and kind.startswith(begin):
                raise UsageError(f"is {what}, not a result", HINT, subject=name) from None
        if not isinstance(content, dict) or not {"spec", "status"} <= content.keys():
            raise UsageError("is not a result of lar", HINT, subject=name) from None
        problem = f"is damaged, or of another version of lar: {printable(str(error))}"
        raise UsageError(problem, HINT, subject=name) from None


def parse(text: bytes, name: str) -> Any:
    """Return what JSON holds.

    Raises:
        UsageError: it is no JSON, or was cut short.
    """
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at_end = (
            isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip()) - 1
        )
        cut = at_end or "Unterminated" in str(error)
        problem = "was cut short" if cut else "is not JSON, or is damaged"
        raise UsageError(problem, HINT, subject=name) from None
