"""A tool's figures are rows of a table, and a promise that is missed is an exit code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from figures import TABLE, Figures, Outcome, Settings, limit_of
from processes import PEERS, cost_of

from tests.cli.marks import needs_megengine
from tests.command_lines import run_program, run_python
from tests.tables import each_row

# Their imports take longest.
ALL_TOOLS = """
import contextlib, runpy, sys
sys.path.insert(0, "tools")
for name in sys.argv[1:]:
    sys.argv = [name, "nonsense"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(f"tools/{name}.py", run_name="__main__")
"""


def run_figures(
    figures: Figures,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> tuple[int, list[str]]:
    """Return the exit code, and the lines below the head of the table."""
    monkeypatch.setattr("sys.argv", ["a tool", *words])
    code = figures.main("Measures.")
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| what | wanted | repetitions | measured |"
    return code, rows


def test_a_figure_is_a_row_and_what_failed_stands_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = Figures("declared", table=Path("tests/tools/cases.json"), made=["sys"])
    asked: list[Settings] = []

    @figures.row("one")
    def measure(settings: Settings) -> Outcome:
        asked.append(settings)
        return Outcome("3 of 7", False, ("a case",))

    figures.versus("two", lambda: 3.0, lambda: 2.0)
    code, rows = run_figures(figures, monkeypatch, capsys, "--count", "2", "--only", "x")
    assert code == 1
    assert rows[0].startswith("| a process | under 900 s | 2 | ")
    assert rows[1] == "| what it is | all | 2 | 3 of 7 (missed) |"
    assert rows[2] == "| a side, to itself | under 2x | 2 | 1.50x |"
    assert rows[-2:] == ["not as wanted:", "a case"]
    assert (asked[0].repetitions, asked[0].only, asked[0].seed) == (2, "x", 1)
    code, rows = run_figures(figures, monkeypatch, capsys, "two")
    assert (code, rows) == (0, ["| a side, to itself | under 2x | 3 | 1.50x |"])
    with pytest.raises(SystemExit):
        run_figures(figures, monkeypatch, capsys, "nonsense")
    assert "no figure nonsense; figures: three, one, two" in capsys.readouterr().err


def test_a_command_has_its_cost() -> None:
    code = "import subprocess, sys, time; x = bytearray(50_000_000); y = x.copy(); time.sleep({})"
    child = f"subprocess.run([sys.executable, '-c', {code.format(0.5)!r}])"
    cost = cost_of(sys.executable, "-c", f"{code.format(0)}; {child}")
    assert cost.seconds > 0.5
    assert 0 < cost.cpu_seconds < cost.seconds
    assert 100e6 < cost.largest < 200e6
    assert 200e6 < cost.together < 300e6


def test_every_tool_lists_its_figures() -> None:
    tools = ["bench", "bench_dumps", "bench_farm", "bench_reports"]
    done = run_python("-c", ALL_TOOLS, *tools, code=0)
    said = re.findall("no figure nonsense; figures: (.+)", done.stderr)
    for name, figures in zip(tools, said, strict=True):
        assert set(json.loads(TABLE.read_text())[name]) <= set(figures.split(", "))


@needs_megengine
def test_the_bare_script_runs_a_model() -> None:
    done = run_program(*PEERS, "run", "models/one_operator.mge", "3", code=0)
    *times, output = done.stdout.splitlines()
    assert [line.split()[1] for line in times] == ["ms"] * 3
    assert output == "[1. 1. 1. 1.]"


@each_row("tools/cases/promises")
def test_a_promise_is_read(wanted: str, shown: str, holds: bool) -> None:
    limit = limit_of(wanted)
    value = limit.compare(50e-6, 48e-6)
    assert limit.shown.format(value) == shown
    assert (limit.low < value < limit.high) == holds
