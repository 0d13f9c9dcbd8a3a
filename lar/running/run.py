"""A run on its way through the steps of the parent process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lar.measurement.listener import Listener
from lar.records.run import RunContext, RunSpec
from lar.running.worker_process import WorkerProcess


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: what was asked for, what the parent adds for the worker, how the run is made.

    Each step takes one and may hand a changed one to the next. `worker` was started for the run
    beforehand; without one it is started when it is needed, or the run is made in this process.
    Dumps may `overwrite` others, and a data set may `resume` an earlier run's. The time limit
    counts from `began` on the monotonic clock. `facts` are fields of the result that are known
    beforehand.
    """

    spec: RunSpec
    context: RunContext = field(default_factory=RunContext)
    listener: Listener = field(default_factory=Listener)
    worker: WorkerProcess | None = None
    in_process: bool = False
    overwrite: bool = False
    resume: bool = False
    began: float = field(default_factory=time.monotonic)
    facts: Mapping[str, Any] | None = None

    @property
    def deadline(self) -> float | None:
        """The end of the time limit, on the monotonic clock."""
        limit = self.spec.timeout_seconds
        return None if limit is None else self.began + limit
