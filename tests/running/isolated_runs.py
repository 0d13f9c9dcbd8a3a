"""Isolated runs: the faults that they are given, their processes, and how soon they end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lar.records.run import RunResult
from tests.known import known as known  # for the tests of runs

# Times are measured while other work may hold the machine's CPUs: where lar promises a second,
# the tests ask for five.
SOON = 5.0
# Python takes a compiled module for whole that a limit of file sizes has cut short.
NO_BYTECODE = "export PYTHONDONTWRITEBYTECODE=1"

needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc")


def workers_of(parent: int) -> set[int]:
    """The processes that are children of `parent`, zombies too."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.add(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def finished(result: RunResult) -> RunResult:
    """The result of a run, which has ended well."""
    assert result.status == "ok", result.failure
    return result


def fault(do: str, at: str = "start", index: int = 3) -> list[dict[str, Any]]:
    return [{"at": at, "do": do, "index": index if at == "start" else 0}]
