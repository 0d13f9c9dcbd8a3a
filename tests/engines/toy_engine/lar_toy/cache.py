"""The toy engine's cache: a model as it is after the conversion of its opset."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lar.engines.caches import Contents, ModelCacheFiles, Size
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


class ToyCaches(ModelCacheFiles):
    holds = "a converted model and nothing"

    def begins(self, head: bytes) -> bool:
        return head.startswith(BEGINNING)

    def read(self, path: str) -> Contents:
        content = read_cache(path)
        key = {"model": hashlib.sha256(content).hexdigest()}
        return Contents(key, [("size", Size(len(content)))], {"model_bytes": len(content)})


CACHES = ToyCaches()
