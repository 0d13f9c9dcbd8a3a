"""How MegEngine honours the options of profiles; light, as every command line reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.engines.table import OptionRow, calling
from lar.errors import UsageError
from lar.options.option import flag_of

BOTH = ("lite", "graph")
PROFILES = ("profile", "profile_host", "profile_raw")


def row_of_profile(key: str, how: str) -> OptionRow:
    """Return the row of a profile, which differ in what lar writes of it."""
    return OptionRow(
        key,
        BOTH,
        how,
        before_load=calling("lar.engines.megengine.profiling:begin_profile"),
        after_load=calling("lar.engines.megengine.profiling:take_profile"),
    )


PROFILE_ROWS = (
    row_of_profile("profile", "enable_profile_performance(); GraphProfiler"),
    row_of_profile("profile_host", "the same: the host's dispatch is in it"),
    row_of_profile("profile_raw", "the engine's JSON of the last iteration"),
    OptionRow("profile_memory", BOTH, "the static memory plan"),
    OptionRow("profile_syscalls", BOTH, "strace of the process that runs the model"),
    OptionRow("range_by", BOTH, "by the names of the graph's operators"),
)


def check_profile(settings: Mapping[str, Any]) -> None:
    """Refuse profiles that MegEngine cannot make.

    Raises:
        UsageError: one of a recorded run.
    """
    asked = next((key for key in PROFILES if key in settings), None)
    for key in ("record_comp_seq", "record_comp_seq2"):
        if asked and key in settings:
            raise UsageError(
                f"{flag_of(asked)} and {flag_of(key)} cannot go together: a replayed run passes "
                "by the operators whose times are told",
                "leave one of them out",
            )
