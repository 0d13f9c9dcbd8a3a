"""The tool that measures what `lar tune` finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bench_tune

from lar.records.run import RunResult, RunSpec
from lar.results.store import open_store


def test_what_is_made_again_is_counted(tmp_path: Path) -> None:
    spec = RunSpec(model="m", engine="fake", driver="script")
    failed = RunResult(spec=spec, status="crashed", phase="start")
    with open_store(str(tmp_path / "s"), create=True) as store:
        for number in range(3):
            store.add([replace(failed, status="ok")], f"round {number}: plain")
            store.add([failed], f"round {number}: {'a' if number else 'b'}")
    assert bench_tune.count_repeated(str(tmp_path / "s")) == 1
