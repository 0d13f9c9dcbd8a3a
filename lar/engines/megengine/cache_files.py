"""Fast-run caches as `lar cache` reads, merges and edits them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from lar.engines.caches import (
    AlgorithmCacheFiles,
    Merged,
    Pair,
    Preference,
    Searched,
    compare_choices,
)
from lar.engines.megengine import cache_operators
from lar.engines.megengine.cache import AlgorithmCache, read_cache, update_cache
from lar.engines.megengine.cache_operators import operators_of


class FastRunCaches(AlgorithmCacheFiles):
    """MegEngine's files, of which all drivers have the same."""

    def begins(self, head: bytes) -> bool:
        # Nothing marks such a file: it begins with the number of its categories, and the length
        # of the first one's name. An empty one, and what was cut short, are refused as that.
        return head[2:4] == head[6:8] == bytes(2) if len(head) > 4 else True

    def read(self, paths: Sequence[str]) -> Searched:
        caches = [read_cache(path) for path in paths]
        unread = {place for it in caches for place, entry in it.items() if isinstance(entry, bytes)}
        return Searched(operators_of(*caches), Counter(category for category, _ in unread))

    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> Merged:
        caches = [read_cache(path) for path in paths]
        merged = cache_operators.join_caches(caches, prefer)
        is_among = os.path.realpath(output) in map(os.path.realpath, paths)

        def join_with(old: AlgorithmCache) -> AlgorithmCache:
            if is_among or prefer == "last":
                return {**old, **merged}
            return cache_operators.join_caches([old, *caches], prefer)

        after = operators_of(update_cache(output, join_with)[1])
        kept = compare_choices(after, operators_of(merged)).only_first
        return Merged(operators_of(*caches), len(after), len(kept))

    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> list[Pair]:
        source = read_cache(path)

        def picked(old: AlgorithmCache) -> AlgorithmCache:
            edited = old if output is None else source
            return {**source, **old, **cache_operators.pick_entry(edited, operator, algorithm)}

        old, after = update_cache(path if output is None else output, picked)
        return compare_choices(operators_of({**source, **old}), operators_of(after)).differing


CACHES = FastRunCaches()
