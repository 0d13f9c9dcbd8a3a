"""The toy engine's cache: a model as it is after the conversion of its opset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.errors import UsageError

BEGINNING = b"toy cache\n"


def read_cache(path: str) -> bytes:
    """Return the model in a cache file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", subject=path) from None
    if not content.startswith(BEGINNING):
        raise UsageError("is not a cache of Toy", subject=path)
    return content.removeprefix(BEGINNING)


class ToyCaches(CacheFiles):
    holds = "a converted model and nothing"

    def begins(self, head: bytes) -> bool:
        return head.startswith(BEGINNING)

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        sizes = {path: len(read_cache(path)) for path in paths}
        rows: list[list[str | Size]] = [[path, Size(count)] for path, count in sizes.items()]
        return CacheReport([CacheTable(("file", "model"), rows)], {"sizes": sizes})

    def compare(self, first: str, second: str) -> CacheReport:
        differs = read_cache(first) != read_cache(second)
        return CacheReport(["another model" if differs else "the same model"], differs=differs)


CACHES = ToyCaches()
