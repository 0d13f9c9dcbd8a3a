"""What SQLite would do for a file of a stranger, and lar does not let it do."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from lar.files.database import MORE_ROWS, NAMES_FILE, error_of_database, open_database
from lar.results.store import open_store, save
from tests.conftest import RunLar
from tests.refusals import refused
from tests.results.made_results import make_result
from tests.tables import each_row


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "store.sqlite"
    save(make_result([0.01]), store=str(place))
    return place


def journal_naming(path: Path, store: Path) -> bytes:
    """Return a journal that is to be rolled back, and after which SQLite deletes a file."""
    content, name = store.read_bytes(), bytes(path)
    page = int.from_bytes(content[16:18], "big")
    head = NAMES_FILE + struct.pack(">5I", 0, 1, len(content) // page, 512, page)
    end = struct.pack(">2I", len(name), sum(name)) + NAMES_FILE
    return head.ljust(512, b"\0") + struct.pack(">I", (1 << 30) // page + 1) + name + end


def test_a_journal_deletes_no_file_that_it_names(
    store: Path, tmp_path: Path, run_lar: RunLar
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    journal = Path(f"{store}-journal")
    journal.write_bytes(journal_naming(file, store))
    link = tmp_path / "link.sqlite"
    link.symlink_to(store)
    for place in (store, link):
        done = run_lar("history", "list", "--store", str(place), code=2)
        assert f"{journal}: names a file, which SQLite would delete" in done.stderr
    assert file.exists()
    with closing(sqlite3.connect(store)) as connection:  # SQLite alone does delete it
        connection.execute("select count(*) from results")
    assert not file.exists()


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_files_beside_a_database_are_regular_files(store: Path, suffix: str) -> None:
    beside = Path(f"{store}{suffix}")
    os.mkfifo(beside)
    refused("is not a regular file", open_database(str(store), create=False).__enter__)
    beside.unlink()
    beside.symlink_to("/dev/zero")
    refused("is not a regular file", open_database(str(store), create=False).__enter__)


def test_pages_that_name_each_other_are_damage(store: Path) -> None:
    """The root of a table names a page 400 times, which names a page 400 times, and so on."""
    with closing(sqlite3.connect(store)) as connection:
        asked = "select rootpage from sqlite_master where name = 'results'"
        (root,) = connection.execute(asked).fetchone()
    content = bytearray(store.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    place = slice((root - 1) * size, root * size)
    content += content[place]
    start = size - 5 * 400
    for _ in range(4):
        child = len(content) // size
        head = struct.pack(">BHHHBI400H", 5, 0, 400, start, 0, child, *range(start, size, 5))
        content += head.ljust(start, b"\0") + struct.pack(">IB", child, 3) * 400
    content[place] = content[-size:]
    content[28:32] = struct.pack(">I", len(content) // size)
    store.write_bytes(content)
    refused("'results' has more rows than fit into it", open_store(str(store)).__enter__)


def test_a_small_file_with_many_rows_is_damaged(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.executescript(
            "drop table results; create table results (id integer primary key);"
            "insert into results with recursive n(i) as"
            "  (select 1 union all select i + 1 from n where i < 30000) select i from n"
        )
    assert os.path.getsize(store) < 100 * (30_000 - MORE_ROWS)
    refused("'results' has more rows than fit into it", open_store(str(store)).__enter__)


@each_row("files/cases/errors of SQLite")
def test_an_error_of_sqlite_has_a_reason_and_a_way_out(
    text: str, code: int, problem: str, hint: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "store")
    error = error_of_database(sqlite3.OperationalError(text), place)
    parts = (error.exit_code, error.subject, error.problem, error.hint)
    assert parts == (code, place, problem, hint)
    gone = error_of_database(sqlite3.OperationalError("readonly"), str(tmp_path / "gone/store"))
    assert gone.problem == "cannot be written: no such file or directory"
