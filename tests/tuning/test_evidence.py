"""The objectives of a search: one number for each process."""

from __future__ import annotations

import pytest

from lar.records.goals import Objective
from lar.records.run import RunResult, RunSpec, Samples
from lar.tuning.evidence import score_of
from tests.tables import each_row


@each_row("tuning/cases/objectives")
def test_an_objective_is_one_number_of_a_process(
    objective: Objective,
    measured: list[list[float]],
    copies: list[int],
    memory: int | None,
    score: float | None,
) -> None:
    """Three undisturbed iterations are too few: then all iterations count."""
    samples = Samples(end_to_end=measured[0], queue_delay=measured[1], runner=tuple(copies))
    spec = RunSpec(model="net", engine="e", driver="d")
    found = RunResult(
        spec=spec, status="ok", phase="done", samples=samples, peak_memory_bytes=memory
    )
    assert score_of(objective, found) == (None if score is None else pytest.approx(score))
