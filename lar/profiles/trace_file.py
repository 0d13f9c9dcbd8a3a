"""The file of a profile: a Chrome trace in the object format, which trace viewers open.

    {"schema": "lar.profile/1", "otherData": facts, "deviceProperties": [], "ops": [...],
     "memPlan": {...}, "displayTimeUnit": "ms", "zeroNs": 0, "traceEvents": [...]}

The keys of an engine's own profile, which is an object, stand beside these: the engine's own tools
read the file. The events come last, to be read some at a time: those of thousands of iterations
take much memory together. A large file is in gzip.

Times of events are microseconds with three decimals, that is nanoseconds, after the file's zero.
This lies at `zeroNs` of the profile's own clock: it is the profile's zero, or the earliest begin if
something begins before that.
An operator's execution is an event of category `cpu_op` and, where its dispatch is recorded, one of
`op_inner` whose `parent` it is. History of the schema:

    lar.profile/1  first version; later a peak has a spread, a time and a count of its rounds, and
                   operators that move nothing have 0 bytes; operators have their use of threads,
                   copies have steps on threads 1000, 2000 and so on; hardware counters;
                   a machine has instruction_sets; operators have the tensors that they read and
                   write; the events stand last, a large file is in gzip; noise of the
                   timed iterations, which are numbered from 0, those of the warm-up below 0;
                   the folder that the run was started in; settings that were tried; the engine's
                   own keys, which stood in "engineRaw"

The events of Chrome traces, as JSON.

Writes the bytes of a profile's file: JSON, or JSON in gzip if that is large.

Trace viewers detect both by the first bytes, whatever the name of the file. A gzip file has only
one member: some viewers cannot read more.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
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

# Most profiles are smaller, and stay JSON that any program reads.
LARGEST_PLAIN_BYTES = 8_000_000

# Higher levels take longer, and save little more.
LEVEL = 4


def is_packed_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name says that it is in gzip."""
    return os.fspath(path).endswith(".gz")


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is in gzip.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_pieces(file: IO[bytes], pieces: Iterable[bytes], *, packed: bool | None = None) -> None:
    """Write JSON into an empty file, in gzip or not.

    Without `packed`, JSON that is larger than `LARGEST_PLAIN_BYTES` goes into gzip.

    Raises:
        OSError: it cannot be written.
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
    """Yield the content of a gzip file, some at a time."""
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

# The events begin here in the file: they come last.
EVENTS_BEGIN = b'"traceEvents":['


def pieces_of_trace(head: bytes, events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the JSON of a trace, some events at a time: together they take much memory.

    `head` is the JSON of what stands before the events, without the brace that ends it.
    """
    rest = iter(events)
    yield head + b"," + EVENTS_BEGIN
    yield from elements_as_json(iter(lambda: [*islice(rest, EVENTS_AT_ONCE)], []))
    yield b"]}"


# Every event names its process and its thread: Chrome's viewer opens no file without them.


def complete(
    name: str, category: str, process: int, thread: int, times_ns: Interval, args: Any
) -> Event:
    """Return an event that has a duration; `args` may be any record that becomes JSON."""
    start_ns, end_ns = times_ns
    return {
        **{"ph": "X", "name": name, "cat": category},
        **{"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000},
        **{"pid": process, "tid": thread, "args": args},
    }


def point(
    kind: str, name: str, process: int, thread: int, at_ns: int, args: Any, **more: str
) -> Event:
    """Return an event at one time: `kind` is C for a counter, i for an instant."""
    begin: Event = {"ph": kind, "name": name, **more, "pid": process, "tid": thread}
    return begin | {"ts": at_ns / 1000, "args": args}


def name_line(what: str, process: int, thread: int, name: str) -> Event:
    """Return the name of a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def arrow_end(kind: str, number: int, process: int, thread: int, at_ns: int) -> Event:
    """Return the begin (s) or the end (f) of an arrow, bound to the slice around it."""
    event: Event = {"ph": kind, "id": number, "name": "dispatch", "cat": "dispatch"}
    event |= {"ts": at_ns / 1000, "pid": process, "tid": thread}
    return event | ({"bp": "e"} if kind == "f" else {})


R = TypeVar("R")
PROFILE_SCHEMA = "lar.profile/1"
CATEGORIES = frozenset(get_args(Category))

# Here one event ends and the next begins. Texts cannot contain this, nor the begin of the events: a
# quotation mark inside a text has a backslash before it.
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
    """The facts of an event besides its times, without the unknown ones."""

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

# The fields that a record and its event share, under the same names.
FACTS: Mapping[type, Sequence[str]] = {
    kind: [it for it in kind.__struct_fields__ if it in {*TraceArgs.__struct_fields__} - {"name"}]
    for kind in (Span, Execution, CounterSample, Allocation)
}


def args_of(record: object, **more: Any) -> TraceArgs:
    """Return the facts of a record, and `more`."""
    return TraceArgs(**{name: getattr(record, name) for name in FACTS[type(record)]}, **more)


def record_of(kind: type[R], args: TraceArgs, **more: Any) -> R:
    """Return the record that has these facts, and `more`."""
    for name in FACTS[kind]:
        if (value := getattr(args, name)) is not None:
            more[name] = value
    return kind(**more)


class TraceEvent(msgspec.Struct, gc=False):
    """An event as it is read."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: Annotated[float, msgspec.Meta(ge=-LATEST_US, le=LATEST_US)] = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0, le=LATEST_US)] | None = None
    pid: int = 0
    tid: Annotated[int, msgspec.Meta(ge=-LATEST_NS, le=LATEST_NS)] = 0
    args: TraceArgs | None = None


def events_of(profile: Profile) -> Iterator[Event]:
    """Yield the events of a profile."""
    for thread, name in profile.threads.items():
        yield name_line("thread_name", 0, thread, name)
    for step in profile.steps:
        args = TraceArgs(step=step.number, warmup=step.warmup)
        # The steps of copies that ran at once stand on lines of their own.
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
    """What stands before the events; all fields but `facts` are named as in the file."""

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

# What reading a damaged file raises.
UNREADABLE = (
    *(msgspec.MsgspecError, ValueError, OverflowError),
    *(OSError, EOFError, zlib.error, MemoryError),
)


def write_profile(profile: Profile, path: str | Path, *, packed: bool | None = None) -> None:
    """Write a profile, in gzip or not.

    Without `packed`, a large profile goes into gzip, and so does a file whose name ends in `.gz`.

    Raises:
        OSError: the file cannot be written.
    """
    if packed is None and is_packed_name(path):
        packed = True
    with open(path, "wb") as file:
        write_pieces(file, pieces_of(profile), packed=packed)


def encode_profile(profile: Profile) -> bytes:
    """Return the file's content."""
    return b"".join(pieces_of(profile))


def pieces_of(profile: Profile) -> Iterator[bytes]:
    """Return an iterator over the file's content, some events at a time."""
    zero_ns = earliest_ns(profile)
    profile = with_zero_at(profile, zero_ns)
    return pieces_of_trace(head_of_profile(profile, zero_ns), events_of(profile))


def head_of_profile(profile: Profile, zero_ns: int) -> bytes:
    """Return the JSON of what stands before a profile's events, without the brace that ends it.

    The profile's zero is at `zero_ns` of its own clock.
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
    """Return the profile in the JSON of a file; `name` is for messages.

    Raises:
        UsageError: it is of another schema.
        msgspec.MsgspecError, ValueError: it is damaged.
    """
    if (found := decode_stream(io.BytesIO(data), name)) is not None:
        return found
    # another program wrote it, or it is damaged
    keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if (schema := bytes(keys.get("schema", b"")).strip(b'"').decode()) != PROFILE_SCHEMA:
        problem, hint = "is JSON, but not a profile that lar knows", FOREIGN_HINT
        if schema.startswith("lar.profile/"):
            problem, hint = f"has the schema {schema!r}", "a later lar reads it"
        raise UsageError(f"{problem}; this lar reads {PROFILE_SCHEMA}", hint, subject=name)
    file = msgspec.json.decode(data, type=TraceFile)
    records = EventRecords()
    records.add(file.events)
    return records.profile_of(file, own_keys_in(data))


def is_written_by_lar(data: bytes) -> bool:
    """Return whether a file has lar's schema; if a program wrote it anew, that may be anywhere."""
    return b'"lar.profile/' in data


def read_as_written(path: str | os.PathLike[str]) -> Profile | None:
    """Return the profile in a file as lar writes it, None for any other or damaged file.

    Only a part of the file is in memory at a time.

    Raises:
        UsageError: there is no such file, it cannot be opened, or it unpacks to too much.
    """
    with open_input(path) as file:
        return decode_stream(file, os.fspath(path))


def decode_stream(packed: IO[bytes], name: str) -> Profile | None:
    """Return the profile in content as lar writes it, None for any other or damaged content.

    It may be in gzip. Events are decoded some at a time. `name` is for messages.

    Raises:
        UsageError: it unpacks to too much.
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
    """Read the head before the events, the engine's own profile and some of the events.

    Return None if the events do not come last.

    Raises:
        ValueError: it is of another schema.
    """
    begin = b""
    while piece := content.read(max(BYTES_AT_ONCE, len(begin))):
        begin += piece
        if not begin.startswith(FILE_BEGINS[: len(begin)]):
            return None
        at = begin.find(EVENTS_BEGIN)
        while at >= 0:
            end = at + len(EVENTS_BEGIN)
            head = begin[:end] + b"]}"
            # An engine's own profile may have events too.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                file = msgspec.json.decode(head, type=TraceHead)
                if file.schema != PROFILE_SCHEMA:
                    raise ValueError(f"has the schema {file.schema!r}")
                return file, own_keys_in(head), begin[end:]
            at = begin.find(EVENTS_BEGIN, end)
    return None


def own_keys_in(data: bytes) -> bytes:
    """Return the engine's own profile in a file: the keys that are not lar's."""
    keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if (earlier := keys.get("engineRaw")) is not None:
        return b"" if bytes(earlier) == b"null" else bytes(earlier)
    known = TraceFile.__struct_encode_fields__
    own = {key: value for key, value in keys.items() if key not in known}
    return msgspec.json.encode(own) if own else b""


def split_events(held: bytes, content: IO[bytes]) -> Iterator[bytes]:
    """Yield JSON lists of some events each, from what is held already and from the rest.

    Raises:
        ValueError: something stands after the events.
    """
    while piece := content.read(BYTES_AT_ONCE):
        held += piece
        cut = held.rfind(BETWEEN_EVENTS)
        if cut >= 0:
            yield b"[" + held[: cut + 1] + b"]"
            held = held[cut + 2 :]
    if not held.endswith(b"]}"):
        raise ValueError("something stands after the events")
    yield b"[" + held[: -len(b"]}")] + b"]"


class EventRecords:
    """The records that events stand for."""

    def __init__(self) -> None:
        # By the names of the profile's fields.
        self.found: dict[str, list[Any]] = {name: [] for name in KINDS}
        self.threads: dict[int, str] = {}
        self._names: dict[str, str] = {}
        self._places: dict[int, int] = {}  # by id: executions whose dispatch has not come yet

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Add the records of events.

        Raises:
            ValueError: one names no operator or has impossible times.
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
        """Return one object for all equal texts."""
        return self._names.setdefault(name, name)

    def profile_of(self, file: TraceHead, engine_raw: bytes) -> Profile:
        """Return the profile that a file with these events holds.

        Raises:
            ValueError: an event names an unknown operator, two iterations have one number, or an
                earlier lar counted them.
        """
        found, steps, spans = self.found, self.found["steps"], self.found["spans"]
        if any(step.warmup and step.number >= 0 for step in steps):
            raise ValueError("an earlier lar has made it, which counted the warm-up's iterations")
        # Spans that were added to the file later stand at its end.
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
    """Return the begin and the end in nanoseconds."""
    start = round(event.ts * 1000)
    return start, start + round((event.dur or 0.0) * 1000)


def check_execution(event: TraceEvent, args: TraceArgs, duration_ns: int) -> None:
    """Check the facts of an execution.

    Raises:
        ValueError: it is of no operator, or waits longer than it lasts.
    """
    if args.operator is None:
        raise ValueError(f"the event {event.name} names no operator")
    if not 0 <= (args.wait_ns or 0) <= duration_ns:
        raise ValueError(f"the event {event.name} waits {args.wait_ns} ns of {duration_ns}")


def change_profile(path: str | Path, change: Callable[[Profile], Profile]) -> None:
    """Change the file of a profile; the old file stays until all is written.

    `change` takes the profile without its events. It returns it with other facts or operators, and
    with spans and threads to add. If there are any, all events are decoded and encoded again, which
    takes longer than many a run. Otherwise events are copied, a piece at a time.

    Raises:
        OSError: it cannot be read or written.
        ValueError: it is not a profile that lar has written.
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
        OSError: it cannot be written.
        ValueError: it is not a profile that lar has written.
    """
    replaced = msgspec.structs.replace
    change_profile(path, lambda it: replace(it, facts=replaced(it.facts, tried=tried)))


def write_over(path: str | Path, pieces: Iterable[bytes]) -> None:
    """Write a file in the place of one that may still be open for reading.

    Raises:
        OSError: it cannot be written.
    """
    place = Path(os.path.realpath(path))
    temporary = make_temporary(place)
    try:
        with temporary.open("wb") as file:
            write_pieces(file, pieces, packed=is_packed_name(path) or None)
        take_place(temporary, place)
    finally:  # an interrupt may come after it has taken its place
        temporary.unlink(missing_ok=True)
