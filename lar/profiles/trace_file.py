"""The file of a profile: a Chrome trace in the object format, which trace viewers can open.

The object has these keys: schema, otherData (facts of the run), deviceProperties, ops (operators),
memPlan (plan of the memory), displayTimeUnit, zeroNs and traceEvents, in this order. If the
engine's own profile is a JSON object, the keys of this object are added to the keys of the file, so
that the engine's own tools can read the file. The events come last, so that they can be read in
pieces: the events of thousands of iterations would take much memory. A large file is compressed
with gzip.

Times of events are microseconds after the file's zero, with three decimals for nanoseconds.
`zeroNs` is the file's zero, as a time on the profile's own clock. The file's zero is the profile's
zero, or the start of the earliest event if this event begins before the profile's zero.

An operator's execution is an event of category `cpu_op`. If the dispatch of the operator is
recorded, there is also an event of category `op_inner`, whose `parent` is the execution.

Files of early versions of lar have the schema lar.profile/1 too, but may lack these facts: the
spread, the time and the number of rounds of a peak; the use of threads by operators; the tensors
that operators read and write; hardware counters; the instruction sets of the machine; the folder in
which the run was started; the settings that were tried; and the noise of timed iterations. For an
operator that moves no bytes, files of early versions of lar have an unknown number of bytes instead
of 0. In files of early versions of lar, the engine's own keys are in "engineRaw". If several copies
of a model run, their steps are on the threads 1000, 2000 and so on. Timed iterations have the
numbers 0, 1, 2 and so on, and iterations of the warm-up have -1, -2, -3 and so on.

A profile's file is written as JSON, or as JSON in gzip if it is large. Trace viewers recognise
plain JSON and gzip by the file's first bytes, whatever the name of the file. A gzip file has only
one member, since some viewers cannot read several members.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar, get_args

import msgspec

from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.files.report_file import make_temporary, take_place
from lar.files.unpacking import MAGIC, unpacked
from lar.profiles.times import KINDS, earliest_ns, with_zero_at
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Category,
    CounterSample,
    Execution,
    Interval,
    MemoryPlan,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
    TriedSetting,
)
from lar.records.record import elements_as_json
from lar.records.run import MOST_COPIES

# The largest file without compression. Most profiles are smaller, so that any program can read them
# as JSON.
LARGEST_PLAIN_BYTES = 8_000_000

# The level of compression: higher levels take longer, and save little more.
LEVEL = 4


def is_packed_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file name ends in .gz."""
    return os.fspath(path).endswith(".gz")


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether the content of a file is in gzip.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_pieces(file: IO[bytes], pieces: Iterable[bytes], *, packed: bool | None = None) -> None:
    """Write pieces of JSON into an empty file, compressed with gzip if `packed`.

    If `packed` is None, JSON larger than `LARGEST_PLAIN_BYTES` is compressed.

    Raises:
        OSError: the file cannot be written.
    """
    held: list[bytes] = []
    size_bytes, rest = 0, iter(pieces)
    for piece in rest if packed is None else ():
        held.append(piece)
        size_bytes += len(piece)
        if size_bytes > LARGEST_PLAIN_BYTES:
            packed = True
            break
    found = chain(held, rest)
    file.writelines(pack(found) if packed else found)


def pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file in pieces."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", LEVEL, packed, mtime=0) as archive:
        for piece in pieces:
            archive.write(piece)
            yield packed.getvalue()
            packed.seek(0)
            packed.truncate()
    yield packed.getvalue()


Event = dict[str, Any]
EVENTS_AT_ONCE = 250
LATEST_NS = 1 << 62  # nearly 150 years

# The bytes before the events in the file; the events come last.
EVENTS_BEGIN = b'"traceEvents":['


def pieces_of_trace(head: bytes, events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the JSON of a trace in pieces, since all events together would take much memory.

    `head` is the JSON before the events, without its closing brace.
    """
    rest = iter(events)
    yield head + b"," + EVENTS_BEGIN
    yield from elements_as_json(iter(lambda: [*islice(rest, EVENTS_AT_ONCE)], []))
    yield b"]}"


# Every event names its process and its thread: Chrome's viewer opens no file without them.


def complete(
    name: str, category: str, process: int, thread: int, times_ns: Interval, args: Any
) -> Event:
    """Return an event with a duration.

    `args` may be any record that can be encoded as JSON.
    """
    start_ns, end_ns = times_ns
    return {
        **{"ph": "X", "name": name, "cat": category},
        **{"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000},
        **{"pid": process, "tid": thread, "args": args},
    }


def point(
    kind: str, name: str, process: int, thread: int, at_ns: int, args: Any, **more: str
) -> Event:
    """Return an event at a single time.

    `kind` is "C" for a counter, or "i" for an instant.
    """
    begin: Event = {"ph": kind, "name": name, **more, "pid": process, "tid": thread}
    return begin | {"ts": at_ns / 1000, "args": args}


def name_line(what: str, process: int, thread: int, name: str) -> Event:
    """Return an event that names a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def arrow_end(kind: str, number: int, process: int, thread: int, at_ns: int) -> Event:
    """Return an event for one end of an arrow; viewers draw this end at the slice around the event.

    `kind` is "s" for the start of the arrow, or "f" for its end.
    """
    event: Event = {"ph": kind, "id": number, "name": "dispatch", "cat": "dispatch"}
    event |= {"ts": at_ns / 1000, "pid": process, "tid": thread}
    return event | ({"bp": "e"} if kind == "f" else {})


R = TypeVar("R")
PROFILE_SCHEMA = "lar.profile/1"
CATEGORIES = frozenset(get_args(Category))

# The bytes between two events. A string in the JSON can contain neither these bytes nor
# EVENTS_BEGIN: a quotation mark inside a string has a backslash before it.
BETWEEN_EVENTS = b'},{"ph":'
BYTES_AT_ONCE = 1 << 20
FILE_BEGINS = b'{"schema":"lar.profile/'
FOREIGN_HINT = "make one with --profile, or an engine's own with --profile-raw"


class TraceArgs(
    msgspec.Struct,
    omit_defaults=True,
    gc=False,
    rename={
        "operator": "op",
        "size_bytes": "bytes",
        "source_kind": "src_kind",
        "destination_kind": "dst_kind",
        "address": "addr",
    },
):
    """The facts of an event besides its times; unknown facts are left out."""

    id: int | None = None
    parent: int | None = None
    step: int | None = None
    warmup: bool = False
    operator: int | None = None
    wait_ns: int | None = None
    size_bytes: int | None = None
    tensor: str | None = None
    device: str | None = None
    stream: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    source_kind: str | None = None
    destination_kind: str | None = None
    color: str | None = None
    style: str | None = None
    source: str | None = None
    result: str | None = None
    address: int | None = None
    value: float | None = None
    name: str | None = None


LATEST_US = LATEST_NS / 1000

# The fields that have the same name in a record and in its event.
FACTS: Mapping[type, Sequence[str]] = {
    kind: [it for it in kind.__struct_fields__ if it in {*TraceArgs.__struct_fields__} - {"name"}]
    for kind in (Span, Execution, CounterSample, Allocation)
}


def args_of(record: object, **more: Any) -> TraceArgs:
    """Return the arguments of an event, made of the facts of a record and of `more`."""
    return TraceArgs(**{name: getattr(record, name) for name in FACTS[type(record)]}, **more)


def record_of(kind: type[R], args: TraceArgs, **more: Any) -> R:
    """Return a record of the class `kind`, made of the facts of an event and of `more`."""
    for name in FACTS[kind]:
        if (value := getattr(args, name)) is not None:
            more[name] = value
    return kind(**more)


class TraceEvent(msgspec.Struct, gc=False):
    """An event of a file, as it is decoded."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: Annotated[float, msgspec.Meta(ge=-LATEST_US, le=LATEST_US)] = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0, le=LATEST_US)] | None = None
    tid: Annotated[int, msgspec.Meta(ge=-LATEST_NS, le=LATEST_NS)] = 0
    args: TraceArgs | None = None


def events_of(profile: Profile) -> Iterator[Event]:
    """Yield the events of a profile."""
    for thread, name in profile.threads.items():
        yield name_line("thread_name", 0, thread, name)
    for step in profile.steps:
        args = TraceArgs(step=step.number, warmup=step.warmup)
        # The steps of each copy of a model have their own line.
        line = step.copy * THREADS_OF_A_COPY
        yield complete(step.trace_name, "profiler_step", 0, line, step.interval, args)
    for span in profile.spans:
        yield complete(span.name, span.category, 0, span.thread, span.interval, args_of(span))
    for number, each in enumerate(profile.executions, 1):
        name, dispatch = profile.operators[each.operator].name, each.dispatch
        args = args_of(each, id=number if dispatch else None)
        yield complete(name, "cpu_op", 0, each.thread, each.interval, args)
        if dispatch:
            host, args = each.dispatch_thread or 0, TraceArgs(parent=number)
            yield complete("dispatch", "op_inner", 0, host, dispatch, args)
    for sample in profile.counters:
        yield point("C", sample.name, 0, 0, sample.at_ns, args_of(sample), cat="counter")
    for taken in profile.allocations:
        yield point("i", "[memory]", 0, 0, taken.at_ns, args_of(taken), cat="memory")


class TraceHead(msgspec.Struct, kw_only=True, rename={"facts": "otherData"}):
    """The part of a file before the events; all fields but `facts` are named as in the file."""

    schema: str
    facts: ProfileFacts
    deviceProperties: list[Any] = msgspec.field(default_factory=list)
    ops: list[ProfiledOperator] = msgspec.field(default_factory=list)
    memPlan: MemoryPlan = msgspec.field(default_factory=MemoryPlan)
    displayTimeUnit: str = "ms"
    zeroNs: Annotated[int, msgspec.Meta(ge=-LATEST_NS, le=0)] = 0


class TraceFile(TraceHead, kw_only=True, rename={"facts": "otherData", "events": "traceEvents"}):
    events: list[TraceEvent]


EVENTS = msgspec.json.Decoder(list[TraceEvent])

# The errors that reading a damaged file may raise.
UNREADABLE = (
    *(msgspec.MsgspecError, ValueError, OverflowError),
    *(OSError, EOFError, zlib.error, MemoryError),
)


def write_profile(profile: Profile, path: str | Path, *, packed: bool | None = None) -> None:
    """Write a profile to a file, compressed with gzip if `packed`.

    If `packed` is None, lar compresses a large profile, and any profile for a file whose name ends
    in `.gz`.

    Raises:
        OSError: the file cannot be written.
    """
    if packed is None and is_packed_name(path):
        packed = True
    with open(path, "wb") as file:
        write_pieces(file, pieces_of(profile), packed=packed)


def encode_profile(profile: Profile) -> bytes:
    """Return the content of a profile's file."""
    return b"".join(pieces_of(profile))


def pieces_of(profile: Profile) -> Iterator[bytes]:
    """Return an iterator over the content of a profile's file, in pieces of several events."""
    zero_ns = earliest_ns(profile)
    profile = with_zero_at(profile, zero_ns)
    return pieces_of_trace(head_of_profile(profile, zero_ns), events_of(profile))


def head_of_profile(profile: Profile, zero_ns: int) -> bytes:
    """Return the JSON before a profile's events, without its closing brace.

    `zero_ns` is the time on the profile's own clock at which the file's time 0 lies.
    """
    head = TraceHead(
        schema=PROFILE_SCHEMA,
        facts=profile.facts,
        ops=list(profile.operators),
        memPlan=profile.memory_plan,
        zeroNs=zero_ns,
    )
    own = profile.engine_raw.strip()[1:-1].strip()
    return msgspec.json.encode(head)[:-1] + (b"," + own if own else b"")


def decode_profile(data: bytes, name: str) -> Profile:
    """Return the profile that the JSON of a file contains; messages name the file as `name`.

    Raises:
        UsageError: the schema of the file is not `PROFILE_SCHEMA`.
        msgspec.MsgspecError, ValueError: the file is damaged.
    """
    if (found := decode_stream(io.BytesIO(data), name)) is not None:
        return found
    # Another program has written the file, or the file is damaged.
    keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if (schema := bytes(keys.get("schema", b"")).strip(b'"').decode()) != PROFILE_SCHEMA:
        problem, hint = "is JSON, but not a profile that lar knows", FOREIGN_HINT
        if schema.startswith("lar.profile/"):
            problem, hint = f"has the schema {schema!r}", "a later version of lar can read the file"
        raise UsageError(f"{problem}; this lar reads schema {PROFILE_SCHEMA}", hint, subject=name)
    file = msgspec.json.decode(data, type=TraceFile)
    records = EventRecords()
    records.add(file.events)
    return records.profile_of(file, own_keys_in(data))


def is_written_by_lar(data: bytes) -> bool:
    """Return whether a file contains the name of lar's schema.

    The name of the schema may be anywhere in the file, since other programs may reorder the file's
    keys.
    """
    return b'"lar.profile/' in data


def read_as_written(path: str | os.PathLike[str]) -> Profile | None:
    """Return the profile in a file that lar has written, or None for any other or damaged file.

    Only a part of the file is in memory at a time.

    Raises:
        UsageError: the file does not exist, cannot be opened, or is too large when unpacked.
    """
    with open_input(path) as file:
        return decode_stream(file, os.fspath(path))


def decode_stream(packed: IO[bytes], name: str) -> Profile | None:
    """Return the profile in content that lar has written, or None for other or damaged content.

    The content may be in gzip. Events are decoded in pieces. `name` is used in messages.

    Raises:
        UsageError: the content is too large when unpacked.
    """
    try:
        content = unpacked(packed, name)
        if (begin := read_head(content)) is None:
            return None
        file, engine_raw, rest = begin
        found = EventRecords()
        for piece in split_events(rest, content):
            found.add(EVENTS.decode(piece))
        return found.profile_of(file, engine_raw)
    except UNREADABLE:
        return None


def read_head(content: IO[bytes]) -> tuple[TraceHead, bytes, bytes] | None:
    """Read the head before the events, the engine's own profile, and the first bytes of the events.

    Return None if the events do not come last.

    Raises:
        ValueError: the schema of the file is not `PROFILE_SCHEMA`.
    """
    begin = b""
    while piece := content.read(max(BYTES_AT_ONCE, len(begin))):
        begin += piece
        if not begin.startswith(FILE_BEGINS[: len(begin)]):
            return None
        for found in re.finditer(re.escape(EVENTS_BEGIN), begin):
            head = begin[: found.end()] + b"]}"
            # An engine's own profile may have events too.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                file = msgspec.json.decode(head, type=TraceHead)
                if file.schema != PROFILE_SCHEMA:
                    raise ValueError(f"has the schema {file.schema!r}")
                return file, own_keys_in(head), begin[found.end() :]
    return None


def own_keys_in(data: bytes) -> bytes:
    """Return the engine's own profile in a file: all keys that are not lar's."""
    keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if (earlier := keys.get("engineRaw")) is not None:
        return b"" if bytes(earlier) == b"null" else bytes(earlier)
    known = TraceFile.__struct_encode_fields__
    own = {key: value for key, value in keys.items() if key not in known}
    return msgspec.json.encode(own) if own else b""


def split_events(held: bytes, content: IO[bytes]) -> Iterator[bytes]:
    """Yield the events of a file as JSON lists of some events.

    The first events are in the bytes `held`, and the later events are in the rest of the file.

    Raises:
        ValueError: the file has other data after the events.
    """
    while piece := content.read(BYTES_AT_ONCE):
        held += piece
        complete, between, rest = held.rpartition(BETWEEN_EVENTS)
        if between:
            yield b"[" + complete + b"}]"
            held = between[2:] + rest
    if not held.endswith(b"]}"):
        raise ValueError("something stands after the events")
    yield b"[" + held[: -len(b"]}")] + b"]"


class EventRecords:
    """Collects the records of decoded events, and makes the profile from them."""

    def __init__(self) -> None:
        # The keys are the names of the profile's fields.
        self.found: dict[str, list[Any]] = {name: [] for name in KINDS}
        self.threads: dict[int, str] = {}
        self._names: dict[str, str] = {}
        self._places: dict[int, int] = {}  # by id: executions whose dispatch was not read yet

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Add the records of some events.

        Raises:
            ValueError: an event names no operator or has impossible times.
        """
        nothing, found = TraceArgs(), self.found
        for event in events:
            args, thread, (begin, end) = event.args or nothing, event.tid, times_of(event)
            times = {"start_ns": begin, "end_ns": end, "thread": thread}
            if event.cat == "cpu_op":
                if args.id is not None:
                    self._places[args.id] = len(found["executions"])
                check_execution(event, args, end - begin)
                found["executions"].append(record_of(Execution, args, **{"step": 0, **times}))
            elif event.cat == "op_inner" and event.name == "dispatch":
                if (place := self._places.pop(args.parent or 0, None)) is None:
                    raise ValueError(f"a dispatch names execution {args.parent}: it is missing")
                found["executions"][place] = msgspec.structs.replace(
                    found["executions"][place],
                    dispatch_start_ns=begin,
                    dispatch_end_ns=end,
                    dispatch_thread=thread,
                )
            elif event.cat == "profiler_step":
                copy = thread // THREADS_OF_A_COPY
                if not 0 <= copy < MOST_COPIES:
                    raise ValueError(f"the event {event.name} is of copy {copy} of the model")
                found["steps"].append(Step(args.step or 0, begin, end, args.warmup, copy))
            elif event.cat in CATEGORIES:
                own = {"category": event.cat, "name": self._one_of(event.name), **times}
                found["spans"].append(record_of(Span, args, **own))
            elif event.cat == "counter" and args.value is not None:
                own = {"name": self._one_of(event.name), "at_ns": begin}
                found["counters"].append(record_of(CounterSample, args, **own))
            elif event.cat == "memory" and args.size_bytes is not None:
                found["allocations"].append(record_of(Allocation, args, at_ns=begin))
            elif event.ph == "M" and event.name == "thread_name":
                self.threads[thread] = args.name or ""

    def _one_of(self, name: str) -> str:
        """Return the same object for all equal strings, to save memory."""
        return self._names.setdefault(name, name)

    def profile_of(self, file: TraceHead, engine_raw: bytes) -> Profile:
        """Return the profile that is made from a file's head and from the events added so far.

        Raises:
            ValueError: an event names an unknown operator, two iterations have the same number, or
                an older lar has numbered the iterations in another way.
        """
        found, steps, spans = self.found, self.found["steps"], self.found["spans"]
        if any(step.warmup and step.number >= 0 for step in steps):
            raise ValueError("an earlier lar has made it, which counted the warm-up's iterations")
        # Spans that were added to the file later are at its end.
        spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
        known = range(len(file.ops))
        used = {each.operator for each in chain(found["executions"], spans, found["allocations"])}
        if wrong := sorted(number for number in used - {None} if number not in known):
            raise ValueError(f"an event names operator {wrong[0]}, and there are {len(known)}")
        numbers = Counter(step.number for step in steps)
        if twice := [number for number, times in numbers.items() if times > 1]:
            raise ValueError(f"two iterations are number {twice[0]}")
        records: dict[str, Any] = {name: tuple(own) for name, own in found.items()}
        profile = Profile(
            facts=file.facts,
            operators=tuple(file.ops),
            memory_plan=file.memPlan,
            threads=self.threads,
            engine_raw=engine_raw,
            **records,
        )
        return with_zero_at(profile, -file.zeroNs)


def times_of(event: TraceEvent) -> tuple[int, int]:
    """Return the start and the end of an event in nanoseconds."""
    start = round(event.ts * 1000)
    return start, start + round((event.dur or 0.0) * 1000)


def check_execution(event: TraceEvent, args: TraceArgs, duration_ns: int) -> None:
    """Check the facts of an operator's execution.

    Raises:
        ValueError: the execution names no operator, or waits longer than it lasts.
    """
    if args.operator is None:
        raise ValueError(f"the event {event.name} names no operator")
    if not 0 <= (args.wait_ns or 0) <= duration_ns:
        raise ValueError(f"the event {event.name} waits {args.wait_ns} ns of {duration_ns}")


def change_profile(path: str | Path, change: Callable[[Profile], Profile]) -> None:
    """Change the file of a profile; the old file stays until the new file is complete.

    `change` gets the profile without its events. `change` returns a profile with changed facts or
    operators, and with spans and threads to add. If spans or threads are added, all events are
    decoded and encoded again, which may take longer than the run itself. If neither spans nor
    threads are added, the events are copied in pieces.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file is not a profile that lar has written.
    """
    with open(path, "rb") as packed:
        content = unpacked(packed, str(path))
        if (begin := read_head(content)) is None:
            raise ValueError("its events do not come last")
        file, engine_raw, first = begin
        found = change(EventRecords().profile_of(file, engine_raw))
        if found.spans or found.threads:
            content.seek(0)
            whole = decode_profile(content.read(), str(path))
            spans, threads = (*whole.spans, *found.spans), {**whole.threads, **found.threads}
            changed = replace(whole, facts=found.facts, operators=found.operators)
            write_over(path, pieces_of(replace(changed, spans=spans, threads=threads)))
        else:
            own = head_of_profile(with_zero_at(found, file.zeroNs), file.zeroNs)
            events = iter(lambda: content.read(BYTES_AT_ONCE), b"")
            write_over(path, chain([own + b"," + EVENTS_BEGIN, first], events))


def add_tried(path: str, tried: tuple[TriedSetting, ...]) -> None:
    """Add the settings that were tried to the facts of a profile in a file.

    Raises:
        OSError: the file cannot be written.
        ValueError: the file is not a profile that lar has written.
    """
    replaced = msgspec.structs.replace
    change_profile(path, lambda it: replace(it, facts=replaced(it.facts, tried=tried)))


def write_over(path: str | Path, pieces: Iterable[bytes]) -> None:
    """Replace a file that may still be open for reading.

    Raises:
        OSError: the new file cannot be written.
    """
    place = Path(os.path.realpath(path))
    temporary = make_temporary(place)
    try:
        with temporary.open("wb") as file:
            write_pieces(file, pieces, packed=is_packed_name(path) or None)
        take_place(temporary, place)
    finally:  # after an interrupt, the temporary file may exist or may have been moved
        temporary.unlink(missing_ok=True)
