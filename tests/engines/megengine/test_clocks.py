"""The clocks of MegEngine, brought to that of lar."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lar.engines.megengine.clocks import (
    RESOLUTION_NS,
    Fit,
    Iteration,
    alignments_of,
    device_window,
    fit_at,
    fit_clocks,
    fit_offsets,
    host_window,
    place_executions,
)
from lar.records.profile import Alignment, Execution

HOST, WORKER = 1, 2


def iteration_of(
    number: int,
    start: int,
    executions: list[tuple[int, int]],
    dispatches: list[tuple[int, int]] | None = None,
    *,
    end: int,
    thread: int = WORKER,
) -> Iteration:
    """An iteration whose dispatch takes a tenth of it; executions in the engine's times."""
    told = []
    for index, (begin, done) in enumerate(executions):
        first, last = dispatches[index] if dispatches else (None, None)
        by = HOST if dispatches else None
        told.append(Execution(0, number, thread, begin, done, 0, first, last, by))
    return Iteration(number, start, start + (end - start) // 10, end, tuple(told))


def test_what_is_computed_ends_before_the_outputs_are_copied() -> None:
    iteration = iteration_of(0, 0, [(100, 200)], end=9_000)._replace(waited_ns=5_000)
    assert device_window(iteration, None) == (-100, 4_800)
    (late,) = place_executions([iteration], [], [Fit(0, 4_850, 0)])
    assert (late.start_ns, late.end_ns) == (4_950, 5_000)


def test_a_clock_that_begins_again_is_another() -> None:
    fits = fit_offsets([(0, 4000), None, (900_000, 904_000), (901_000, 905_000)])
    assert fits == [Fit(0, 2000, 2000 + RESOLUTION_NS), Fit(2, 902_500, 1500 + RESOLUTION_NS)]
    assert fit_offsets([(0, 1000), (2000, 3000)]) == [Fit(0, 1500, 500 + RESOLUTION_NS)]
    assert len(fit_offsets([(0, 1000), (2001, 3000)])) == 2
    assert [fit_at(fits, number) for number in range(4)] == [fits[0], fits[0], fits[1], fits[1]]
    iterations = [iteration_of(number, 0, [], end=1) for number in (0, 1, 5, 6)]
    assert alignments_of("the clock", fits, iterations) == [
        Alignment("the clock", 2000, 3000),
        Alignment("the clock from iteration 5", 902_500, 2500),
    ]


def test_no_execution_begins_before_its_dispatch() -> None:
    one = iteration_of(0, 10_000, [(0, 100), (100, 200)], [(0, 100), (900, 950)], end=20_000)
    host = Fit(0, 10_000, 50)
    assert device_window(one, host) == (10_000 + 900 - 50 - 100, 19_800)
    undispatched = iteration_of(1, 10_000, [(0, 100)], end=20_000)
    assert device_window(undispatched, host) == (10_000, 19_900)


def test_where_the_dispatching_thread_computes_it_counts_once() -> None:
    one = iteration_of(0, 10_000, [(0, 100)], [(7000, 7100)], end=10_400, thread=HOST)
    assert host_window(one) is None
    hosts, devices = fit_clocks([one])
    (placed,) = place_executions([one], hosts, devices)
    assert (placed.start_ns, placed.end_ns) == (10_150, 10_250)
    assert placed.dispatch is None
    assert placed.dispatch_thread is None


@given(
    device=st.integers(-(10**9), 10**9),
    host=st.integers(-(10**9), 10**9),
    durations=st.lists(st.integers(10, 500), min_size=1, max_size=6),
    late=st.integers(0, 3000),
)
def test_executions_lie_within_their_iterations_and_near_the_truth(
    device: int, host: int, durations: list[int], late: int
) -> None:
    """The engine's clocks are off by `device` and `host`; its end is seen `late` microseconds."""
    iterations, true = [], []
    at = 5_000_000
    for number, duration in enumerate(durations):
        begin = at + 20_000
        end = begin + duration * 1000
        dispatch = at - host, at + 5000 - host, HOST
        execution = Execution(0, number, WORKER, begin - device, end - device, 0, *dispatch)
        iterations.append(Iteration(number, at, at + 9000, end + late * 1000, (execution,)))
        true.append((begin, end))
        at = end + late * 1000 + 50_000
    hosts, devices = fit_clocks(iterations)
    assert len(hosts) == len(devices) == 1
    found = place_executions(iterations, hosts, devices)
    for placed, iteration, (begin, _) in zip(found, iterations, true, strict=True):
        assert iteration.forward_ns <= placed.start_ns <= placed.end_ns <= iteration.waited_ns
        assert abs(placed.start_ns - begin) <= devices[0].error_ns
        assert placed.dispatch_start_ns is not None
        assert placed.dispatch_end_ns is not None
        assert iteration.forward_ns <= placed.dispatch_start_ns
        assert placed.dispatch_end_ns <= iteration.dispatched_ns


def test_what_does_not_fit_is_cut_to_its_iteration() -> None:
    """An execution longer than its iteration, as a clock that runs at another pace tells it."""
    one = iteration_of(0, 10_000, [(0, 5000)], end=12_000)
    (placed,) = place_executions([one], *fit_clocks([one]))
    assert (placed.start_ns, placed.end_ns, placed.wait_ns) == (10_000, 12_000, 0)
