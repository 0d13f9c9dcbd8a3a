"""ONNX Runtime's own profile: a Chrome trace as a list, with times in whole microseconds.

    Session  model_loading_uri, session_initialization, and for each run model_run
    Node     one execution of a node: `NAME_kernel_time`
    Kernel   what a node had a device do; it follows the node in the file

An event is written when it has ended, and no more of them than a limit.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from lar.errors import UsageError
from lar.records.profile import Count

MOST_EVENTS = 1_000_000  # the engine's default, of all kinds
NODE_SUFFIX = "_kernel_time"
RUN = "model_run"
INNER = "SequentialExecutor::Execute"
NAMES = re.compile(rb'(?<="name" :")(.*?)(?=","args" : \{)', re.DOTALL)
HINT = "ONNX Runtime's file is what --profile-raw wrote, lar's what --profile wrote"

# The engine's names of element types, and how many bytes an element has.
TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "bool": ("bool", 1),
    **{
        f"{kind}{bits}": (f"{kind}{bits}", bits // 8)
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}

Tensors = list[dict[str, tuple[Count, ...]]]


class RawArgs(msgspec.Struct, gc=False):
    """What an event has besides its times; numbers stand as texts."""

    op_name: str = ""
    provider: str = ""
    node_index: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    thread_scheduling_stats: msgspec.Raw = msgspec.Raw(b"")
    stream: str = ""
    grid_x: str = ""
    grid_y: str = ""
    grid_z: str = ""
    block_x: str = ""
    block_y: str = ""
    block_z: str = ""


class RawEvent(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are microseconds since the profile began."""

    name: str
    cat: str
    ts: int
    dur: int = 0
    tid: int = 0
    args: RawArgs = msgspec.field(default_factory=RawArgs)

    @property
    def start_ns(self) -> int:
        return self.ts * 1000

    @property
    def end_ns(self) -> int:
        return (self.ts + self.dur) * 1000

    @property
    def node(self) -> str:
        return self.name.removesuffix(NODE_SUFFIX)


class NodeEvent(NamedTuple):
    """One execution of a node, and what it had a device do."""

    event: RawEvent
    kernels: tuple[RawEvent, ...]


class RawRun(NamedTuple):
    """One run of the model: its nodes in the order in which they began."""

    start_ns: int
    end_ns: int
    thread: int
    nodes: tuple[NodeEvent, ...]


class RawProfile(NamedTuple):
    """All that the engine has told: what came before the runs, and those that ended."""

    load: tuple[RawEvent, ...]
    runs: tuple[RawRun, ...]
    event_count: int


class RawThread(msgspec.Struct):
    num_run: int = 0


class RawScheduling(msgspec.Struct):
    """How the threads of a session have shared the work since it began."""

    sub_threads: dict[str, RawThread] = {}


DECODER = msgspec.json.Decoder(list[RawEvent])
TENSORS = msgspec.json.Decoder(Tensors)


def decode_raw(data: bytes, name: str) -> RawProfile:
    """Return what is in a file; `name` is for messages.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged.
    """
    if not data.strip():
        raise UsageError(f"{name}: the profile is empty", "make it again")
    try:
        try:
            events = DECODER.decode(data)
        except msgspec.DecodeError:
            events = DECODER.decode(NAMES.sub(escape_name, data))
        return profile_in(events)
    except msgspec.ValidationError as error:
        why = str(error).lower()
        raise UsageError(f"{name}: is JSON, but no profile that lar knows: {why}", HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).lower()
        raise UsageError(f"{name}: is no profile, or was cut short: {why}", HINT) from None


def escape_name(found: re.Match[bytes]) -> bytes:
    """Return a name as JSON has it: the engine writes those of nodes as they are."""
    return json.dumps(found[0].decode(), ensure_ascii=False)[1:-1].encode()


def profile_in(events: Sequence[RawEvent]) -> RawProfile:
    """Return the events by the run that they belong to; a run that was cut is left out."""
    runs = sorted(
        (event for event in events if event.cat == "Session" and event.name == RUN),
        key=lambda event: event.ts,
    )
    starts = [run.ts for run in runs]
    found: list[list[tuple[RawEvent, list[RawEvent]]]] = [[] for _ in runs]
    kernels: list[RawEvent] = []
    for event in events:
        if event.cat == "Kernel":
            kernels.append(event)
        elif event.cat == "Node" and event.name.endswith(NODE_SUFFIX):
            kernels = []
            index = bisect_right(starts, event.ts) - 1
            if index >= 0 and event.ts <= runs[index].ts + runs[index].dur:
                found[index].append((event, kernels))
    return RawProfile(
        load=tuple(
            event for event in events if event.cat == "Session" and event.name not in (RUN, INNER)
        ),
        runs=tuple(run_of(run, nodes) for run, nodes in zip(runs, found, strict=True)),
        event_count=len(events),
    )


def run_of(run: RawEvent, nodes: Iterable[tuple[RawEvent, list[RawEvent]]]) -> RawRun:
    """Return a run; it ends no sooner than its last node, as both are rounded down."""
    ordered = sorted(nodes, key=lambda node: node[0].ts)
    ends = (event.end_ns for event, _ in ordered)
    return RawRun(
        run.start_ns,
        max((run.end_ns, *ends)),
        run.tid,
        tuple(NodeEvent(event, tuple(kernels)) for event, kernels in ordered),
    )


def tensors_in(raw: msgspec.Raw) -> list[tuple[str, tuple[int, ...]]]:
    """Return the element types and shapes of an event's inputs or outputs.

    Those that are no tensors, are left out, or have been rearranged beforehand are not listed.

    Raises:
        msgspec.MsgspecError: they are not told as in the versions that lar knows.
    """
    return [pair for each in TENSORS.decode(raw) for pair in each.items()]


def busy_threads(events: Iterable[RawEvent]) -> tuple[str, ...]:
    """Return the engine's own threads that have done some of the work, besides the caller's."""
    for event in reversed([*events]):
        raw = bytes(event.args.thread_scheduling_stats)
        if raw.startswith(b"{"):  # without threads of its own it is an empty text
            threads = msgspec.json.decode(raw, type=RawScheduling).sub_threads
            return tuple(name for name, thread in threads.items() if thread.num_run)
    return ()
