"""The options that may differ between the variants of a bench."""

from __future__ import annotations

from typing import Any

from lar.options.option import Option
from lar.options.table import IN_RUN, ITER, OPTIONS, VERBOSE


def can_vary(option: Option[Any]) -> bool:
    """Return whether a variant may have an option: one that says how to run the model.

    Options that write something are excluded. The bench itself says how often and how long it runs.
    """
    if option.writes or option in (ITER, VERBOSE):
        return False
    return option.group is IN_RUN or option.purpose in ("setting", "input", "cache")


BENCH_OPTIONS: tuple[Option[Any], ...] = tuple(filter(can_vary, OPTIONS))
BENCH_KEYS = frozenset(option.key for option in BENCH_OPTIONS)
