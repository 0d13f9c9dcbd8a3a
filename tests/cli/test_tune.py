"""`lar tune`, with the scripted engine."""

from __future__ import annotations

import argparse
import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.cli.tune import add_arguments
from lar.errors import LarError
from lar.tuning.session import read_session
from tests.conftest import RunLar, WriteScript

# Two switches: together they are faster than each alone, one gives wrong numbers with a third.
LANDSCAPE: dict[str, Any] = {
    "times": [[0.010, 0.001, None]],
    "outputs": {"prob": [0.25, 0.75]},
    "dimensions": [
        {
            "name": "layout",
            "choices": [
                {"name": "nchw44", "options": {"enable_nchw44": True}},
                {"name": "nchw32", "options": {"enable_nchw32": True}},
            ],
        },
        {
            "name": "threads",
            "choices": [{"name": "2 threads", "options": {"multithread": 2}}],
        },
    ],
    "effects": [
        {"when": {"enable_nchw44": True}, "factor": 0.8},
        {"when": {"multithread": 2}, "factor": 0.6},
        {"when": {"enable_nchw32": True}, "factor": 0.1, "error": 0.5},
    ],
}


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
    assert done.stdout.splitlines()[0] == "session: script_0.tune"
    assert done.stdout.splitlines()[-1].startswith(
        "fastest: nchw44 + 2 threads: 2.1 times as fast as the plain run"
    )
    with open("all.csv", newline="") as file:
        rows = {row["candidate"]: row for row in csv.DictReader(file)}
    assert rows["nchw44 + 2 threads"]["place"] == "1"
    assert float(rows["nchw44 + 2 threads"]["ratio"]) == pytest.approx(0.48)
    assert rows["nchw32"]["status"] == "wrong"
    assert float(rows["nchw32"]["output_error"]) == pytest.approx(0.5)
    found = lar.read_tune(Path("all.json").read_bytes())
    assert found.winner
    assert found.winner.name == "nchw44 + 2 threads"
    settings = json.loads(Path("best.json").read_text())
    assert settings["options"] == {"enable_nchw44": True, "multithread": 2}
    again = run_lar(model, "--settings", "best.json", "--iter", "2")
    assert "avg_time=4.800ms" in again.stdout
    stored = run_lar("history", "list", "--store", "history.sqlite", "--tag", "tuned")
    assert stored.returncode == 0
    assert "enable_nchw44" in stored.stdout.replace("-", "_")
    # What is settled is not measured again.
    resumed = run_lar("tune", "--resume", "script_0.tune", "--json", "-")
    assert resumed.returncode == 0
    count = len(found.trials)
    assert resumed.stderr.startswith(f"session: script_0.tune (goes on: {count} trials, ")
    assert " of 60 s, begun 20" in resumed.stderr
    assert lar.read_tune(resumed.stdout).trials == found.trials


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "MODEL: is missing"),
        (("gone.fake",), "gone.fake: no such file"),
        (("script_0.fake", "--allow", "everything"), "'everything' cannot be allowed; give"),
        (("script_0.fake", "--tolerance", "-1"), "'-1' is not a number from 0 on"),
        (("script_0.fake", "--resume", "x.tune"), "--resume: the session names its model"),
        (("--resume", "x.tune"), "x.tune: there is no such session"),
        (("--resume", "."), "--resume: .: is a folder; give a file name"),
        (("--resume", "x.tune", "--objective", "memory"), "without --objective"),
        (("--resume", "x.tune", "--list-space"), "--resume: goes on with a search, and measures"),
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
    assert not list(Path().glob("*.tune"))


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
    with read_session(f"{model}.tune") as session:
        assert [len(trial.rows) for trial in session.trials] == [1]


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


def test_several_models_have_a_session_each(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        write_script(times=[[0.01, 0, None]])
    done = run_lar("tune", ".", "--budget", "10", "-o", "best")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.tune")) == [
        "script_0.tune",
        "script_1.tune",
    ]
    assert sorted(path.name for path in Path("best").iterdir()) == [
        "script_0.json",
        "script_1.json",
    ]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_file_that_cannot_be_written_keeps_back_nothing_else(
    run_lar: RunLar, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[str]:
        raise LarError("no room for the model", subject="packed.fake")

    monkeypatch.setattr("lar.tuning.deployment.check_deployment", lambda space: None)
    monkeypatch.setattr("lar.tuning.deployment.write_packed", refuse)
    done = run_lar(
        *("tune", model, "--budget", "5", "-o", "/dev/full"),
        *("--packed-model-dump", "packed.fake", "--json", "all.json"),
    )
    assert done.returncode == 4
    assert any(line.startswith("fastest: ") for line in done.stdout.splitlines())
    [error, _] = done.stderr.splitlines()
    assert "--output: /dev/full: cannot be written: no space left on device" in error
    assert "packed.fake: no room for the model" in error
    assert lar.read_tune(Path("all.json").read_bytes()).winner


def test_names_that_are_given_again_are_added() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["--allow", "engine-env", "--allow", "engine-fixes,engine-env", "--engines", "a"]
    arguments = parser.parse_args([*words, "--engines", "b"])
    assert arguments.allow == ("engine-env", "engine-fixes")
    assert arguments.engines == ("a", "b")
    assert parser.parse_args([]).allow == ()
