"""Profiles that the engines have written themselves, told apart by how they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lar.engines import load_name
from lar.errors import UsageError

if TYPE_CHECKING:
    from lar.records.profile import Profile

ONNXRUNTIME = "lar.engines.onnxruntime.profile_events:profile_of_raw"
MEGENGINE = "lar.engines.megengine.profile_file:profile_of_raw"


def read_foreign(data: bytes, name: str) -> Profile:
    """Return the profile in an engine's own file; `name` is for messages.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged.
    """
    # ONNX Runtime's is a list of events, MegEngine's an object.
    is_list = data.lstrip()[:1] == b"["
    hint = "make it again with --profile-raw"
    try:
        profile: Profile = load_name(ONNXRUNTIME if is_list else MEGENGINE)(data, name)
    except RecursionError:
        raise UsageError(f"{name}: is no profile: it is nested too deeply", hint) from None
    except OverflowError:
        raise UsageError(f"{name}: is damaged: it tells of an infinite time", hint) from None
    except ValueError as error:  # in what is decoded where it is needed
        raise UsageError(f"{name}: is damaged: {str(error).lower()}", hint) from None
    for each in profile.executions:
        if not 0 <= (each.wait_ns or 0) <= each.duration_ns:
            operator = profile.operators[each.operator].name
            why = f"{operator} ends before it begins to compute, or computes before it begins"
            raise UsageError(f"{name}: is damaged: {why}", hint)
    return profile
