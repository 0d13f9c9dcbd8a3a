"""The manual's tool: what `lar report --style megengine` prints, with the tool's flags."""

from __future__ import annotations

from pathlib import Path

from lar.engines.megengine.profile import profile_of_raw
from lar.reports.styles.megengine import build
from tests.command_lines import ROOT, run_python
from tests.tables import each_row

TOOL = "tools/profile_analyze.py"
DATA = ROOT / "tests" / "data" / "megengine_profile.json"


@each_row("tools/cases/flags of profile_analyze")
def test_it_prints_the_report(words: list[str], options: dict[str, object]) -> None:
    done = run_python(TOOL, str(DATA), *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == build(profile_of_raw(DATA.read_bytes()), options).text


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    done = run_python(TOOL, str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.json: no such file" in done.stderr
