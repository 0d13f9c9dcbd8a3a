"""What MegEngine's own messages mean for the user, both drivers alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lar.errors import LarError, UsageError
from lar.options import LAYOUTS, flag_of

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


def explain_megengine(
    message: str, model: str, *, loading: bool, settings: Iterable[str] = ()
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one."""
    for pattern, what in BROKEN_FILE if loading else ():
        if re.search(pattern, message):
            return UsageError(f"{model}: {what}", BROKEN)
    if re.search(r"failed to malloc|bad_alloc|out of memory|cudaErrorMemoryAllocation", message):
        return LarError("out of memory in MegEngine", "a smaller batch or model, or more memory")
    said = message.strip().splitlines()[0] if message.strip() else "nothing"
    if "attempt to modify ExecutionPolicy" in message:
        return UsageError(
            "--workspace-limit: MegEngine cannot set it on this model with these options",
            "leave it or the layout out",
        )
    if "enable_ioc16" in settings:
        return UsageError(
            f"--enable-ioc16: MegEngine cannot run {model} in float16",
            f"leave the flag out; it says: {said}",
        )
    for key in LAYOUTS.intersection(settings):
        return UsageError(
            f"{flag_of(key)}: MegEngine cannot run {model} in this layout",
            f"leave the flag out, or fold batch normalisation before the dump; it says: {said}",
        )
    if "map.find(desc) != map.end()" in message:
        return UsageError(
            "--fast-run-algo-policy: the cache names an algorithm that is not here",
            "it was made on another machine or by another version: search again",
        )
    return None
