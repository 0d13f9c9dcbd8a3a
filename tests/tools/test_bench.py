"""The bench prints one row a case, and says when a promise is missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lar.engines import engine_named

ROOT = Path(__file__).resolve().parent.parent.parent


MODEL = str(ROOT / "models" / "one_operator.mge")


def run_bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench.py"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_case_is_one_row_with_peer_promise_and_ratio() -> None:
    done = run_bench("--rounds", "1", "help")
    header, _, row = done.stdout.splitlines()
    assert header == "| what | peer | promise | measured |"
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["`lar --help`", "`python -c pass`", "under 4x"]
    assert float(cells[3].split("x")[0]) > 0
    assert done.returncode == (1 if "missed" in cells[3] else 0)


@pytest.mark.skipif(not engine_named("megengine").is_installed, reason="needs MegEngine")
def test_the_bare_script_runs_a_model() -> None:
    command = [
        sys.executable,
        str(ROOT / "tools" / "bare_run.py"),
        MODEL,
        "3",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    *times, output = done.stdout.splitlines()
    assert [line.split()[1] for line in times] == ["ms"] * 3
    assert output == "[1. 1. 1. 1.]"


def test_an_unknown_case_is_refused_with_the_known_ones() -> None:
    done = run_bench("nonsense")
    assert done.returncode == 2
    assert "one-operator" in done.stderr
