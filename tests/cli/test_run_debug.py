"""What --debug shows of an error, and lar's own breakdowns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.failures import check_error, shim
from tests.command_lines import run_lar
from tests.conftest import WriteScript


def test_debug_shows_the_traceback(write_script: WriteScript) -> None:
    scripts = {
        "nope.fake": 2,
        write_script(faults=[{"at": "load", "do": "raise"}]): 2,
        write_script(faults=[{"at": "feed", "do": "raise"}]): 4,
        write_script(faults=[{"at": "load", "do": "memory"}]): 4,
    }
    for script, code in scripts.items():
        done = run_lar(script, "--debug", code=code)
        assert "Traceback (most recent call last):" in done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("lar: error: ")]
        assert len(errors) == 1
        check_error(run_lar(script), code)


def test_debug_of_the_worker(write_script: WriteScript) -> None:
    script = write_script(faults=[{"at": "start", "do": "raise"}])
    assert "in fail\n" in run_lar(script, "--debug").stderr
    Path(script).write_text("{")
    assert "in read_script\n" in run_lar("info", script, "--debug").stderr


@pytest.mark.parametrize("words", [["run"], ["info"]])
def test_error_in_lar_itself(tmp_path: Path, write_script: WriteScript, words: list[str]) -> None:
    environment = shim(tmp_path)
    with (tmp_path / "sitecustomize.py").open("a") as file:
        file.write(
            "\nimport lar.running.worker_process as process\n"
            "process.WorkerProcess = lambda *a: 1 / 0\n"
        )
    done = run_lar(*words, write_script(), env=environment)
    check_error(done, 4, "division by zero", "--debug")
    done = run_lar(*words, write_script(), "--debug", env=environment, code=4)
    assert "Traceback" in done.stderr
