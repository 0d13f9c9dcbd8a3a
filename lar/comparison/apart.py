"""Runs a function in a copy of this process, while this process goes on."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar

from lar.dumps import keep_freed

T = TypeVar("T")


@contextlib.contextmanager
def work_apart(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Begin work in a copy of this process; yield a function that waits for the result.

    If no copy can be made, or the copy ends without a result, the yielded function does the work in
    this process. A process with several threads is not copied, since a copy has only one thread.
    """
    receiving, sending = os.pipe()
    copy = -1
    with contextlib.suppress(OSError, AttributeError):  # too many processes, or another system
        if len(os.listdir("/proc/self/task")) == 1 < len(os.sched_getaffinity(0)):
            keep_freed()
            copy = os.fork()
    if copy == 0:
        try:
            with os.fdopen(sending, "wb") as file:
                file.write(pickle.dumps(work()))
        finally:
            os._exit(0)  # after any error too: the other process then does the work
    os.close(sending)
    try:
        with os.fdopen(receiving, "rb") as file:
            yield lambda: pickle.loads(sent) if (sent := file.read()) else work()
    finally:
        if copy > 0:
            os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
