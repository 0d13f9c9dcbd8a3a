"""Copies of a model that run at once, each in a thread of its own.

One thread loads, feeds and runs a copy, so that what an engine binds to the calling thread stays
with it. Engines release Python's lock while they run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lar.measurement.loop import no_garbage_collection

T = TypeVar("T")


class Threads:
    """Several runners, each with a thread that lives as long as the process; an only one has the
    calling thread.

    Functions that are called take the runner's number.
    """

    def __init__(self, count: int) -> None:
        self._threads: list[ThreadPoolExecutor] = []
        if count > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = [ThreadPoolExecutor(1) for _ in range(count)]

    def each(self, call: Callable[[int], T]) -> list[T]:
        """Call for one runner after the other."""
        if not self._threads:
            return [call(0)]
        return [thread.submit(call, runner).result() for runner, thread in enumerate(self._threads)]

    def together(self, call: Callable[[int], T]) -> list[T]:
        """Call for all runners at the same time; the first error is raised at once."""
        from concurrent.futures import FIRST_EXCEPTION, wait
        from threading import Barrier

        barrier = Barrier(len(self._threads))

        def call_when_all_are_ready(runner: int) -> T:
            barrier.wait()
            return call(runner)

        with no_garbage_collection():  # once for all: it stops every thread
            threads = enumerate(self._threads)
            futures = [thread.submit(call_when_all_are_ready, runner) for runner, thread in threads]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises the error of one while others still run
            return [future.result() for future in futures]
