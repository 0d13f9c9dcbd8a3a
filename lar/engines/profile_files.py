"""Profiles that the engines have written themselves, distinguished by how they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lar.engines import ENGINES, all_engines
from lar.errors import UsageError

if TYPE_CHECKING:
    from lar.engines.engine import Engine
    from lar.records.profile import Profile


def writer_of(data: bytes) -> Engine | None:
    """Return the engine that writes profiles that begin so."""
    own = next((engine for engine in ENGINES if engine.writes_profile(data)), None)
    # The engines of other packages are looked at last: finding them is slow.
    return own or next((each for each in all_engines() if each.writes_profile(data)), None)


def read_foreign(data: bytes, name: str) -> Profile:
    """Return the profile in an engine's own file; `name` is for messages.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged.
    """
    hint = "make it again with --profile-raw"
    engine = writer_of(data)
    if not data.strip():
        raise UsageError("the profile is empty", "make it again with --profile", subject=name)
    if engine is None:
        raise UsageError(
            "is not a profile, or was cut short", "make it again with --profile", subject=name
        )
    try:
        profile = engine.read_profile(data, name)
    except RecursionError:
        raise UsageError("is not a profile: it is nested too deeply", hint, subject=name) from None
    except OverflowError:
        raise UsageError("is damaged: it holds an infinite time", hint, subject=name) from None
    except ValueError as error:  # in what is decoded where it is needed
        raise UsageError(f"is damaged: {str(error).lower()}", hint, subject=name) from None
    for each in profile.executions:
        if not 0 <= (each.wait_ns or 0) <= each.duration_ns:
            operator = profile.operators[each.operator].name
            why = f"{operator} ends before it begins to compute, or computes before it begins"
            raise UsageError(f"is damaged: {why}", hint, subject=name)
    return profile
