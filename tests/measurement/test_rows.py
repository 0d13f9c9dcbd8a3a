"""The table of samples that a worker writes and its parent reads."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tracemalloc
from array import array
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.measurement import rows as measured
from lar.measurement.noise import Reading
from lar.measurement.rows import (
    NAN,
    SampleRows,
    create_shared_file,
    join_samples,
    make_rows,
    open_rows,
    read_samples,
    size_of_rows,
)
from lar.records.run import MEASURED, Samples
from tests.tables import each_row

SECONDS = st.floats(allow_nan=False, allow_infinity=False, width=64)
KNOWN = st.sampled_from((0.0, 2.4e-6, 0.75, 3.0))
PARTS = KNOWN | st.just(NAN)


def filled(*rows: tuple[float, Reading | None]) -> Samples:
    """Samples of iterations that took so long, and what was read after them."""
    table = SampleRows.anonymous(len(rows))
    for end_to_end, reading in rows:
        table.append(end_to_end, 0, 0)
        if reading is not None:
            table.add_reading(reading)
    return table.samples(0, len(rows))


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), max_size=8), st.data())
def test_what_is_appended_is_read(rows: list[tuple[float, ...]], data: st.DataObject) -> None:
    table = SampleRows.anonymous(len(rows))
    for end_to_end, host, device in rows:
        table.append(end_to_end, host, device)
    assert table.count == len(rows)
    assert [*table.times(0, len(rows))] == rows
    first, last = data.draw(st.integers(0, len(rows))), data.draw(st.integers(0, len(rows)))
    samples = table.samples(first, last)
    columns = (samples.end_to_end, samples.host, samples.device)
    assert list(zip(*columns, strict=True)) == rows[first:last]


def test_what_was_not_measured_is_none() -> None:
    rows = SampleRows.anonymous(2)
    rows.append(0.2, 0.1, NAN)
    rows.add_reading(Reading(0.0, NAN))
    rows.append(0.4, 0.3, 0.35)
    assert rows.samples(0, 2) == Samples(
        end_to_end=(0.2, 0.4), host=(0.1, 0.3), device=(None, 0.35), queue_delay=(0.0, None)
    )


def test_rows_that_are_not_there_yet_are_left_out() -> None:
    rows = SampleRows.anonymous(10)
    rows.append(1, 1, 1)
    assert len(rows.samples(0, 10).end_to_end) == 1
    assert rows.samples(1, 10) == Samples()


def test_a_reading_is_for_the_rows_that_came_since_the_last_one() -> None:
    rows = SampleRows.anonymous(5)
    rows.append(1, 0, 0)
    rows.add_reading(Reading(0.0, NAN, cpu=0.75))
    for index in (1, 2, 3):
        rows.append(1, index, index)
        if index == 2:
            rows.add_reading(Reading(0.5, NAN, 4.0, cpu=2.0))
    samples = rows.samples(0, 5)
    assert samples.queue_delay == (0, 0.25, 0.25, None)
    # Of four seconds that a reading covers its iterations took two: half of the CPU time is theirs.
    assert samples.cpu == (0.75, 0.5, 0.5, None)
    assert samples.device == (0, 1, 2, 3)
    assert samples.steal == samples.throttled == samples.frequency == ()


def delayed(seconds: float, before: float = 0.0) -> Reading:
    return Reading(seconds, NAN, waited_before=before)


def test_what_short_iterations_waited_takes_no_cpu_time_from_them() -> None:
    samples = filled((0.25, None), (0.25, None), (4.25, Reading(4.0, 0.75, 1.5, cpu=1.5)))
    assert samples.busiest_thread == (0.125, 0.125, 0.75)
    assert samples.cpu == (0.25, 0.25, 1.5)


def test_what_is_read_less_often_is_shared_by_more_rows() -> None:
    read = ((NAN, 2e9), (0.5, NAN), (NAN, 3e9), (NAN, NAN))
    samples = filled(*((1, Reading(0, NAN, steal=it[0], frequency=it[1])) for it in read))
    assert samples.steal == (0.25, 0.25, None, None)
    assert samples.frequency == (2e9, 3e9, 3e9, None)
    assert samples.throttled == ()


@each_row("measurement/cases/waits")
def test_a_wait_counts_for_the_rows_that_it_covers(why: str, rows: Any, delays: Any) -> None:
    found = filled(*((seconds, delay and delayed(*delay)) for seconds, delay in rows))
    assert list(found.queue_delay) == delays, why


def test_a_probe_is_for_all_rows_since_the_last_one() -> None:
    read = (Reading(0, NAN, probe=probe) for probe in (2e-6, NAN, 3e-6))
    assert filled(*((1, each) for each in read), (1, None)).probe == (2e-6, 3e-6, 3e-6, None)
    assert filled((1, Reading(0, NAN))).probe == ()


@given(
    st.lists(st.tuples(KNOWN, st.none() | st.tuples(PARTS, PARTS, KNOWN, KNOWN))),
    st.slices(12),
)
def test_columns_that_are_computed_are_those_that_are_kept(
    rows: list[tuple[float, tuple[float, float, float, float] | None]], place: slice
) -> None:
    read = ((it and Reading(it[0], it[1], it[2], it[1], it[3], probe=it[0])) for _, it in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "FEWEST_OF_READING", 0)
        computed = filled(*zip((seconds for seconds, _ in rows), read, strict=True))
    columns: dict[str, Any] = {
        name: array("d", getattr(computed, name).tobytes()) for name in MEASURED
    }
    kept = Samples(**columns)
    assert computed == kept
    for name in MEASURED:
        one, other = getattr(computed, name), getattr(kept, name)
        assert [one[at] for at in range(len(one))] == [*other]
        assert one[place] == other[place]
        assert one[place][::-1][1:] == other[place][::-1][1:]


def test_samples_of_short_iterations_take_no_memory_until_they_are_read() -> None:
    table = SampleRows.anonymous(50_000)
    for index in range(50_000):
        table.append(1e-6, 5e-7, 5e-7, index * 1e-6)
        if index % 100 == 99:
            table.add_reading(Reading(0.0, 1e-4, 1e-4, 1e-4, 0.0, 0.0, 2e9, 4e-6))
    tracemalloc.start()
    try:
        samples = read_samples([table])[0]
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert samples.cpu == samples.busiest_thread == (1e-6,) * 50_000
    assert held_bytes < 10 * 50_000


def test_samples_of_few_rows_keep_no_table_open() -> None:
    mapping = mmap.mmap(-1, size_of_rows(9))
    table, opened = SampleRows(mapping, 9), ref(mapping)
    for _ in range(9):
        table.append(1, 1, 1)
    table.add_reading(Reading(0.0, 4.5))
    samples = table.samples(0, 9)
    del mapping, table
    assert opened() is None
    assert samples.busiest_thread == (0.5,) * 9


def test_rows_count_when_they_began_from_the_first_timed_one_of_all_runners() -> None:
    first, second = open_rows(-1, 3, runners=2)
    first.append(1, 0, 0, 10.0)
    second.append(1, 0, 0, 10.25, 0.125)
    for rows in (first, second):
        rows.end_warmup()
    for began in (11.0, 12.5):
        first.append(1, 0, 0, began)
    second.append(1, 0, 0, 10.75, 0.125)
    warmup, samples = read_samples((first, second))
    assert warmup.began == (-0.75, -0.5)
    assert samples.began == (0.25, 1.75, 0.0)
    assert samples.queueing == (None, None, 0.125)
    assert samples.runner == (0, 0, 1)
    assert read_samples((SampleRows.anonymous(2),)) == (Samples(), Samples())


def test_a_full_table_takes_no_more() -> None:
    rows = SampleRows.anonymous(1)
    rows.append(1, 1, 1)
    with pytest.raises(IndexError):
        rows.append(2, 2, 2)
    assert rows.count == 1


@pytest.mark.parametrize("with_memfd", [True, False])
def test_two_tables_over_one_file_see_the_same(
    with_memfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    file = create_shared_file()
    try:
        writer, reader = make_rows(file, 5)[0], open_rows(file, 5)[0]
        assert os.fstat(file).st_size == size_of_rows(5)
        assert not os.get_inheritable(file)
    finally:
        os.close(file)
    writer.append(0.3, 0.2, NAN, 0.1)
    assert reader.count == 1
    assert reader.samples(0, 1) == writer.samples(0, 1)


def test_rows_outlive_the_process_that_wrote_them(root: Path) -> None:
    file = create_shared_file()
    (rows,) = make_rows(file, 3)
    code = (
        "import os, sys; from lar.measurement.rows import open_rows\n"
        f"rows = open_rows({file}, 3)[0]; rows.append(0.3, 0.2, 0.1); os.abort()"
    )
    try:
        ended = subprocess.run([sys.executable, "-c", code], pass_fds=[file], cwd=root, timeout=60)
    finally:
        os.close(file)
    assert ended.returncode < 0
    assert [*rows.times(0, rows.count)] == [(0.3, 0.2, 0.1)]


def test_room_for_many_rows_costs_nothing_until_they_come() -> None:
    file = create_shared_file()
    try:
        (rows,) = make_rows(file, 10_000_000)
        rows.append(1, 1, 1)
        assert os.fstat(file).st_blocks * 512 < 100_000
    finally:
        os.close(file)


def test_runners_have_tables_of_their_own() -> None:
    first, second = open_rows(-1, 3, runners=2)
    second.append(0.5, 0.4, NAN, 0.1)
    first.append(0.1, 0.1, 0.1, 0.0)
    second.append(0.6, 0.4, NAN, 0.1)
    assert (first.runner, first.count, second.runner, second.count) == (0, 1, 1, 2)
    joined = join_samples([first.samples(0, 3), second.samples(0, 3)])
    assert joined.end_to_end == (0.1, 0.5, 0.6)
    assert joined.device == (0.1, None, None)
    assert joined.runner == (0, 1, 1)
    assert joined.of_runner(0) == first.samples(0, 3)
    assert joined.of_runner(1) == second.samples(0, 3)


def test_samples_of_one_runner_stay_as_they_are() -> None:
    rows = SampleRows.anonymous(1)
    rows.append(0.1, 0.1, 0.1, 0.0)
    alone = join_samples([rows.samples(0, 1)])
    assert alone.runner == ()
    assert alone.of_runner(0) == alone
    assert alone.of_runner(1) == Samples()


def test_rows_are_of_the_warmup_until_that_has_ended() -> None:
    rows = SampleRows.anonymous(3)
    rows.append(1, 0, 0)
    assert (rows.warmups, rows.warmups_so_far) == (None, 1)
    rows.end_warmup()
    rows.append(2, 0, 0)
    rows.append(3, 0, 0)
    assert (rows.warmups, rows.warmups_so_far) == (1, 1)
    assert rows.end_to_end() == [1, 2, 3]
    assert rows.end_to_end(1) == [2, 3]
    assert rows.end_to_end(3) == []


def test_a_sleeper_gives_signs_of_life() -> None:
    rows = SampleRows.anonymous(1)
    rows.beat()
    rows.beat()
    assert (rows.beats, rows.count, rows.warmups) == (2, 0, None)
