"""Which dumps MegEngine can make; light, as every command line with options reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.errors import UsageError
from lar.options.option import flag_of

TENSORS = "bin_io_dump"
DUMPS = ("io_dump", "io_dump_stdout", "io_dump_stderr", TENSORS)  # of what operators give


def check_dumps(settings: Mapping[str, Any]) -> None:
    """Refuse dumps that lite cannot make.

    Raises:
        UsageError: two at a time, or one of a recorded run.
    """
    chosen = [key for key in DUMPS if key in settings]
    if TENSORS in chosen and len(chosen) > 1:
        raise UsageError(
            f"{flag_of(chosen[0])} and {flag_of(TENSORS)} cannot go together on MegEngine, which "
            "makes one dump at a time",
            "run twice",
        )
    for key in ("record_comp_seq", "record_comp_seq2"):
        if chosen and key in settings:
            raise UsageError(
                f"{flag_of(chosen[0])} and {flag_of(key)} cannot go together: a replayed run "
                "passes by the operators that are dumped",
                "leave one of them out",
            )
