"""Cache files of one model each, as an engine has prepared it, with a key: what it was made for."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.errors import UsageError
from lar.options.table import FAST_RUN_ALGO_POLICY

FLAG = FAST_RUN_ALGO_POLICY.flag
ANOTHER_FILE = "choose another file, or remove this one"

Key = Mapping[str, str]


class Contents(NamedTuple):
    """What a cache file holds: what its model was made for, and facts about it in lines and in a
    record."""

    key: Key
    rows: Sequence[Sequence[str | Size]]
    record: Mapping[str, Any]


class ModelCacheFiles(CacheFiles):
    """The files of an engine, which each hold one model."""

    holds = "one model and no algorithms"

    @abc.abstractmethod
    def read(self, path: str) -> Contents:
        """Read what a file holds.

        Raises:
            UsageError: it cannot be read, or is not a whole cache file that lar made.
        """

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        path, *others = paths
        if others or operator or every_algorithm:
            how = "beside others" if others else "by --operator" if operator else "by --all"
            raise self.refusal(path, f"show {how}")
        found = self.read(path)
        rows = [[name, text] for name, text in found.key.items() if text]
        table = CacheTable(("made for", ""), [*rows, *found.rows])
        return CacheReport([table], {"key": dict(found.key), **found.record})

    def compare(self, first: str, second: str) -> CacheReport:
        keys = [self.read(path).key for path in (first, second)]
        names = differing(*keys)
        rows = [[name.replace("_", " "), *(key.get(name, "") for key in keys)] for name in names]
        lines = [CacheTable(("differs in", first, second), rows)] if rows else []
        same = len({**keys[0], **keys[1]}) - len(names)
        return CacheReport([*lines, f"the same: {same}"], differs=bool(names))


def differing(first: Key, second: Key) -> list[str]:
    """Return the names of what two keys differ in, in their order."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def damaged(path: str | Path, engine: str) -> UsageError:
    """Return the error of a file that is no cache of an engine."""
    problem = f"is not a cache that lar made for {engine}, or is damaged"
    return UsageError(problem, ANOTHER_FILE, subject=path)


def missing(path: Path) -> UsageError:
    """Return the error of a file that is not there, and that a run does not make."""
    hint = "make it with --fast-run, then run without"
    return UsageError("no such file", hint, flag=FLAG, subject=path)


def note_on_rebuild(path: Path, made_for: Key, wanted: Key) -> str:
    """Return what a run says that builds a file again."""
    names = ", ".join(differing(made_for, wanted)).replace("_", " ")
    return f"{FLAG}: {path}: was made for a run that differs in {names}: it is built again"


def describe_file(path: Path) -> str:
    """Return a file's name, size and time: a hash of gigabytes would take longer than the load."""
    try:
        status = path.stat()
    except OSError:
        return f"{path.name} missing"
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
