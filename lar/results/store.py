"""The store of results: one SQLite file that many processes may write at once.

Each result is kept whole, as compressed JSON, beside the columns by which it is found. The columns
are for queries by hand too:

    sqlite3 history.sqlite "select id, tag, model, options, median_seconds from results"

`lar.files.database` says what a kill, a power cut or a full disk leaves of it: all that was stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import NamedTuple

from lar.errors import UsageError, check_keywords, error_of_write
from lar.files.database import (
    STORE_ID,
    Database,
    DatabaseKind,
    Step,
    open_database,
    refuse_no_database,
)
from lar.files.user_data import data_folder
from lar.measurement.summary import summarize
from lar.options.table import STORE
from lar.records.run import RunResult, read_result, record_to_json
from lar.results.facts import (
    CACHES,
    NamedResult,
    describe_kind_of_options,
    facts_of,
    fed_shapes,
)
from lar.results.figures import figure_of

LEVEL = 6  # of compression
SHA256_LETTERS = 64
FILE_NAME = "history.sqlite"


class Kind(NamedTuple):
    """What runs have in common that can be compared.

    The model is its SHA-256, or its name where a log is all that is known; a machine that is not
    known is empty.
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
        """What is not known, without which nothing can be compared; empty if all is."""
        if len(self.model) != SHA256_LETTERS:
            return "model"
        return "" if self.machine else "machine"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the columns of the store say of a result, besides the result itself."""

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
        """What runs have in common that can be compared: all but when, and by which version."""
        model = self.model_sha256 or self.model
        return Kind(
            *(model, self.options, self.machine, self.engine, self.driver, self.device),
            self.inputs,
        )


class TaggedResult(NamedTuple):
    """A result that is to be stored, its tag, and when it was stored first; empty for now."""

    result: RunResult
    tag: str = ""
    saved_at: str = ""


class Added(NamedTuple):
    """The number of a result in the store, and whether it was not there before."""

    id: int
    is_new: bool


COLUMNS = tuple(each.name for each in fields(Entry))


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which results are asked for: those that fit in all that is given.

    `model` is a file's name or the beginning of its SHA-256, `machine` and `options` pieces of
    what the columns hold; `since` and `before` are times of storing, as ISO 8601 in UTC.
    """

    ids: tuple[int, ...] = ()
    tag: str | None = None
    model: str = ""
    engine: str = ""
    machine: str = ""
    options: str = ""
    since: str = ""
    before: str = ""
    newest: int | None = None

    def where(self) -> tuple[str, list[object]]:
        """Return the condition in SQL, and its values."""
        terms: list[str] = []
        values: list[object] = []
        if self.ids:
            terms.append(f"id in ({', '.join('?' * len(self.ids))})")
            values += self.ids
        if self.model:
            terms.append("(model = ? or substr(model_sha256, 1, ?) = ?)")
            name = os.path.basename(self.model)
            values += [name, len(self.model), self.model.lower()]
        for column, value in (("tag", self.tag), ("engine", self.engine or None)):
            if value is not None:
                terms.append(f"{column} = ?")
                values.append(value)
        for column, piece in (("machine", self.machine), ("options", self.options)):
            if piece:
                terms.append(f"instr(lower({column}), lower(?))")
                values.append(piece)
        for sign, time in ((">=", self.since), ("<", self.before)):
            if time:
                terms.append(f"saved_at {sign} ?")
                values.append(time)
        return " and ".join(terms) or "true", values


def default_path() -> str:
    """Return where the store is if nothing else is said: in the folder of the user's data."""
    return os.path.join(data_folder(), FILE_NAME)


@check_keywords
def save(result: RunResult, *, tag: str = "", store: str | None = None) -> int:
    """Put a result into the store and return its number there.

    Args:
        result: what `lar.run` or `lar.read_result` returned.
        tag: a name by which `lar history` finds it, with others of the same tag.
        store: the store's file, made if it is missing; None for the user's own.

    Raises:
        UsageError: the file is not a store, or cannot be written.
        LarError: the disk is full.
    """
    with open_store(store, create=True) as opened:
        (added,) = opened.add([result], tag)
    return added.id


@contextlib.contextmanager
def open_store(path: str | None = None, *, create: bool = False) -> Iterator[Store]:
    """Open a store, and bring an older one to the schema of today.

    Args:
        path: its file; None for the user's own.
        create: make it if it is missing.

    Raises:
        UsageError: there is none, the file is something else, or it cannot be read or written.
        LarError: the disk is full, or another program has the store for too long.
    """
    place = default_path() if path is None else path
    if create:
        make_folder(place, is_own=path is None)
    refuse_no_store(place, is_own=path is None, create=create)
    with open_database(place, KIND, create=create) as connection:
        store = Store(place, connection, KIND)
        store.prepare()
        yield store


def make_folder(place: str, *, is_own: bool) -> None:
    """Make the folder of the user's own store; another place's has to be there.

    Raises:
        UsageError: it cannot be made.
    """
    if is_own:
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        except OSError as error:
            raise error_of_write(
                error, subject=os.path.dirname(place), hint=f"{STORE.usage} puts it elsewhere"
            ) from None


def refuse_no_store(place: str, *, is_own: bool, create: bool) -> None:
    """Refuse a place that can hold no store, or has none.

    Raises:
        UsageError: saying why.
    """
    if not create and not os.path.exists(place):
        problem = "no result is stored yet" if is_own else "there is no such store"
        raise UsageError(problem, "`lar MODEL --save` stores the result of a run", subject=place)
    refuse_no_database(place, STORE.flag)


class Store(Database):
    """An open store."""

    def add(self, results: Iterable[RunResult], tag: str = "") -> tuple[Added, ...]:
        """Store results, all or none.

        One that is there already with this tag is not stored again.

        Raises:
            LarError: the disk is full.
        """
        return self.add_tagged(TaggedResult(result, tag) for result in results)

    def add_tagged(self, results: Iterable[TaggedResult]) -> tuple[Added, ...]:
        """Store results, each with a tag of its own, as `add` does."""
        rows = [row_of(*each) for each in results]
        with self._explained(), self._transaction():
            return tuple(map(self._insert, rows))

    def _insert(self, row: dict[str, object]) -> Added:
        known = self._connection.execute(
            "select id from results where content_sha256 = ? and tag = ?",
            (row["content_sha256"], row["tag"]),
        ).fetchone()
        if known:
            return Added(int(known[0]), False)
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        cursor = self._connection.execute(f"insert into results ({names}) values ({marks})", row)
        return Added(int(cursor.lastrowid or 0), True)

    def entries(self, selection: Selection | None = None) -> list[Entry]:
        """Return what the columns say of the results selected, oldest first."""
        selection = selection or Selection()
        where, values = selection.where()
        limit = "" if selection.newest is None else f" limit {selection.newest:d}"
        query = f"select {', '.join(COLUMNS)} from results where {where} order by id desc{limit}"
        with self._explained():
            rows = self._connection.execute(query, values).fetchall()
        return [Entry(**dict(zip(COLUMNS, row, strict=True))) for row in reversed(rows)]

    def result(self, number: int) -> RunResult:
        """Return a result.

        Raises:
            UsageError: there is none of that number, or it is damaged.
        """
        with self._explained():
            row = self._connection.execute(
                "select result from results where id = ?", (number,)
            ).fetchone()
        if row is None:
            raise UsageError(
                f"the store has no result {number}",
                "`lar history list` lists them",
                subject=self.path,
            )
        try:
            return read_result(zlib.decompress(row[0]))
        except (zlib.error, ValueError) as error:
            raise UsageError(
                f"result {number} is damaged, or of a newer lar: {error}", subject=self.path
            ) from None

    def results(self, entries: Sequence[Entry]) -> list[RunResult]:
        """Return the results of entries."""
        return [self.result(entry.id) for entry in entries]

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove results for good, and give their room back.

        Raises:
            LarError: the store cannot be written.
        """
        with self._explained():
            with self._transaction():
                for number in numbers:
                    self._connection.execute("delete from results where id = ?", (number,))
            with contextlib.suppress(sqlite3.OperationalError):  # needs room, and nobody else
                self._connection.execute("vacuum")


def row_of(result: RunResult, tag: str, saved_at: str) -> dict[str, object]:
    """Return the columns of a result that is to be stored."""
    content = record_to_json(result)
    return {
        "saved_at": saved_at or datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tag": tag,
        **columns_of_first(result),
        **columns_of_second(result),
        "content_sha256": hashlib.sha256(content).hexdigest(),
        "result_bytes": len(content),
        "result": zlib.compress(content, LEVEL),
    }


def kind_of(result: RunResult) -> Kind:
    """Return the kind of a result that is in no store."""
    facts = facts_of(NamedResult("", result))
    return Kind(
        model=(result.model.sha256 if result.model else "") or facts["model"],
        options=describe_kind_of_options(facts),
        machine=facts["machine"],
        engine=facts["engine"],
        driver=facts["driver"],
        device=facts["device"],
        inputs=fed_shapes(result),
    )


def columns_of_first(result: RunResult) -> dict[str, object]:
    """Return the columns that stores have had from the first on."""
    facts, summary = facts_of(NamedResult("", result)), result.summary or summarize(result)
    return {
        "started_at": result.started_at,
        "status": result.status,
        "model": facts["model"],
        "model_sha256": result.model.sha256 if result.model else "",
        "engine": facts["engine"],
        "engine_version": facts["version"],
        "driver": facts["driver"],
        "device": facts["device"],
        "options": describe_kind_of_options(facts),
        "machine": facts["machine"],
        "samples": summary.count if summary else 0,
        "median_seconds": summary.median if summary else None,
    }


def columns_of_second(result: RunResult) -> dict[str, object]:
    """Return the columns that the second schema has added."""
    summary, (_, (run,)) = result.summary or summarize(result), figure_of([result])
    return {
        "inputs": fed_shapes(result),
        "disturbed": summary.disturbed_count if summary else 0,
        "cpu_median_seconds": summary.cpu_median if summary else None,
        "trust": run.trust,
        "trusted_seconds": run.median if run.is_trusted else None,
    }


def make_first_schema(connection: sqlite3.Connection) -> None:
    """The first schema. `sqlar_uncompress(result, result_bytes)` of the `sqlite3` program gives the
    JSON of a result."""
    connection.execute(
        """
        create table results (
            id integer primary key autoincrement,
            saved_at text not null,
            tag text not null,
            started_at text not null,
            status text not null,
            model text not null,
            model_sha256 text not null,
            engine text not null,
            engine_version text not null,
            driver text not null,
            device text not null,
            options text not null,
            machine text not null,
            samples integer not null,
            median_seconds real,
            content_sha256 text not null,
            result_bytes integer not null,
            result blob not null,
            unique (content_sha256, tag)
        )
        """
    )


def make_second_schema(connection: sqlite3.Connection) -> None:
    """The shapes that runs were fed with, disturbances, the figure to trust, an index of kinds."""
    for column in (
        "inputs text not null default ''",
        "disturbed integer not null default 0",
        "cpu_median_seconds real",
        "trust text not null default ''",
        "trusted_seconds real",
    ):
        connection.execute(f"alter table results add column {column}")
    numbers = [number for (number,) in connection.execute("select id from results")]
    for number in numbers:
        (content,) = connection.execute(
            "select result from results where id = ?", (number,)
        ).fetchone()
        with contextlib.suppress(zlib.error, ValueError):  # a damaged one stays as it is
            columns = columns_of_second(read_result(zlib.decompress(content)))
            changes = ", ".join(f"{column} = :{column}" for column in columns)
            connection.execute(
                f"update results set {changes} where id = :id", {**columns, "id": number}
            )
    connection.execute("create index results_kind on results (model_sha256, machine, options)")


def make_third_schema(connection: sqlite3.Connection) -> None:
    """Options without the places of caches: runs with the same cache elsewhere are of one kind."""
    terms = " or ".join("instr(options, ?)" for _ in CACHES)
    query = f"select id from results where {terms}"
    numbers = [number for (number,) in connection.execute(query, sorted(CACHES))]
    for number in numbers:
        (content,) = connection.execute(
            "select result from results where id = ?", (number,)
        ).fetchone()
        with contextlib.suppress(zlib.error, ValueError):  # a damaged one stays as it is
            facts = facts_of(NamedResult("", read_result(zlib.decompress(content))))
            options = describe_kind_of_options(facts)
            connection.execute("update results set options = ? where id = ?", (options, number))


# Each step brings a store from the schema of its place to the next; a new store goes all of them.
STEPS: tuple[Step, ...] = (make_first_schema, make_second_schema, make_third_schema)

KIND = DatabaseKind(
    name="store",
    title="store of lar",
    application_id=STORE_ID,
    steps=STEPS,
    room_hint="make room on the disk, or write the result with --json FILE",
    flag=STORE.flag,
)
