"""The options that may differ between the variants of a bench."""

from __future__ import annotations

from typing import Any

from lar.options.option import Option
from lar.options.table import (
    COPY_TO_HOST,
    DRIVER,
    ENGINE,
    ENGINE_ENV,
    FORCE,
    OPTIONS,
    PYTHON,
    SETTINGS,
    STALL_TIMEOUT,
    TIMEOUT,
    VERBOSE,
    WARMUP_ITER,
)

# Of the options that say how a run is made; the bench itself says how often and how long.
HOW = (
    *(WARMUP_ITER, ENGINE, DRIVER, TIMEOUT, STALL_TIMEOUT, COPY_TO_HOST, ENGINE_ENV, PYTHON),
    *(SETTINGS, FORCE),
)


def can_vary(option: Option[Any]) -> bool:
    """Return whether a variant may have an option: it says how the model is run, and has nothing
    written."""
    if option.writes or option is VERBOSE:
        return False
    return option in HOW or option.purpose in ("setting", "input", "cache")


BENCH_OPTIONS: tuple[Option[Any], ...] = tuple(filter(can_vary, OPTIONS))
BENCH_KEYS = frozenset(option.key for option in BENCH_OPTIONS)
