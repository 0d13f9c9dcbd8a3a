"""The use of ONNX Runtime's threads by operators, from what it reports of their scheduling.

Each event of a node has `thread_scheduling_stats`: empty where the session has no threads of its
own, else

    {"main_thread": {"block_size": [8], "Distribution": 2, "DistributionEnqueue": 1, "Run": 31,
                     "Wait": 4, "WaitRevoke": 0, ...},
     "sub_threads": {"140213": {"num_run": 812, ...}, ...}}

The times of the calling thread, in microseconds, are those of this execution: for handing out the
shares of the work, for its own share, and for waiting until the others are done. `num_run` counts
the shares that a thread has done since the session began. Nothing is counted where the work of a
node is not shared out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from lar.records.profile import Count, ProfiledOperator, ThreadUse


class RawThread(msgspec.Struct):
    num_run: Count = 0


class RawCaller(
    msgspec.Struct,
    rename={
        "distribution": "Distribution",
        "enqueue": "DistributionEnqueue",
        "run": "Run",
        "wait": "Wait",
        "revoke": "WaitRevoke",
    },
):
    """The calling thread's times in microseconds, and the sizes of the shares."""

    distribution: Count = 0
    enqueue: Count = 0
    run: Count = 0
    wait: Count = 0
    revoke: Count = 0


class RawScheduling(msgspec.Struct):
    """The calling thread in this execution, and the others since the session began."""

    main_thread: RawCaller = msgspec.field(default_factory=RawCaller)
    sub_threads: dict[str, RawThread] = {}


DECODER = msgspec.json.Decoder(RawScheduling)


class ThreadUses:
    """The use of threads by each operator of one session, summed up in the order of time."""

    def __init__(self) -> None:
        self._times_us: dict[int, Counter[str]] = defaultdict(Counter)
        self._tasks: dict[int, Counter[str]] = defaultdict(Counter)
        self._before: dict[str, int] = {}  # the shares done by each thread, at the last event

    def add(self, operator: int, raw: bytes, *, timed: bool) -> None:
        """Add what the event of an execution reports: of one in the warm-up, where counts begin.
        Nothing is reported where the session has no threads of its own.

        Raises:
            msgspec.MsgspecError: it is not written as in the versions that lar knows.
        """
        if not raw.startswith(b"{"):
            return
        found = DECODER.decode(raw)
        done = {name: thread.num_run for name, thread in found.sub_threads.items()}
        before, self._before = self._before, done
        if timed:
            caller, times = found.main_thread, self._times_us[operator]
            times["executions"] += 1
            times["computing"] += caller.run
            times["handing out"] += caller.distribution + caller.enqueue
            times["waiting"] += caller.wait + caller.revoke
            for name, count in done.items():
                # An engine that began to count anew counts from 0.
                more = count - before.get(name, 0)
                self._tasks[operator][name] += more if more >= 0 else count

    def busy_threads(self) -> tuple[str, ...]:
        """Return the engine's own threads that have done some of the work, besides the caller's."""
        return tuple(name for name, done in self._before.items() if done)

    def added_to(self, operators: Iterable[ProfiledOperator]) -> tuple[ProfiledOperator, ...]:
        """Return operators with the use that each made of the threads, where that is reported."""
        return tuple(
            msgspec.structs.replace(operator, threads=self._use_of(place))
            if place in self._times_us
            else operator
            for place, operator in enumerate(operators)
        )

    def _use_of(self, operator: int) -> ThreadUse:
        times = self._times_us[operator]
        return ThreadUse(
            executions=times["executions"],
            computing_ns=1000 * times["computing"],
            handing_out_ns=1000 * times["handing out"],
            waiting_ns=1000 * times["waiting"],
            tasks=tuple(self._tasks[operator].values()),
        )
