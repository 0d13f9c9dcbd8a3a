"""Tells how far a long preparation is, as the engine tells: the search of its algorithms."""

from __future__ import annotations

import time
from collections.abc import Callable

from lar.measurement.listener import Listener
from lar.records.run import RunSpec

# What is soon over is not worth a word.
PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 1.0

Ask = Callable[[RunSpec], str]


class Progress:
    """Asks now and then how far a run is, and tells the listener."""

    def __init__(self, spec: RunSpec, ask: Ask | None, listener: Listener) -> None:
        self.spec, self.ask, self.listener = spec, ask, listener
        self.began = time.monotonic()
        self.due = self.began + PATIENCE_SECONDS
        self.told = False

    def tell(self) -> None:
        """Ask and tell, if it is time to."""
        now = time.monotonic()
        if self.ask is None or now < self.due:
            return
        self.due = now + INTERVAL_SECONDS
        text = self.ask(self.spec)
        if text:
            self.listener.on_progress(text, now - self.began)
            self.told = True

    def end(self) -> None:
        """Say that it is over, if there was anything to say before."""
        if self.told:
            self.told = False
            self.listener.on_progress("", time.monotonic() - self.began)
