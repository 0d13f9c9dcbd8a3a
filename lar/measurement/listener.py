"""The callbacks of a run: events, samples, the engine's log."""

from __future__ import annotations

from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import RunResult


class Listener:
    """Receives what happens while a run goes on; each method may be overridden.

    Nothing is passed on while there is no room, so only `has_room` may ever wait.

    `report_seconds` is what reporting an iteration afterwards takes, on an idle machine: it counts
    towards the time limit too.
    """

    report_seconds = 3e-6

    def has_room(self, seconds: float) -> bool:
        """Return whether more can be passed on now, after waiting up to that long."""
        return True

    def on_event(self, event: Event, result: RunResult) -> None:
        """An event came; `result` has it already."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        """Rows from `first` up to, not including, `last` are new."""

    def on_log(self, text: bytes) -> None:
        """The engine printed something."""

    def on_progress(self, text: str, elapsed: float) -> None:
        """A long preparation has come so far, after that many seconds; no text: it is over."""
