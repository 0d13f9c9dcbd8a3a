"""A run whose engine dies, hangs, is interrupted or lacks memory ends with the right exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lar
from tests.cli.failures import check_error, run_limited, run_until
from tests.cli.marks import each_format, needs_megengine
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import needs_proc
from tests.tables import each_row

# Workers that die


@each_row("cli/cases/workers that die")
def test_worker_that_dies(
    write_script: WriteScript, tmp_path: Path, do: str, pieces: list[str]
) -> None:
    script = write_script(
        prints="engine: my last words", faults=[{"at": "start", "index": 2, "do": do}]
    )
    report = tmp_path / "report.json"
    done = run_lar(script, "--iter", "5", "--json", str(report))
    check_error(done, 4, *pieces)
    assert "the engine's last words:\n  | engine: my last words\n" in done.stderr
    assert "engine: my" not in done.stdout
    assert "iter 0/5: " in done.stdout
    result = lar.read_result(report.read_bytes())
    assert result.status == ("failed" if do in ("raise", "memory") else "crashed")
    assert len(result.samples.end_to_end) == 1
    # What did not finish is not called finished.
    assert "=== finished test" not in done.stdout


def test_the_time_limit_is_for_the_information_about_the_model_too(
    write_script: WriteScript,
) -> None:
    done = run_lar(write_script(), "--model-info", "--timeout", "0.0001")
    check_error(done, 124, "timed out after 0.0001 s")
    assert done.stdout == ""


def test_worker_that_floods(write_script: WriteScript) -> None:
    faults = [{"at": "start", "index": 1, "do": "flood"}]
    done = run_lar(write_script(faults=faults), "--iter", "2", code=0)
    assert "noise" not in done.stdout + done.stderr
    faults += [{"at": "start", "index": 1, "do": "abort"}]
    done = run_lar(write_script(faults=faults), "--iter", "2")
    check_error(done, 4, "SIGABRT")
    assert 0 < done.stderr.count("engine noise") < 200


@each_format
@needs_proc
def test_real_worker_killed(suffix: str) -> None:
    def kill(process: subprocess.Popen[str]) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)

    words = [f"models/dynamic_batch.{suffix}", "--iter", "1000000"]
    check_error(run_until(words, "iter ", kill), 4, "crashed in phase iterations", "SIGKILL")


# Memory


@pytest.mark.skipif(sys.platform != "linux", reason="address space is not limited elsewhere")
@pytest.mark.parametrize(
    ("suffix", "kibibytes", "rows", "fill"),
    [
        ("onnx", 1_200_000, 5_000_000, "zeros"),  # in the engine
        ("onnx", 1_200_000, 50_000_000, "uniform"),  # while data is generated
        pytest.param("mge", 2_800_000, 4_000_000, "zeros", marks=needs_megengine),
        pytest.param("mge", 2_800_000, 50_000_000, "uniform", marks=needs_megengine),
    ],
)
def test_memory_that_runs_out(suffix: str, kibibytes: int, rows: int, fill: str) -> None:
    began = time.monotonic()
    model, shape = f"models/dynamic_batch.{suffix}", f"{{{rows},16}}"
    done = run_limited(kibibytes, model, "--input", shape, "--fill", fill)
    assert done.returncode in (2, 4)
    check_error(done, done.returncode, "memory")
    assert time.monotonic() - began < 30


@each_format
def test_input_larger_than_the_machine(suffix: str) -> None:
    for rows in (10**12, 10**17):
        done = run_lar(f"models/dynamic_batch.{suffix}", "--input", f"{{{rows},16}}", cwd=ROOT)
        check_error(done, 2, "--input: ", "memory")
