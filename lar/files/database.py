"""The SQLite file of a store; a newer lar updates the schema of an older file.

SQLite writes the file with a rollback journal and full synchronisation. If a writer is killed, all
earlier results are still there, and the last change is complete or absent. The store is a single
file that can be copied. The store works on network file systems, where a write-ahead log would not
work.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

from lar.errors import LarError, UsageError, error_of_write, limit_of
from lar.files.input_file import open_input
from lar.files.locks import PATIENCE_SECONDS, WAIT, holder_of
from lar.files.report_file import check_writable
from lar.files.work_folders import error_of_full_disk

# The number by which SQLite's own tools and `file` recognise lar's files.
STORE_ID = 0x6C617273  # "lars"

HEAD = b"SQLite format 3\x00"
# A store of lar has at most one row for ROW_BYTES of the file, and MORE_ROWS rows. Columns with
# their default value take no bytes in a file, so a small file may have millions of rows.
ROW_BYTES, MORE_ROWS = 100, 10_000
# How long SQLite may read the structure of a store: pages that name each other have no end.
MOST_SECONDS, BYTES_A_SECOND = 10, 20_000_000
# The last bytes of a journal that names another file. lar's own journals name no file.
NAMES_FILE = bytes.fromhex("d9d505f920a163d7")

# A table of stored columns, or an index of such columns. Anything else, such as a generated column,
# may run any computation, even an endless one.
PLAIN = re.compile(
    r"(?i)CREATE (TABLE [\w '\"]+\([\w\s,'\"]*(UNIQUE \([\w, ]+\)[\w\s,'\"]*)?"
    r"|(UNIQUE )?INDEX \w+ ON \w+ ?\(\w+(, ?\w+)*)\)"
)


def refuse_no_database(place: str, flag: str) -> None:
    """Refuse a path where no database can exist or be made.

    Raises:
        UsageError: the path is a folder or a special file, or its folder is missing.
    """
    folder = os.path.dirname(place) or os.curdir
    if os.path.isdir(place):
        raise UsageError("is a folder; give a file name", flag=flag, subject=place)
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder", "make it", flag=flag, subject=folder)
    if os.path.exists(place) and not os.path.isfile(place):
        raise UsageError("is not a regular file", "give another file", flag=flag, subject=place)


def check_journals(place: str) -> None:
    """Refuse files beside a database if no store of lar leaves such files.

    SQLite opens these files by itself. If such a file were a pipe, SQLite would wait for ever. At
    the end of a journal may be the name of a file, which SQLite would delete
    (https://www.sqlite.org/fileformat2.html).

    Raises:
        UsageError: a file is not a regular file, or is a journal that names another file.
    """
    for suffix in ("-journal", "-wal", "-shm"):
        beside, problem = os.path.realpath(place) + suffix, ""
        with contextlib.suppress(OSError, UsageError):  # it has just gone, or SQLite reports it
            if not stat.S_ISREG(os.lstat(beside).st_mode):
                problem = "is not a regular file"
            with open_input(beside) as file:
                file.seek(-len(NAMES_FILE), os.SEEK_END)
                if file.read() == NAMES_FILE:
                    problem = "names a file, which SQLite would delete"
        if problem:
            raise UsageError(problem, "move it away, or give another store", subject=beside)


@contextlib.contextmanager
def open_database(place: str, *, create: bool) -> Iterator[sqlite3.Connection]:
    """Open a file with SQLite; `Database.prepare` checks the content.

    Raises:
        UsageError: the file is of another kind, is damaged, or may not be read or written.
        LarError: the disk is full, or SQLite failed in another way.
    """
    check_journals(place)
    mode = "rwc" if create else "rw"  # a write-protected file is opened for reading
    with contextlib.ExitStack() as stack:
        with explained(place):
            address = f"file:{quote(os.fsencode(os.path.realpath(place)))}?mode={mode}"
            connection = sqlite3.connect(address, PATIENCE_SECONDS, isolation_level=None, uri=True)
            stack.callback(connection.close)
            end = time.monotonic() + MOST_SECONDS + os.path.getsize(place) / BYTES_A_SECOND
            connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)  # instructions
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            # The folder is also synchronised after the journal is deleted. Else a power cut soon
            # after a change could undo the change.
            connection.executescript("pragma synchronous = extra; pragma fullfsync = on")
        yield connection


@contextlib.contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise an error of lar for an error of SQLite in the `with` block.

    Raises:
        UsageError: the file is of another kind, is damaged, or may not be read or written.
        LarError: the disk is full, or SQLite failed in another way.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise error_of_database(error, place) from None


def error_of_database(error: sqlite3.DatabaseError, place: str) -> LarError:
    """Return lar's error for an error of SQLite about a file."""
    text, refusal = str(error), partial(UsageError, subject=place)
    if "not a database" in text:
        return refusal("is not a store of lar", "give another file")
    if any(word in text for word in ("malformed", "corrupt", "interrupted")):
        hint = "restore a copy of it; `sqlite3 FILE .recover` saves what can be read"
        return refusal("the store is damaged", hint)
    if missing := re.fullmatch(r"no such (table|column): (.+)", text):
        problem = f"the store is damaged: its {missing[1]} {missing[2]!r} is missing"
        return refusal(problem, "restore a copy of it, or begin another store")
    if "readonly" in text or "unable to open" in text:
        try:
            check_writable(place, "")
        except LarError as reason:
            return reason
        hint = "check its permissions and those of its folder"
        return refusal("the store cannot be opened or written", hint)
    if "locked" in text or "busy" in text:
        return refusal(f"{holder_of(place)} has locked the store for {PATIENCE_SECONDS:g} s", WAIT)
    if "full" in text or "disk I/O" in text:
        # SQLite has one text for a full disk and for a write that the file size limit stops.
        full = error_of_full_disk(os.path.dirname(place) or os.curdir)
        is_disk = full.errno != errno.EFBIG if full else limit_of("file size") is None
        number = errno.ENOSPC if is_disk else errno.EFBIG
        return error_of_write(OSError(number, text), subject=place)
    return LarError(f"the store cannot be used: {text}", subject=place)


class Database:
    """An open database."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection

    def prepare(self, schema: int, make: Callable[[sqlite3.Connection], None]) -> None:
        """Check that the file is a store, and update it to the schema with the number `schema`.

        `make` creates the tables, or updates the tables of an older schema.

        Raises:
            UsageError: the file is not a store, or a newer lar wrote the file.
        """
        with explained(self.path):
            if self._version(schema) == schema:
                return
            with self._transaction():  # no other process changes the file meanwhile
                if self._version(schema) < schema:
                    make(self._connection)
                self._connection.execute(f"pragma application_id = {STORE_ID}")
                self._connection.execute(f"pragma user_version = {schema}")

    def _version(self, newest: int) -> int:
        """Return the version of the schema; 0 for an empty file.

        Raises:
            UsageError: the file is not a store, or a newer lar wrote the file.
        """
        refusal, execute = partial(UsageError, subject=self.path), self._connection.execute
        version, application = (
            execute(f"pragma {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        parts = execute("select name, sql, tbl_name, type from sqlite_master").fetchall()
        if application != STORE_ID and (application or version or parts):
            raise refusal("is a database, but not a store of lar", "give another file")
        if foreign := [name for name, sql, *_ in parts if sql and not PLAIN.fullmatch(str(sql))]:
            problem = f"the store is damaged: {foreign[0]!r} in it may compute something"
            raise refusal(problem, "restore a copy of it")
        most = MORE_ROWS + os.path.getsize(self.path) // ROW_BYTES
        for name, _, table, kind in parts:
            own, table = (str(it).replace('"', '""') for it in (name, table))
            way = "not indexed" if kind == "table" else f'indexed by "{own}"'
            if execute(f'select 1 from "{table}" {way} limit -1 offset {most}').fetchone():
                raise refusal(f"the store is damaged: {name!r} has more rows than fit into it")
        if version > newest:
            why = f"its schema is {version}, and this lar reads {newest}"
            raise refusal(f"the store is of a newer lar: {why}", "use that lar, or another store")
        self._connection.set_progress_handler(None, 0)
        return int(version)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make all changes of the `with` block, or no change if the block raises an error."""
        with self._connection:  # it commits or rolls back
            self._connection.execute("begin immediate")
            yield
