"""The tool that measures what `lar tune` finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bench_tune
import pytest
from figures import Outcome

from lar.records.run import RunResult, RunSpec
from lar.results.store import open_store


def test_a_figure_is_one_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = bench_tune.FIGURES[5]._replace(measure=lambda settings: Outcome("9", False))
    monkeypatch.setattr(bench_tune, "FIGURES", (figure,))
    monkeypatch.setattr("sys.argv", ["bench_tune.py", "kills", "--count", "2"])
    assert bench_tune.main() == 1
    *_, row = capsys.readouterr().out.splitlines()
    assert row.split(" | ")[1:] == ["the same choices, nothing twice", "2", "9 (missed) |"]


def test_what_is_made_again_is_counted(tmp_path: Path) -> None:
    spec = RunSpec(model="m", engine="fake", driver="script")
    failed = RunResult(spec=spec, status="crashed", phase="start")
    with open_store(str(tmp_path / "s"), create=True) as store:
        for number in range(3):
            store.add([replace(failed, status="ok")], f"round {number}: plain")
            store.add([failed], f"round {number}: {'a' if number else 'b'}")
    assert bench_tune.count_repeated(str(tmp_path / "s")) == 1
