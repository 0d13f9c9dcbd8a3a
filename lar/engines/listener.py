"""The functions that a run calls to report its progress: for events, samples, logs and messages."""

from __future__ import annotations

import time

from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import RunResult

Rows = SampleRows
"""The type of the samples that a listener receives."""


class Listener:
    """Receives the events, the samples and the log of a run; subclasses override its methods.

    A run calls `has_room` before it calls any other method of the listener. Only `has_room` may
    wait. `report_seconds` is the time that reporting one iteration takes after the run, on an idle
    machine. A run with a time limit reserves `report_seconds` for each iteration, so that the
    report is finished within the limit.
    """

    report_seconds = 3e-6

    def has_room(self, seconds: float) -> bool:
        """Wait up to `seconds`, and return whether the listener can receive more events."""
        return True

    def on_event(self, event: Event, result: RunResult) -> None:
        """Receive an event; `result` already contains the facts of this event."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        """Receive the new rows with the indices from `first` to `last` - 1."""

    def on_log(self, text: bytes) -> None:
        """Receive text that the engine printed."""

    def on_progress(self, text: str, elapsed: float) -> None:
        """Receive a text about a long preparation, which began `elapsed` seconds ago."""


class SideListener(Listener):
    """A listener for a run that prepares the main run, such as a search.

    This listener passes on the log and the progress to the listener of the main run. This listener
    drops the events and samples of its run, since the listener of the main run would take them for
    events and samples of the main run.
    """

    def __init__(self, shown: Listener) -> None:
        self.shown = shown
        self.began = time.monotonic()

    def on_log(self, text: bytes) -> None:
        self.shown.on_log(text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.shown.on_progress(text, elapsed)
