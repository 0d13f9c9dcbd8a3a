"""`lar tune MODEL --algorithms CACHE`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.errors import EXIT_CODES
from lar.records.algorithms import AlgorithmsResult
from lar.records.run import Failure
from lar.tuning import algorithms
from lar.tuning.algorithms import AlgorithmsProgress
from tests.conftest import RunLar

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"
MODEL = REPOSITORY / "models" / "digits_cnn.mge"
RESULT = AlgorithmsResult(
    model=None, caches=("a.cache",), output="a.cache", ending="settled", reason="of this"
)


class Timed:
    """Stands for the timing: what it was asked for, and what it gives."""

    def __init__(self) -> None:
        self.result = RESULT
        self.asked: dict[str, Any] = {}

    def __call__(self, model: str, caches: list[str], **asked: Any) -> AlgorithmsResult:
        self.asked = {"model": model, "caches": caches, **asked}
        asked["report"](AlgorithmsProgress("timing", 2, 3, 9, 1, 5.5))
        return self.result


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Timed:
    found = Timed()
    monkeypatch.setattr(algorithms, "tune_algorithms", found)
    return found


def test_what_is_found_is_printed_and_written(
    run_lar: RunLar, timed: Timed, tmp_path: Path
) -> None:
    place = tmp_path / "out.json"
    done = run_lar(
        *("tune", "m.mge", "--algorithms", "a.cache", "--algorithms", "b.cache"),
        *("-o", "c.cache", "--budget", "30", "--enable-nchw44", "--json", str(place)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "a.cache is not changed: of this"
    assert json.loads(place.read_text())["format"] == "lar.algorithms/1"
    asked = {key: value for key, value in timed.asked.items() if value and key != "report"}
    assert asked == {
        "model": "m.mge",
        "caches": ["a.cache", "b.cache"],
        "output": "c.cache",
        "budget_seconds": 30.0,
        "enable_nchw44": True,
    }


def test_json_on_standard_output_stands_alone(run_lar: RunLar, timed: Timed) -> None:
    done = run_lar("tune", "m.mge", "--algorithms", "a.cache", "--json", "-")
    assert json.loads(done.stdout)["reason"] == "of this"


def test_exit_codes(run_lar: RunLar, timed: Timed) -> None:
    words = ("tune", "m.mge", "--algorithms", "a.cache")
    timed.result = replace(RESULT, ending="failed", failure=Failure("it crashed", exit_code=4))
    done = run_lar(*words)
    assert (done.returncode, "it crashed" in done.stderr) == (4, True)
    timed.result = replace(RESULT, ending="interrupted")
    assert run_lar(*words).returncode == EXIT_CODES["interrupted"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algorithms", "a"), "--algorithms: takes one model, and 0 are given"),
        (("m", "n", "--algorithms", "a"), "--algorithms: takes one model, and 2 are given"),
        (("m", "--algorithms", "a", "--space", "full"), "--space: is for a search for settings"),
        (("m", "--algorithms", "a", "--save"), "--save: is for a search for settings"),
        (("m", "--algorithms", "a", "--resume", "x"), "--resume: is for a search for settings"),
    ],
)
def test_mistakes_are_refused(run_lar: RunLar, words: tuple[str, ...], message: str) -> None:
    done = run_lar("tune", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_file_that_is_no_cache_is_not_replaced(run_lar: RunLar, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("notes")
    done = run_lar("tune", str(MODEL), "--algorithms", str(CACHE), "-o", str(notes))
    assert done.returncode == 2
    assert "notes.txt: is not a fast-run cache" in done.stderr
    assert notes.read_text() == "notes"


def test_an_engine_that_measures_no_algorithms_is_named(run_lar: RunLar) -> None:
    done = run_lar("tune", str(MODEL.with_suffix(".onnx")), "--algorithms", str(CACHE))
    assert done.returncode == 2
    assert "ONNX Runtime measures no algorithms" in done.stderr
