"""`lar report` on the command line: which profiles, which styles, where to."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from lar.cli.arguments import parser_of
from lar.profiles.trace_file import write_profile
from lar.reports.styles import KEYS, STYLES
from tests.cli.runs import write_profile_of_two
from tests.command_lines import run_lar
from tests.profiles.synthetic import profile_of_times

# The answers of TensorBoard's plugin are JSON alone.
WITH_TABLES = sorted(
    name for name, style in STYLES.items() if 1 in style.profiles and name != "tensorboard"
)
SINGLE = sorted(name for name, style in STYLES.items() if 1 in style.profiles)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return write_profile_of_two(tmp_path / "profile.json")


@pytest.mark.parametrize("style", WITH_TABLES)
def test_each_style_prints_and_writes_each_form(tmp_path: Path, profile: str, style: str) -> None:
    names = {kind: str(tmp_path / f"report.{kind}") for kind in ("csv", "json", "html")}
    files = [word for kind, name in names.items() for word in (f"--{kind}", name)]
    done = run_lar("report", profile, "--style", style, *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert "conv" in Path(names["json"]).read_text().lower()
    json.loads(Path(names["json"]).read_text())
    assert "</html>" in Path(names["html"]).read_text()
    assert list(csv.reader(Path(names["csv"]).read_text().splitlines()))


@pytest.mark.parametrize("style", [name for name in STYLES if "top" in STYLES[name].options])
def test_top_0_shows_all_rows(tmp_path: Path, style: str) -> None:
    """More than any style shows of itself."""
    names = [f"op{number}" for number in range(120)]
    path, table = tmp_path / "many.json", tmp_path / "report.csv"
    times = [dict.fromkeys(names, 3)] * 2
    write_profile(profile_of_times({name: name for name in names}, times, step_us=500), path)
    profiles = [str(path)] * (1 if style in SINGLE else 2)
    shown = []
    for top in ("0", "5000"):
        words = ["report", *profiles, "--style", style, "--top", top, "--csv", str(table)]
        shown.append((run_lar(*words, code=0).stdout, table.read_text()))
    assert shown[0] == shown[1]
    assert all(name in shown[0][1] for name in names)


def test_a_profile_comes_through_a_pipe(profile: str) -> None:
    done = run_lar("report", "-", "--style", "torch", input=Path(profile).read_text())
    assert done.stdout == run_lar("report", profile, "--style", "torch").stdout
    assert run_lar("report", "-", input="").stderr.startswith("lar: error: standard input: the ")


def test_a_profile_that_was_written_anew_is_none_of_an_engine(tmp_path: Path, profile: str) -> None:
    content = json.loads(Path(profile).read_text())
    anew = tmp_path / "anew.json"
    anew.write_text(json.dumps({key: content[key] for key in sorted(content)}))
    assert run_lar("report", str(anew)).stdout == run_lar("report", profile).stdout


def test_every_option_is_honoured_by_a_style() -> None:
    (shown,) = (
        group for group in parser_of("report")._action_groups if group.title == "what is shown"
    )
    assert {action.dest for action in shown._group_actions} == KEYS
