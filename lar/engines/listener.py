"""The callbacks of a run: events, samples, the engine's log."""

from __future__ import annotations

import time

from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import RunResult

Rows = SampleRows
"""The samples that a listener gets."""


class Listener:
    """Receives what happens during a run; each method may be overridden.

    Nothing is passed on without room, so only `has_room` may wait. `report_seconds` is how long
    reporting an iteration takes later, on an idle machine: it counts towards the time limit too.
    """

    report_seconds = 3e-6

    def has_room(self, seconds: float) -> bool:
        """Return whether more can be passed on, after a wait of up to `seconds`."""
        return True

    def on_event(self, event: Event, result: RunResult) -> None:
        """An event came; `result` contains it already."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        """Rows from `first` up to, not including, `last` are new."""

    def on_log(self, text: bytes) -> None:
        """The engine printed something."""

    def on_progress(self, text: str, elapsed: float) -> None:
        """A long preparation has come so far, after that many seconds."""


class SideListener(Listener):
    """Passes on the log and the progress of a run that is made beside the one that is asked for;
    its other events would be taken for those of that one."""

    def __init__(self, shown: Listener) -> None:
        self.shown = shown
        self.began = time.monotonic()

    def on_log(self, text: bytes) -> None:
        self.shown.on_log(text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.shown.on_progress(text, elapsed)
