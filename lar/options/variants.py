"""The options that may differ between the variants of a bench."""

from __future__ import annotations

from typing import Any

from lar.errors import UsageError
from lar.options.option import Option, flag_of
from lar.options.suggestions import suggest_flag
from lar.options.table import IN_RUN, ITER, ON, OPTIONS, SCHEDULER, VERBOSE, option_of


def can_vary(option: Option[Any]) -> bool:
    """Return whether a variant may have an option: one that says how to run the model.

    Options that write something are excluded. The bench itself says how often and how long it runs.
    """
    if option.writes or option in (ITER, VERBOSE):
        return False
    return option.group is IN_RUN or option.purpose in ("setting", "input", "cache")


BENCH_OPTIONS: tuple[Option[Any], ...] = tuple(filter(can_vary, OPTIONS))
BENCH_KEYS = frozenset(option.key for option in BENCH_OPTIONS)


def known_option(key: str, named: str) -> Option[Any]:
    """Return the option of a key that may vary.

    Raises:
        UsageError: there is no such option, or it does not say how a model is run.
    """
    option = option_of(key)
    if option is not None and option.key in BENCH_KEYS:
        return option
    if option is None:
        problem = "unknown flag"
        hint = suggest_flag(flag_of(key), map(flag_of, BENCH_KEYS))
    elif option in (SCHEDULER, ON):
        problem = "is for all variants: results of different machines are never mixed"
        hint = "make a bench on each machine, and put them side by side with `lar results`"
    else:
        prefix = "" if named == option.flag else f"{option.flag} "
        problem = f"{prefix}does not say how a model is run"
        hint = "what may differ are options of the engine, the inputs, --engine and --driver"
    raise UsageError(problem, hint or "`lar run --help all` lists the flags", flag=named)
