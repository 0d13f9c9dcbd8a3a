"""Runs that end well, and what is said of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lar
from lar.records.run import Failure, RunResult


def run_ok(model: str | Path, inputs: Any = None, **options: Any) -> RunResult:
    """Run a model from Python; the run ends well."""
    result = lar.run(model, inputs, **options)
    assert result.status == "ok", result.failure
    return result


def failure_of(result: RunResult, code: int | None = None) -> Failure:
    """Return why a run failed; with this exit code, if one is given."""
    assert result.failure is not None
    assert code in (None, result.failure.exit_code), result.failure.message
    return result.failure
