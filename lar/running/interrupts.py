"""Handles Ctrl-C and other signals that end a run, and delays them where they would do harm."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# An interrupt that follows another within this time counts as the same interrupt.
IMPATIENCE_SECONDS = 2.0
# Some code drops an exception: Python while it frees an object, C libraries while they import other
# libraries (some take the exception for a missing library), msgspec while it looks up a type. Other
# code would not finish its work: the end of an ExitStack, which kills workers and removes folders.
# In such code, an interrupt has no effect, and is raised again after this time.
AGAIN_SECONDS = 0.01
STACK_END = contextlib.ExitStack.__exit__.__code__


class Hold:
    """Counts the nested blocks that delay interrupts, and records if an interrupt is delayed."""

    depth = 0
    waits = False


def heed_interrupts() -> None:
    """Make each signal in `INTERRUPTS` raise KeyboardInterrupt.

    When KeyboardInterrupt is raised, lar kills the worker and reports the results so far. A second
    signal right after the first is ignored, so that no result is lost.
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

    def raise_again(dropped: sys.UnraisableHookArgs) -> None:
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
    """Return whether an exception in this frame would be lost, or would stop necessary work.

    An exception would do harm while Python imports a module, compares a type of `typing`, or closes
    an ExitStack.
    """
    while frame is not None:
        is_import = frame.f_code.co_filename.startswith("<frozen importlib")
        if is_import or frame.f_globals.get("__name__") == "typing" or frame.f_code is STACK_END:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay interrupts until the block has ended; the block must be short."""
    import threading  # the help does not need it

    if threading.current_thread() is not threading.main_thread():
        yield  # Python raises interrupts in the main thread
        return
    # Blocking signals in the main thread is not enough: the system delivers them to another thread,
    # and then Python interrupts the main thread anyway. So the handler of `heed_interrupts` checks
    # the hold. With another handler, blocking is all that can be done.
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
