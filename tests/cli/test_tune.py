"""`lar tune`, with the scripted engine."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

import lar
from lar.cli.parser import parser_of
from lar.errors import LarError
from tests.conftest import RunLar, WriteScript
from tests.tuning.test_search import LANDSCAPE, measured


@pytest.fixture
def model(write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return Path(write_script(**LANDSCAPE)).name


def test_the_fastest_with_right_numbers_wins(run_lar: RunLar, model: str, tmp_path: Path) -> None:
    done = run_lar(
        *("tune", model, "--budget", "60", "-o", "best.json", "--csv", "all.csv"),
        *("--json", "all.json", "--save", "--store", "history.sqlite", "--tag", "tuned"),
    )
    assert done.returncode == 0, done.stderr
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
    again = run_lar(model, "--settings", "best.json", "--iter", "2")
    assert "avg_time=4.800ms" in again.stdout
    stored = run_lar("history", "list", "--store", "history.sqlite", "--tag", "tuned")
    assert stored.returncode == 0
    assert "enable_nchw44" in stored.stdout.replace("-", "_")


def test_the_first_ranking_is_shown_meanwhile(run_lar: RunLar, model: str) -> None:
    done = run_lar("tune", model, "--budget", "60s")
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"first ranking, after \d+ s:", lines[0])
    assert lines[1:] == ["  plain, 10.000 ms, ratio 1.000"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--resume", "x.tune"), "unknown flag --resume", "--session FILE"),
        (("--algorithms", "x.cache"), "unknown flag --algorithms", "lar bench"),
    ],
)
def test_flags_that_have_gone_say_what_does_the_same(
    run_lar: RunLar, model: str, words: tuple[str, ...], message: str, hint: str
) -> None:
    done = run_lar("tune", model, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert hint in done.stderr.splitlines()[-1]
    gone = run_lar("results", model, "--merge", "x")
    assert "side by side" in gone.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no model is given"),
        (("gone.fake",), "gone.fake: no such file"),
        (("script_0.fake", "--allow", "everything"), "'everything' cannot be allowed; give"),
        (("script_0.fake", "--tolerance", "-1"), "-1 is not a limit"),
        (("script_0.fake", "--session", "."), ".: is a folder; give a file name"),
        (("script_0.fake", "--session", "no/x"), "--session: no: there is no such folder"),
        (("script_0.fake", "--session", "script_0.fake"), "is not a store of lar"),
        (("script_0.fake", "--engines", "megengine"), "--engines megengine: none of these"),
        (("script_0.fake", "-o", "-"), "--output: settings go to a file"),
        (("script_0.fake", "script_0.fake"), "script_0.fake: is given twice"),
        (("script_0.fake", "--json", "script_0.fake"), "script_0.fake"),
    ],
)
def test_bad_words_are_one_line(
    run_lar: RunLar, model: str, words: tuple[str, ...], message: str
) -> None:
    done = run_lar("tune", *words)
    assert done.returncode == 2
    error, *rest = done.stderr.splitlines()
    assert error.startswith("lar: error: ")
    assert message in error
    assert len(rest) <= 1


@pytest.mark.parametrize(
    "fault", [{"at": "start", "index": 0, "do": "raise"}, {"at": "load", "do": "segfault"}]
)
def test_a_plain_run_that_fails_ends_the_search(
    run_lar: RunLar, write_script: WriteScript, fault: dict[str, object]
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


@pytest.mark.parametrize("words", [(), ("--session", "own.tune", "--json", "all.json")])
def test_a_file_that_is_no_model_is_one_line(
    run_lar: RunLar, model: str, words: tuple[str, ...]
) -> None:
    Path("torn.onnx").write_bytes(b"\x08\x07 torn")
    run = run_lar("torn.onnx")
    done = run_lar("tune", "torn.onnx", *words)
    assert (done.returncode, done.stdout) == (run.returncode, "")
    assert done.stderr == run.stderr
    assert done.stderr.startswith("lar: error: torn.onnx: this is not an ONNX model")
    assert not list(Path().glob("*.tune*"))


def test_a_model_that_fails_does_not_keep_others_from_being_searched(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fault = {"at": "start", "index": 0, "do": "raise"}
    write_script(faults=[fault])
    write_script(times=[[0.01, 0, None]])
    done = run_lar("tune", ".", "--budget", "10", "-o", "best")
    assert done.returncode == 4
    assert "lar: error: the plain run: " in done.stderr
    assert [path.name for path in Path("best").iterdir()] == ["script_1.json"]
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("./script_0.fake: fastest: none: ")
    assert second.startswith("./script_1.fake: fastest: the plain run: ")
    write_script(faults=[fault])
    done = run_lar("tune", ".", "--budget", "10")
    assert done.returncode == 4
    assert "lar: error: 2 of 3 models failed: the plain run: " in done.stderr


def test_what_came_of_several_models_is_printed_into_a_pipe_too(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script(faults=[{"at": "start", "index": 0, "do": "raise"}])
    write_script(times=[[0.01, 0, None]])
    done = run_lar("tune", ".", "--budget", "5", cwd=tmp_path, env={})
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1].startswith("./script_1.fake: fastest: the plain run: ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_file_that_cannot_be_written_keeps_back_nothing_else(
    run_lar: RunLar, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[str]:
        raise LarError("no room for the model", subject="packed.fake")

    monkeypatch.setattr("lar.cli.tune_search.check_deployment", lambda space: None)
    monkeypatch.setattr("lar.cli.tune_search.write_packed", refuse)
    done = run_lar(
        *("tune", model, "--budget", "5", "-o", "/dev/full"),
        *("--packed-model-dump", "packed.fake", "--json", "all.json"),
    )
    assert done.returncode == 4
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
