"""`lar report` on the command line: which profiles, which styles, where to."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from lar.cli.main import main
from lar.cli.parser import parser_of
from lar.profiles.trace_file import write_profile
from lar.reports.options import KEYS
from lar.reports.styles import STYLES
from tests.conftest import RunLar
from tests.profiles.synthetic import profile_of_times

# The answers of TensorBoard's plugin are JSON alone.
WITH_TABLES = sorted(
    name for name, style in STYLES.items() if 1 in style.profiles and name != "tensorboard"
)
SINGLE = sorted(name for name, style in STYLES.items() if 1 in style.profiles)
DOUBLE = sorted(name for name, style in STYLES.items() if 2 in style.profiles)


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


@pytest.mark.parametrize("style", WITH_TABLES)
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
    assert done.stdout == run_lar("report", profile, profile, "--style", "diff").stdout


def test_styles_of_two_name_themselves(run_lar: RunLar, profile: str) -> None:
    assert DOUBLE == ["diff", "tensorboard"]
    done = run_lar("report", profile, profile, "--style", "paddle")
    assert done.stderr == (
        "lar: error: --style paddle: takes one profile\nhint: two: --style tensorboard, diff\n"
    )
    assert run_lar("report", profile, profile, profile).returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--style", "diff"], "--style diff: compares two profiles"),
        (["@", "--style", "torch"], "--style torch: takes one profile"),
        (["--style", "html"], "'html' is no style any more: --html FILE writes the page of any"),
        (["--style", "tensorboard", "--view", "diff"], "--view diff: compares two profiles"),
        (["@", "--export", "chrome"], "--export: takes one profile"),
        (["--style", "torch", "--copy-time"], "--copy-time: the style torch does not know this"),
        (
            ["--style", "torch", "--sort", "colour"],
            "--sort colour: the style torch does not know it",
        ),
        (
            ["--style", "torch", "--columns", "medan"],
            "--columns medan: the style torch does not know it",
        ),
        (
            ["--style", "ncu", "--metrics", "gpu__time_duration.sum"],
            "--metrics: there is no metric gpu__time_duration.sum\nhint: did you mean cpu__time_d",
        ),
        (["--iteration", "3"], "flag --iteration\nhint: `--export perfetto -o FILE`"),
        (["--output", "x"], "--output: goes with --export"),
        (["--csv", "@"], "--csv"),
        (["--csv", "-", "--json", "-"], "--json and --csv go to the same place"),
        (["--csv", "/nowhere/x.csv"], "--csv: /nowhere/x.csv: cannot be written"),
        (["--top", "-1"], "--top, -t: '-1' is not a number of rows"),
        (["--top", "x"], "--top, -t: 'x' is not a number of rows"),
        (["--filter", "("], "is not a regular expression"),
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


@pytest.mark.parametrize("style", [name for name in STYLES if "top" in STYLES[name].options])
def test_top_0_shows_all_rows(
    run_lar: RunLar, tmp_path: Path, capsys: pytest.CaptureFixture[str], style: str
) -> None:
    """More than any style shows of itself."""
    names = [f"op{number}" for number in range(120)]
    path, table = tmp_path / "many.json", tmp_path / "report.csv"
    times = [dict.fromkeys(names, 3)] * 2
    write_profile(profile_of_times({name: name for name in names}, times, step_us=500), path)
    profiles = [str(path)] * (1 if style in SINGLE else 2)
    shown = []
    for top in ("0", "5000"):
        words = ["report", *profiles, "--style", style, "--top", top, "--csv", str(table)]
        assert main(words) == 0
        shown.append((capsys.readouterr().out, table.read_text()))
    assert shown[0] == shown[1]
    assert all(name in shown[0][1] for name in names)


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


@pytest.mark.parametrize("content", [b"{}", b'{"profiler": {}}', b'{"traceEvents": []}'])
def test_another_programs_json_is_told_from_a_cut_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(content)
    assert main(["report", str(other), "--style", "torch"]) == 2
    assert capsys.readouterr().err == (
        f"lar: error: {other}: is JSON, but not a profile that lar knows; "
        "this lar reads lar.profile/1\n"
        "hint: make one with --profile, or an engine's own with --profile-raw\n"
    )


def test_a_profile_comes_through_a_pipe(run_lar: RunLar, profile: str) -> None:
    done = run_lar("report", "-", "--style", "torch", input=Path(profile).read_text())
    assert done.stdout == run_lar("report", profile, "--style", "torch").stdout
    assert run_lar("report", "-", input="").stderr.startswith("lar: error: standard input: the ")


def test_a_profile_that_was_written_anew_is_none_of_an_engine(
    run_lar: RunLar, tmp_path: Path, profile: str
) -> None:
    content = json.loads(Path(profile).read_text())
    anew = tmp_path / "anew.json"
    anew.write_text(json.dumps({key: content[key] for key in sorted(content)}))
    assert run_lar("report", str(anew)).stdout == run_lar("report", profile).stdout


@pytest.mark.parametrize(
    ("style", "count"), [(name, n) for name in WITH_TABLES for n in STYLES[name].profiles]
)
def test_names_control_no_terminal_and_end_no_line(
    run_lar: RunLar, tmp_path: Path, style: str, count: int
) -> None:
    evil = "\x1b[2J\u202econv\nTotal 0 </script>"
    path = tmp_path / "evil.json"
    times = [{evil: 30, "relu": 5}, {evil: 28, "relu": 6}]
    write_profile(profile_of_times({evil: evil, "relu": "Relu"}, times, step_us=50), path)
    profiles = [str(path)] * count
    html = tmp_path / "report.html"
    done = run_lar("report", *profiles, "--style", style, "--html", str(html))
    assert done.returncode == 0
    assert done.stdout.replace("\n", "").isprintable()
    assert not any(line.startswith("Total 0") for line in done.stdout.splitlines())
    assert "Total 0 </script>" not in html.read_text()


def test_an_export_takes_no_option_of_a_report(
    run_lar: RunLar, tmp_path: Path, profile: str
) -> None:
    words = ["report", profile, "--export", "chrome", "-o", str(tmp_path / "trace.json")]
    done = run_lar(*words, "--top", "3", "--csv", "x.csv")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "lar: error: --export: writes a trace instead of a report, and takes no --csv, --top\n"
        "hint: leave --csv, --top out\n"
    )
    assert run_lar(*words).stdout == f"wrote {tmp_path / 'trace.json'}\n"


def test_standard_output_takes_a_report_in_place_of_the_text(run_lar: RunLar, profile: str) -> None:
    done = run_lar("report", profile, "--style", "torch", "--json", "-")
    assert done.returncode == 0
    json.loads(done.stdout)


def test_every_option_is_honoured_by_a_style() -> None:
    (shown,) = (
        group for group in parser_of("report")._action_groups if group.title == "what is shown"
    )
    assert {action.dest for action in shown._group_actions} == KEYS
