"""The peaks that are kept on a machine."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lar.measurement import peak
from lar.measurement.machine import read_machine
from lar.measurement.peak import find_peak, path_of
from lar.records.profile import Peak
from tests.known import known

NOW = datetime.now(timezone.utc).isoformat()
Speeds = Callable[..., list[int]]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept before a test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Speeds:
    """Have measurements give these GFLOP/s, one after the other; the list has what was asked."""

    def plan(*speeds: float | None) -> list[int]:
        left: Iterator[float | None] = iter(speeds)
        asked: list[int] = []

        def measure(threads: int, deadline: float | None = None) -> Peak | None:
            asked.append(threads)
            speed = next(left)
            if speed is None:
                return None
            return Peak(speed * 1e9, 20e9, threads, "x", spread=0.5, measured_at=NOW, rounds=4)

        monkeypatch.setattr(peak, "measure_peak", measure)
        return asked

    return plan


def gflops(threads: int = 1) -> float | None:
    found = find_peak(threads)
    return None if found is None else found.flops_per_second / 1e9


def test_four_calls_give_the_best_that_any_of_them_has_found(measures: Speeds) -> None:
    asked = measures(43.7, 100.0, 94.9, 95.0)
    assert [gflops() for _ in range(4)] == [43.7, 100.0, 100.0, 100.0]
    # The last agrees with the best: from now on nothing is measured.
    assert [gflops() for _ in range(3)] == [100.0] * 3
    assert len(asked) == 4


def test_a_peak_has_its_spread_and_its_date(measures: Speeds) -> None:
    measures(100.0, 80.0, 90.0)
    first = known(find_peak(1))
    assert (first.spread, first.rounds, first.measured_at) == (0.5, 4, NOW)
    find_peak(1)
    found = known(find_peak(1))
    assert found.spread == pytest.approx(0.05)  # half of what the last is lower than the best
    assert (found.rounds, found.threads, found.source) == (12, 1, "x")


def test_each_count_of_threads_has_a_peak_of_its_own(measures: Speeds) -> None:
    asked = measures(100.0, 190.0)
    assert (gflops(1), gflops(2)) == (100.0, 190.0)
    assert asked == [1, 2]


@pytest.mark.parametrize("fact", ["read_instruction_sets", "installed_version", "read_machine"])
def test_another_machine_is_measured_again(
    fact: str, measures: Speeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = measures(100.0, 100.0, 50.0)
    assert [gflops() for _ in range(4)] == [100.0] * 4
    other = replace(read_machine(), cpu_limit=0.5) if "machine" in fact else "another"
    monkeypatch.setattr(peak, fact, lambda *given: other)
    assert gflops() == 50.0
    assert len(asked) == 3


def test_how_busy_a_machine_is_makes_it_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = path_of(1)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # the measurement sets it itself
    assert path_of(1) == before
    monkeypatch.setenv("OPENBLAS_CORETYPE", "another")
    assert path_of(1) != before


def test_a_machine_on_which_nothing_agrees_is_measured_a_limited_number_of_times(
    measures: Speeds,
) -> None:
    asked = measures(*(float(2**number) for number in range(50)))
    for _ in range(50):
        gflops()
    assert len(asked) == 25  # 100 rounds
    assert gflops() == 2.0 ** (len(asked) - 1)


def test_a_peak_of_another_day_is_measured_once_more(measures: Speeds) -> None:
    """The measurements of one day may all have been disturbed alike."""
    asked = measures(*[50.0] * 2, *[100.0] * 9)
    assert [gflops() for _ in range(4)] == [50.0] * 4
    os.utime(kept_file(), (time.time() - 86_300,) * 2)
    assert gflops() == 50.0
    os.utime(kept_file(), (time.time() - 86_400,) * 2)
    assert [gflops() for _ in range(2)] == [100.0] * 2
    assert len(asked) == 4


def test_two_measurements_are_kept(measures: Speeds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "ONE_DAY_SECONDS", 0)
    measures(70.0, 90.0, *[60.0] * 40)
    for _ in range(30):
        gflops()
    kept = peak.read_measurements(path_of(1))
    assert [each.flops_per_second for each in kept] == [90e9, 60e9]
    assert sum(each.rounds or 0 for each in kept) == 4 * 30
    assert gflops() == 90.0


def test_what_is_kept_stands_in_where_nothing_can_be_measured(measures: Speeds) -> None:
    measures(100.0, None)
    assert [gflops(), gflops()] == [100.0, 100.0]
    measures(None)
    assert gflops(3) is None


def kept_file() -> Path:
    return Path(path_of(1))


OTHER = b'{"schema": "lar.peaks/1", "machine": {}, "threads": 1, "measurements": []}'
LONG = b"x" * (peak.LONGEST_BYTES + 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", OTHER, LONG])
def test_a_damaged_file_is_replaced(content: bytes, measures: Speeds) -> None:
    measures(100.0, 70.0)
    kept_file().parent.mkdir(parents=True)
    kept_file().write_bytes(content)
    assert [gflops(), gflops()] == [100.0, 100.0]
    assert len(peak.read_measurements(path_of(1))) == 2


def test_a_home_that_cannot_be_written_keeps_nothing(
    measures: Speeds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    asked = measures(100.0, 90.0)
    assert [gflops(), gflops()] == [100.0, 90.0]
    assert len(asked) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_leaves_what_was_kept(
    number: int, measures: Speeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures(100.0, 120.0, 90.0)
    gflops()

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    before = kept_file().read_bytes()
    assert [gflops(), gflops()] == [120.0, 100.0]
    assert kept_file().read_bytes() == before
    assert [each.name for each in kept_file().parent.iterdir()] == [kept_file().name]


def test_several_that_write_at_once_leave_a_whole_file(measures: Speeds) -> None:
    measures(*range(1, 41))
    with ThreadPoolExecutor(4) as pool:
        assert None not in pool.map(lambda _: gflops(), range(12))
    assert peak.read_measurements(path_of(1))
    assert [each.name for each in kept_file().parent.iterdir()] == [kept_file().name]


def test_the_folder_is_for_its_user_alone(measures: Speeds, own_folder: Path) -> None:
    measures(100.0)
    gflops()
    assert (own_folder / "lar").stat().st_mode & 0o777 == 0o700
