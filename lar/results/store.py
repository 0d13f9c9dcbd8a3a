"""The store of results: one SQLite file that many processes may write at once.

Each result is kept as compressed JSON, with columns by which it is found. The columns can also be
queried by hand:

    sqlite3 history.sqlite "select id, tag, model, options, median_seconds from results"

A kill, a power cut or a full disk does not remove a stored result: see `lar.files.database`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shlex
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, NamedTuple

from lar.errors import UsageError, writing
from lar.files.database import Database, explained, open_database, refuse_no_database
from lar.files.unpacking import unpack_zlib
from lar.files.work_folders import data_folder
from lar.measurement.summary import summarize
from lar.options.table import STORE
from lar.records.record import record_to_json
from lar.records.run import RunResult, read_result
from lar.results import describe_kind_of_options, facts_of, fed_shapes, figure_of

SCHEMA = 3
LEVEL = 3  # of compression: higher levels take thrice as long and save a tenth
# The sizes of zlib's window and of its tables for a small result: to clear the usual tables would
# take as long as to pack it. A large result is packed better with the usual sizes.
SMALL = (13, 6)
SHA256_LETTERS = 64
FILE_NAME = "history.sqlite"

DAMAGED = "damaged"
# In a damaged store, the column may have another type.
PACKED = "select cast(result as blob) from results where id = ?"
OF_SAVING = ("tag", "saved_at")  # columns that are not made from the result
SURROGATE = re.compile("[\ud800-\udfff]")


class ColumnType(NamedTuple):
    """A type of column: its SQL name, the value for "unknown", and a function that checks values.

    Another program, or damage, may leave any value in a column.
    """

    sql: str
    empty: Any
    fits: Callable[[Any], bool]


# The column types, by the type of the field in `Entry`.
TYPES = {
    "int": ColumnType("integer not null default 0", 0, lambda it: type(it) is int and it >= 0),
    "str": ColumnType(
        "text not null default ''", "", lambda it: type(it) is str and not SURROGATE.search(it)
    ),
    "float | None": ColumnType(
        "real", None, lambda it: it is None or (type(it) is float and 0 <= it < math.inf)
    ),
}


class Kind(NamedTuple):
    """The facts that runs must share to be compared.

    `model` is a SHA-256, or a name if only a log is known. `machine` is empty if the machine is
    unknown.
    """

    model: str
    options: str
    machine: str
    engine: str
    driver: str
    device: str
    inputs: str

    @property
    def unknown(self) -> str:
        """The unknown fact that prevents comparisons, "model" or "machine"; else empty."""
        if len(self.model) != SHA256_LETTERS:
            return "model"
        return "" if self.machine else "machine"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The columns of the store about a result, without the result itself.

    `id` is 0 for a result that is not in a store. If a column has an impossible value, the status
    is `damaged`, and the column is empty.
    """

    id: int
    saved_at: str
    tag: str
    started_at: str
    status: str
    model: str
    model_sha256: str
    engine: str
    engine_version: str
    driver: str
    device: str
    options: str
    machine: str
    samples: int
    median_seconds: float | None
    inputs: str
    disturbed: int
    cpu_median_seconds: float | None
    trust: str
    trusted_seconds: float | None
    content_sha256: str
    result_bytes: int

    @property
    def kind(self) -> Kind:
        """The facts that runs must share to be compared."""
        rest = (getattr(self, name) for name in Kind._fields[1:])
        return Kind(self.model_sha256 or self.model, *rest)


COLUMNS = {each.name: TYPES[str(each.type)] for each in fields(Entry) if each.name != "id"}


def entry_of(number: int, *values: Any) -> Entry:
    """Return the entry that a row of the store describes; `values` are the row's columns."""
    found: dict[str, Any] = {
        name: value if kind.fits(value) else kind.empty
        for (name, kind), value in zip(COLUMNS.items(), values, strict=True)
    }
    status = found["status"] if [*found.values()] == [*values] else DAMAGED
    return Entry(id=number, **{**found, "status": status})


class Added(NamedTuple):
    """The number of a result in the store, and whether the result was new to the store."""

    id: int
    is_new: bool


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Conditions that select results: a result must fit all conditions that are given.

    `model` is a file's name or the beginning of its SHA-256. `machine` is a part of the text in the
    column `machine`, and `options` is a part of the text in the column `options`. `since` and
    `before` limit the time at which a result was stored, as ISO 8601 in UTC.
    """

    ids: tuple[int, ...] = ()
    tag: str | None = None
    model: str = ""
    engine: str = ""
    machine: str = ""
    options: str = ""
    since: str = ""
    before: str = ""

    @property
    def values(self) -> dict[str, object]:
        """The values for a `SELECT`."""
        own = {"ids": f",{','.join(map(str, self.ids))},", "name": os.path.basename(self.model)}
        return {**vars(self), **own}


SELECT = f"""
    select id, {", ".join(COLUMNS)} from results where
    (:ids = ',,' or instr(:ids, ',' || id || ',')) and (:tag is null or tag = :tag)
    and (:model = '' or model = :name or instr(model_sha256, lower(:model)) = 1)
    and (:engine = '' or engine = :engine)
    and (:machine = '' or instr(lower(machine), lower(:machine)))
    and (:options = '' or instr(lower(options), lower(:options)))
    and (:since = '' or saved_at >= :since) and (:before = '' or saved_at < :before)
    order by id
"""


def default_path() -> str:
    """Return the path of the user's own store, in the folder of the user's data."""
    return os.path.join(data_folder(), FILE_NAME)


def save(result: RunResult, *, tag: str = "", store: str | None = None) -> int:
    """Put a result into the store and return its number there.

    Args:
        result: what `lar.run` or `lar.read_result` returned.
        tag: a name by which `lar history` finds all results with this tag.
        store: the store's file, which is made if it is missing; by default the user's own store.

    Raises:
        UsageError: the file is not a store, or cannot be written.
        LarError: the disk is full.
    """
    with open_store(store, create=True) as opened:
        (added,) = opened.add([result], tag)
    return added.id


@contextlib.contextmanager
def open_store(path: str | None = None, *, create: bool = False) -> Iterator[Store]:
    """Open a store; an older store is updated to the present schema.

    Args:
        path: the store's file; by default the user's own store.
        create: make the store if it is missing.

    Raises:
        UsageError: the file is missing, is not a store, or cannot be read or written.
        LarError: the disk is full, or another program keeps the store locked for too long.
    """
    place = default_path() if path is None else path
    if create and path is None:
        make_folder(os.path.dirname(place))
    if not create and not os.path.exists(place):
        problem = "no result is stored yet" if path is None else "there is no such store"
        raise UsageError(problem, "`lar MODEL --save` stores the result of a run", subject=place)
    refuse_no_database(place, STORE.flag)
    with open_database(place, create=create) as connection:
        store = Store(place, connection)
        store.prepare(SCHEMA, make_table)
        yield store


def make_folder(folder: str) -> None:
    """Make the folder of the user's own store; the folder of any other store must exist.

    Raises:
        UsageError: the folder cannot be made.
    """
    with writing(folder, hint=f"{STORE.usage} puts it elsewhere"):
        os.makedirs(folder, mode=0o700, exist_ok=True)


class Store(Database):
    """An open store."""

    def add(self, results: Iterable[RunResult], tag: str = "") -> tuple[Added, ...]:
        """Store all results; if an error occurs, store no result.

        If the store already has a result with this tag, the result is not stored again.

        Raises:
            LarError: the disk is full.
        """
        return self.add_rows([row_of(result, tag) for result in results])

    def add_rows(self, rows: Iterable[dict[str, object]]) -> tuple[Added, ...]:
        """Store the rows of another store, which are read one at a time.

        If a row has an error, no row is stored.
        """
        with explained(self.path), self._transaction():
            return tuple(map(self._insert, rows))

    def rows(self, entries: Sequence[Entry]) -> Iterator[dict[str, object]]:
        """Return the rows of entries, to add to another store; each row is read when it is needed.

        Raises:
            UsageError: a row is damaged.
        """
        self.refuse_damaged(entries)
        return map(self._row, entries)

    def _row(self, entry: Entry) -> dict[str, object]:
        names = (*COLUMNS, "result")
        query = f"select {', '.join(names)} from results where id = ?"
        with explained(self.path):
            row = self._connection.execute(query, (entry.id,)).fetchone()
        return dict(zip(names, row, strict=True))

    def _insert(self, row: dict[str, object]) -> Added:
        known = self._connection.execute(
            "select id from results where content_sha256 = :content_sha256 and tag = :tag", row
        ).fetchone()
        if known:
            return Added(int(known[0]), False)
        names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
        cursor = self._connection.execute(f"insert into results ({names}) values ({marks})", row)
        return Added(int(cursor.lastrowid or 0), True)

    def entries(self, selection: Selection | None = None) -> list[Entry]:
        """Return the entries of the selected results, oldest first."""
        values = (selection or Selection()).values
        with explained(self.path):
            rows = self._connection.execute(SELECT, values).fetchall()
        return [entry_of(*row) for row in rows]

    def refuse_damaged(self, entries: Iterable[Entry]) -> None:
        """Refuse results with an impossible value in a column.

        Raises:
            UsageError: a result is damaged.
        """
        for number in (it.id for it in entries if it.status == DAMAGED):
            raise self.damaged(number)

    def damaged(self, number: int, why: str = "") -> UsageError:
        """Return the error for a damaged result."""
        hint = f"`lar history prune {number} --yes --store {shlex.quote(self.path)}` removes it"
        return UsageError(f"result {number} is damaged{why}", hint, subject=self.path)

    def result(self, number: int) -> RunResult:
        """Return a result.

        Raises:
            UsageError: the store has no result with this number, or the result is damaged.
        """
        with explained(self.path):
            row = self._connection.execute(PACKED, (number,)).fetchone()
        if row is None:
            hint = "`lar history list` lists them"
            raise UsageError(f"the store has no result {number}", hint, subject=self.path)
        try:
            return read_result(unpack_zlib(row[0], f"{self.path}: result {number}"))
        except ValueError as error:
            raise self.damaged(number, f", or of a newer lar: {error}") from None

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove results for good, and free their space.

        Raises:
            LarError: the store cannot be written.
        """
        with explained(self.path):
            with self._transaction():
                rows = [(number,) for number in numbers]
                self._connection.executemany("delete from results where id = ?", rows)
            with contextlib.suppress(sqlite3.OperationalError):  # it needs space, and no other user
                self._connection.execute("vacuum")


def row_of(result: RunResult, tag: str) -> dict[str, object]:
    """Return the row for a result to store."""
    content = record_to_json(result)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, *(SMALL if len(content) < 1 << 14 else ()))
    packed = packer.compress(content) + packer.flush()
    return {**columns_of(result, content, tag, now), "result": packed}


def kind_of(result: RunResult) -> Kind:
    """Return the kind of a result that is not in a store."""
    return Entry(id=0, **columns_of(result)).kind


def columns_of(
    result: RunResult, content: bytes = b"", tag: str = "", saved_at: str = ""
) -> dict[str, Any]:
    """Return the store's columns for a result; `content` is its JSON."""
    facts = facts_of(result)
    summary = result.summary or summarize(result)
    _, (run,) = figure_of([result])
    return {
        **{name: facts[name] for name in ("model", "machine", "engine", "driver", "device")},
        "saved_at": saved_at,
        "tag": tag,
        "started_at": result.started_at,
        "status": result.status,
        "model_sha256": result.model.sha256 if result.model else "",
        "engine_version": facts["version"],
        "options": describe_kind_of_options(facts),
        "samples": run.sample_count,
        "median_seconds": summary.median if summary else None,
        "inputs": fed_shapes(result),
        "disturbed": run.disturbed_count,
        "cpu_median_seconds": summary.cpu_median if summary else None,
        "trust": run.trust,
        "trusted_seconds": run.median if run.is_trusted else None,
        "content_sha256": hashlib.sha256(content).hexdigest(),
        "result_bytes": len(content),
    }


def make_table(connection: sqlite3.Connection) -> None:
    """Make the table; update an older table, and compute its columns again from the results.

    `sqlar_uncompress(result, result_bytes)` of the `sqlite3` program gives the JSON of a result.
    """
    columns = [f"{name} {kind.sql}" for name, kind in COLUMNS.items()]
    connection.execute(
        f"create table if not exists results (id integer primary key autoincrement, "
        f"{', '.join(columns)}, result blob not null, unique (content_sha256, tag))"
    )
    there = {row[1] for row in connection.execute("pragma table_info(results)")}
    for column in columns:
        if column.partition(" ")[0] not in there:
            connection.execute(f"alter table results add column {column}")
    for (number,) in connection.execute("select id from results").fetchall():
        make_columns(connection, number)
    connection.execute(
        "create index if not exists results_kind on results (model_sha256, machine, options)"
    )


def make_columns(connection: sqlite3.Connection, number: int) -> None:
    """Compute the columns of a stored result again; a damaged result keeps its columns."""
    (packed,) = connection.execute(PACKED, (number,)).fetchone()
    with contextlib.suppress(UsageError, ValueError):
        content = unpack_zlib(packed, "")
        columns = columns_of(read_result(content), content)
        changes = ", ".join(f"{name} = :{name}" for name in columns if name not in OF_SAVING)
        connection.execute(
            f"update results set {changes} where id = :id", {**columns, "id": number}
        )
