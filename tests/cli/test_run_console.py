"""What a run prints while it goes on."""

from __future__ import annotations

import io

import pytest

from lar.cli import run_console
from lar.cli.run_console import LinePrinter
from lar.measurement.rows import NAN, SampleRows
from lar.records.run import Item, RunResult, RunSpec, Status
from tests.command_lines import run_lar
from tests.conftest import WriteScript


@pytest.mark.parametrize(
    ("iterations", "warmups", "rows", "done"),
    [(1, 0, 1, 1), (1, 2, 2, 0), (1, 2, 5, 3), (2, 0, 3, 1), (2, 1, 5, 2), (0, 1, 1, 0)],
)
def test_items_done_are_counted_by_their_iterations(
    iterations: int, warmups: int, rows: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec(
        model="m",
        engine="fake",
        driver="script",
        iterations=iterations,
        warmup_iterations=warmups,
        items=tuple(Item(number=number, name=str(number)) for number in range(4)),
    )
    printer = LinePrinter(spec, io.StringIO(), may_fail=False)
    shown: list[str] = []
    monkeypatch.setattr(printer.progress, "show", lambda text, elapsed: shown.append(text))
    table = SampleRows.anonymous(rows)
    for _ in range(rows):
        table.append(0.1, 0.1, NAN, NAN)
    result = RunResult(spec=spec, status="ok", phase="iterations", lar_version="", started_at="")
    printer.on_rows(table, 0, rows, result)
    assert shown == [f"{done} of 4 items"]
    assert printer.printed_rows == rows


def test_a_run_without_trouble_prints_no_note_and_no_hint_but_the_engines(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_lar(write_script(), "--iter", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if "hint" in line or "note" in line] == []
    monkeypatch.setattr("lar_scripted.FakeEngine.hints_for", lambda *_: "a word", raising=False)
    assert run_lar(write_script(), "--iter", "1").stderr == "hint: a word\n"


@pytest.mark.parametrize(
    ("status", "warned"),
    [("ok", False), ("failed", False), ("interrupted", True), ("timed_out", True)],
)
def test_a_run_that_ended_early_waits_shortly_for_its_reader_any_other_to_the_end(
    status: Status,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = RunSpec(model="m", engine="fake", driver="script")
    printer = LinePrinter(spec, io.StringIO(), may_fail=False)
    rooms = iter([False, False, False, True])
    monkeypatch.setattr(run_console, "LAST_SECONDS", 0)
    monkeypatch.setattr(printer, "has_room", lambda seconds: next(rooms))
    printer.finish(
        RunResult(spec=spec, status=status, phase="iterations", lar_version="", started_at="")
    )
    assert ("nobody reads the rest" in capsys.readouterr().err) == warned
