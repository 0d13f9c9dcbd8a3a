"""ONNX Runtime's clock is aligned with lar's within the error that is stated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lar.engines.onnxruntime.profile import Call, place_runs
from lar.engines.onnxruntime.profile_file import RawRun
from lar.records.profile import Alignment, Step

SPANS = st.lists(st.tuples(*[st.integers(0, 10**6)] * 4), min_size=1, max_size=9)


@given(SPANS, st.integers(-(10**12), 10**12), st.integers(-(10**7), 10**7))
def test_clocks_are_aligned_within_the_error_stated(
    gaps: list[tuple[int, ...]], offset_ns: int, guess_error_ns: int
) -> None:
    """Calls made of gaps: before a call, before its run, the run, and after it."""
    now, calls, runs = 0, [], []
    for number, (idle, before, took, after) in enumerate(gaps):
        begin = now + idle
        start, end = begin + before, begin + before + took
        now = end + after
        step = Step(number, begin, now)
        calls.append(Call(step, begin, now))
        # Whole microseconds, rounded down, on the engine's clock.
        first = (start - offset_ns) // 1000 * 1000
        runs.append(RawRun(first, first + took // 1000 * 1000, 7, ()))
    found, alignment = place_runs(runs, calls, offset_ns + guess_error_ns)
    assert alignment.error_ns is not None
    assert abs(alignment.offset_ns - offset_ns) <= alignment.error_ns + 1000
    for call, run, (step, own_ns) in zip(calls, runs, found, strict=True):
        assert step == call.step
        assert call.begin_ns <= run.start_ns + own_ns <= run.end_ns + own_ns <= call.end_ns


def test_a_good_guess_is_kept() -> None:
    calls = [Call(Step(0, 0, 9_000), 0, 9_000)]
    _, found = place_runs([RawRun(2_000, 5_000, 7, ())], calls, 1_234)
    assert (found.offset_ns, found.error_ns) == (1_234, 4_234)
    assert place_runs([], calls, 77) == ([], Alignment("onnxruntime", 77))


def test_a_clock_that_was_set_meanwhile_is_told_by_the_error() -> None:
    calls = [
        Call(Step(k, k * 10_000, k * 10_000 + 5_000), k * 10_000, k * 10_000 + 5_000)
        for k in (0, 1)
    ]
    runs = [RawRun(0, 4_000, 7, ()), RawRun(50_000, 54_000, 7, ())]
    found, alignment = place_runs(runs, calls, 0)
    assert (alignment.error_ns or 0) >= 19_000
    for call, run, (step, own_ns) in zip(calls, runs, found, strict=True):
        assert step == call.step
        assert call.begin_ns <= run.start_ns + own_ns <= run.end_ns + own_ns <= call.end_ns
