"""All that some command lines print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.cli.marks import each_of
from tests.command_lines import run_lar

MOMENT = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d\+00:00)?"


@each_of("transcripts.txt", usual=0)
def test_all_that_is_printed(place: Path, command: str, parts: list[str], code: int) -> None:
    done = run_lar(*shlex.split(command), cwd=place, code=code)
    marked = [*done.stdout.splitlines(), *(f"! {line}" for line in done.stderr.splitlines())]
    printed = [f"  {re.sub(MOMENT, 'TIME', line)}".rstrip() for line in marked if line]
    assert "\n".join(printed) == "\n".join(parts)
