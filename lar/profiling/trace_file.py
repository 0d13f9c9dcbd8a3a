"""The file of a profile: a Chrome trace in the object format, which trace viewers open.

    {"schema": "lar.profile/1", "displayTimeUnit": "ms", "traceEvents": [...],
     "otherData": facts, "deviceProperties": [...], "ops": [...], "memPlan": {...},
     "engineRaw": the engine's own profile}

Times of events are microseconds with three decimals, that is nanoseconds, after the clock's zero.
An operator's execution is an event of category `cpu_op` and up to three of `op_inner` whose
`parent` it is: dispatch, wait and compute. History of the schema:

    lar.profile/1  first version
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from lar.errors import UsageError
from lar.profiling.profile import (
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


class TraceArgs(msgspec.Struct, omit_defaults=True, gc=False):
    """What an event has besides its times; what is not known is left out."""

    id: int | None = None
    parent: int | None = None
    step: int | None = None
    warmup: bool = False
    op: int | None = None
    wait_ns: int | None = None
    bytes: int | None = None
    tensor: str | None = None
    device: str | None = None
    stream: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    src_kind: str | None = None
    dst_kind: str | None = None
    color: str | None = None
    style: str | None = None
    source: str | None = None
    result: str | None = None
    addr: int | None = None
    value: float | None = None
    name: str | None = None


class TraceEvent(msgspec.Struct, omit_defaults=True, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float | None = None
    pid: int = 0
    tid: int = 0
    args: TraceArgs | None = None


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


class SchemaOnly(msgspec.Struct):
    schema: str = ""


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile.

    Raises:
        OSError: the file cannot be written.
    """
    Path(path).write_bytes(encode_profile(profile))


def encode_profile(profile: Profile) -> bytes:
    """Return the file's content."""
    return msgspec.json.encode(
        TraceFile(
            schema=PROFILE_SCHEMA,
            events=list(events_of(profile)),
            facts=profile.facts,
            deviceProperties=list(profile.devices),
            ops=list(profile.operators),
            memPlan=profile.memory_plan,
            engineRaw=msgspec.Raw(profile.engine_raw or b"null"),
        )
    )


def events_of(profile: Profile) -> Iterator[TraceEvent]:
    """Yield the events of a profile.

    The parent of a span is the innermost phase or step on its thread around it, that of an
    execution its step.
    """
    numbers = count(1)
    steps: dict[int, int] = {}
    for thread, name in profile.threads.items():
        yield TraceEvent("M", "thread_name", tid=thread, args=TraceArgs(name=name))
    for step in profile.steps:
        steps[step.number] = number = next(numbers)
        args = TraceArgs(id=number, step=step.number, warmup=step.warmup)
        name = f"ProfilerStep#{step.number}"
        yield complete(name, "profiler_step", 0, step.start_ns, step.end_ns, args)
    yield from events_of_spans(profile, numbers, steps)
    for execution in profile.executions:
        yield from events_of_execution(profile, execution, numbers, steps)
    for sample in profile.counters:
        value = TraceArgs(value=sample.value)
        yield TraceEvent("C", sample.name, "counter", sample.at_ns / 1000, args=value)
    for each in profile.allocations:
        args = TraceArgs(
            bytes=each.size_bytes,
            op=each.operator,
            addr=each.address,
            device=each.device,
            source=each.source,
        )
        yield TraceEvent("i", "[memory]", "memory", each.at_ns / 1000, args=args)


def events_of_spans(
    profile: Profile, numbers: Iterator[int], steps: dict[int, int]
) -> Iterator[TraceEvent]:
    """Yield the events of the spans."""
    around: dict[int, list[tuple[int, int]]] = {}  # by thread: the ends and numbers of phases
    for span in sorted(profile.spans, key=lambda span: (span.start_ns, -span.end_ns)):
        number = next(numbers)
        enclosing = around.setdefault(span.thread, [])
        while enclosing and enclosing[-1][0] <= span.start_ns:
            enclosing.pop()
        parent = enclosing[-1][1] if enclosing else None
        if parent is None and span.step is not None:
            parent = steps.get(span.step)
        if span.category == "phase":
            enclosing.append((span.end_ns, number))
        args = TraceArgs(
            id=number,
            parent=parent,
            step=span.step,
            warmup=span.warmup,
            op=span.operator,
            bytes=span.size_bytes,
            tensor=span.tensor,
            device=span.device,
            stream=span.stream,
            grid=span.grid,
            block=span.block,
            src_kind=span.source_kind,
            dst_kind=span.destination_kind,
            color=span.color,
            style=span.style,
            source=span.source,
            result=span.result,
        )
        yield complete(span.name, span.category, span.thread, span.start_ns, span.end_ns, args)


def events_of_execution(
    profile: Profile, execution: Execution, numbers: Iterator[int], steps: dict[int, int]
) -> Iterator[TraceEvent]:
    """Yield the event of an execution, and those of its parts that are known."""
    number, thread = next(numbers), execution.thread
    start, end, wait = execution.start_ns, execution.end_ns, execution.wait_ns
    args = TraceArgs(
        id=number,
        parent=steps.get(execution.step),
        step=execution.step,
        warmup=execution.warmup,
        op=execution.operator,
        wait_ns=wait,
    )
    yield complete(profile.operators[execution.operator].name, "cpu_op", thread, start, end, args)
    inner = TraceArgs(parent=number)
    begin, done = execution.dispatch_start_ns, execution.dispatch_end_ns
    if begin is not None and done is not None:
        host = execution.dispatch_thread
        yield complete("dispatch", "op_inner", host or 0, begin, done, inner)
    if wait is not None:
        if wait:
            yield complete("wait", "op_inner", thread, start, start + wait, inner)
        yield complete("compute", "op_inner", thread, start + wait, end, inner)


def complete(
    name: str, category: str, thread: int, start_ns: int, end_ns: int, args: TraceArgs
) -> TraceEvent:
    return TraceEvent(
        "X", name, category, start_ns / 1000, (end_ns - start_ns) / 1000, 0, thread, args
    )


def read_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        UsageError: there is none, or it is truncated, foreign, empty or of a later schema.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: cannot be read: {reason}", "check the path") from None
    return decode_profile(data, str(path))


def decode_profile(data: bytes, name: str) -> Profile:
    """Return the profile in a file's content; `name` is for messages.

    Raises:
        UsageError: it is truncated, foreign, empty or of a later schema.
    """
    if not data.strip():
        raise UsageError(f"{name}: the profile is empty", "make it again with --profile")
    try:
        schema = msgspec.json.decode(data, type=SchemaOnly).schema
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{name}: is no profile, or was cut short: {error}", "make it again with --profile"
        ) from None
    if schema != PROFILE_SCHEMA:
        what = f"has the schema {schema!r}" if schema else "is JSON, but no profile of lar"
        hint = "a later lar reads it" if schema.startswith("lar.profile/") else ""
        raise UsageError(
            f"{name}: {what}; this lar reads {PROFILE_SCHEMA}", hint or "lar MODEL --profile FILE"
        )
    try:
        file = msgspec.json.decode(data, type=TraceFile)
        return profile_of(file)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name}: is damaged: {error}", "make it again with --profile") from None


def profile_of(file: TraceFile) -> Profile:
    """Return the profile that a file holds.

    Raises:
        ValueError: an event names an operator that is not there.
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
            steps.append(Step(args.step or 0, start, end, args.warmup))
        elif event.cat in CATEGORIES:
            spans.append(span_of(event, args))
        elif event.cat == "counter" and args.value is not None:
            counters.append(CounterSample(event.name, nanoseconds(event.ts), args.value))
        elif event.cat == "memory" and args.bytes is not None:
            allocations.append(allocation_of(event, args))
        elif event.ph == "M" and event.name == "thread_name":
            threads[event.tid] = args.name or ""
    executions = [execution_of(event, args, dispatches) for event, args in operations]
    known = range(len(file.ops))
    used = {execution.operator for execution in executions}
    used |= {span.operator for span in spans if span.operator is not None}
    used |= {each.operator for each in allocations if each.operator is not None}
    if wrong := sorted(number for number in used if number not in known):
        raise ValueError(f"an event names operator {wrong[0]}, and there are {len(known)}")
    raw = bytes(file.engineRaw)
    return Profile(
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


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def times_of(event: TraceEvent) -> tuple[int, int]:
    start = nanoseconds(event.ts)
    return start, start + nanoseconds(event.dur or 0.0)


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
    if args.op is None:
        raise ValueError(f"the event {event.name} names no operator")
    return Execution(
        args.op,
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
        step=args.step,
        warmup=args.warmup,
        operator=args.op,
        size_bytes=args.bytes,
        tensor=args.tensor,
        device=args.device,
        stream=args.stream,
        grid=args.grid,
        block=args.block,
        source_kind=args.src_kind,
        destination_kind=args.dst_kind,
        color=args.color,
        style=args.style,
        source=args.source,
        result=args.result,
    )


def allocation_of(event: TraceEvent, args: TraceArgs) -> Allocation:
    return Allocation(
        nanoseconds(event.ts),
        args.bytes or 0,
        args.op,
        args.addr,
        args.device or "cpu",
        args.source or "",
    )
