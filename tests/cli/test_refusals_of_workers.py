"""What an engine's process refuses: the model is read, and nothing is measured."""

from __future__ import annotations

from pathlib import Path

from tests.cli.failures import refuse
from tests.cli.marks import each_of


@each_of("refusals_of_workers.txt")
def test_a_worker_refuses_before_it_measures(
    place: Path, command: str, parts: list[str], code: int
) -> None:
    assert "iter " not in refuse(place, command, parts, code).stdout
