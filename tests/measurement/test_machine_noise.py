"""Steal, throttling and frequency are read where the system shows them, as often as is cheap."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from lar.measurement import machine, noise
from lar.measurement.machine import (
    Frequency,
    Growth,
    MachineNoise,
    open_heat,
    open_steal,
    open_throttling,
    own_cgroups,
    read_cpu_limit,
    usable_cpus,
)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without anything, in a folder."""
    for name in ("PROC_STAT", "OWN_CGROUPS", "CGROUPS", "CPUS", "FREQUENCY", "HEAT"):
        path = getattr(machine, name)
        monkeypatch.setattr(machine, name, f"{tmp_path}{path}")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_stat(system: Path, *steal: int) -> None:
    """Write /proc/stat with the ticks of steal of each CPU."""
    lines = [f"cpu  1 2 3 4 5 6 7 {sum(steal)} 0 0"]
    lines += [f"cpu{number} 1 2 3 4 5 6 7 {ticks} 0 0" for number, ticks in enumerate(steal)]
    write(system / "proc/stat", "\n".join([*lines, "intr 5 0 0", ""]))


def test_steal_is_that_of_the_cpu_that_lost_most(system: Path) -> None:
    write_stat(system, 100, 100, 100)
    steal = open_steal([0, 2])
    assert steal.read() == 0
    write_stat(system, 103, 200, 105)
    assert steal.read() == pytest.approx(0.05)  # ticks of 10 ms; the CPU 1 may not be used
    assert steal.read() == 0
    write_stat(system, 103, 201, 105)
    assert steal.read() == 0
    write_stat(system, 110, 201, 106)
    assert steal.read() == pytest.approx(0.07)


@pytest.mark.parametrize("text", [None, "", "cpu 1 2 3\n"])
def test_there_is_no_steal_where_the_system_shows_none(system: Path, text: str | None) -> None:
    if text is not None:
        write(system / "proc/stat", text)
    assert "steal" not in MachineNoise().sources


def write_cgroup(folder: Path, limit: str, microseconds: int) -> None:
    write(folder / "cpu.max", f"{limit} 100000\n")
    write(folder / "cpu.stat", f"usage_usec 5\nnr_throttled 1\nthrottled_usec {microseconds}\n")


def test_a_limit_of_any_cgroup_around_the_process_throttles_it(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/pod/b:x\n")
    groups = system / "sys/fs/cgroup"
    write(groups / "cpu.stat", "usage_usec 5\n")  # the root has no throttling
    write_cgroup(groups / "pod", "200000", 7_000_000)
    write_cgroup(groups / "pod/b:x", "max", 0)
    throttling = open_throttling([0])
    assert throttling.where == f"cpu.stat of {groups / 'pod'}"
    assert read_cpu_limit() == 2.0
    assert throttling.read() == 0
    write_cgroup(groups / "pod", "200000", 7_250_000)
    assert throttling.read() == pytest.approx(0.25)
    assert throttling.read() == 0


def test_the_first_version_of_cgroups_counts_nanoseconds(system: Path) -> None:
    write(system / "proc/self/cgroup", "4:memory:/other\n3:cpu,cpuacct:/box\n0::/\n")
    box = system / "sys/fs/cgroup/cpu,cpuacct/box"
    write(box / "cpu.cfs_quota_us", "50000\n")
    write(box / "cpu.cfs_period_us", "100000\n")
    assert read_cpu_limit() == 0.5
    write(box / "cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 1000000000\n")
    throttling = open_throttling([0])
    write(box / "cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 1500000000\n")
    assert throttling.read() == pytest.approx(0.5)


def test_in_a_container_its_own_cgroup_stands_where_the_outermost_would(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/system.slice/docker-4711.scope\n")
    groups = system / "sys/fs/cgroup"
    write_cgroup(groups, "100000", 1_000_000)
    assert str(groups) in own_cgroups()
    throttling = open_throttling([0])
    write_cgroup(groups, "100000", 1_125_000)
    assert throttling.read() == pytest.approx(0.125)


def test_without_a_limit_nothing_is_throttled_and_nothing_is_read(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/box\n")
    write_cgroup(system / "sys/fs/cgroup/box", "max", 0)
    throttling = open_throttling([0])
    assert (throttling.where, throttling.read()) == ("no limit is set", 0)
    assert read_cpu_limit() is None


def test_without_cgroups_there_is_no_source(system: Path) -> None:
    assert "throttled" not in MachineNoise().sources
    assert read_cpu_limit() is None
    write(system / "proc/self/cgroup", "0::/\n1:name=systemd:/\n")
    assert "throttled" not in MachineNoise().sources


def test_heat_has_the_longest_time_of_the_cpus_that_may_be_used(system: Path) -> None:
    cpus = system / "sys/devices/system/cpu"

    def set_times(cpu: int, core: int, package: int) -> None:
        folder = cpus / f"cpu{cpu}/thermal_throttle"
        write(folder / "core_throttle_total_time_ms", f"{core}\n")
        write(folder / "package_throttle_total_time_ms", f"{package}\n")

    for cpu in (0, 1, 2):
        set_times(cpu, 1000, 2000)
    heat = open_heat([0, 1])
    assert heat.read() == 0
    set_times(0, 1010, 2025)
    set_times(2, 5000, 2025)
    assert heat.read() == pytest.approx(0.025)


def test_the_frequency_is_that_of_the_cpu_that_it_runs_on(system: Path) -> None:
    for cpu in range(usable_cpus()[-1] + 1):
        write(system / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", "2400000\n")
    assert Frequency(usable_cpus()).read() == 2.4e9


class Fixed:
    """A source that reads the same each time; a negative figure is one that went away."""

    where = "a file"

    def __init__(self, figure: float) -> None:
        self.figure = figure

    def read(self) -> float:
        if self.figure < 0:
            raise OSError("it went away")
        return self.figure


def test_a_cpu_that_goes_offline_gives_nothing_once() -> None:
    counts = iter(([1.0, 2.0], [5.0], [6.0], [6.0, 7.0]))
    source = Growth("a file", lambda: next(counts))
    with pytest.raises(ValueError, match="argument 2"):
        source.read()
    assert source.read() == 1.0


def test_the_machine_is_read_ten_times_a_second_and_at_the_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    seldom = MachineNoise()
    assert seldom.is_due(ends=False)
    now += machine.SELDOM_NS - 1
    assert not seldom.is_due(ends=False)
    assert seldom.is_due(ends=True)
    now += 1
    assert not seldom.is_due(ends=False)
    now += machine.SELDOM_NS
    assert seldom.is_due(ends=False)


def test_without_proc_the_cpu_time_alone_is_read(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "TASKS", str(system / "none"))
    for of_thread in ("", "1"):
        meter = noise.open_meter(of_thread)
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        reading = meter.read()
        assert reading.cpu >= 0.01
        assert reading.waited_before == 0
        assert math.isnan(reading.queue_delay)
        assert math.isnan(reading.steal)
        assert math.isnan(reading.throttled)
        sources = meter.sources
        assert sources.cpu == ("time.thread_time" if of_thread else "time.process_time")
        assert not any((sources.queue_delay, sources.steal, sources.heat, sources.frequency))


@pytest.mark.parametrize(
    ("limits", "heat", "expected"),
    [(0.5, 0.25, 0.5), (0.25, 0.5, 0.5), (0.5, -1, 0.5), (-1, 0.5, 0.5), (-1, -1, math.nan)],
)
def test_throttling_is_by_a_limit_or_by_heat(limits: float, heat: float, expected: float) -> None:
    machine = MachineNoise()
    machine.sources = {"throttled": Fixed(limits), "heat": Fixed(heat)}
    found = machine.read(is_due=True)
    assert found == pytest.approx((math.nan, expected, math.nan), nan_ok=True)
    assert all(map(math.isnan, machine.read(is_due=False)))
