"""`lar tune`, with the scripted engine."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

import lar
from lar.cli.arguments import parser_of
from lar.errors import LarError
from tests.cli.marks import needs_full
from tests.command_lines import run_lar
from tests.conftest import WriteScript
from tests.tuning.test_search import LANDSCAPE, measured


@pytest.fixture
def model(write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return Path(write_script(**LANDSCAPE)).name


def test_the_fastest_with_right_numbers_wins(model: str, tmp_path: Path) -> None:
    done = run_lar(
        *("tune", model, "--budget", "60", "-o", "best.json", "--csv", "all.csv"),
        *("--json", "all.json", "--save", "--store", "history.sqlite", "--tag", "tuned"),
        code=0,
    )
    assert done.stdout.splitlines()[-1].startswith(
        "fastest: nchw44 + 2 threads: 2.08 times as fast as the plain run"
    )
    with open("all.csv", newline="") as file:
        rows = {row["candidate"]: row for row in csv.DictReader(file)}
    assert float(rows["nchw44 + 2 threads"]["ratio"]) == pytest.approx(0.48)
    assert rows["nchw32"]["status"] == "wrong"
    found = lar.read_tune(Path("all.json").read_bytes())
    assert found.best
    assert found.best.name == "nchw44 + 2 threads"
    settings = json.loads(Path("best.json").read_text())
    assert settings["options"] == {"enable_nchw44": True, "multithread": 2}
    assert "avg_time=4.800ms" in run_lar(model, "--settings", "best.json", "--iter", "2").stdout
    stored = run_lar("history", "list", "--store", "history.sqlite", "--tag", "tuned", code=0)
    assert "enable_nchw44" in stored.stdout.replace("-", "_")


def test_the_first_ranking_is_shown_meanwhile(model: str) -> None:
    lines = run_lar("tune", model, "--budget", "60s").stderr.splitlines()
    assert re.fullmatch(r"first ranking, after \d+ s:", lines[0])
    assert lines[1:] == ["  plain, 10.000 ms, ratio 1.000"]


@pytest.mark.parametrize(
    "fault", [{"at": "start", "index": 0, "do": "raise"}, {"at": "load", "do": "segfault"}]
)
def test_a_plain_run_that_fails_ends_the_search(
    write_script: WriteScript, fault: dict[str, object]
) -> None:
    model = write_script(**{**LANDSCAPE, "faults": [fault]})
    done = run_lar("tune", model, "--budget", "20", "--session", f"{model}.tune")
    assert done.returncode in (4, 5)
    assert "the plain run" in done.stderr.splitlines()[-2]
    # Nothing else is tried: there is one cause.
    failed = [
        line for line in done.stdout.splitlines() if line.startswith(("failed: ", "crashed: "))
    ]
    assert len(failed) == 1
    assert [tag for tag, _ in measured(f"{model}.tune")] == ["round 0: plain"]


def test_a_file_that_is_no_model_is_one_line(model: str) -> None:
    Path("torn.onnx").write_bytes(b"\x08\x07 torn")
    run = run_lar("torn.onnx")
    done = run_lar("tune", "torn.onnx", "--session", "own.tune", "--json", "all.json")
    assert (done.returncode, done.stdout, done.stderr) == (run.returncode, "", run.stderr)
    assert done.stderr.startswith("lar: error: torn.onnx: this is not an ONNX model")
    assert not list(Path().glob("*.tune*"))


def test_a_model_that_fails_does_not_keep_others_from_being_searched(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fault = {"at": "start", "index": 0, "do": "raise"}
    write_script(faults=[fault])
    write_script(times=[[0.01, 0, None]])
    done = run_lar("tune", ".", "--budget", "10", "-o", "best", code=4)
    assert "lar: error: the plain run: " in done.stderr
    assert [path.name for path in Path("best").iterdir()] == ["script_1.json"]
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("./script_0.fake: fastest: none: ")
    assert second.startswith("./script_1.fake: fastest: the plain run: ")
    write_script(faults=[fault])
    done = run_lar("tune", ".", "--budget", "10", code=4)
    assert "lar: error: 2 of 3 models failed: the plain run: " in done.stderr


@needs_full
def test_a_file_that_cannot_be_written_keeps_back_nothing_else(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[str]:
        raise LarError("no room for the model", subject="packed.fake")

    monkeypatch.setattr("lar.cli.tune_search.check_deployment", lambda space: None)
    monkeypatch.setattr("lar.cli.tune_search.write_packed", refuse)
    done = run_lar(
        *("tune", model, "--budget", "5", "-o", "/dev/full"),
        *("--packed-model-dump", "packed.fake", "--json", "all.json"),
        code=4,
    )
    assert any(line.startswith("fastest: ") for line in done.stdout.splitlines())
    error = done.stderr.splitlines()[-2]
    assert "--output: /dev/full: cannot be written: no space left on device" in error
    assert "packed.fake: no room for the model" in error
    assert lar.read_tune(Path("all.json").read_bytes()).best


def test_names_that_are_given_again_are_added() -> None:
    parser = parser_of("tune")
    words = ["m", "--allow", "engine-env", "--allow", "engine-fixes,engine-env", "--engines", "a"]
    arguments = parser.parse_args([*words, "--engines", "b"])
    assert {*arguments.allow} == {"engine-env", "engine-fixes"}
    assert arguments.engines == ["a", "b"]
    assert parser.parse_args(["m"]).allow == []
