"""Reads ONNX Runtime's own profile file event by event, and records the work of CUDA devices.

The file is a Chrome trace: a list of events with times in whole microseconds. Events of the
category `Session` are `model_loading_uri`, `session_initialization`, and one `model_run` for each
run. An event of the category `Node` with the name `NAME_kernel_time` is one execution of the node
NAME. An event of the category `Kernel` is work of a node on a device, and comes after the event of
the node in the file.

The engine writes an event when the event has ended, so a run comes after its nodes in the file. The
engine writes only a limited number of events, and leaves out later events.

The field `thread_scheduling_stats` of a node is empty if the session has no threads of its own.
Otherwise, the field has an object with the keys `main_thread` and `sub_threads`. The object
`main_thread` has times of the calling thread in this execution, in microseconds: the time to divide
the work, to compute the thread's own part, and to wait for the other threads. If the work of the
node is not divided, the times in `main_thread` are 0. The field may look like this:

    {"main_thread": {"block_size": [8], "Distribution": 2, "DistributionEnqueue": 1, "Run": 31,
                     "Wait": 4, "WaitRevoke": 0, ...},
     "sub_threads": {"140213": {"num_run": 812, ...}, ...}}
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from ctypes import c_char_p, c_size_t, c_uint32, c_uint64
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from lar.records.profile import Count, Interval, ThreadUse

# The work of CUDA devices, recorded by CUPTI, NVIDIA's library for profilers.
#
# ONNX Runtime's own packages report nothing about a device. CUPTI is part of CUDA's toolkit, and of
# the Python package nvidia-cuda-cupti, which PyTorch needs too. cupti_activity.h defines its
# records. The fields that are read here have the same offsets in CUDA 12 and 13.


PLACES = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")
SYSTEMS = tuple(map(os.path.basename, PLACES))

# The kinds of records. A call goes to the runtime library or directly to the driver. If both are
# recorded, the earlier record counts.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
KINDS = (MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL)
# The fields that are read from a record; all have the number of the call that it belongs to:
CALL_FIELDS = Struct("=8xQ16xI")  # the start
KERNEL_FIELDS = Struct("=16x2Q16xI3i3i16xI8xQ")  # start, end, stream, grid, block, call, name
TRANSFER_FIELDS = Struct("=4xB3x3Q8x2I")  # copied from where to where, bytes, start, end, stream
# CUPTI gives back full buffers, and the last buffer when it is asked to.
BUFFER_BYTES = 4 << 20
# Enough buffers for all operators that the engine's own profile can hold; further records are lost.
MOST_BUFFERS = 256
FORCED = 1

# The usual names of kinds of copies in profilers, by NVIDIA's numbers.
MEMSET_NAME = "[CUDA memset]"
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}


class DeviceWork(NamedTuple):
    """The work of a kernel, copy or fill on a device, with Unix times.

    `called_ns` is the time at which the host called for this work.
    """

    name: str
    called_ns: int
    start_ns: int
    end_ns: int
    stream: int
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    size_bytes: int | None = None

    def facts(self) -> dict[str, Any]:
        """Return the fields of a span for this work, without the times."""
        other = "memset" if self.name == MEMSET_NAME else "memcpy"
        known = ("name", "stream", "grid", "block", "size_bytes")
        return {
            "category": "kernel" if self.grid is not None else other,
            **{name: getattr(self, name) for name in known},
        }

    def moved(self, offset_ns: int) -> DeviceWork:
        """Return this work with an offset added to all times."""
        return self._replace(
            called_ns=self.called_ns + offset_ns,
            start_ns=self.start_ns + offset_ns,
            end_ns=self.end_ns + offset_ns,
        )


class DeviceRecorder:
    """Records the work of CUDA devices for this process, until `finish` is called."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._buffers: dict[int, Any] = {}
        self._filled: list[tuple[int, int]] = []
        # CUPTI calls these functions from its own threads while it records, so they are kept alive.
        self._callbacks = REQUESTED(self._give), COMPLETED(self._take)
        library.cuptiActivityRegisterCallbacks(*self._callbacks)
        now = c_uint64()
        library.cuptiGetTimestamp(ctypes.byref(now))
        self._offset_ns = time.time_ns() - now.value
        for kind in KINDS:
            library.cuptiActivityEnable(kind)

    def _give(self, buffer: Any, size: Any, most: Any) -> None:
        if len(self._buffers) == MOST_BUFFERS:
            buffer[0], size[0], most[0] = None, 0, 0
            return
        made = (c_uint64 * (BUFFER_BYTES // 8))()
        self._buffers[ctypes.addressof(made)] = made
        buffer[0], size[0], most[0] = ctypes.addressof(made), BUFFER_BYTES, 0

    def _take(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self._filled.append((buffer, valid))

    def finish(self) -> list[DeviceWork]:
        """Stop recording; return the work on devices, in the order of the host's calls."""
        self._library.cuptiActivityFlushAll(FORCED)
        for kind in KINDS:
            self._library.cuptiActivityDisable(kind)
        self._library.cuptiActivityFlushAll(FORCED)
        called: dict[int, int] = {}
        works: list[tuple[int, DeviceWork]] = []
        for place in self._records():
            kind = c_uint32.from_address(place).value
            if kind in (DRIVER, RUNTIME):
                start, number = fields_at(place, CALL_FIELDS)
                called[number] = min(start, called.get(number, start))
            elif kind in KINDS:
                works.append(work_at(place, kind))
        self._buffers.clear()
        found = [
            work._replace(called_ns=called[number]).moved(self._offset_ns)
            for number, work in works
            if number in called
        ]
        return sorted(found, key=attrgetter("called_ns"))

    def _records(self) -> Iterator[int]:
        record = ctypes.c_void_p()
        for buffer, valid in self._filled:
            record.value = None
            while not self._library.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), c_size_t(valid), ctypes.byref(record)
            ):
                if record.value is not None:
                    yield record.value


REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)
)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_uint32, ctypes.c_void_p, c_size_t, c_size_t)


def fields_at(place: int, fields: Struct) -> tuple[Any, ...]:
    return fields.unpack(ctypes.string_at(place, fields.size))


def work_at(place: int, kind: int) -> tuple[int, DeviceWork]:
    """Read a record of work from CUPTI.

    The result is the number of the call that caused the work, and the work.
    """
    if kind == KERNEL:
        start, end, stream, *sizes, number, name = fields_at(place, KERNEL_FIELDS)
        called = readable_name(c_char_p(name).value)
        extents = (tuple(sizes[:3]), tuple(sizes[3:]))
        return number, DeviceWork(called, 0, start, end, stream, *extents)
    copy, size_bytes, start, end, stream, number = fields_at(place, TRANSFER_FIELDS)
    called = f"[CUDA memcpy {COPIES.get(copy, '')}]" if kind == MEMCPY else MEMSET_NAME
    return number, DeviceWork(called, 0, start, end, stream, size_bytes=size_bytes)


def open_recorder() -> DeviceRecorder | None:
    """Begin to record the work of CUDA devices; return None if CUPTI is not installed."""
    files = [os.path.join(folder, place) for folder in sys.path for place in PLACES]
    for name in (*filter(os.path.exists, files), *SYSTEMS):
        with contextlib.suppress(OSError):
            return DeviceRecorder(ctypes.CDLL(name))
    return None


@cache
def readable_name(mangled: bytes | None) -> str:
    """Return a kernel's name as it is in the source code, given the mangled name."""
    with contextlib.suppress(OSError, AttributeError):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = c_char_p  # the memory of names is never freed, as there are few
        mangled = demangle(c_char_p(mangled), None, None, None) or mangled
    return (mangled or b"").decode(errors="replace")


# ONNX Runtime's own profile file, read event by event


MOST_EVENTS = 1_000_000  # the engine's default limit for events of all kinds
NODE_SUFFIX = "_kernel_time"
RUN = "model_run"
INNER = "SequentialExecutor::Execute"
START = attrgetter("ts")
NAMES = re.compile(rb'(?<="name" :")(.*?)(?=","args" : \{)', re.DOTALL)

NodeKey = tuple[str, str, str]


class RawThread(msgspec.Struct):
    num_run: Count


class RawCaller(msgspec.Struct, rename="pascal"):
    """The times that the calling thread spent on one execution of a node, in microseconds."""

    distribution: Count
    distribution_enqueue: Count
    run: Count
    wait: Count
    wait_revoke: Count


class RawScheduling(msgspec.Struct):
    """How the engine's threads were used in one execution of a node.

    `main_thread` has the times of the calling thread in this execution. `sub_threads` has, for each
    other thread, the number of tasks that this thread has done since the session began.
    """

    main_thread: RawCaller
    sub_threads: dict[str, RawThread]


class RawArgs(msgspec.Struct, gc=False):
    """The facts of an event besides its times; numbers are written as texts."""

    op_name: str = ""
    provider: str = ""
    node_index: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    thread_scheduling_stats: RawScheduling | str = ""
    stream: str = ""
    grid_x: str = ""
    grid_y: str = ""
    grid_z: str = ""
    block_x: str = ""
    block_y: str = ""
    block_z: str = ""


class RawEvent(msgspec.Struct, gc=False):
    """One event of the profile.

    `ts` and `dur` are in microseconds, and `ts` counts from the start of the profile.
    """

    name: str
    cat: str
    ts: int
    dur: int
    tid: int
    args: RawArgs = msgspec.field(default_factory=RawArgs)

    @property
    def interval(self) -> Interval:
        """The event's begin and end in nanoseconds."""
        return self.ts * 1000, (self.ts + self.dur) * 1000

    @property
    def node(self) -> str:
        return self.name.removesuffix(NODE_SUFFIX)

    @property
    def key(self) -> NodeKey:
        """The name, type and index of the event's node, by which nodes are distinguished."""
        return self.node, self.args.op_name, self.args.node_index


class RawRun(NamedTuple):
    """One run of the model, with its nodes in the order of their begin, and the device's work."""

    start_ns: int
    end_ns: int
    thread: int
    nodes: Iterable[RawEvent] = ()
    works: Iterable[DeviceWork] = ()


DECODER = msgspec.json.Decoder(list[RawEvent])
BYTES_AT_ONCE = 1 << 17
BETWEEN_EVENTS = b"},\n{"  # never within an event: its name is a single line


def runs_in(events: Iterable[RawEvent], load: list[RawEvent]) -> Iterator[RawRun]:
    """Yield each run when its last event has been read, and add events outside runs to `load`."""
    nodes: list[RawEvent] = []
    works: list[DeviceWork] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(NODE_SUFFIX):
            nodes.append(event)
        elif event.cat == "Kernel" and nodes:
            works.append(work_of(event, nodes[-1]))
        elif event.cat == "Session" and event.name == RUN:
            yield run_of(event, nodes, works)
            nodes, works = [], []
        elif event.cat == "Session" and event.name != INNER:
            load.append(event)


def run_of(event: RawEvent, nodes: Iterable[RawEvent], works: Iterable[DeviceWork]) -> RawRun:
    """Return a run that has ended, with all given nodes whose execution began within the run."""
    own = sorted((it for it in nodes if event.ts <= it.ts <= event.ts + event.dur), key=START)
    start_ns, end_ns = event.interval
    # Times are rounded down, so the run's end may seem to be before its last node's end.
    end_ns = max((end_ns, *(node.interval[1] for node in own)))
    return RawRun(start_ns, end_ns, event.tid, own, works)


def events_in(path: str) -> Iterator[RawEvent]:
    """Yield the events in a file, which has one event in each line.

    Only a few events are in memory at once.

    Raises:
        msgspec.MsgspecError, ValueError: the file is damaged.
    """
    with open(path, "rb") as file:
        held = file.read(BYTES_AT_ONCE).lstrip().removeprefix(b"[")
        while piece := file.read(BYTES_AT_ONCE):
            held += piece
            done, between, rest = held.rpartition(BETWEEN_EVENTS)
            if between:
                yield from decode_events(b"[" + done + b"}]")
                held = b"{" + rest
        yield from decode_events(b"[" + held)


def decode_events(data: bytes) -> list[RawEvent]:
    """Decode a JSON list of events.

    Raises:
        msgspec.MsgspecError, ValueError: the list is truncated or damaged, or its elements are not
        events.
    """
    try:
        return DECODER.decode(data)
    except msgspec.DecodeError:
        return DECODER.decode(NAMES.sub(escape_name, data))


def escape_name(found: re.Match[bytes]) -> bytes:
    """Add JSON's escapes to a node's name, since the engine writes names without escapes."""
    return json.dumps(found[0].decode(), ensure_ascii=False)[1:-1].encode()


def work_of(event: RawEvent, node: RawEvent) -> DeviceWork:
    """Return the work of a node on a device: a kernel, or a copy, which has no grid."""
    args = event.args
    is_copy = args.grid_x in ("", "-1")
    return DeviceWork(
        *(event.name, node.interval[0], *event.interval),
        int(args.stream) if args.stream.isdigit() else 0,
        None if is_copy else (int(args.grid_x), int(args.grid_y), int(args.grid_z)),
        None if is_copy else (int(args.block_x), int(args.block_y), int(args.block_z)),
    )


class ThreadUses:
    """How each operator of a session uses the engine's threads, summed up over all executions."""

    def __init__(self) -> None:
        self.by_operator: dict[int, ThreadUse] = {}
        self._done: dict[str, int] = {}  # the tasks of each thread up to the last event

    def add(self, operator: int, found: RawScheduling | str, *, timed: bool) -> None:
        """Add what one execution of an operator reports about the use of threads.

        An execution of the warm-up (`timed` is false) is not added. ONNX Runtime
        counts the tasks of each thread from the warm-up on. The number of tasks in the warm-up is
        stored, so that it can be subtracted from the later counts. If a session has no
        threads of its own, an execution reports no use of threads.
        """
        if isinstance(found, str):
            return
        caller, before = found.main_thread, self._done
        # A thread that has not begun yet has a preliminary name, so names may disappear.
        self._done = {name: it.num_run for name, it in found.sub_threads.items()}
        if timed:
            more = ((count, count - before.get(name, 0)) for name, count in self._done.items())
            use = ThreadUse(
                executions=1,
                computing_ns=1000 * caller.run,
                handing_out_ns=1000 * (caller.distribution + caller.distribution_enqueue),
                waiting_ns=1000 * (caller.wait + caller.wait_revoke),
                # If a count has become smaller, the engine has begun to count from 0 again.
                tasks=tuple(new if new >= 0 else count for count, new in more),
            )
            known = self.by_operator.get(operator, ThreadUse())
            self.by_operator[operator] = known.with_that_of(use)

    def busy_threads(self) -> tuple[str, ...]:
        """Return the names of the engine's own threads that have done tasks."""
        return tuple(name for name, count in self._done.items() if count)
