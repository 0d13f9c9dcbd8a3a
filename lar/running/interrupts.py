"""Ctrl-C and its like: what ends a run from outside, and when it may."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Interrupts that follow one by less count as the same one.
IMPATIENCE_SECONDS = 2.0
# Python drops an exception that is raised while it frees an object; then it is raised again.
AGAIN_SECONDS = 0.001


def heed_interrupts() -> None:
    """Have each of them raise KeyboardInterrupt, so that a worker is killed and what was measured
    is reported.

    Those who press it again at once do not lose what the first one keeps.
    """
    last = -math.inf

    def interrupt(signal_number: int, frame: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > IMPATIENCE_SECONDS or signal_number == signal.SIGALRM:
            raise KeyboardInterrupt

    def raise_again(dropped: Any) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            sys.__unraisablehook__(dropped)

    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
            signal.signal(number, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = raise_again


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have interrupts wait until something is done whole; it must be short."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
