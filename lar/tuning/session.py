"""The session of a search: one SQLite file with its request, every trial, and the caches.

A trial and the caches that it made are recorded at once. Each trial is kept whole, as compressed
JSON, beside columns for queries by hand:

    sqlite3 net.tune "select trial, candidate, status, median_seconds, ratio from measurements"

A session is valid for the machine, the versions, the models and the inputs that it names: times of
others are not comparable, and caches of others may be wrong. `lar.files.database` says what a kill,
a power cut or a full disk leaves of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import math
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lar import __version__
from lar.engines import engine_named
from lar.engines.formats import HEAD_SIZE
from lar.errors import LarError, UsageError, count_of, error_of_write, printable
from lar.files.database import (
    SESSION_ID,
    Database,
    DatabaseKind,
    Step,
    open_database,
    refuse_no_database,
)
from lar.files.input_file import cannot_read, open_input
from lar.files.path_conflicts import paths_in
from lar.measurement.machine import read_machine
from lar.measurement.statistics import percentile_of
from lar.measurement.turns import log_ratios_of
from lar.options.command_line import format_flags
from lar.options.table import INPUT, PYTHON
from lar.records.choices import OptionValue
from lar.records.facts import MachineFacts, ModelFile
from lar.records.run import record_from_json, record_to_json
from lar.records.tuning import (
    BASELINE,
    Ending,
    ModelSpace,
    Trial,
    TrialKind,
    TrialRow,
    TuneRequest,
    name_of,
    options_of,
)
from lar.results.facts import describe_machine
from lar.running.model_weights import read_with_weights

R = TypeVar("R")

FLAG = "--session"
SUFFIX = ".tune"
LEVEL = 1  # of compression: samples hardly shrink more at higher ones, weights in caches not at all
PART_BYTES = 1 << 24  # of a cache; SQLite holds no more than 1 GB in one value
# The byte of the file that whoever searches has locked: none of those that SQLite locks, which are
# the 512 from 1 GiB on.
LOCKED_BYTE = (1 << 30) + (1 << 12)
SHA256_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class SessionFacts:
    """What the trials of a session are valid for.

    Attributes:
        engines: the installed versions, by the name of the engine; empty where it is not known.
        models: those of the request's spaces, in their order.
        inputs: the files that the runs are fed with.
        folder: where the search was begun, from which paths lead.
    """

    machine: MachineFacts
    engines: dict[str, str] = field(default_factory=dict)
    models: tuple[ModelFile, ...] = ()
    inputs: tuple[ModelFile, ...] = ()
    lar_version: str = __version__
    folder: str = ""


class Elsewhere(NamedTuple):
    """Another machine, where candidates are measured, and the versions of its engines by name."""

    machine: MachineFacts
    engines: Mapping[str, str] = {}


class Planned(NamedTuple):
    """What is asked for of a model with its twins, and the machine that it is measured on, None for
    this one."""

    request: TuneRequest
    elsewhere: Elsewhere | None = None


class EndedRow(NamedTuple):
    """A row of a trial that goes on, whose process has ended; `seconds` are those since the trial
    began, and `place` is that of the row in it."""

    trial: int
    kind: TrialKind
    began: float
    seconds: float
    place: int
    row: TrialRow


class Opening(NamedTuple):
    """A process that has searched with the session; `ending` is empty where it was killed."""

    began_at: str
    process: int
    ending: str


@contextlib.contextmanager
def open_session(
    path: str,
    request: TuneRequest | None = None,
    *,
    budget_seconds: float | None = None,
    facts: SessionFacts | None = None,
    elsewhere: Elsewhere | None = None,
) -> Iterator[TuningSession]:
    """Open a session to search with it; no other process can meanwhile.

    Args:
        path: its file.
        request: what is asked for. A session that is missing is begun with it, one of the same
            request goes on. None goes on with what the session was begun with.
        budget_seconds: of all sittings together, instead of that of the request.
        facts: what `read_facts` has returned for the request, if that was called.
        elsewhere: where candidates are measured; None for this machine.

    Raises:
        UsageError: there is none, it is of another request, machine, version or model, another
            process searches with it, or the file is something else, damaged, or of a newer lar.
        LarError: the disk is full.
    """
    if request is None and not os.path.exists(path):
        hint = "`lar tune MODEL --session FILE` begins one"
        raise UsageError("there is no such session", hint, subject=path)
    refuse_no_database(path, FLAG)
    if request is not None and facts is None:
        facts = read_facts(request, elsewhere)
    with held(path), open_database(path, KIND, create=True) as connection:
        session = TuningSession(path, connection, KIND)
        session.prepare()
        if request is not None and facts is not None and session.is_empty:
            session.begin(request, facts)
        session.load()
        if request is not None and facts is not None:
            session.refuse_other_request(request, facts)
        if facts is None:
            refuse_missing(path, session.facts)
            facts = read_facts(session.request, elsewhere)
        session.refuse_other_facts(facts)
        session.take_up(request, budget_seconds)
        yield session


@contextlib.contextmanager
def read_session(path: str) -> Iterator[TuningSession]:
    """Open a session of any machine to look at it, also while another process searches with it.

    Raises:
        UsageError: there is none, or the file is something else, damaged, or of a newer lar.
    """
    if not os.path.exists(path):
        raise UsageError("there is no such session", "check the path", subject=path)
    refuse_no_database(path, FLAG)
    with open_database(path, KIND, create=False) as connection:
        session = TuningSession(path, connection, KIND)
        session.prepare()
        session.load()
        yield session


def find_place(request: TuneRequest, facts: SessionFacts | None = None, folder: str = "") -> str:
    """Return where the session of a request is if nothing else is said: in the current folder.

    It is called after the first model. Where that is the session of something else, it has a
    number: `net-2.tune`; a session of the same request goes on.

    Raises:
        UsageError: a model cannot be read.
    """
    facts = facts or read_facts(request)
    stem = os.path.splitext(os.path.basename(request.spaces[0].model))[0] or "session"
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        place = os.path.join(folder, name + SUFFIX)
        if not os.path.exists(place) or is_of(place, request, facts):
            return place
        number += 1


def is_of(place: str, request: TuneRequest, facts: SessionFacts) -> bool:
    """Return whether a file is a session of the same request that is valid for these facts."""
    try:
        with read_session(place) as session:
            session.refuse_other_request(request, facts)
            session.refuse_other_facts(facts)
    except LarError:
        return False
    return True


# What a session is valid for


def read_facts(request: TuneRequest, elsewhere: Elsewhere | None = None) -> SessionFacts:
    """Return the facts of the machine where candidates are measured, and of the files that a
    request names.

    Raises:
        UsageError: a file is missing or cannot be read.
    """
    names = [space.engine for space in request.spaces]
    return SessionFacts(
        machine=elsewhere.machine if elsewhere else read_machine(),
        engines={name: elsewhere.engines.get(name, "") for name in names}
        if elsewhere
        else {space.engine: version_of(space) for space in request.spaces},
        models=tuple(
            read_with_weights(space.model, engine_named(space.engine)) for space in request.spaces
        ),
        inputs=tuple(read_inputs(request.spaces)),
        folder=os.getcwd(),
    )


def refuse_missing(path: str, facts: SessionFacts) -> None:
    """Refuse to resume a session where its files are not.

    Raises:
        UsageError: naming the first that is missing.
    """
    files = [each.path for each in (*facts.models, *facts.inputs)]
    for file in (*files, *(path for model in facts.models for path in model.weights)):
        if not os.path.exists(file):
            elsewhere = os.path.join(facts.folder, file)
            there = facts.folder != os.getcwd() and os.path.exists(elsewhere)
            raise UsageError(
                f"its file {file} is not here",
                f"the session was begun in {facts.folder}: resume it there"
                if there
                else "bring it back, or begin another session",
                subject=path,
            )


def version_of(space: ModelSpace) -> str:
    """Return the installed version of a space's engine, empty where it is not known."""
    if space.options.get(PYTHON.key):  # its worker has another Python, with packages of its own
        return ""
    return engine_named(space.engine).version


def read_inputs(spaces: Iterable[ModelSpace]) -> Iterator[ModelFile]:
    """Yield the files that the runs are fed with, as far as they are single files.

    Raises:
        UsageError: one cannot be read.
    """
    given = [space.options.get(INPUT.key) for space in spaces]
    texts = [(each,) if isinstance(each, str) else each for each in given]
    known = chain.from_iterable(each for each in texts if isinstance(each, tuple))
    for path in dict.fromkeys(paths_in(known)):
        if os.path.isfile(path):
            with open_input(path, INPUT.flag) as file:
                digest, size = hashlib.sha256(), 0
                try:
                    while chunk := file.read(1 << 20):
                        digest.update(chunk)
                        size += len(chunk)
                except OSError as error:
                    raise cannot_read(path, error, INPUT.flag) from None
            yield ModelFile(path=path, size_bytes=size, sha256=digest.hexdigest())


def differences_of(before: SessionFacts, now: SessionFacts) -> list[str]:
    """Return in what two sets of facts differ, in words; empty if trials of one are valid for the
    other."""
    pairs = [
        *zip(words_of_machine(before.machine), words_of_machine(now.machine), strict=True),
        *(
            ((f"the version of {name}", old), ("", now.engines.get(name) or old))
            for name, old in before.engines.items()
            if old
        ),
        (("the version of lar", before.lar_version), ("", now.lar_version)),
    ]
    found = [f"{name} is {own}, not {its}" for (name, its), (_, own) in pairs if own != its]
    for kind in ("models", "inputs"):
        its_files: Sequence[ModelFile] = getattr(before, kind)
        own_files: Sequence[ModelFile] = getattr(now, kind)
        if len(its_files) != len(own_files):
            found.append(f"the number of its {kind} is {len(own_files)}, not {len(its_files)}")
        for its, own in zip(its_files, own_files, strict=False):
            found += differences_of_files(its, own)
    return found


def differences_of_files(before: ModelFile, now: ModelFile) -> Iterator[str]:
    """Yield which of a model's files have other contents; that of an older session has no weights
    noted."""
    files = [(before.path, before.sha256, now.sha256)]
    for (path, its), own in zip(before.weights.items(), now.weights.values(), strict=False):
        files.append((path, its, own))
    for path, its, own in files:
        if its != own:
            yield f"{os.path.basename(path)} has SHA-256 {short(own)}, not {short(its)}"


def words_of_machine(machine: MachineFacts) -> list[tuple[str, str]]:
    """Return what a machine is known by; its memory in GiB, as kernels keep more or less of it."""
    memory, limit = machine.memory_bytes, machine.cpu_limit
    return [
        ("the processor", machine.processor),
        ("the number of cores", f"{machine.usable_cores} of {machine.cores}"),
        ("the memory", "unknown" if memory is None else f"{memory / 2**30:.0f} GiB"),
        ("the system", machine.system),
        ("the limit of CPU time", "none" if limit is None else f"{limit:g} CPUs"),
    ]


def short(sha256: str) -> str:
    return sha256[:SHA256_SHOWN]


def differences_of_requests(
    before: TuneRequest, now: TuneRequest, files: Sequence[ModelFile] = ()
) -> list[str]:
    """Return in what two requests differ, as far as their trials cannot stand for both.

    Budgets and seeds may differ, and the paths of models and inputs, whose content is compared
    elsewhere; `files` are the inputs of both.
    """
    found = [
        f"{name} {old}, not {new}"
        for name, old, new in (
            ("--objective", before.objective, now.objective),
            ("--tolerance", before.tolerance or "of its own", now.tolerance or "of its own"),
            ("--margin", before.margin, now.margin),
            ("--allow", *(",".join(sorted(it.allowed)) or "nothing" for it in (before, now))),
        )
        if old != new
    ]
    if len(before.spaces) != len(now.spaces):
        return [*found, f"{count_of(len(before.spaces), 'model')}, not {len(now.spaces)}"]
    for old_space, new_space in zip(before.spaces, now.spaces, strict=True):
        if old_space.engine != new_space.engine:
            found.append(f"the engine {old_space.engine}, not {new_space.engine}")
        elif unplaced(old_space.options, files) != unplaced(new_space.options, files):
            theirs, own = (
                format_flags(it.options) or "no options" for it in (old_space, new_space)
            )
            found.append(f"{theirs}, not {own}")
        elif old_space.dimensions != new_space.dimensions:
            extents = (before.extent, now.extent)
            theirs, own = (f"--space {it}" for it in extents)
            found.append(f"{theirs}, not {own}" if theirs != own else "another space")
    return found


def unplaced(
    options: Mapping[str, OptionValue], files: Sequence[ModelFile]
) -> dict[str, OptionValue]:
    """Return options with the content of input files instead of their paths: arrays from Python
    stand in other files each time."""
    texts = options.get(INPUT.key, ())
    changed = [texts] if isinstance(texts, str) else [*texts] if isinstance(texts, tuple) else []
    for file in sorted(files, key=lambda each: -len(each.path)):
        changed = [text.replace(file.path, file.sha256) for text in changed]
    return {**options, INPUT.key: tuple(changed)}


# Who searches with it


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Keep a session for this process alone, until it ends in whatever way; make its file if it is
    missing.

    The system lets go of the lock with the process, and those who look at the session do not meet
    it.

    Raises:
        UsageError: another process has it, or the file cannot be written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        hint = f"choose another place with {FLAG}"
        raise error_of_write(error, flag=FLAG, subject=path, hint=hint) from None
    try:
        if not try_to_lock(file):
            owner = owner_of(path)
            raise UsageError(
                f"another process searches with this session{f' ({owner})' if owner else ''}",
                f"wait until it has ended, or give another {FLAG}",
                subject=path,
            )
        yield
    finally:
        os.close(file)


def try_to_lock(file: int) -> bool:
    """Lock a file; return whether no other process has. Where nothing can be locked, nobody has.

    The lock is that of the open file where the system has such: else it would be gone as soon as
    this process closes another descriptor of the same file.
    """
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, LOCKED_BYTE, 1, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        else:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCKED_BYTE)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def owner_of(path: str) -> str:
    """Return which process searches with a session, as far as that is known."""
    try:
        with read_session(path) as session:
            last = session.openings[-1]
    except (LarError, IndexError):
        return ""
    return f"process {last.process}, since {last.began_at}"


# The file


class TuningSession(Database):
    """An open session.

    Attributes:
        request: what was asked for, with the budget of all sittings.
        facts: what the trials are valid for.
        trials: all that were recorded, in their order.
        openings: the processes that have searched with it.
        began_at: when the search began.
    """

    request: TuneRequest
    facts: SessionFacts
    trials: list[Trial]
    began_at: str

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked for yet."""
        return not self._rows("select id from session")

    @property
    def spent_seconds(self) -> float:
        """The time of the search up to the end of its last trial, in all sittings."""
        return max((trial.began + trial.seconds for trial in self.trials), default=0.0)

    @property
    def openings(self) -> list[Opening]:
        return [
            Opening(*row)
            for row in self._rows("select began_at, process, ending from openings order by id")
        ]

    @property
    def ending(self) -> Ending | None:
        """How the search ended the last time, None where it is not over or was killed."""
        endings = [opening.ending for opening in self.openings]
        return endings[-1] or None if endings else None  # type: ignore[return-value]

    @property
    def cache_names(self) -> tuple[str, ...]:
        """The names of the caches that it has, sorted."""
        return tuple(name for (name,) in self._rows("select name from caches order by name"))

    def begin(self, request: TuneRequest, facts: SessionFacts) -> None:
        """Record what is asked for, and what its trials will be valid for.

        Raises:
            LarError: the disk is full.
        """
        row = {
            "id": 1,
            "began_at": now(),
            "models": ", ".join(os.path.basename(space.model) for space in request.spaces),
            "engines": ", ".join(f"{name} {it}".strip() for name, it in facts.engines.items()),
            "machine": describe_machine(facts.machine),
            "lar_version": facts.lar_version,
            **columns_of_request(request),
            **packed("facts", record_to_json(facts)),
        }
        with self._explained(), self._transaction():
            self._insert("session", row)

    def load(self) -> None:
        """Read all but the caches.

        Raises:
            UsageError: nothing was begun in it, or it is damaged.
        """
        rows = self._rows("select began_at, request, facts from session")
        if not rows:
            raise UsageError(
                "no search was begun in this session",
                f"`lar tune MODEL {FLAG} FILE` begins one",
                subject=self.path,
            )
        self.began_at, request, facts = rows[0]
        self.request = self._unpacked(request, TuneRequest, "request")
        self.facts = self._unpacked(facts, SessionFacts, "list of facts")
        self.trials = [
            self._unpacked(content, Trial, f"trial {number}")
            for number, content in self._rows("select number, trial from trials order by number")
        ]

    def refuse_other_request(self, request: TuneRequest, facts: SessionFacts) -> None:
        """Refuse to go on with what was not asked for when the session was begun.

        Raises:
            UsageError: saying in what the requests differ.
        """
        differences = differences_of_requests(
            self.request, request, (*self.facts.inputs, *facts.inputs)
        )
        if differences:
            raise UsageError(
                f"was begun with {'; '.join(differences)}",
                f"`lar tune --resume {self.path}` goes on with that; give another {FLAG} for this",
                subject=self.path,
            )

    def refuse_other_facts(self, facts: SessionFacts) -> None:
        """Refuse to go on where the trials are not valid.

        Raises:
            UsageError: naming what differs.
        """
        theirs, own = ([it.sha256 for it in each.models] for each in (self.facts, facts))
        names = [
            tuple(os.path.basename(it.path) for it in its.models) for its in (self.facts, facts)
        ]
        if theirs != own and names[0] != names[1]:
            raise UsageError(
                f"is a session of {', '.join(names[0])}, not of {', '.join(names[1])}",
                f"give another {FLAG}",
                subject=self.path,
            )
        differences = differences_of(self.facts, facts)
        if differences:
            raise UsageError(
                f"is not valid here: {'; '.join(differences)}",
                f"give another {FLAG}; `lar results` shows both side by side",
                subject=self.path,
            )

    def take_up(self, request: TuneRequest | None, budget_seconds: float | None = None) -> None:
        """Record that this process searches now, and with which budget.

        Raises:
            LarError: the disk is full.
        """
        if request is not None:  # models are where they are now
            self.request = replace(
                self.request, spaces=request.spaces, budget_seconds=request.budget_seconds
            )
        if budget_seconds is not None:
            self.request = replace(self.request, budget_seconds=budget_seconds)
        columns = columns_of_request(self.request)
        changes = ", ".join(f"{name} = :{name}" for name in columns)
        opening = {"began_at": now(), "process": os.getpid(), "lar_version": __version__}
        with self._explained(), self._transaction():
            self._connection.execute(f"update session set {changes}", columns)
            self._insert("openings", opening)

    def record(self, trial: Trial, caches: Mapping[str, Path] | None = None) -> None:
        """Record a trial and the caches that it made, all or nothing; when this returns, they are
        on the disk.

        `caches` are files by name; those beside them that belong to them are recorded too. What is
        not there is not recorded.

        Raises:
            LarError: the disk is full, or the trial was measured where the session is not valid.
        """
        self._refuse_foreign(trial)
        columns = {
            "number": trial.number,
            "kind": trial.kind,
            "began_seconds": trial.began,
            "seconds": trial.seconds,
            "recorded_at": now(),
            **packed("trial", record_to_json(trial)),
        }
        with self._explained(), self._transaction():
            try:
                self._insert("trials", columns)
            except sqlite3.IntegrityError:
                raise LarError(
                    f"has a trial {trial.number} already",
                    "another program has written it: resume it",
                    subject=self.path,
                ) from None
            for row in measurements_of(trial, self.request):
                self._insert("measurements", row)
            for name, place in (caches or {}).items():
                self._store_cache(name, place, trial.number)
            self._connection.execute("delete from ended")
        self.trials.append(trial)

    def keep(self, ended: EndedRow, caches: Mapping[str, Path] | None = None) -> None:
        """Record a row of a trial that goes on, and what its caches hold until now; when this
        returns, they are on the disk. The row is forgotten with the record of the trial.

        Raises:
            LarError: the disk is full.
        """
        row = {
            "place": ended.place,
            "trial": ended.trial,
            "kind": ended.kind,
            "began_seconds": ended.began,
            "seconds": ended.seconds,
            **packed("content", record_to_json(ended.row)),
        }
        with self._explained(), self._transaction():
            self._insert("ended", row, "or replace")
            for name, place in (caches or {}).items():
                self._store_cache(name, place, ended.trial)

    def take_cut(self) -> Trial | None:
        """Return the trial that was cut short, with the rows whose processes had ended; None where
        nothing is worth to be recorded of it.

        Raises:
            UsageError: the session is damaged.
            LarError: the disk is full.
        """
        query = "select trial, kind, began_seconds, seconds, place, content from ended"
        found = [
            EndedRow(
                trial, kind, began, seconds, place, self._unpacked(content, TrialRow, "ended row")
            )
            for trial, kind, began, seconds, place, content in self._rows(f"{query} order by place")
        ]
        if found and all(it.row.candidate == BASELINE and it.row.status == "ok" for it in found):
            # Nothing was measured beside it.
            with self._explained(), self._transaction():
                self._connection.execute("delete from ended")
            found = []
        if not found:
            return None
        rows = tuple(it.row for it in found)
        if rows[0].candidate != BASELINE and found[0].kind != "search":
            rows = (TrialRow(candidate=BASELINE), *rows)
        return Trial(
            number=found[0].trial,
            kind=found[0].kind,
            rows=rows,
            began=found[0].began,
            seconds=max(it.seconds for it in found),
            machine=self.facts.machine,
        )

    def _refuse_foreign(self, trial: Trial) -> None:
        """Refuse a trial that must not be mixed with the others.

        Raises:
            LarError: it is of another machine, or another version of an engine.
        """
        if trial.machine is not None:
            theirs, own = self.facts.machine, trial.machine
            if (theirs.processor, theirs.cores) != (own.processor, own.cores):
                raise LarError(
                    f"trial {trial.number} was measured on another machine "
                    f"({describe_machine(own)}), and results of two machines are never mixed",
                    f"this session is of {describe_machine(theirs)}",
                    subject=self.path,
                )
        known = {
            row.engine.name: row.engine.version
            for each in self.trials
            for row in each.rows
            if row.engine
        }
        for row in trial.rows:
            if row.engine and known.get(row.engine.name, row.engine.version) != row.engine.version:
                raise LarError(
                    f"trial {trial.number} was measured with {row.engine.name} "
                    f"{row.engine.version}, and those before with {known[row.engine.name]}",
                    f"begin another session with {FLAG}",
                    subject=self.path,
                )

    def get_cache(self, name: str, place: Path) -> bool:
        """Write a cache to a place, and its second file beside it; return whether there is one.

        Raises:
            LarError: the disk is full.
        """
        files = self._rows("select id, file from cache_files where cache = ? order by id", name)
        for number, file in files:
            target = place.with_name(file) if file else place
            parts = self._rows(
                "select id, bytes from cache_parts where file = ? order by id", number
            )
            self._write_parts(target, parts)
        return bool(files)

    def _write_parts(self, target: Path, parts: Sequence[tuple[int, int]]) -> None:
        new = target.with_name(f"{target.name}.new")
        try:
            with new.open("wb") as output:
                for part, size in parts:
                    (content,) = self._row("select content from cache_parts where id = ?", part)
                    output.write(content if len(content) == size else zlib.decompress(content))
            os.replace(new, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise error_of_write(error, subject=target) from None
        except zlib.error:
            raise UsageError("a cache in the session is damaged", subject=self.path) from None

    def _store_cache(self, name: str, place: Path, trial: int) -> None:
        """Store the files of a cache instead of those that it had; part of a transaction."""
        if not place.is_file():
            return
        old = "select id from cache_files where cache = ?"
        self._connection.execute(f"delete from cache_parts where file in ({old})", (name,))
        self._connection.execute("delete from cache_files where cache = ?", (name,))
        size = 0
        self._insert("caches", {"name": name, "trial": trial, "bytes": 0}, "or replace")
        for file in ("", *companions_of(place, self.request)):
            number = self._insert("cache_files", {"cache": name, "file": file})
            with (place.with_name(file) if file else place).open("rb") as content:
                while part := content.read(PART_BYTES):
                    small = zlib.compress(part, LEVEL)
                    kept = small if len(small) < len(part) else part
                    row = {"file": number, "bytes": len(part), "content": kept}
                    self._insert("cache_parts", row)
                    size += len(part)
        self._connection.execute("update caches set bytes = ? where name = ?", (size, name))

    def finish(self, ending: Ending) -> None:
        """Record how the search ended in this sitting.

        Raises:
            LarError: the disk is full.
        """
        last = "(select max(id) from openings)"
        with self._explained(), self._transaction():
            self._connection.execute(f"update openings set ending = ? where id = {last}", (ending,))

    def _insert(self, table: str, row: Mapping[str, object], conflict: str = "") -> int:
        """Insert a row and return its number; part of a transaction."""
        marks = ", ".join(f":{name}" for name in row)
        query = f"insert {conflict} into {table} ({', '.join(row)}) values ({marks})"
        return int(self._connection.execute(query, dict(row)).lastrowid or 0)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def _row(self, query: str, *values: object) -> Any:
        return self._rows(query, *values)[0]

    def _unpacked(self, content: bytes, record_type: type[R], what: str) -> R:
        try:
            return record_from_json(zlib.decompress(content), record_type)
        except (zlib.error, ValueError, TypeError) as error:
            problem = f"its {what} is damaged, or of a newer lar: {printable(str(error))}"
            hint = "bring back a copy of it, or begin another"
            raise UsageError(problem, hint, subject=self.path) from None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def packed(name: str, content: bytes) -> dict[str, object]:
    """Return the columns of what is kept whole, as `sqlar_uncompress` of `sqlite3` takes them."""
    return {name: zlib.compress(content, LEVEL), f"{name}_bytes": len(content)}


def columns_of_request(request: TuneRequest) -> dict[str, object]:
    return {
        "objective": request.objective,
        "budget_seconds": request.budget_seconds,
        **packed("request", record_to_json(request)),
    }


def measurements_of(trial: Trial, request: TuneRequest) -> Iterator[dict[str, object]]:
    """Yield the columns of each candidate of a trial."""
    plain = next((row for row in trial.rows if row.candidate == BASELINE), None)
    for place, row in enumerate(trial.rows):
        space = request.spaces[row.candidate.model]
        times = sorted(chain.from_iterable(turn.samples.end_to_end for turn in row.turns))
        yield {
            "trial": trial.number,
            "place": place,
            "model": os.path.basename(space.model),
            "candidate": name_of(row.candidate, request.spaces),
            "options": format_flags(options_of(row.candidate, space)),
            "status": row.status,
            "samples": len(times),
            "median_seconds": percentile_of(times, 50) if times else None,
            "ratio": ratio_of(row, plain),
            "cache": row.cache,
            "problem": row.failure.message if row.failure else "",
        }


def ratio_of(row: TrialRow, plain: TrialRow | None) -> float | None:
    """Return the median ratio of a row's times to those of the plain run in the same turns; None
    without any."""
    if plain is None:
        return None
    ratios = sorted(chain.from_iterable(log_ratios_of(plain.turns, row.turns).rounds))
    return math.exp(percentile_of(ratios, 50)) if ratios else None


def companions_of(place: Path, request: TuneRequest) -> tuple[str, ...]:
    """Return the names of the files beside a cache that belong to it."""
    with place.open("rb") as file:
        head = file.read(HEAD_SIZE)
    for name in dict.fromkeys(space.engine for space in request.spaces):
        files = engine_named(name).cache
        if files is not None and files.begins(head):
            with contextlib.suppress(LarError):  # a damaged one is refused by who uses it
                return files.companions(str(place))
    return ()


def make_first_schema(connection: sqlite3.Connection) -> None:
    """The first schema. `sqlar_uncompress(trial, trial_bytes)` of the `sqlite3` program gives the
    JSON of a trial, and so it does for the parts of caches with `content` and `bytes`."""
    for table in (
        """
        session (
            id integer primary key check (id = 1),
            began_at text not null,
            models text not null,
            engines text not null,
            machine text not null,
            lar_version text not null,
            objective text not null,
            budget_seconds real not null,
            request_bytes integer not null,
            request blob not null,
            facts_bytes integer not null,
            facts blob not null
        )
        """,
        """
        openings (
            id integer primary key,
            began_at text not null,
            process integer not null,
            lar_version text not null,
            ending text not null default ''
        )
        """,
        """
        trials (
            number integer primary key,
            kind text not null,
            began_seconds real not null,
            seconds real not null,
            recorded_at text not null,
            trial_bytes integer not null,
            trial blob not null
        )
        """,
        """
        measurements (
            trial integer not null references trials (number),
            place integer not null,
            model text not null,
            candidate text not null,
            options text not null,
            status text not null,
            samples integer not null,
            median_seconds real,
            ratio real,
            cache text not null,
            problem text not null,
            primary key (trial, place)
        )
        """,
        """
        caches (
            name text primary key,
            trial integer not null references trials (number),
            bytes integer not null
        )
        """,
        """
        cache_files (
            id integer primary key,
            cache text not null references caches (name),
            file text not null
        )
        """,
        """
        cache_parts (
            id integer primary key,
            file integer not null references cache_files (id),
            bytes integer not null,
            content blob not null
        )
        """,
    ):
        connection.execute(f"create table {table}")
    connection.execute("create index parts_of_files on cache_parts (file)")


def add_ended_rows(connection: sqlite3.Connection) -> None:
    """The rows of the trial that goes on, each from the end of its process to that of the trial."""
    connection.execute(
        """
        create table ended (
            place integer primary key,
            trial integer not null,
            kind text not null,
            began_seconds real not null,
            seconds real not null,
            content_bytes integer not null,
            content blob not null
        )
        """
    )


STEPS: tuple[Step, ...] = (make_first_schema, add_ended_rows)

KIND = DatabaseKind(
    name="session",
    title="session of lar tune",
    application_id=SESSION_ID,
    steps=STEPS,
    room_hint="make room on the disk, then go on with `lar tune --resume {place}`",
    flag=FLAG,
)
