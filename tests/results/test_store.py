"""The store of results: nothing is lost by other writers, a kill, a full disk or an older schema.

`tests/data/store_v1.sqlite` was made by the lar of the first schema, of three results of
`tests/results/made_results.py`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.errors import LarError, UsageError
from lar.records.record import record_to_json
from lar.records.run import RunResult
from lar.results import store as module
from lar.results.store import (
    COLUMNS,
    SCHEMA,
    Selection,
    default_path,
    kind_of,
    make_table,
    open_store,
    save,
)
from tests.conftest import REPOSITORY, RunLar
from tests.refusals import refused
from tests.results.made_results import make_result, make_runs

OLD = REPOSITORY / "tests" / "data" / "store_v1.sqlite"
TIMES = [0.01, 0.011, 0.012]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "store.sqlite")


def fill(place: str, results: Sequence[RunResult], tag: str = "") -> list[int]:
    with open_store(place, create=True) as store:
        return [added.id for added in store.add(results, tag)]


def ask(place: str | Path, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements by hand; return what the last one gives."""
    with contextlib.closing(sqlite3.connect(place)) as connection, connection:
        return [connection.execute(each).fetchall() for each in statements][-1]


def check_integrity(place: str) -> None:
    assert ask(place, "pragma integrity_check") == [("ok",)]


@contextlib.contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def ids_in(place: str, selection: Selection | None = None) -> list[int]:
    with open_store(place) as store:
        return [entry.id for entry in store.entries(selection)]


def start_python(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )


def test_a_result_comes_back_whole(place: str) -> None:
    result = make_result(TIMES, multithread=2)
    assert fill(place, [result], "v1") == [1]
    with open_store(place) as store:
        (entry,) = store.entries()
        assert store.result(1) == result
    assert (entry.tag, entry.model, entry.options) == ("v1", "net.onnx", "--multithread 2")
    assert entry.machine == "a processor, 2 of 4 cores, 8 GiB"
    assert (entry.samples, entry.median_seconds, entry.status) == (3, 0.011, "ok")
    assert entry.kind == kind_of(result)
    fill(place, [make_result()])
    rows = ask(place, "select id, tag, status, samples, median_seconds from results")
    assert rows == [(1, "v1", "ok", 3, 0.011), (2, "", "crashed", 0, None)]


def test_a_result_is_stored_once_with_each_tag(place: str) -> None:
    result = make_result(TIMES)
    assert fill(place, [result], "a") == fill(place, [result], "a") == [1]
    assert fill(place, [result], "b") == [2]


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    for name in ("a b?mode=ro#%41.sqlite", os.fsdecode(b"\xff.sqlite"), "é"):
        assert fill(str(tmp_path / name), [make_result(TIMES)]) == [1]
        assert (tmp_path / name).is_file()


def test_results_are_selected(place: str) -> None:
    sha = "b" * 64
    fill(place, [make_result(TIMES), make_result(TIMES, model="other.mge", sha256=sha)], "v1")
    fill(place, [make_result(TIMES, processor="Phone 7", multithread=2, engine="x")])
    for selection, expected in [
        (Selection(tag="v1"), [1, 2]),
        (Selection(tag=""), [3]),
        (Selection(model="some/other.mge"), [2]),
        (Selection(model="bbbb"), [2]),
        (Selection(machine="phone"), [3]),
        (Selection(options="multithread"), [3]),
        (Selection(engine="x"), [3]),
        (Selection(ids=(1, 3)), [1, 3]),
        (Selection(since="2020-01-01T00:00:00+00:00"), [1, 2, 3]),
        (Selection(before="2020-01-01T00:00:00+00:00"), []),
    ]:
        assert ids_in(place, selection) == expected, selection


def test_numbers_are_never_given_again(place: str) -> None:
    fill(place, [make_result(TIMES), make_result([0.2])])
    with open_store(place) as store:
        store.remove([2])
    assert fill(place, [make_result([0.3])]) == [3]


def test_the_users_own_store_is_in_the_folder_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert save(make_result(TIMES), tag="v1") == lar.save(make_result(TIMES), tag="v1") == 1
    assert default_path() == str(tmp_path / "data" / "lar" / "history.sqlite")
    assert (tmp_path / "data" / "lar").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which the specification has ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_path() == str(tmp_path / ".local" / "share" / "lar" / "history.sqlite")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_path().startswith(str(tmp_path / "Library" / "Application Support" / "lar"))


WRITER = """
import sys
from lar.results.store import open_store
from tests.results.made_results import make_result
with open_store(sys.argv[1], create=True) as store:
    for number in range(int(sys.argv[3])):
        (added,) = store.add([make_result([float(sys.argv[2]), 1 + number])], sys.argv[2])
        print(added.id, flush=True)
"""


def test_eight_writers_lose_nothing(place: str) -> None:
    writers = [start_python(WRITER, place, str(number), "5") for number in range(8)]
    printed = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    ids = [int(word) for words in printed for word in words]
    assert sorted(ids) == list(range(1, 41)) == ids_in(place)
    with open_store(place) as store:
        for number in range(8):
            entries = store.entries(Selection(tag=str(number)))
            assert [store.result(entry.id).samples.end_to_end[1] for entry in entries] == [
                *(1.0, 2.0, 3.0, 4.0, 5.0)
            ]


# Kills itself when a part of a transaction stands in the file already.
KILLED = """
import os, random, signal, sys
from lar.results.store import Store, open_store
from tests.results.made_results import make_result
insert, count = Store._insert, 0
def insert_some(store, row):
    global count
    count += 1
    if count == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return insert(store, row)
Store._insert = insert_some
draw = random.Random(0)
with open_store(sys.argv[1]) as store:
    store._connection.execute("pragma cache_size = 2")
    store.add([make_result([draw.random() for _ in range(300)]) for _ in range(50)])
"""


def test_a_kill_in_the_middle_of_a_write_leaves_all_that_was_there(place: str) -> None:
    before = make_runs(3, 0.01)
    fill(place, before)
    size = os.path.getsize(place)
    killed = start_python(KILLED, place)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert os.path.getsize(place) > size  # it was in the middle
    assert os.path.exists(f"{place}-journal")
    assert ids_in(place) == [1, 2, 3]
    with open_store(place) as store:
        assert [store.result(number) for number in (1, 2, 3)] == before
    check_integrity(place)
    assert fill(place, [make_result(TIMES)]) == [4]


def test_a_full_disk_loses_nothing(place: str) -> None:
    before = make_runs(3, 0.01)
    fill(place, before)
    size = os.path.getsize(place)
    with open_store(place) as store:
        with limited_file_size(size + 4096), pytest.raises(LarError) as error:
            store.add(make_runs(40, 0.02))
        assert error.value.exit_code == 4
        assert error.value.message.startswith(f"{place}: cannot be written: ")
        assert [entry.id for entry in store.entries()] == [1, 2, 3]
        assert [store.result(number) for number in (1, 2, 3)] == before
        assert len(store.add(make_runs(2, 0.03))) == 2
    check_integrity(place)


def test_a_disk_that_is_full_from_the_start_makes_no_store(place: str) -> None:
    with limited_file_size(1000), pytest.raises(LarError, match="cannot be written") as error:
        save(make_result(TIMES), store=place)
    assert error.value.exit_code == 4
    assert save(make_result(TIMES), store=place) == 1  # there is room again


@pytest.mark.parametrize("kib", [0, 8])
def test_a_limit_of_file_sizes_that_stops_a_store_is_named(place: str, kib: int) -> None:
    result = os.path.join(os.path.dirname(place), "r.json")
    Path(result).write_bytes(record_to_json(make_result(TIMES)))
    command = f"ulimit -f {kib}; exec {sys.executable} -Bm lar history add {result} --store {place}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        4,
        f"lar: error: {place}: cannot be written: the limit of a file's size is reached\n"
        f"hint: the limit is {kib} KiB: raise it with ulimit -f unlimited\n",
    )


def test_a_store_of_the_first_schema_is_brought_to_this(place: str) -> None:
    shutil.copy(OLD, place)
    with open_store(place) as store:
        entries = store.entries()
        results = [store.result(entry.id) for entry in entries]
    assert [entry.tag for entry in entries] == ["v1", "v1", ""]
    assert [entry.saved_at[:10] for entry in entries] == ["2025-06-01", "2025-06-02", "2025-06-03"]
    expected = make_runs(2, 0.01, seed=1)
    assert [each.samples for each in results[:2]] == [each.samples for each in expected]
    # What the second schema adds is made of the results.
    assert (entries[2].inputs, entries[2].disturbed) == ("data float32 1x3x8x8", 4)
    assert (entries[2].trust, entries[2].trusted_seconds) == ("undisturbed latency", 0.01)
    assert ask(place, "pragma user_version") == [(SCHEMA,)]
    assert ask(place, "select name from sqlite_master where type = 'index'")
    assert fill(place, [make_result(TIMES)]) == [4]


def test_where_a_cache_is_makes_no_other_kind(place: str) -> None:
    run, elsewhere = (
        make_result(TIMES, fast_run_algo_policy=path) for path in ("a.cache", "/tmp/my b.cache")
    )
    assert kind_of(run) == kind_of(elsewhere)
    assert kind_of(run)._replace(model="only a name").unknown == "model"
    assert kind_of(run).options == "--fast-run-algo-policy"
    assert kind_of(run) != kind_of(make_result(TIMES))
    # A store of the schema before this has the place in its columns.
    fill(place, [run, make_result(TIMES, thread=2)])
    with_place = "update results set options = '--fast-run-algo-policy a.cache' where id = 1"
    ask(place, with_place, "pragma user_version = 2")
    with open_store(place) as store:
        entries = store.entries()
    assert [entry.options for entry in entries] == ["--fast-run-algo-policy", "--thread 2"]
    assert entries[0].kind == kind_of(elsewhere)


def test_two_that_open_an_older_store_bring_it_to_this_once(place: str) -> None:
    shutil.copy(OLD, place)
    code = "import sys\nfrom lar.results.store import open_store\n"
    code += "with open_store(sys.argv[1]) as store: print(len(store.entries()))"
    openers = [start_python(code, place) for _ in range(3)]
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["3\n"] * 3
    check_integrity(place)


def test_a_migration_that_fails_leaves_the_older_store(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(OLD, place)
    before = Path(place).read_bytes()

    def fail(connection: sqlite3.Connection) -> None:
        make_table(connection)
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(module, "make_table", fail)
        with pytest.raises(LarError, match="cannot be written: database or disk is full"):
            ids_in(place)
    assert Path(place).read_bytes() == before
    assert ids_in(place) == [1, 2, 3]


def test_a_store_of_a_newer_schema_is_refused(place: str) -> None:
    fill(place, [make_result(TIMES)])
    ask(place, "pragma user_version = 99")
    before = Path(place).read_bytes()
    for create in (False, True):
        with (
            pytest.raises(UsageError, match="is of a newer lar: its schema is 99") as error,
            open_store(place, create=create),
        ):
            pass
        assert error.value.exit_code == 2
    assert Path(place).read_bytes() == before


COMPUTING = (Path(__file__).parent / "computing_stores.txt").read_text().splitlines()


@pytest.mark.parametrize("statement", COMPUTING)
def test_a_store_that_may_compute_something_is_refused(place: str, statement: str) -> None:
    fill(place, [make_result(TIMES)])
    ask(place, 'create table "my notes" (a)', "CREATE UNIQUE INDEX n ON results(tag, id)")
    assert ids_in(place) == [1]  # a user may add those
    ask(place, statement)
    refused("the store is damaged: '(v|t|more|results)' in it may compute", ids_in, place)


def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to be one" * 40)
    other = tmp_path / "other.sqlite"
    ask(other, "create table notes (text)")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, problem in (
        (text, "is not a store of lar"),
        (other, "is a database, but not a store of lar"),
        (tmp_path, "is a folder; give a file name"),
        (pipe, "is not a regular file"),
        (tmp_path / "none" / "store.sqlite", "there is no such folder"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(UsageError, match=problem), open_store(str(path), create=True):
            pass
        assert (path.read_bytes() if path.is_file() else b"") == before
    assert sorted(os.listdir(tmp_path)) == ["other.sqlite", "pipe", "text"]


def test_a_store_that_is_missing_is_made_by_writers_alone(place: str) -> None:
    with pytest.raises(UsageError, match="there is no such store"), open_store(place):
        pass
    assert not os.path.exists(place)
    Path(place).touch()  # as a writer leaves it that was interrupted
    assert fill(place, [make_result(TIMES)]) == [1]


def test_a_damaged_store_is_named(place: str) -> None:
    fill(place, make_runs(20, 0.01))
    content = bytearray(Path(place).read_bytes())
    content[4096 * 2 : 4096 * 8] = b"\xff" * (4096 * 6)
    Path(place).write_bytes(content)

    def read_all() -> None:
        with open_store(place) as store:
            [store.result(each.id) for each in store.entries()]

    refused(r"the store is damaged|is damaged, or of a newer lar", read_all)


def test_a_damaged_result_is_named_and_the_others_are_read(place: str) -> None:
    fill(place, [make_result(TIMES), make_result([0.2])])
    ask(place, "update results set result = x'00' where id = 1")
    with open_store(place) as store:
        refused("result 1 is damaged", store.result, 1)
        assert store.result(2) == make_result([0.2])
        refused("the store has no result 3", store.result, 3)


def test_a_store_that_another_keeps_is_named(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, [make_result(TIMES)])
    monkeypatch.setattr("lar.files.database.PATIENCE_SECONDS", 0.05)
    connection = sqlite3.connect(place, isolation_level=None)
    connection.execute("begin exclusive")
    says = rf"process {os.getpid()} \(.+\) has locked the store for 0\.05 s"
    refused(says, fill, place, [make_result([0.2])])
    connection.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_store_that_may_not_be_written_is_read(place: str) -> None:
    fill(place, [make_result(TIMES)])
    os.chmod(place, 0o444)
    assert ids_in(place) == [1]
    refused("cannot be written: permission denied", fill, place, [make_result([0.2])])


def test_results_are_copied_with_tags_and_times(tmp_path: Path, place: str) -> None:
    fill(place, make_runs(2, 0.01), "v1")
    with open_store(place) as store:
        rows = [
            {**row, "saved_at": "2020-01-02T00:00:00+00:00"} for row in store.rows(store.entries())
        ]
    with open_store(str(tmp_path / "again.sqlite"), create=True) as store:
        assert all(added.is_new for added in store.add_rows(rows))
        assert not any(added.is_new for added in store.add_rows(rows))
        assert [*store.rows(store.entries())] == rows


def test_kinds_are_told_apart() -> None:
    result = make_result(TIMES)
    assert kind_of(result) == kind_of(make_result([0.5], started_at="2030"))
    for other in (
        make_result(TIMES, sha256="b" * 64),
        make_result(TIMES, multithread=2),
        make_result(TIMES, processor="another"),
        make_result(TIMES, engine="another"),
        replace(result, spec=replace(result.spec, batch_size=4)),
    ):
        assert kind_of(other) != kind_of(result)


def names_in(place: str) -> list[str]:
    return [row[1] for row in ask(place, "pragma table_info(results)")]


def loosen(place: str) -> None:
    """Have the columns take any value, as a foreign program may have made them."""
    ask(
        place,
        "create table kept as select * from results",
        "drop table results",
        f"create table results (id integer primary key, {', '.join(names_in(place)[1:])})",
        "insert into results select * from kept",
        "drop table kept",
    )


WRONG = ("null", "9e999", "-5", "x'ff00'", "cast(x'ff41' as text)")


@pytest.mark.parametrize("column", [*COLUMNS, "result"])
def test_a_wrong_value_damages_its_row_alone(place: str, column: str, run_lar: RunLar) -> None:
    results = make_runs(len(WRONG) + 1, 0.01)
    fill(place, results, "a")
    loosen(place)
    for number, value in enumerate(WRONG, 1):
        ask(place, f"update results set {column} = {value} where id = {number}")
    with open_store(place) as store:
        *damaged, last = store.entries()
        for entry, value in zip(damaged, WRONG, strict=True):
            assert (entry.status == "ok") == (column == "result" or may_be(column, value))
        assert (last.status, store.result(last.id)) == ("ok", results[-1])
    wrong = [str(each.id) for each in damaged]
    for words in (("list",), ("plot",), ("show", str(last.id)), ("prune", *wrong, "--yes")):
        run_lar("history", *words, "--store", place, code=0)
    assert ids_in(place) == [last.id]


def may_be(column: str, value: str) -> bool:
    """Return whether a column may hold such a value: seconds may be missing."""
    return value == "null" and COLUMNS[column].empty is None
