"""The file of a profile: a Chrome trace in the object format, which trace viewers open.

    {"schema": "lar.profile/1", "displayTimeUnit": "ms", "traceEvents": [...],
     "otherData": facts, "deviceProperties": [...], "ops": [...], "memPlan": {...},
     "engineRaw": the engine's own profile, "zeroNs": 0}

Times of events are microseconds with three decimals, that is nanoseconds, after the zero of the
clock in the facts. That lies at `zeroNs` of the profile's own clock: where something begins before
the profile's zero, the file's is when the first of all begins (`lar.measurement.time_origin`).
An operator's execution is an event of category `cpu_op` and up to three of `op_inner` whose
`parent` it is: dispatch, wait and compute. History of the schema:

    lar.profile/1  first version; later a peak has a spread, a time and a count of its rounds, and
                   operators that move nothing have 0 bytes; operators have their use of threads,
                   copies have steps on threads 1000, 2000 and so on; hardware counters;
                   a machine has instruction_sets; operators have the tensors that they read and
                   write
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import msgspec

from lar.errors import UsageError, check_keywords
from lar.files.input_file import read_input
from lar.measurement.time_origin import earliest_ns, with_zero_at
from lar.profiles.trace_events import SPAN_FACTS, TraceArgs, TraceEvent, events_of, facts_of
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
EVENTS_AT_ONCE = 10_000
LATEST_NS = 1 << 62  # nearly 150 years
FOREIGN_HINT = (
    "make one with --profile; of an engine's own file, as of --profile-raw, use --style megengine"
)


class TraceFile(msgspec.Struct, rename={"events": "traceEvents", "facts": "otherData"}):
    # Named as in the file, but for the three.
    schema: str
    events: list[TraceEvent]
    facts: ProfileFacts
    deviceProperties: list[DeviceFacts] = msgspec.field(default_factory=list)
    ops: list[ProfiledOperator] = msgspec.field(default_factory=list)
    memPlan: MemoryPlan = msgspec.field(default_factory=MemoryPlan)
    engineRaw: msgspec.Raw = msgspec.Raw(b"null")
    displayTimeUnit: str = "ms"
    zeroNs: Annotated[int, msgspec.Meta(ge=-LATEST_NS, le=0)] = 0


class SchemaOnly(msgspec.Struct):
    schema: str = ""


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "wb") as file:
        file.writelines(pieces_of(profile))


def encode_profile(profile: Profile) -> bytes:
    """Return the file's content."""
    return b"".join(pieces_of(profile))


def pieces_of(profile: Profile) -> Iterator[bytes]:
    """Yield the file's content, some events at a time: all of them at once take much memory."""
    zero_ns = earliest_ns(profile)
    profile = with_zero_at(profile, zero_ns)
    head, tail = around_events(
        TraceFile(
            schema=PROFILE_SCHEMA,
            events=[],
            facts=profile.facts,
            deviceProperties=list(profile.devices),
            ops=list(profile.operators),
            memPlan=profile.memory_plan,
            engineRaw=msgspec.Raw(profile.engine_raw or b"null"),
            zeroNs=zero_ns,
        )
    )
    events, separator = events_of(profile, count(1)), b""
    yield head
    while some := [*islice(events, EVENTS_AT_ONCE)]:
        yield separator + msgspec.json.encode(some)[1:-1]
        separator = b","
    yield tail


def around_events(file: msgspec.Struct) -> tuple[bytes, bytes]:
    """Return what stands before and after the events in the file, which has none yet."""
    head, opening, tail = msgspec.json.encode(file).partition(b'"traceEvents":[')
    return head + opening, tail


@check_keywords
def read_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        UsageError: the file is missing, truncated, foreign, empty or of a later schema.
    """
    return decode_profile(read_input(path), str(path))


def decode_profile(data: bytes, name: str) -> Profile:
    """Return the profile in a file's content; `name` is for messages.

    Raises:
        UsageError: it is truncated, foreign, empty or of a later schema.
    """
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


def profile_of(file: TraceFile) -> Profile:
    """Return the profile that a file holds.

    Raises:
        ValueError: an event names an operator that is not there or has impossible times, or two
            are iterations of one number.
    """
    steps: list[Step] = []
    spans: list[Span] = []
    counters: list[CounterSample] = []
    allocations: list[Allocation] = []
    threads: dict[int, str] = {}
    operations: list[tuple[TraceEvent, TraceArgs]] = []
    dispatches: dict[int, TraceEvent] = {}
    nothing = TraceArgs()
    for event in file.events:
        args = event.args or nothing
        if event.cat == "cpu_op":
            operations.append((event, args))
        elif event.cat == "op_inner":
            if event.name == "dispatch" and args.parent is not None:
                dispatches[args.parent] = event
        elif event.cat == "profiler_step":
            start, end = times_of(event)
            steps.append(
                Step(args.step or 0, start, end, args.warmup, event.tid // THREADS_OF_A_COPY)
            )
        elif event.cat in CATEGORIES:
            spans.append(span_of(event, args))
        elif event.cat == "counter" and args.value is not None:
            counters.append(CounterSample(event.name, nanoseconds(event.ts), args.value))
        elif event.cat == "memory" and args.size_bytes is not None:
            allocations.append(allocation_of(event, args))
        elif event.ph == "M" and event.name == "thread_name":
            threads[event.tid] = args.name or ""
    executions = [execution_of(event, args, dispatches) for event, args in operations]
    # What was added to the file later stands at the end.
    spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
    known = range(len(file.ops))
    used = {execution.operator for execution in executions}
    used |= {span.operator for span in spans if span.operator is not None}
    used |= {each.operator for each in allocations if each.operator is not None}
    if wrong := sorted(number for number in used if number not in known):
        raise ValueError(f"an event names operator {wrong[0]}, and there are {len(known)}")
    numbers = Counter(step.number for step in steps)
    if twice := [number for number, times in numbers.items() if times > 1]:
        raise ValueError(f"two iterations are number {twice[0]}")
    raw = bytes(file.engineRaw)
    profile = Profile(
        facts=file.facts,
        operators=tuple(file.ops),
        steps=tuple(steps),
        executions=tuple(executions),
        spans=tuple(spans),
        counters=tuple(counters),
        allocations=tuple(allocations),
        memory_plan=file.memPlan,
        devices=tuple(file.deviceProperties),
        threads=threads,
        engine_raw=b"" if raw == b"null" else raw,
    )
    return with_zero_at(profile, -file.zeroNs)


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def times_of(event: TraceEvent) -> tuple[int, int]:
    """Return begin and end.

    Raises:
        ValueError: it would end before it began, or at a time that no clock shows.
    """
    start, duration = nanoseconds(event.ts), nanoseconds(event.dur or 0.0)
    if duration < 0 or abs(start) > LATEST_NS or duration > LATEST_NS:
        raise ValueError(f"the event {event.name} begins at {event.ts} and lasts {event.dur} us")
    return start, start + duration


def execution_of(
    event: TraceEvent, args: TraceArgs, dispatches: dict[int, TraceEvent]
) -> Execution:
    start, end = times_of(event)
    begin: int | None = None
    done: int | None = None
    thread: int | None = None
    dispatch = dispatches.get(args.id) if args.id is not None else None
    if dispatch is not None:
        begin, done = times_of(dispatch)
        thread = dispatch.tid
    if args.operator is None:
        raise ValueError(f"the event {event.name} names no operator")
    if args.wait_ns is not None and not 0 <= args.wait_ns <= end - start:
        raise ValueError(f"the event {event.name} waits {args.wait_ns} ns of {end - start}")
    return Execution(
        args.operator,
        args.step or 0,
        event.tid,
        start,
        end,
        args.wait_ns,
        begin,
        done,
        thread,
        args.warmup,
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
