"""The pace of iterations: sleeps before each, and queues of requests."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from itertools import repeat

import pytest

from lar.measurement.loop import AWAKE_SECONDS, LONGEST_SLEEP, Idle, Requests, take_samples
from lar.measurement.noise import Reading
from lar.measurement.rows import SampleRows
from lar.records.run import Arrivals, NoiseSources, Pacing, Samples
from tests.measurement.played_engine import Server


class Wakeful:
    """A rest that counts what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin_rest(self) -> None:
        self.told.append("begin")

    def end_rest(self) -> None:
        self.told.append("end")

    def beat(self) -> None:
        self.told.append("beat")


def served(
    pacing: Pacing, services: Iterable[float], most: int, seconds: float | None = None
) -> tuple[Samples, Requests]:
    """What one runner measures of requests, and their queue in the end."""
    requests = Requests(pacing, 0, most=most, seconds=seconds)
    rows, server = SampleRows.anonymous(most), Server(services)
    requests.open(server.clock())
    take_samples(server, most, rows, None, pace=requests)
    return rows.samples(0, most), requests


def waits_of(samples: Samples) -> list[float]:
    assert None not in samples.queueing
    return [each or 0.0 for each in samples.queueing]


def scattered(seed: int, mean: float) -> Iterator[float]:
    """Times that scatter as those of a model do: most alike, some much longer."""
    draw = random.Random(seed)
    while True:
        yield mean * (0.8 + 0.1 * draw.random() + (1.5 if draw.random() < 0.1 else 0.0))


def test_requests_at_fixed_times_wait_for_nobody_who_is_fast_enough() -> None:
    samples, requests = served(Pacing(rate=10, arrivals="fixed"), repeat(0.0625), 20)
    assert waits_of(samples) == pytest.approx([0.0] * 20, abs=1e-9)
    assert samples.began == pytest.approx([0.1 * number for number in range(1, 21)])
    assert requests.offered() == 20


def test_poisson_arrivals_are_drawn_by_the_seed_and_have_the_rate() -> None:
    samples, _ = served(Pacing(rate=100), repeat(0.0), 10_000)
    gaps = [later - sooner for sooner, later in zip(samples.began, samples.began[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.05)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(1e-4, rel=0.1)
    assert served(Pacing(rate=100), repeat(0.0), 10_000)[0].began == samples.began


def test_a_queue_above_the_capacity_ends_with_its_time_and_knows_who_is_left() -> None:
    samples, requests = served(Pacing(rate=10, arrivals="fixed"), repeat(0.25), 1000, seconds=2.0)
    assert len(samples.end_to_end) == 8
    assert waits_of(samples) == pytest.approx([0.15 * number for number in range(8)], abs=1e-9)
    assert (requests.begun, requests.offered()) == (8, 19)


@pytest.mark.parametrize("arrivals", ["poisson", "fixed"])
def test_requests_that_there_is_no_room_for_are_counted(arrivals: Arrivals) -> None:
    pacing = Pacing(rate=1e6, arrivals=arrivals)
    requests = Requests(pacing, 0, most=1000, seconds=1000.0)
    assert requests.offered() == pytest.approx(1e9, rel=1e-3)


def test_nobody_begins_a_request_that_arrives_when_the_queue_has_closed() -> None:
    samples, requests = served(Pacing(rate=2, arrivals="fixed"), repeat(0.125), 9, seconds=1.0)
    assert samples.began == (0.5,)
    assert requests.offered() == 1


def test_several_runners_serve_one_queue_in_the_order_of_arrival() -> None:
    requests = Requests(Pacing(rate=10, arrivals="fixed"), 0, most=6)
    servers = [Server(repeat(0.25)), Server(repeat(0.25))]
    requests.open(0.0)
    began = []
    for _ in range(6):
        free = min(servers, key=lambda server: server.now)
        arrival = requests.wait(free, Wakeful())
        assert arrival is not None
        began.append((arrival, free.now))
        free.wait()
    arrivals, starts = zip(*began, strict=True)
    assert arrivals == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert starts == pytest.approx([0.1, 0.2, 0.35, 0.45, 0.6, 0.7])
    assert requests.wait(servers[0], Wakeful()) is None


def test_the_last_part_of_a_wait_for_a_request_is_not_slept() -> None:
    requests = Requests(Pacing(rate=0.5, arrivals="fixed"), 0, most=1)
    server, rest = Server([]), Wakeful()
    requests.open(0.0)
    assert requests.wait(server, rest) == 2.0
    assert (server.slept, server.spun) == pytest.approx((2.0 - AWAKE_SECONDS, AWAKE_SECONDS))
    assert rest.told == ["begin", *["beat"] * 8, "end"]


def test_a_rest_before_each_iteration_is_in_no_time() -> None:
    rows, server = SampleRows.anonymous(3), Server(repeat(0.25))
    take_samples(server, 3, rows, None, pace=Idle(2.5))
    samples = rows.samples(0, 3)
    assert samples.end_to_end == (0.25,) * 3
    assert samples.began == (2.5, 5.25, 8.0)
    assert samples.queueing == ()
    assert rows.beats == 3 * 2.5 / LONGEST_SLEEP


class ClockMeter:
    """Reads as queue delay what has passed since it was read last."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.last = 0.0
        self.read_at: list[float] = []

    sources = NoiseSources()

    def read(self, *, ends: bool = False) -> Reading:
        self.read_at.append(self.server.now)
        passed, self.last = self.server.now - self.last, self.server.now
        return Reading(passed, math.nan)


def test_no_noise_is_read_while_a_request_waits() -> None:
    """The readings of several iterations are one then."""
    rows, server = SampleRows.anonymous(4), Server([0.25, 0.25, 0.25, 0.0625])
    meter = ClockMeter(server)
    requests = Requests(Pacing(rate=5, arrivals="fixed"), 0, most=4)
    requests.open(0.0)
    take_samples(server, 4, rows, meter, pace=requests)
    ends = [0.45, 0.7, 0.95, 1.0125]
    assert not any(abs(at - end) < 1e-9 for end in ends[:2] for at in meter.read_at)
    assert meter.read_at[-1] == pytest.approx(ends[-1])
    assert rows.samples(0, 4).queueing == pytest.approx((0, 0.05, 0.1, 0.15))


def test_the_noise_of_a_rest_belongs_to_no_iteration() -> None:
    short = 2.0**-12  # which alone has no reading of its own
    rows, server = SampleRows.anonymous(3), Server(repeat(short))
    take_samples(server, 3, rows, ClockMeter(server), pace=Idle(2.0))
    assert rows.samples(0, 3).queue_delay == (short,) * 3
