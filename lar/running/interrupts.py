"""Ctrl-C and its like: what ends a run from outside, and when it may."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Interrupts that follow one by less count as the same one.
IMPATIENCE_SECONDS = 2.0
# Some code drops an exception: Python while it frees an object, libraries in C while they import
# others (or they take it for a missing library), msgspec while it looks a type up. Other code loses
# what it was about to do: the end of a stack, which kills workers and removes folders. An interrupt
# is raised after that.
AGAIN_SECONDS = 0.01
STACK_END = contextlib.ExitStack.__exit__.__code__


class Hold:
    """How many things the main thread does that an interrupt waits for, and whether one waits."""

    depth = 0
    waits = False


def heed_interrupts() -> None:
    """Have each of them raise KeyboardInterrupt, so that a worker is killed and what was measured
    is reported.

    A second one right after the first loses nothing that the first one keeps.
    """
    last = float("-inf")

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        is_recent = now - last < IMPATIENCE_SECONDS
        if signal_number != signal.SIGALRM:
            if is_recent:
                return
            last, is_recent = now, True
        if Hold.depth:
            Hold.waits = True
        elif is_recent and would_do_harm(frame):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
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


def would_do_harm(frame: FrameType | None) -> bool:
    """Return whether an exception may be dropped at this place of the process, or stop what must
    be done: a module is imported there, a type of `typing` is compared with others, or a stack
    ends."""
    while frame is not None:
        is_import = frame.f_code.co_filename.startswith("<frozen importlib")
        if is_import or frame.f_globals.get("__name__") == "typing" or frame.f_code is STACK_END:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have interrupts wait until something is done whole; it must be short."""
    import threading  # the help does not need it

    if threading.current_thread() is not threading.main_thread():
        yield  # they are raised in the main thread
        return
    # The system hands signals that the main thread blocks to another thread, and then Python
    # interrupts the main thread all the same: `heed_interrupts` looks at the hold. With another
    # handler, blocking is all that can be done.
    depth = Hold.depth
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        Hold.depth = depth + 1
        signal.pthread_sigmask(signal.SIG_BLOCK, (*INTERRUPTS, signal.SIGALRM))
        yield
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        finally:
            Hold.depth = depth
        if depth == 0 and Hold.waits:
            Hold.waits = False
            raise KeyboardInterrupt
