"""`lar advise MODEL`: a profile, what it says, and what its suggestions give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_report_try import script
from tests.conftest import RunLar, WriteScript


def test_a_model_is_profiled_and_what_is_suggested_is_tried(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    model = script(write_script, {"ioc16": 0.6, "nchw88": 0.4})
    before = set(tmp_path.rglob("*"))
    done = run_lar("advise", model, "--iter", "3", "--seed", "0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *said, empty = done.stdout.splitlines()[: done.stdout.splitlines().index("") + 1]
    rest = done.stdout.splitlines()[len(said) + 1 :]
    assert said[0].startswith("time     10.000 ms an iteration (median of 3 ")
    assert not empty
    assert rest[0] == "1. the script takes 60.0% of an iteration; have it take less: --enable-ioc16"
    assert rest[-1] == "best: --enable-nchw88, 2.00 times as fast, outputs equal bit by bit"
    assert set(tmp_path.rglob("*")) == before  # no profile is left


def test_its_flags_are_those_of_the_run(run_lar: RunLar, write_script: WriteScript) -> None:
    model = script(write_script, {"ioc16": 0.6, "nchw88": 0.4})
    done = run_lar("advise", model, "--enable-nchw88", "--iter", "2", "--budget", "1")
    assert done.returncode == 0
    assert done.stdout.startswith("time     5.000 ms an iteration (median of 2 ")
    assert "--enable-ioc16" in done.stdout
    assert "--enable-nchw88" not in done.stdout


def test_where_nothing_is_suggested_the_paragraph_says_so(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    done = run_lar("advise", script(write_script, {}))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("time     10.000 ms an iteration (median of 20 ")
    assert "\ntry      no setting stands out" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--iter", "0"], "--iter: nothing would be profiled\nhint: give 1 or more\n"),
        (["--budget", "x"], "--budget"),
        (["--input", "none.npy"], "none.npy: no such file"),
    ],
)
def test_what_cannot_be_profiled_is_refused(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, words: list[str], said: str
) -> None:
    done = run_lar("advise", script(write_script, {}), *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_model_that_crashes_ends_as_its_run(run_lar: RunLar, write_script: WriteScript) -> None:
    model = write_script(faults=[{"at": "load", "do": "abort"}])
    done = run_lar("advise", model)
    assert (done.returncode, done.stdout) == (4, "")
    assert "SIGABRT" in done.stderr.splitlines()[0]
