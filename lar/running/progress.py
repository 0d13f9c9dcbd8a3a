"""The progress of a long preparation, as the engine reports it: the search of its algorithms."""

from __future__ import annotations

import time

from lar.engines import engine_named
from lar.measurement.listener import Listener
from lar.records.run import RunContext, RunSpec

# What is soon over is not worth a line.
PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 1.0
# What was found is kept so often. It takes some milliseconds, beside what is measured.
KEEPING_SECONDS = 5.0


class Progress:
    """Asks the engine now and then for its progress, for the listener, and has it kept."""

    def __init__(self, spec: RunSpec, context: RunContext, listener: Listener) -> None:
        self.spec, self.context, self.listener = spec, context, listener
        self.engine = engine_named(spec.engine)
        self.began = time.monotonic()
        self.due = self.began + PATIENCE_SECONDS
        self.due_to_keep = self.began + KEEPING_SECONDS
        self.reported = False

    def report(self) -> None:
        """Ask for the progress and report it, if it is time to."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + INTERVAL_SECONDS
        text = self.engine.describe_progress(self.spec, self.context)
        if text and now >= self.due_to_keep:
            self.due_to_keep = now + KEEPING_SECONDS
            self.engine.keep_progress(self.spec, self.context)
        if text:
            self.listener.on_progress(text, now - self.began)
            self.reported = True

    def end(self) -> None:
        """Report the end, if any progress was reported before."""
        if self.reported:
            self.reported = False
            self.listener.on_progress("", time.monotonic() - self.began)
