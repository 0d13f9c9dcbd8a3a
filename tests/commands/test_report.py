"""`lar report` on the command line: which profiles, which styles, where to."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lar.profiling.report_options import BY_KEY
from lar.profiling.styles import STYLES
from lar.profiling.trace_file import write_profile
from tests.profiling.synthetic import profile_of_times

RunLar = Callable[..., subprocess.CompletedProcess[str]]

SINGLE = sorted(name for name, style in STYLES.items() if not style.compares)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    write_profile(
        profile_of_times(
            {"conv": "Convolution", "relu": "Relu"},
            [{"conv": 30, "relu": 5}, {"conv": 28, "relu": 6}, {"conv": 29, "relu": 4}],
            step_us=50,
            warmup=1,
            dispatch_us=2,
        ),
        path,
    )
    return str(path)


@pytest.mark.parametrize("style", SINGLE)
def test_each_style_prints_and_writes_each_form(
    run_lar: RunLar, tmp_path: Path, profile: str, style: str
) -> None:
    names = {kind: str(tmp_path / f"report.{kind}") for kind in ("csv", "json", "html")}
    files = [word for kind, name in names.items() for word in (f"--{kind}", name)]
    done = run_lar("report", profile, "--style", style, *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert "conv" in Path(names["json"]).read_text().lower()
    json.loads(Path(names["json"]).read_text())
    assert "</html>" in Path(names["html"]).read_text()
    assert list(csv.reader(Path(names["csv"]).read_text().splitlines()))


def test_two_profiles_are_compared(run_lar: RunLar, profile: str) -> None:
    done = run_lar("report", profile, profile)
    assert (done.returncode, done.stderr) == (0, "")
    assert "conv" in done.stdout.lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--style", "diff"], "--style diff: compares two profiles"),
        (["@", "--style", "torch"], "--style torch: takes one profile"),
        (["--style", "torch", "--copy-time"], "--copy-time: the style torch does not know this"),
        (["--style", "torch", "--sort", "colour"], "--sort colour: the style torch has"),
        (["--output", "x"], "--output: goes with --export"),
        (["--csv", "@"], "--csv"),
        (["--csv", "-", "--json", "-"], "--csv and --json go to the same place"),
        (["--csv", "/nowhere/x.csv"], "--csv: /nowhere/x.csv: cannot be written"),
        (["--top", "0"], "--top: '0' is not a number from 1"),
        (["--filter", "("], "no regular expression"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    run_lar: RunLar, profile: str, words: list[str], said: str
) -> None:
    done = run_lar("report", profile, *(profile if word == "@" else word for word in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("content", [b"", b"{", b"PNG", b'{"schema":"lar.profile/9"}'])
@pytest.mark.parametrize("style", ["megengine", "torch"])
def test_a_bad_profile_is_told_in_one_line(
    run_lar: RunLar, tmp_path: Path, content: bytes, style: str
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)
    done = run_lar("report", str(bad), "--style", style)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lar: error: {bad}: ")
    assert "Traceback" not in done.stderr


def test_standard_output_takes_a_report_in_place_of_the_text(run_lar: RunLar, profile: str) -> None:
    done = run_lar("report", profile, "--style", "torch", "--json", "-")
    assert done.returncode == 0
    json.loads(done.stdout)


def test_every_option_is_honoured_by_a_style() -> None:
    honoured = {key for style in STYLES.values() for key in style.options}
    assert honoured == set(BY_KEY)
