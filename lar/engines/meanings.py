"""What an engine's own messages mean to the user: `messages.json` beside the engine's modules."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from lar.engines.formats import BROKEN
from lar.errors import CheckFailed, LarError, UsageError
from lar.options import table

KINDS = {"usage": UsageError, "engine": LarError, "check": CheckFailed}


class Meaning(NamedTuple):
    """What is wrong where a message has a pattern, and what to do.

    Both texts may hold the groups of the pattern, the name of the `model`, what the engine `said`
    in a line, and `broken`, advice about a damaged file. `flag` is the option that is to blame;
    `options` names options of the table: one of them must be given, and the error names it as the
    flag. Without a flag the model file is to blame, unless the message is not `about` it. `when` is
    the phase in which the message means that: empty for `loading` and `running`, or another of the
    engine's. `note` is for those who read the file.
    """

    pattern: str
    problem: str
    hint: str = ""
    kind: Literal["usage", "engine", "check"] = "usage"
    flag: str = ""
    options: str = ""
    about: Literal["file", ""] = "file"
    when: str = ""
    note: str = ""

    def explain(
        self, message: str, model: str, settings: Collection[str], facts: Mapping[str, str]
    ) -> LarError | None:
        """Return the error behind a message, None for another one."""
        found = re.search(self.pattern, message)
        named = getattr(table, self.options) if self.options else ()
        options = named if isinstance(named, tuple) else (named,)
        flags = [option.flag for option in options if option.key in settings]
        if not found or bool(flags) != bool(options):
            return None
        known = {**facts, **found.groupdict(), "model": model, "broken": BROKEN}
        texts = (text.format(*found.groups(), **known) for text in (self.problem, self.hint))
        flag = (*flags, self.flag)[0]
        subject = model if self.about and not flag else ""
        return KINDS[self.kind](*texts, flag=flag, subject=subject)


class Meanings:
    """The meanings in the file beside a module; the first that fits a message counts."""

    def __init__(self, module: str) -> None:
        self.file = Path(module).with_name("messages.json")

    @cached_property
    def rows(self) -> list[Meaning]:
        """All of them; few runs need one."""
        return [Meaning(**row) for row in json.loads(self.file.read_text())]

    def explain(
        self,
        message: str,
        model: str,
        said: str = "",
        *,
        phases: Collection[str] = ("", "loading"),
        settings: Collection[str] = (),
        **facts: str,
    ) -> LarError | None:
        """Return the clear error behind a message in some phases, None for an unknown one; `said`
        is its important part, in one line, and `facts` fill the texts."""
        facts["said"] = said or last_line(message)
        known = (
            it.explain(message, model, settings, facts) for it in self.rows if it.when in phases
        )
        return next(filter(None, known), None)


def phases_of(*, loading: bool) -> tuple[str, str]:
    """Return the phases of a driver that loads a model, or runs it."""
    return ("", "loading" if loading else "running")


def last_line(message: str) -> str:
    """Return what the last line of a message says, at most 160 characters: those before it often
    say where in its own source the engine found it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["nothing"]
    return re.sub(r"^\w+: ", "", lines[-1])[:160]
