"""Workers that are alive at once, of which one computes at a time."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from lar.errors import OutOfTime
from lar.measurement.listener import Listener
from lar.measurement.rows import join_samples
from lar.records.events import ComputedAlone, Event, TurnEnded
from lar.records.run import Failure, RunContext, RunResult, RunSpec, Samples
from lar.running.isolation import Watch, start_worker_for

# The rows that a process has room for in its turns.
ROOM = 1 << 14
# Between two looks at a worker that has nothing to say.
LOOK_SECONDS = 0.1
START_LOOK_SECONDS = 0.01


class TurnWorker(Watch, Listener):
    """A worker that does something only when it is given a turn; its time stands still between."""

    report_seconds = 0.0

    def __init__(
        self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext, task: str = "run"
    ) -> None:
        """Start the worker; the stack kills it."""
        self._since = time.monotonic()  # when its last turn ended
        self.answer: TurnEnded | ComputedAlone | None = None  # of its last turn
        worker = stack.enter_context(start_worker_for(task, spec))
        super().__init__(worker, spec, replace(context, turns=True), self)
        self.send(task)

    def on_event(self, event: Event, result: RunResult) -> None:
        if isinstance(event, (TurnEnded, ComputedAlone)):
            self.answer = event

    def attend(self, seconds: float) -> None:
        """Wait up to so long for something to come of the worker, and take it."""
        try:
            super().attend(seconds)
        except OutOfTime as error:
            self.give_up("timed_out", Failure.of(error))

    def pause(self) -> None:
        """Have its time stand still until its turn comes."""
        self._since = time.monotonic()

    def go_on(self) -> None:
        """Have its time run again."""
        idle_seconds = time.monotonic() - self._since
        self._alive_at += idle_seconds
        if self.deadline is not None:
            self.deadline += idle_seconds

    def take(self, number: int, most_seconds: float = math.inf) -> TurnEnded | ComputedAlone | None:
        """Have it do what a number stands for; return its answer, None if it has ended meanwhile,
        as it does where it takes too long."""
        self.go_on()
        self.answer = None
        self.worker.send(b"%d" % number, more=True)
        deadline = time.monotonic() + most_seconds
        while self.answer is None and not self.ended:
            self.attend(LOOK_SECONDS)
            if time.monotonic() > deadline:
                late = Failure(f"the engine has not computed it in {most_seconds:g} s")
                self.give_up("timed_out", replace(late, exit_code=OutOfTime.exit_code))
        self.pause()
        return self.answer

    def finish(self) -> RunResult:
        """Have it come to its end, and return its result."""
        if not self.ended:
            self.go_on()
            self.worker.end_requests()
            while not self.ended:
                self.attend(LOOK_SECONDS)
        self.take_rest()
        return super().finish()


class TurnTaker(TurnWorker):
    """A worker that is loaded and warmed up, and then computes only in its turns.

    Between them its threads are stopped: an engine's idle threads wait by asking without a pause,
    for up to a tenth of a second, and would take the CPUs of the next.
    """

    def __init__(self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext) -> None:
        super().__init__(stack, replace(spec, iterations=ROOM), context)

    @property
    def is_ready(self) -> bool:
        """Whether it is warmed up and waits for its turn, or has ended."""
        return self.ended or self.result.phase == "iterations"

    @property
    def is_loaded(self) -> bool:
        """Whether it warms up, or has done so."""
        return self.result.phase in ("warmup", "iterations")

    def pause(self) -> None:
        """Stop it until its turn comes."""
        super().pause()
        self.worker.pause()

    def go_on(self) -> None:
        """Have it go on; its time stood still meanwhile."""
        super().go_on()
        self.worker.go_on()

    def take_turn(self, untimed: int, timed: int) -> Samples | None:
        """Have it make a turn, alone, and return the samples of the timed iterations; None if it
        has ended meanwhile."""
        tables = self.worker.tables
        first = [rows.count for rows in tables]
        timed = min(timed, tables[0].capacity - max(first) - untimed)
        self.take(untimed + timed)
        if self.ended:
            return None
        return join_samples(
            [
                rows.samples(begin + untimed, rows.count)
                for rows, begin in zip(tables, first, strict=True)
            ]
        )

    @property
    def is_able(self) -> bool:
        """Whether it has not ended, and there is room for the samples of one more turn."""
        return not self.ended and max(rows.count for rows in self.worker.tables) + 2 <= ROOM


def await_all(
    takers: Iterable[TurnTaker],
    on_ended: Callable[[TurnTaker], None] = lambda taker: None,
    ready_by: float = math.inf,
) -> None:
    """Wait until each is warmed up and waits for its turn, or has ended, or until a time on the
    monotonic clock; `on_ended` is called with those that have ended as soon as they have.

    They load beside each other and warm up one after the other: threads that wait for each other
    at the end of each kernel take a hundred times as long where another process computes.
    """
    loading = [taker for taker in takers if not taker.is_ready]
    loaded: list[TurnTaker] = []
    while loading and time.monotonic() < ready_by:
        for taker in loading:
            taker.attend(START_LOOK_SECONDS)
            if taker.ended:
                on_ended(taker)
            elif taker.is_loaded:
                taker.pause()
                loaded.append(taker)
        loading = [taker for taker in loading if not (taker.ended or taker.is_loaded)]
    for taker in loaded:
        if not taker.is_ready:
            taker.go_on()
            while not taker.is_ready and time.monotonic() < ready_by:
                taker.attend(LOOK_SECONDS)
            if taker.ended:
                on_ended(taker)
            else:
                taker.pause()
