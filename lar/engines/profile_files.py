"""The file of a profile: lar's own, or one that an engine has written itself.

Each is recognised by its keys.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from lar.engines import all_engines
from lar.engines.engine import Engine
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.files.unpacking import unpack
from lar.profiles.trace_file import decode_profile, is_written_by_lar, read_as_written
from lar.records.profile import Profile

HINT = "make it again with --profile, or an engine's own with --profile-raw"
# What is wrong with a file for which a reader raises an error of a kind.
PROBLEMS: tuple[tuple[type[Exception], str], ...] = (
    (msgspec.ValidationError, "is damaged, or no profile that lar knows"),
    (msgspec.DecodeError, "is not a profile, or was cut short"),
    (UnicodeDecodeError, "is not a profile, or was cut short"),
    (RecursionError, "is not a profile: it is nested too deeply"),
    (Exception, "is damaged"),
)


def read_profile(path: str | Path) -> Profile:
    """Read a profile: what `--profile` or `--profile-raw` wrote.

    Raises:
        UsageError: the file is missing, truncated, foreign, empty or of a later schema.
    """
    found = read_as_written(path)
    return decode_any(read_input(path), str(path)) if found is None else found


def decode_any(data: bytes, name: str) -> Profile:
    """Return the profile in a file's content; `name` is for messages.

    Raises:
        UsageError: it is empty, truncated, foreign, damaged or of a later schema.
    """
    data = unpack(data, name, HINT)
    if not data.strip():
        raise UsageError("the profile is empty", HINT, subject=name)
    engine = None if is_written_by_lar(data) else writer_of(data)
    try:
        profile = engine.read_profile(data, name) if engine else decode_profile(data, name)
        check_waits(profile)
    except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError) as error:
        problem = next(text for kind, text in PROBLEMS if isinstance(error, kind))
        raise UsageError(f"{problem}: {str(error).lower()}", HINT, subject=name) from None
    return profile


def check_waits(profile: Profile) -> None:
    """Check that operators compute while they are executed.

    Raises:
        ValueError: one does not.
    """
    for each in profile.executions:
        if not 0 <= (each.wait_ns or 0) <= each.duration_ns:
            name = profile.operators[each.operator].name
            problem = "ends before it begins to compute, or computes before it begins"
            raise ValueError(f"{name} {problem}")


def writer_of(data: bytes) -> Engine | None:
    """Return the engine whose profiles have such keys."""
    return next((engine for engine in all_engines() if engine.writes_profile(data)), None)
