"""Which choices in a fast-run cache were measured again, as the cache file itself remembers it.

A category of its own has an entry for each such choice. The engine never asks for that category,
and keeps it when it writes the file:

    key      CATEGORY of the operator, a zero, the operator's key
    value    SECONDS measured, a zero, the description of the algorithm

A mark counts as long as the algorithm that it names stands first: after another choice it is void.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lar.engines.megengine.cache import AlgorithmCache, Category, Entry, merge_caches

MEASURED_AGAIN = "lar:measured again"
SECONDS = re.compile(rb"\d+(\.\d+)?(e[+-]\d+)?")

Proofs = Mapping[tuple[str, bytes], float]
"""The seconds of the choices that were measured again, by the operator's category and key."""


def proofs_of(cache: AlgorithmCache) -> Proofs:
    """Return which choices of a cache were measured again."""
    marks = {
        entry.key: entry.other
        for category in cache.categories
        if category.name == MEASURED_AGAIN
        for entry in category.entries
    }
    found = {}
    for category in cache.categories if marks else ():
        for entry in category.entries:
            seconds, _, blob = marks.get(mark_key(category.name, entry.key), b"").partition(b"\0")
            is_choice = bool(entry.algorithms) and entry.algorithms[0].blob == blob
            if is_choice and SECONDS.fullmatch(seconds):
                found[category.name, entry.key] = float(seconds)
    return found


def with_proofs(cache: AlgorithmCache, proofs: Proofs) -> AlgorithmCache:
    """Return a cache that remembers that its choices for these operators were measured again."""
    marks = tuple(
        Entry(
            mark_key(category.name, entry.key),
            other=f"{proofs[category.name, entry.key]:.6g}\0".encode() + entry.algorithms[0].blob,
        )
        for category in cache.categories
        for entry in category.entries
        if entry.algorithms and (category.name, entry.key) in proofs
    )
    if not marks:
        return cache
    return merge_caches(cache, AlgorithmCache((Category(MEASURED_AGAIN, marks),)))


def mark_key(category: str, key: bytes) -> bytes:
    return category.encode() + b"\0" + key
