"""What MegEngine's own messages mean for the user, both drivers alike."""

from __future__ import annotations

import re

from lar.errors import LarError, UsageError

BROKEN = "copy or export it again"

# Pattern in the engine's message, what is wrong, what to do; the first that matches counts.
BROKEN_FILE: tuple[tuple[str, str], ...] = (
    (
        r"m_offset \+ size <= m_size|(m_refhold|ptr) && size|unexpected (end|eof)",
        "the file is cut short",
    ),
    (r"model verification failed", "its content is damaged (verification failed)"),
    (
        r"failed to find opr with type",
        "it needs an operator that this MegEngine lacks, or is damaged",
    ),
    (
        r"invalid model format|access invalid Maybe value",
        "this is not a MegEngine model, or it is damaged",
    ),
)


def explain_megengine(message: str, model: str, *, loading: bool) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one."""
    for pattern, what in BROKEN_FILE if loading else ():
        if re.search(pattern, message):
            return UsageError(f"{model}: {what}", BROKEN)
    if re.search(r"failed to malloc|bad_alloc|out of memory|cudaErrorMemoryAllocation", message):
        return LarError("out of memory in MegEngine", "a smaller batch or model, or more memory")
    return None
