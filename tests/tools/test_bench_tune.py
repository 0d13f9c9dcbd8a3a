"""The tool that measures what `lar tune` finds."""

from __future__ import annotations

import json
from pathlib import Path

import bench_tune
import pytest
from figures import Outcome


def test_a_figure_is_one_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = bench_tune.FIGURES[3]._replace(measure=lambda settings: Outcome("9", False))
    monkeypatch.setattr(bench_tune, "FIGURES", (figure,))
    monkeypatch.setattr("sys.argv", ["bench_tune.py", "kills", "--count", "2"])
    assert bench_tune.main() == 1
    *_, row = capsys.readouterr().out.splitlines()
    assert row.split(" | ")[1:] == ["the same ranking, nothing twice", "2", "9 (missed) |"]


def test_the_script_is_gone_afterwards() -> None:
    with bench_tune.landscape() as path:
        assert json.loads(Path(path).read_text())["outputs"]
    assert not Path(path).parent.exists()
