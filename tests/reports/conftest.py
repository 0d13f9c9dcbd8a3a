"""Reports of profiles by the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lar.cli.main import main
from lar.profiles.trace_file import write_profile
from lar.records.profile import Profile

Report = Callable[..., str]


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Report:
    """Print the report of profiles: its text, or JSON with `--json -`; or what refuses it."""

    def make(profiles: Sequence[Profile], *words: str, code: int = 0) -> str:
        paths = [tmp_path / f"{'AB'[place % 2]}{place // 2}.json" for place in range(len(profiles))]
        for profile, path in zip(profiles, paths, strict=True):
            write_profile(profile, path)
        assert main(["report", *map(str, paths), *words]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return make
