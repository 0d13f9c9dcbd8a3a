"""Ctrl-C and its like: what ends a run from outside, and when it may."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Interrupts that follow one by less are taken for the same.
IMPATIENCE_SECONDS = 2.0


def heed_interrupts() -> None:
    """Have each of them end this process as Ctrl-C does, so that a worker is killed and what was
    measured is told.

    Those who press it again at once do not lose what the first one keeps.
    """
    last = -math.inf

    def interrupt(signal_number: int, frame: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > IMPATIENCE_SECONDS:
            raise KeyboardInterrupt

    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has set SIGHUP to be ignored
            signal.signal(number, interrupt)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have interrupts wait until something is done whole; it must be short."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
