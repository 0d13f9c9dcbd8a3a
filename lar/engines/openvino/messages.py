"""Clear errors for OpenVINO's own messages, whose meanings stand in messages.json."""

from __future__ import annotations

import re

from lar.engines.meanings import Meanings
from lar.errors import LarError

MEANINGS = Meanings(__file__)


def explain(message: str, model: str, *, loading: bool) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one."""
    return MEANINGS.explain(message, last_line(message), model, loading=loading)


def last_line(message: str) -> str:
    """Return what the last line of a message says, at most 160 characters: those before it say
    where in its own source the engine found it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return re.sub(r"^\w+: ", "", lines[-1])[:160] if lines else ""
