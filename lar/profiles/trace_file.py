"""The file of a profile: a Chrome trace in the object format, which trace viewers open.

    {"schema": "lar.profile/1", "otherData": facts, "deviceProperties": [...], "ops": [...],
     "memPlan": {...}, "engineRaw": the engine's own profile, "displayTimeUnit": "ms",
     "zeroNs": 0, "traceEvents": [...]}

The events come last, so that they are read, and more of them written, some at a time: those of
thousands of iterations take much memory at once. A large file is in gzip
(`lar.profiles.packed_file`).

Times of events are microseconds with three decimals, that is nanoseconds, after the zero of the
clock in the facts. That lies at `zeroNs` of the profile's own clock: where something begins before
the profile's zero, the file's is when the first of all begins (`lar.measurement.time_origin`).
An operator's execution is an event of category `cpu_op` and up to three of `op_inner` whose
`parent` it is: dispatch, wait and compute. History of the schema:

    lar.profile/1  first version; later a peak has a spread, a time and a count of its rounds, and
                   operators that move nothing have 0 bytes; operators have their use of threads,
                   copies have steps on threads 1000, 2000 and so on; hardware counters;
                   a machine has instruction_sets; operators have the tensors that they read and
                   write; the events stand last, a large file is in gzip; noise of the
                   timed iterations, which are numbered from 0, those of the warm-up below 0;
                   the folder that the run was started in; settings that were tried
"""

from __future__ import annotations

import io
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Annotated, Any, cast, get_args

import msgspec

from lar.errors import UsageError, check_keywords
from lar.files.input_file import open_input, read_input
from lar.measurement.time_origin import earliest_ns, with_zero_at
from lar.profiles.operator_filter import may_move_nothing
from lar.profiles.packed_file import is_packed_name, unpack, unpacked, write_pieces
from lar.profiles.trace_events import (
    LATEST_NS,
    SPAN_FACTS,
    TraceArgs,
    TraceEvent,
    events_of,
    facts_of,
)
from lar.profiles.trace_writer import EVENTS_BEGIN, pieces_of_trace
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Category,
    CounterSample,
    DeviceFacts,
    Execution,
    MemoryPlan,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
)

PROFILE_SCHEMA = "lar.profile/1"
CATEGORIES = frozenset(get_args(Category))
# Where one event ends and the next begins. A quotation mark within a text has a backslash before
# it, so that neither this nor where the events begin is part of one.
BETWEEN_EVENTS = b'},{"ph":'
BYTES_AT_ONCE = 1 << 20
FILE_BEGINS = b'{"schema":"lar.profile/'
FOREIGN_HINT = (
    "make one with --profile; of an engine's own file, as of --profile-raw, use --style megengine"
)


class TraceFile(
    msgspec.Struct, kw_only=True, rename={"events": "traceEvents", "facts": "otherData"}
):
    # Named as in the file, but for the two.
    schema: str
    facts: ProfileFacts
    deviceProperties: list[DeviceFacts] = msgspec.field(default_factory=list)
    ops: list[ProfiledOperator] = msgspec.field(default_factory=list)
    memPlan: MemoryPlan = msgspec.field(default_factory=MemoryPlan)
    engineRaw: msgspec.Raw = msgspec.Raw(b"null")
    displayTimeUnit: str = "ms"
    zeroNs: Annotated[int, msgspec.Meta(ge=-LATEST_NS, le=0)] = 0
    events: list[TraceEvent]


class SchemaOnly(msgspec.Struct):
    schema: str = ""


EVENTS = msgspec.json.Decoder(list[TraceEvent])


def write_profile(profile: Profile, path: str | Path, *, packed: bool | None = None) -> None:
    """Write a profile, in gzip or not; if that is not said, a large one is, and one whose name ends
    in `.gz`.

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
    file = TraceFile(
        schema=PROFILE_SCHEMA,
        events=[],
        facts=profile.facts,
        deviceProperties=list(profile.devices),
        ops=list(profile.operators),
        memPlan=profile.memory_plan,
        engineRaw=msgspec.Raw(profile.engine_raw or b"null"),
        zeroNs=zero_ns,
    )
    return pieces_of_trace(file, events_of(profile, count(1)))


@check_keywords
def read_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        UsageError: the file is missing, truncated, foreign, empty or of a later schema.
    """
    found = read_as_written(path)
    return decode_profile(read_input(path), str(path)) if found is None else found


def decode_profile(data: bytes, name: str) -> Profile:
    """Return the profile in a file's content; `name` is for messages.

    Raises:
        UsageError: it is truncated, foreign, empty or of a later schema.
    """
    data = unpack(data, name)
    if (found := decode_stream(io.BytesIO(data))) is not None:
        return found
    # As another program or an earlier lar has written it, or damaged.
    again = "make it again with --profile"
    if not data.strip():
        raise UsageError("the profile is empty", again, subject=name)
    try:
        schema = schema_in(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"is not a profile, or was cut short: {error}", again, subject=name
        ) from None
    except RecursionError:
        raise UsageError("is not a profile: it is nested too deeply", again, subject=name) from None
    if schema != PROFILE_SCHEMA:
        what = f"has the schema {schema!r}" if schema else "is JSON, but not a profile of lar"
        is_later = schema.startswith("lar.profile/")
        raise UsageError(
            f"{what}; this lar reads {PROFILE_SCHEMA}",
            "a later lar reads it" if is_later else FOREIGN_HINT,
            subject=name,
        )
    try:
        file = msgspec.json.decode(data, type=TraceFile)
        return profile_of(file)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise UsageError(f"is damaged: {error}", again, subject=name) from None


def schema_in(data: bytes) -> str:
    """Return the schema that JSON names, empty if it names none.

    Raises:
        msgspec.DecodeError: it is not JSON, or was cut short.
    """
    try:
        return msgspec.json.decode(data, type=SchemaOnly).schema
    except msgspec.ValidationError:
        # Of what has another form, the rest was not read.
        msgspec.json.decode(data, type=msgspec.Raw)
        return ""


def read_as_written(path: str | os.PathLike[str]) -> Profile | None:
    """Return the profile in a file that is written as lar writes it, of which some is in memory at
    a time; None if it is not, or is damaged.

    Raises:
        UsageError: there is no such file, or it is not one that can be opened.
    """
    with open_input(path) as file:
        try:
            return decode_stream(unpacked(file))
        except (OSError, EOFError, zlib.error, MemoryError):
            return None


def decode_stream(content: IO[bytes]) -> Profile | None:
    """Return the profile in content that is written as lar writes it, whose events are decoded some
    at a time; None if it is not, or is damaged."""
    try:
        begin = read_begin(content)
        if begin is None:
            return None
        head, rest = begin
        file = msgspec.json.decode(head + b"]}", type=TraceFile)
        if file.schema != PROFILE_SCHEMA:
            return None
        found = EventRecords()
        for piece in split_events(rest, content):
            found.add(EVENTS.decode(piece))
        return found.profile_of(file)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
        return None


def read_begin(content: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Read what stands before the events, and some of them; None if they do not come last."""
    begin = b""
    while piece := content.read(max(BYTES_AT_ONCE, len(begin))):
        begin += piece
        if not begin.startswith(FILE_BEGINS[: len(begin)]):
            return None
        if (head := head_in(begin)) is not None:
            return head, begin[len(head) :]
    return None


def head_in(data: bytes) -> bytes | None:
    """Return what stands before the events in the begin of content, None if they do not come last
    or the begin is too short."""
    at = -1
    while (at := data.find(EVENTS_BEGIN, at + 1)) >= 0:
        head = data[: at + len(EVENTS_BEGIN)]
        try:
            msgspec.json.decode(head + b"]}", type=SchemaOnly)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # those of an engine's own profile
        return head
    return None


def split_events(held: bytes, content: IO[bytes]) -> Iterator[bytes]:
    """Yield JSON lists of some events each: of those in what was read, and of the rest.

    Raises:
        ValueError: the content does not end with them.
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
        self.steps: list[Step] = []
        self.executions: list[Execution] = []
        self.spans: list[Span] = []
        self.counters: list[CounterSample] = []
        self.allocations: list[Allocation] = []
        self.threads: dict[int, str] = {}
        self._names: dict[str, str] = {}  # one text for all that are equal
        # The places of executions whose dispatch has not come yet, and dispatches whose execution
        # has not, by the number of the execution.
        self._places: dict[int, int] = {}
        self._dispatches: dict[int, tuple[int, int, int]] = {}

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Add the records of events.

        Raises:
            ValueError: one names no operator or has impossible times.
        """
        nothing = TraceArgs()
        for event in events:
            args = event.args or nothing
            if event.cat == "cpu_op":
                if args.id is not None:
                    self._places[args.id] = len(self.executions)
                self.executions.append(execution_of(event, args))
            elif event.cat == "op_inner":
                if event.name == "dispatch" and args.parent is not None:
                    self._dispatches[args.parent] = *times_of(event), event.tid
            elif event.cat == "profiler_step":
                start, end = times_of(event)
                copy = event.tid // THREADS_OF_A_COPY
                self.steps.append(Step(args.step or 0, start, end, args.warmup, copy))
            elif event.cat in CATEGORIES:
                event.name = self._names.setdefault(event.name, event.name)
                self.spans.append(span_of(event, args))
            elif event.cat == "counter" and args.value is not None:
                name = self._names.setdefault(event.name, event.name)
                self.counters.append(CounterSample(name, nanoseconds(event.ts), args.value))
            elif event.cat == "memory" and args.size_bytes is not None:
                self.allocations.append(allocation_of(event, args))
            elif event.ph == "M" and event.name == "thread_name":
                self.threads[event.tid] = args.name or ""
        self._add_dispatches()

    def _add_dispatches(self) -> None:
        """Add the dispatches that have come to their executions."""
        for number in [*self._dispatches]:
            place = self._places.pop(number, None)
            if place is None:
                continue
            begin, done, thread = self._dispatches.pop(number)
            self.executions[place] = msgspec.structs.replace(
                self.executions[place],
                dispatch_start_ns=begin,
                dispatch_end_ns=done,
                dispatch_thread=thread,
            )

    def _number_from_zero(self, facts: ProfileFacts) -> ProfileFacts:
        """Number the iterations of a file of an earlier lar, which counted the warm-up's with the
        others, and return the facts with these numbers."""
        if not any(step.warmup and step.number >= 0 for step in self.steps):
            return facts
        ordered = sorted(self.steps, key=lambda step: step.number)
        timed = [step.number for step in ordered if not step.warmup]
        warmup = [step.number for step in ordered if step.warmup]
        numbers: dict[int | None, int] = {old: new for new, old in enumerate(timed)}
        numbers |= {old: -1 - new for new, old in enumerate(warmup)}
        replace = msgspec.structs.replace
        self.steps = [replace(step, number=numbers[step.number]) for step in self.steps]
        self.executions = [
            replace(each, step=numbers.get(each.step, each.step)) for each in self.executions
        ]
        self.spans = [replace(it, step=numbers.get(it.step, it.step)) for it in self.spans]
        noise = tuple(replace(it, step=numbers.get(it.step, it.step)) for it in facts.noise)
        return replace(facts, noise=noise)

    def profile_of(self, file: TraceFile) -> Profile:
        """Return the profile that a file with these events holds.

        Raises:
            ValueError: an event names an operator that is not there, or two are iterations of one
                number.
        """
        # What was added to the file later stands at the end.
        self.spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
        known = range(len(file.ops))
        used = {execution.operator for execution in self.executions}
        used |= {span.operator for span in self.spans if span.operator is not None}
        used |= {each.operator for each in self.allocations if each.operator is not None}
        if wrong := sorted(number for number in used if number not in known):
            raise ValueError(f"an event names operator {wrong[0]}, and there are {len(known)}")
        numbers = Counter(step.number for step in self.steps)
        if twice := [number for number, times in numbers.items() if times > 1]:
            raise ValueError(f"two iterations are number {twice[0]}")
        raw = bytes(file.engineRaw)
        facts = self._number_from_zero(file.facts)
        profile = Profile(
            facts=facts,
            operators=tuple(operators_in(file)),
            steps=tuple(self.steps),
            executions=tuple(self.executions),
            spans=tuple(self.spans),
            counters=tuple(self.counters),
            allocations=tuple(self.allocations),
            memory_plan=file.memPlan,
            devices=tuple(file.deviceProperties),
            threads=self.threads,
            engine_raw=b"" if raw == b"null" else raw,
        )
        return with_zero_at(profile, -file.zeroNs)


def operators_in(file: TraceFile) -> Iterator[ProfiledOperator]:
    """Yield the operators of a file.

    An earlier lar counted the bytes of views and constants as if they were moved, and a tensor that
    is read twice as two. Its files do not say which tensors are one: of those it may be, the bytes
    are not known.
    """
    peak = file.facts.peak
    is_early = (
        bool(file.facts.lar_version)
        and (peak is None or peak.rounds is None)
        and not any(each.reads or each.writes for each in file.ops)
    )
    for each in file.ops:
        is_certain = not may_move_nothing(each.type) and len({*each.inputs}) == len(each.inputs)
        if is_early and each.size_bytes and not is_certain:
            yield msgspec.structs.replace(each, size_bytes=None)
        else:
            yield each


def profile_of(file: TraceFile) -> Profile:
    """Return the profile that a file holds.

    Raises:
        ValueError: an event names an operator that is not there or has impossible times, or two
            are iterations of one number.
    """
    found = EventRecords()
    found.add(file.events)
    return found.profile_of(file)


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def times_of(event: TraceEvent) -> tuple[int, int]:
    """Return begin and end.

    Raises:
        ValueError: it would end before it began, or at a time that no clock shows.
    """
    start, duration = round(event.ts * 1000), round((event.dur or 0.0) * 1000)
    if duration < 0 or abs(start) > LATEST_NS or duration > LATEST_NS:
        raise ValueError(f"the event {event.name} begins at {event.ts} and lasts {event.dur} us")
    return start, start + duration


def execution_of(event: TraceEvent, args: TraceArgs) -> Execution:
    """Return an execution without its dispatch, which is another event."""
    start, end = times_of(event)
    if args.operator is None:
        raise ValueError(f"the event {event.name} names no operator")
    if args.wait_ns is not None and not 0 <= args.wait_ns <= end - start:
        raise ValueError(f"the event {event.name} waits {args.wait_ns} ns of {end - start}")
    return Execution(
        args.operator, args.step or 0, event.tid, start, end, args.wait_ns, warmup=args.warmup
    )


def span_of(event: TraceEvent, args: TraceArgs) -> Span:
    start, end = times_of(event)
    return Span(
        category=cast(Any, event.cat),
        name=event.name,
        start_ns=start,
        end_ns=end,
        thread=event.tid,
        **dict(zip(SPAN_FACTS, facts_of(args), strict=True)),
    )


def allocation_of(event: TraceEvent, args: TraceArgs) -> Allocation:
    return Allocation(
        nanoseconds(event.ts),
        args.size_bytes or 0,
        args.operator,
        args.address,
        args.device or "cpu",
        args.source or "",
    )
