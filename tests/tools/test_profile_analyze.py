"""The manual's tool: what `lar report --style megengine` prints, with the tool's flags."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lar.engines.megengine.profile import profile_of_raw
from lar.reports.styles.megengine import build
from tests.command_lines import ROOT, run_python
from tests.tables import each_row

TOOL = "tools/profile_analyze.py"
DATA = ROOT / "tests" / "data" / "megengine_profile.json"


@each_row("tools/cases/flags of profile_analyze")
def test_it_prints_the_report(
    words: list[str],
    options: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", [TOOL, str(DATA), *words])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(ROOT / TOOL), run_name="__main__")
    assert capsys.readouterr() == (build(profile_of_raw(DATA.read_bytes()), options).text, "")


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    done = run_python(TOOL, str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.json: no such file" in done.stderr
