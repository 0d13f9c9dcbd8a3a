"""SQLite files of lar: each of a kind, with a schema that later versions bring up to date.

They are written in SQLite's rollback journal with full synchronisation: whatever ends a writer,
all that was stored before is there, and of what was being written all or nothing. Each is one file,
which can be copied, and works on network file systems, where a write-ahead log does not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from lar.errors import LarError, UsageError, error_of_write, file_size_limit
from lar.files import locks
from lar.files.report_file import check_writable
from lar.files.work_folders import error_of_full_disk

# By which SQLite's own tools and `file` recognise the kinds of databases that lar writes.
STORE_ID = 0x6C617273  # "lars"
SESSION_ID = 0x6C617274  # "lart", which lar wrote until sessions became stores
TITLES = {
    STORE_ID: "a store of results (lar history)",
    SESSION_ID: "a session of an older lar tune",
}

HEAD = b"SQLite format 3\x00"


@dataclass(frozen=True, kw_only=True)
class DatabaseKind:
    """One of the kinds of databases that lar writes.

    Attributes:
        name: what messages call it: "store".
        title: the same, for a file that is none: "store of lar".
        application_id: in the file's head.
        schema: the number of its schema, which later versions of lar make larger.
        make: makes the tables, or brings those of an older schema to this.
        room_hint: what to do where the disk is full; `{place}` is the file.
        flag: the one that names the file.
    """

    name: str
    title: str
    application_id: int
    schema: int
    make: Callable[[sqlite3.Connection], None]
    room_hint: str
    flag: str


def refuse_no_database(place: str, flag: str) -> None:
    """Refuse a place that can hold no database, whether one is there or not.

    Raises:
        UsageError: saying why.
    """
    if os.path.isdir(place):
        raise UsageError("is a folder; give a file name", flag=flag, subject=place)
    if not os.path.exists(place):
        folder = os.path.dirname(place) or os.curdir
        if not os.path.isdir(folder):
            raise UsageError("there is no such folder", "make it", flag=flag, subject=folder)
    elif not os.path.isfile(place):
        raise UsageError("is not a regular file", "give another", flag=flag, subject=place)


@contextlib.contextmanager
def open_database(place: str, kind: DatabaseKind, *, create: bool) -> Iterator[sqlite3.Connection]:
    """Open a file with SQLite, as what it may turn out to be; `Database.prepare` looks.

    Raises:
        LarError: as `explained`.
    """
    is_writable = not os.path.exists(place) or os.access(place, os.W_OK)
    mode = "rwc" if create else "rw" if is_writable else "ro"
    with explained(place, kind):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(os.path.abspath(place)))}?mode={mode}",
            uri=True,
            timeout=locks.PATIENCE_SECONDS,
            isolation_level=None,
        )
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    with contextlib.closing(connection):
        with explained(place, kind):
            # The folder is synchronised too when the journal has gone: else a power cut right after
            # a change may undo it.
            connection.execute("pragma synchronous = extra")
            connection.execute("pragma fullfsync = on")
        yield connection


@contextlib.contextmanager
def explained(place: str, kind: DatabaseKind) -> Iterator[None]:
    """Raise the errors of SQLite as those of lar.

    Raises:
        UsageError: the file is of another kind, is damaged, or may not be read or written.
        LarError: the disk is full, or another program keeps the file.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise error_of_database(error, place, kind) from None
    except OSError as error:
        raise error_of_write(error, subject=place) from None


def error_of_database(error: sqlite3.DatabaseError, place: str, kind: DatabaseKind) -> LarError:
    """Return the error of lar for what SQLite says of a file."""
    text = str(error)
    if "not a database" in text:
        return UsageError(f"is not a {kind.title}", "give another file", subject=place)
    if "malformed" in text or "corrupt" in text:
        hint = "bring back a copy of it; `sqlite3 FILE .recover` saves what can be read"
        return UsageError(f"the {kind.name} is damaged", hint, subject=place)
    if missing := re.fullmatch(r"no such (table|column): (.+)", text):
        problem = f"the {kind.name} is damaged: its {missing[1]} {missing[2]!r} is missing"
        return UsageError(problem, "bring back a copy of it, or begin another", subject=place)
    if "readonly" in text or "unable to open" in text:
        try:
            check_writable(place, "")
        except LarError as reason:
            return reason
        hint = "check its permissions and those of its folder"
        return UsageError(f"the {kind.name} cannot be opened or written", hint, subject=place)
    if "locked" in text or "busy" in text:
        holder, seconds = locks.holder_of(place), locks.PATIENCE_SECONDS
        problem = f"{holder} has locked the {kind.name} for {seconds:g} s"
        return UsageError(problem, locks.WAIT, subject=place)
    if "full" in text or "disk I/O" in text:
        # SQLite has one text for both, and for what a limit stops.
        full = error_of_full_disk(os.path.dirname(place) or os.curdir)
        if file_size_limit() is not None and (full is None or full.errno == errno.EFBIG):
            return error_of_write(OSError(errno.EFBIG, text), subject=place)
        problem, hint = f"cannot be written: {text}", kind.room_hint.format(place=place)
        return LarError(problem, hint, subject=place)
    return LarError(f"the {kind.name} cannot be used: {text}", subject=place)


class Database:
    """An open database of a kind."""

    def __init__(self, path: str, connection: sqlite3.Connection, kind: DatabaseKind) -> None:
        self.path = path
        self.kind = kind
        self._connection = connection

    def prepare(self) -> None:
        """Check that it is of its kind, and bring it to the schema of today.

        Raises:
            UsageError: it is something else, or of a newer lar.
        """
        kind = self.kind
        with self._explained():
            if self._version() == kind.schema:
                return
            with self._transaction():  # in which no other process changes it
                if self._version() < kind.schema:
                    kind.make(self._connection)
                self._connection.execute(f"pragma application_id = {kind.application_id}")
                self._connection.execute(f"pragma user_version = {kind.schema}")

    def _version(self) -> int:
        """Return the version of the schema, 0 for a file that is empty.

        Raises:
            UsageError: the file is something else, or of a newer lar.
        """
        connection, kind = self._connection, self.kind
        (version,) = connection.execute("pragma user_version").fetchone()
        (application,) = connection.execute("pragma application_id").fetchone()
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
        if application != kind.application_id and (application or version or tables):
            what = TITLES.get(application, "a database")
            raise UsageError(
                f"is {what}, but not a {kind.title}", "give another file", subject=self.path
            )
        # No lar makes them, and they compute what they want, without an end too.
        foreign = "select name from sqlite_master where type in ('view', 'trigger')"
        if found := connection.execute(foreign).fetchone():
            problem = f"the {kind.name} is damaged: {found[0]!r} in it computes something"
            raise UsageError(problem, "bring back a copy of it", subject=self.path)
        if version > kind.schema:
            raise UsageError(
                f"the {kind.name} is of a newer lar: its schema is {version}, and this lar knows "
                f"{kind.schema}",
                f"use that lar, or another {kind.name}",
                subject=self.path,
            )
        return int(version)

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self.path, self.kind)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make all changes or none."""
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            # After some errors SQLite has done so itself.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("rollback")
            raise
