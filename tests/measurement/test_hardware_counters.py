"""The processor's counters: the records of the kernel, and what it says where there are none."""

from __future__ import annotations

import errno
import struct
import threading
import time

import pytest

from lar.measurement import hardware_counters
from lar.measurement.hardware_counters import (
    Counter,
    CountersMissing,
    HardwareCounters,
    ThreadSample,
    differences_of,
    reason_for,
    samples_in,
)

TYPE_SOFTWARE, TASK_CLOCK, PAGE_FAULTS = 1, 1, 2
# The first counts nanoseconds in which the thread computes: all Linux kernels have it.
SOFTWARE = (
    Counter("cycles", TYPE_SOFTWARE, TASK_CLOCK),
    Counter("instructions", TYPE_SOFTWARE, PAGE_FAULTS),
)


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHH", kind, 2, 8 + len(body)) + body


def sample(thread: int, at_ns: int, running_ns: int, *values: int) -> bytes:
    fixed = struct.pack("=IIQQQQ", 4000, thread, at_ns, len(values), running_ns + 5, running_ns)
    return record(9, fixed + struct.pack(f"={len(values)}Q", *values))


def test_samples_are_read_and_other_records_passed_over() -> None:
    lost = record(2, struct.pack("=QQ", 1, 77))
    data = sample(4001, 100, 90, 10, 20) + lost + sample(4002, 200, 150, 30, 40)
    found = [*samples_in(data)]
    assert found == [ThreadSample(4001, 100, 90, (10, 20)), ThreadSample(4002, 200, 150, (30, 40))]
    assert [*samples_in(data + sample(4001, 300, 1, 2)[:-3])] == found
    assert [*samples_in(data + record(9, b"short"))] == found
    assert [*samples_in(data + b"\0" * 16)] == found  # of no length: nothing after it is known
    wrong = sample(4001, 300, 1, 2)[:40] + struct.pack("=Q", 9)
    assert [*samples_in(wrong[:4] + struct.pack("=HH", 2, len(wrong)) + wrong[8:])] == []


def test_each_sample_stands_with_the_one_before_it_on_its_thread() -> None:
    samples = [ThreadSample(2, 30, 3, ()), ThreadSample(1, 20, 2, ()), ThreadSample(2, 10, 1, ())]
    pairs = differences_of(samples)
    assert pairs[1] == []
    assert [(a.at_ns, b.at_ns) for a, b in pairs[2]] == [(10, 30)]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "not permitted (kernel.perf_event_paranoid is 4): set it to 2 or less"),
        (errno.EPERM, "not permitted (kernel.perf_event_paranoid is 4): set it to 2 or less"),
        (errno.ENOENT, "not supported by this machine: its processor shows no counters"),
        (errno.EOPNOTSUPP, "not supported by this machine: its processor shows no counters"),
        (errno.ENOSYS, "not supported by this system: its kernel has no perf_event_open"),
        (errno.EMFILE, "not available: too many open files [EMFILE]"),
    ],
)
def test_the_reason_says_what_can_be_done(number: int, said: str) -> None:
    reason = reason_for(number, "4")
    assert reason.startswith(said)
    assert errno.errorcode[number] in reason
    assert "paranoid is" not in reason_for(number)


def test_this_machine_counts_or_says_why_not() -> None:
    said = ""
    try:
        counters = HardwareCounters()
    except CountersMissing as missing:
        said = str(missing)
    else:
        assert counters.names[0] == "cycles"
        counters.stop()
    assert not said or said.startswith(("not permitted", "not supported", "not available"))


def test_a_refusal_of_the_system_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(hardware_counters, "open_counter", refuse)
    monkeypatch.setattr(hardware_counters, "read_paranoid", lambda: "3")
    with pytest.raises(CountersMissing, match=r"not permitted \(kernel.perf_event_paranoid is 3\)"):
        HardwareCounters()


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def sample_two_threads() -> list[ThreadSample]:
    ready, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        ready.set()
        go.wait()
        compute(0.005)
        done.set()

    threading.Thread(target=work).start()
    ready.wait()
    try:
        counters = HardwareCounters(SOFTWARE, period=500_000)
    except CountersMissing as missing:
        pytest.skip(str(missing))
    finally:
        go.set()
    compute(0.005)
    counters.take()
    done.wait()
    return counters.stop()


def test_samples_of_each_thread_are_on_the_clock_of_the_run() -> None:
    """By a counter that the kernel makes itself, as few machines that run tests have others."""
    began = time.perf_counter_ns()
    # A busy host may hold up the kernel's own timer for as long as a thread computes.
    for _ in range(20):
        found = sample_two_threads()
        if len({each.thread for each in found}) >= 2:
            break
    ended = time.perf_counter_ns()
    assert all(began <= each.at_ns <= ended for each in found)
    assert threading.get_native_id() in {each.thread for each in found}
    assert len({each.thread for each in found}) >= 2
    for pairs in differences_of(found).values():
        for before, after in pairs:
            assert before.running_ns <= after.running_ns
            assert all(map(int.__le__, before.values, after.values))
