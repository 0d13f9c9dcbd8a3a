"""A run in the process that asks for it."""

from __future__ import annotations

from collections.abc import Callable

from lar.measurement.listener import Listener
from lar.measurement.rows import SampleRows
from lar.records.run import RunContext, RunResult
from lar.running.in_process import run_here
from lar.running.plan import plan_run


def test_every_iteration_is_shown_once_and_in_order(write_script: Callable[..., str]) -> None:
    shown: list[float] = []

    class Rows(Listener):
        def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
            shown.extend(rows.end_to_end(first)[: last - first])

    script = write_script(times=[[seconds, 0.25, None] for seconds in (0.5, 0.75, 1.0)])
    spec = plan_run(script, {"iter": 2, "warmup_iter": 1})
    result = run_here(spec, RunContext(), Rows())
    assert result.status == "ok"
    assert shown == [0.5, 0.75, 1.0]
    assert (result.warmup.end_to_end, result.samples.end_to_end) == ((0.5,), (0.75, 1.0))
