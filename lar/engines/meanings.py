"""What an engine's own messages mean to the user: `messages.json` beside the engine's modules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, NamedTuple

from lar.engines.formats import BROKEN
from lar.errors import LarError, UsageError

KINDS = {"usage": UsageError, "engine": LarError}


class Meaning(NamedTuple):
    """What is wrong where a message has a pattern, and what to do.

    Both texts may hold the groups of the pattern, what the engine `said` in a line, and `broken`,
    advice about a damaged file. `flag` is the option that is to blame; without one it is the model
    file, unless that is not `about` it. `when` is the phase in which the message means that.
    """

    pattern: str
    problem: str
    hint: str = ""
    kind: Literal["usage", "engine"] = "usage"
    flag: str = ""
    about: Literal["file", ""] = "file"
    when: Literal["loading", "running", ""] = ""


class Meanings:
    """The meanings in the file beside a module; the first that fits a message counts."""

    def __init__(self, module: str) -> None:
        rows = json.loads(Path(module).with_name("messages.json").read_text())
        self.meanings = [Meaning(**row) for row in rows]

    def explain(
        self, message: str, model: str, said: str = "", *, loading: bool = True
    ) -> LarError | None:
        """Return the clear error behind a message, None for an unknown one; `said` is what counts
        of it, in a line."""
        facts = {"said": said or last_line(message), "broken": BROKEN}
        phases = ("", "loading" if loading else "running")
        for it in self.meanings:
            if it.when in phases and (found := re.search(it.pattern, message)):
                texts = (text.format(*found.groups(), **facts) for text in (it.problem, it.hint))
                subject = model if it.about and not it.flag else ""
                return KINDS[it.kind](*texts, flag=it.flag, subject=subject)
        return None


def last_line(message: str) -> str:
    """Return what the last line of a message says, at most 160 characters: those before it often
    say where in its own source the engine found it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["nothing"]
    return re.sub(r"^\w+: ", "", lines[-1])[:160]
