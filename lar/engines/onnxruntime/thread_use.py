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

import msgspec

from lar.records.profile import Count, ThreadUse


class RawThread(msgspec.Struct):
    num_run: Count = 0


class RawCaller(msgspec.Struct, rename="pascal"):
    """The calling thread's times in microseconds."""

    distribution: Count = 0
    distribution_enqueue: Count = 0
    run: Count = 0
    wait: Count = 0
    wait_revoke: Count = 0


class RawScheduling(msgspec.Struct):
    """The calling thread in this execution, and the others since the session began."""

    main_thread: RawCaller = msgspec.field(default_factory=RawCaller)
    sub_threads: dict[str, RawThread] = {}


DECODER = msgspec.json.Decoder(RawScheduling)


class ThreadUses:
    """The use of threads by each operator of one session, summed up in the order of time."""

    def __init__(self) -> None:
        self.by_operator: dict[int, ThreadUse] = {}
        self._done: dict[str, int] = {}  # the shares done by each thread, at the last event

    def add(self, operator: int, raw: bytes, *, timed: bool) -> None:
        """Add what the event of an execution reports: of one in the warm-up, where counts begin.
        Nothing is reported where the session has no threads of its own.

        Raises:
            msgspec.MsgspecError: it is not written as in the versions that lar knows.
        """
        if not raw.startswith(b"{"):
            return
        found = DECODER.decode(raw)
        caller, before = found.main_thread, self._done
        self._done = before | {name: it.num_run for name, it in found.sub_threads.items()}
        if timed:
            more = ((count, count - before.get(name, 0)) for name, count in self._done.items())
            use = ThreadUse(
                executions=1,
                computing_ns=1000 * caller.run,
                handing_out_ns=1000 * (caller.distribution + caller.distribution_enqueue),
                waiting_ns=1000 * (caller.wait + caller.wait_revoke),
                # An engine that began to count anew counts from 0.
                tasks=tuple(new if new >= 0 else count for count, new in more),
            )
            known = self.by_operator.get(operator, ThreadUse())
            self.by_operator[operator] = known.with_that_of(use)

    def busy_threads(self) -> tuple[str, ...]:
        """Return the engine's own threads that have done some of the work, besides the caller's."""
        return tuple(name for name, count in self._done.items() if count)
