"""How operators use ONNX Runtime's threads, from what it reports of their scheduling."""

from __future__ import annotations

import json

from lar.engines.onnxruntime.profile_file import ThreadUses
from lar.records.profile import ThreadUse


def stats(run: int, wait: int, done: dict[str, int], handing_out: int = 0) -> bytes:
    caller = {
        **{"thread_pool_name": "session-1-intra-op", "thread_id": "7", "block_size": [8]},
        **{"core": 0, "Distribution": handing_out, "DistributionEnqueue": 0},
        **{"Run": run, "Wait": wait, "WaitRevoke": 1},
    }
    others = {name: {"num_run": count, "core": 1} for name, count in done.items()}
    return json.dumps({"main_thread": caller, "sub_threads": others}).encode()


def test_times_are_summed_and_shares_counted_since_the_event_before() -> None:
    uses = ThreadUses()
    uses.add(0, stats(90, 9, {"11": 4, "12": 2}), timed=False)  # the warm-up
    uses.add(0, stats(30, 9, {"11": 6, "12": 2}, handing_out=2), timed=True)
    uses.add(1, stats(0, 0, {"11": 6, "12": 2}), timed=True)
    uses.add(0, stats(10, 0, {"11": 9, "12": 3, "13": 0}), timed=True)
    conv, relu = uses.by_operator.values()
    assert conv == ThreadUse(2, 40_000, 2_000, 11_000, (5, 1, 0))
    assert conv.waiting_share == 11 / 53
    assert (relu.executions, relu.tasks) == (1, (0, 0))
    assert uses.busy_threads() == ("11", "12")


def test_a_session_without_threads_of_its_own_reports_nothing() -> None:
    uses = ThreadUses()
    uses.add(0, b'""', timed=True)
    assert (uses.by_operator, uses.busy_threads()) == ({}, ())
    assert ThreadUse(executions=3).waiting_share is None


def test_counts_that_begin_anew_are_taken_as_they_are() -> None:
    uses = ThreadUses()
    uses.add(0, stats(1, 1, {"11": 40}), timed=True)
    uses.add(0, stats(1, 1, {"11": 3}), timed=True)
    assert uses.by_operator[0].tasks == (43,)
