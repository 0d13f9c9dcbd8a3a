"""The timed loop: what it calls between which clock reads, and what it keeps."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lar.measurement import loop
from lar.measurement.loop import READING_INTERVAL_SECONDS, take_samples
from lar.measurement.noise import Reading
from lar.measurement.rows import SampleRows
from lar.records.run import NoiseSources, Samples
from tests.measurement.played_engine import Server
from tests.tables import each_row

LONG = 0.25
SHORT = 2.0**-12  # less than READING_INTERVAL_SECONDS, and exact in sums


class StepDriver(Server):
    """Writes down what is called; its clock goes on with `start` and `wait` alone."""

    def __init__(self, host: float, rest: float) -> None:
        super().__init__(())
        self.called: list[str] = []
        self.start = self.step("start", lambda: host)
        self.wait = self.step("wait", lambda: rest)
        self.clock = self.read_clock

    def step(self, name: str, seconds: Callable[[], float], returns: object = None) -> Any:
        def call() -> object:
            self.called.append(name)
            self.now += seconds()
            return returns

        return call

    def read_clock(self) -> float:
        self.called.append("clock")
        return self.now


class StepMeter:
    """Gives readings that were set beforehand, and writes down when it is read."""

    def __init__(self, driver: StepDriver, *readings: Reading) -> None:
        self.driver = driver
        self.readings = iter(readings)

    sources = NoiseSources()

    def read(self, *, ends: bool = False) -> Reading:
        self.driver.called.append("meter")
        return next(self.readings, Reading(0, 0))


def taken(
    driver: StepDriver, count: int, meter: StepMeter | None = None, seconds: float = math.inf
) -> Samples:
    rows = SampleRows.anonymous(count)
    take_samples(driver, count, rows, meter, seconds=seconds)
    return rows.samples(0, count)


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def test_times_stand_between_the_clock_reads_around_start_and_wait() -> None:
    driver = StepDriver(host=0.125, rest=0.5)
    assert taken(driver, 3) == Samples(
        end_to_end=(0.625,) * 3,
        host=(0.125,) * 3,
        device=(0.5,) * 3,
        queue_delay=(None,) * 3,
        began=(0.0, 0.625, 1.25),
    )
    assert driver.called[-5:] == ["clock", "start", "clock", "wait", "clock"]
    assert driver.called.count("start") == driver.called.count("wait") == 3


def test_no_iterations_take_no_samples() -> None:
    driver = StepDriver(1, 1)
    assert taken(driver, 0, StepMeter(driver)) == Samples()
    assert "start" not in driver.called


@pytest.mark.parametrize(("seconds", "count"), [(0.9, 2), (1.0, 2), (1.1, 3), (0.0, 1)])
def test_the_iteration_that_runs_out_of_time_is_the_last(seconds: float, count: int) -> None:
    assert len(taken(StepDriver(LONG, LONG), 9, seconds=seconds).end_to_end) == count


@each_row("measurement/cases/hooks")
def test_a_hook_runs_after_or_before_an_iteration_and_outside_the_clock(
    hook: str, order: str
) -> None:
    driver = StepDriver(host=0.125, rest=0.5)
    setattr(driver, hook, driver.step("hook", lambda: 8.0))
    assert taken(driver, 2).end_to_end == (0.625, 0.625)
    assert driver.called[-12:] == order.split() * 2


def test_keeping_it_is_no_part_of_the_next_reading() -> None:
    driver = StepDriver(host=0.125, rest=LONG)
    driver.after_iteration = driver.step("keep", lambda: 8.0)
    taken(driver, 2, StepMeter(driver))
    assert [call for call in driver.called if call in ("start", "keep", "meter")] == [
        *("meter", "start", "meter", "keep", "meter"),
        *("start", "meter", "keep", "meter"),
        "meter",  # what is read at the ends alone
    ]


def test_a_profiled_iteration_is_recorded_without_what_the_profile_took() -> None:
    driver = StepDriver(host=0.125, rest=LONG)
    recorded: list[tuple[float, float, float]] = []

    def record(*times: float) -> None:
        recorded.append((times[0], times[1], times[2]))
        driver.step("record", lambda: 8.0)()

    driver.record, driver.own_seconds = record, lambda: 0.0625
    assert taken(driver, 2, StepMeter(driver)).end_to_end == (0.3125, 0.3125)
    assert [(middle - began, ended - began) for began, middle, ended in recorded] == [
        (0.125, 0.3125)
    ] * 2
    assert [call for call in driver.called if call in ("start", "record", "meter")] == [
        *("meter", "start", "meter", "record", "meter"),
        *("start", "meter", "record", "meter"),
        "meter",
    ]


def test_nothing_but_the_engine_runs_inside_the_clock() -> None:
    driver = StepDriver(LONG, LONG)
    driver.device_seconds = driver.step("device", lambda: 0, returns=0.375)
    taken(driver, 3, StepMeter(driver))
    assert " ".join(driver.called).count("clock start clock wait clock") == 3


def test_the_engines_own_device_time_is_kept() -> None:
    driver = StepDriver(LONG, LONG)
    times = iter([0.375, 0.125])
    driver.device_seconds = lambda: next(times)
    meter = StepMeter(driver, Reading(0, 0), Reading(0, 0.0625), Reading(0, 0.0625))
    assert taken(driver, 2, meter).device == (0.375, 0.125)


@pytest.mark.parametrize(("host", "rest"), [(LONG, 2 * LONG), (2 * LONG, 0.0)])
def test_else_the_device_time_is_how_long_the_host_waited(host: float, rest: float) -> None:
    """For the end of what it dispatched, or for the dispatch, where that computes."""
    assert taken(StepDriver(host, rest), 2).device == (2 * LONG,) * 2


@each_row("measurement/cases/readings of long iterations")
def test_a_long_iteration_has_a_reading_of_its_own(
    host: float,
    rest: float,
    read: list[float],
    delays: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is as long as the interval; no iteration waited for longer than it took."""
    monkeypatch.setattr(loop, "READING_INTERVAL_SECONDS", 4 * SHORT)
    driver = StepDriver(host, rest)
    meter = StepMeter(driver, *(Reading(delay, 0) for delay in read))
    assert taken(driver, len(delays), meter).queue_delay == tuple(delays)


def test_short_iterations_share_a_reading() -> None:
    assert SHORT < READING_INTERVAL_SECONDS
    driver = StepDriver(0, SHORT)
    group = next(n for n in range(1, 100) if n * SHORT >= READING_INTERVAL_SECONDS)
    first, second, rest = 0.25 * SHORT * group, 0.5 * SHORT * group, 0.25 * SHORT
    meter = StepMeter(
        driver, Reading(9, 9), Reading(first, 1), Reading(second, 1), Reading(rest, 1)
    )
    samples = taken(driver, 2 * group + 2, meter)
    shares = [0.25 * SHORT] * group + [0.5 * SHORT] * group + [0.125 * SHORT] * 2
    assert samples.queue_delay == tuple(shares)
    assert driver.called.count("meter") == 1 + 2 + 1


def test_rows_go_on_where_the_warmup_left_them() -> None:
    driver = StepDriver(LONG, LONG)
    rows = SampleRows.anonymous(3)
    take_samples(driver, 1, rows, StepMeter(driver, Reading(9, 9), Reading(0.5, 0)))
    take_samples(driver, 2, rows, StepMeter(driver, Reading(9, 9), Reading(0, 0), Reading(0, 0)))
    assert rows.samples(0, 3).queue_delay == (0.5, 0, 0)


@pytest.mark.parametrize("which", ["start", "wait"])
@pytest.mark.parametrize("status", [1, 2, -1, True])
def test_a_failure_status_raises_the_drivers_reason(which: str, status: object) -> None:
    driver = StepDriver(LONG, LONG)
    setattr(driver, which, driver.step(which, lambda: LONG, returns=status))
    rows = SampleRows.anonymous(2)
    with pytest.raises(RuntimeError, match="the reason"):
        take_samples(driver, 2, rows, None)
    assert rows.count == 0
    assert driver.called.count("start") == 1


@pytest.mark.parametrize("status", [0, False, None, "1"])
def test_any_other_status_is_success(status: object) -> None:
    driver = StepDriver(LONG, LONG)
    driver.start = driver.step("start", lambda: LONG, returns=status)
    driver.wait = driver.step("wait", lambda: LONG, returns=status)
    assert len(taken(driver, 2).end_to_end) == 2


def test_what_was_measured_before_an_exception_is_kept() -> None:
    driver = StepDriver(LONG, LONG)
    rows = SampleRows.anonymous(5)

    def start() -> None:
        if rows.count == 2:
            raise ValueError("the engine's own")

    driver.start = start
    with pytest.raises(ValueError, match="the engine's own"):
        take_samples(driver, 5, rows, None)
    assert rows.count == 2


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_no_garbage_is_collected_meanwhile_and_the_collector_is_as_before(
    enabled: bool, fails: bool
) -> None:
    seen = []

    def start() -> object:
        seen.append(gc.isenabled())
        return fails

    driver = StepDriver(LONG, LONG)
    driver.start = start
    (gc.enable if enabled else gc.disable)()
    try:
        take_samples(driver, 1, SampleRows.anonymous(1), None)
    except RuntimeError:
        assert fails
    assert seen == [False]
    assert gc.isenabled() == enabled
