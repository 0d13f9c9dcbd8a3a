"""The callbacks that a run makes: for events, samples, the engine's log and progress."""

from __future__ import annotations

import time

from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import RunResult

Rows = SampleRows
"""The type of the samples that a listener receives."""


class Listener:
    """Receives the events, samples and log of a run; a subclass may override each method.

    The run asks `has_room` before it calls another method, so only `has_room` may wait.
    `report_seconds` is the time that it takes to report an iteration after the run, on an idle
    machine. This time counts towards the time limit.
    """

    report_seconds = 3e-6

    def has_room(self, seconds: float) -> bool:
        """Wait up to `seconds`, and return whether the listener can take more."""
        return True

    def on_event(self, event: Event, result: RunResult) -> None:
        """Receive an event, which `result` contains already."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        """Receive new rows: from `first` up to, not including, `last`."""

    def on_log(self, text: bytes) -> None:
        """Receive text that the engine printed."""

    def on_progress(self, text: str, elapsed: float) -> None:
        """Receive the progress of a long preparation, as a text, after `elapsed` seconds."""


class SideListener(Listener):
    """Passes on the log and the progress of a side run, such as a search before the run.

    Other events are dropped: the receiver would take them for events of the run itself.
    """

    def __init__(self, shown: Listener) -> None:
        self.shown = shown
        self.began = time.monotonic()

    def on_log(self, text: bytes) -> None:
        self.shown.on_log(text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.shown.on_progress(text, elapsed)
