"""ONNX Runtime's own file of a profile, read event by event.

It is a Chrome trace as a list, with times in whole microseconds:

    Session  model_loading_uri, session_initialization, and for each run model_run
    Node     one execution of a node: `NAME_kernel_time`
    Kernel   what a node had a device do; it follows the node in the file

`thread_scheduling_stats` of a node is empty if the session has no threads of its own, else

    {"main_thread": {"block_size": [8], "Distribution": 2, "DistributionEnqueue": 1, "Run": 31,
                     "Wait": 4, "WaitRevoke": 0, ...},
     "sub_threads": {"140213": {"num_run": 812, ...}, ...}}

The times of the calling thread, in microseconds, are those of this execution: for handing out the
shares of the work, for its own share, and for waiting until the others are done. Nothing is
counted where the work of a node is not shared out.

An event is written when it has ended, so that a run follows its nodes. The engine writes only a
limited number of events.
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

# What a CUDA device does, and when: CUPTI, NVIDIA's library for profilers, records it.
#
# ONNX Runtime's own packages report nothing of a device. CUPTI comes with CUDA's toolkit, and as
# the Python package nvidia-cuda-cupti, which PyTorch needs too. Its records are laid out as in
# cupti_activity.h of CUDA 12 and 13: the fields named here stand in the same places in both.


PLACES = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")
SYSTEMS = tuple(map(os.path.basename, PLACES))

# The kinds of records. Calls are those of the driver and of the library above it, whichever was
# called first.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
KINDS = (MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL)
# The fields read from a record, from its kind to the number of the call that it belongs to:
CALL_FIELDS = Struct("=8xQ16xI")  # the start
KERNEL_FIELDS = Struct("=16x2Q16xI3i3i16xI8xQ")  # start, end, stream, grid, block, call, name
TRANSFER_FIELDS = Struct("=4xB3x3Q8x2I")  # copied from where to where, bytes, start, end, stream
# CUPTI gives back full buffers; the last one when it is asked for.
BUFFER_BYTES = 4 << 20
# More than what belongs to as many operators as the engine's own profile holds; the rest is lost.
MOST_BUFFERS = 256
FORCED = 1

# Names that profilers give to kinds of copies, by NVIDIA's numbers.
MEMSET_NAME = "[CUDA memset]"
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}


class DeviceWork(NamedTuple):
    """A kernel, copy or fill; times are Unix ones. The host asked for it at `called_ns`."""

    name: str
    called_ns: int
    start_ns: int
    end_ns: int
    stream: int
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    size_bytes: int | None = None

    def facts(self) -> dict[str, Any]:
        """Return what it is, besides when, as the fields of a span."""
        other = "memset" if self.name == MEMSET_NAME else "memcpy"
        known = ("name", "stream", "grid", "block", "size_bytes")
        return {
            "category": "kernel" if self.grid is not None else other,
            **{name: getattr(self, name) for name in known},
        }

    def moved(self, offset_ns: int) -> DeviceWork:
        """Return it with all times later by an offset."""
        return self._replace(
            called_ns=self.called_ns + offset_ns,
            start_ns=self.start_ns + offset_ns,
            end_ns=self.end_ns + offset_ns,
        )


class DeviceRecorder:
    """Records what this process has its CUDA devices do, from when it is made to `finish`."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._buffers: dict[int, Any] = {}
        self._filled: list[tuple[int, int]] = []
        # CUPTI calls these from threads of its own, as long as it records.
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
        """Stop recording; return what was done, in the order in which it was asked for."""
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
    """Return what a record tells, and the number of the call that asked for it."""
    if kind == KERNEL:
        start, end, stream, *sizes, number, name = fields_at(place, KERNEL_FIELDS)
        called = readable_name(c_char_p(name).value)
        extents = (tuple(sizes[:3]), tuple(sizes[3:]))
        return number, DeviceWork(called, 0, start, end, stream, *extents)
    copy, size_bytes, start, end, stream, number = fields_at(place, TRANSFER_FIELDS)
    called = f"[CUDA memcpy {COPIES.get(copy, '')}]" if kind == MEMCPY else MEMSET_NAME
    return number, DeviceWork(called, 0, start, end, stream, size_bytes=size_bytes)


def open_recorder() -> DeviceRecorder | None:
    """Begin to record what CUDA devices do; None without CUPTI."""
    files = [os.path.join(folder, place) for folder in sys.path for place in PLACES]
    for name in (*filter(os.path.exists, files), *SYSTEMS):
        with contextlib.suppress(OSError):
            return DeviceRecorder(ctypes.CDLL(name))
    return None


@cache
def readable_name(mangled: bytes | None) -> str:
    """Return a kernel's name as its source has it."""
    with contextlib.suppress(OSError, AttributeError):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = c_char_p  # the memory of a name is never freed: there are few
        mangled = demangle(c_char_p(mangled), None, None, None) or mangled
    return (mangled or b"").decode(errors="replace")


# ONNX Runtime's own file of a profile, read event by event


MOST_EVENTS = 1_000_000  # the engine's default, of all kinds
NODE_SUFFIX = "_kernel_time"
RUN = "model_run"
INNER = "SequentialExecutor::Execute"
START = attrgetter("ts")
NAMES = re.compile(rb'(?<="name" :")(.*?)(?=","args" : \{)', re.DOTALL)

NodeKey = tuple[str, str, str]


class RawThread(msgspec.Struct):
    num_run: Count = 0


class RawCaller(msgspec.Struct, rename="pascal"):
    """The calling thread's times in microseconds."""

    distribution: Count = 0
    distribution_enqueue: Count = 0
    run: Count = 0
    wait: Count = 0
    wait_revoke: Count = 0


class RawScheduling(msgspec.Struct):
    """The calling thread in this execution, and the others since the session began, whose `num_run`
    counts the shares of the work that they have done."""

    main_thread: RawCaller = msgspec.field(default_factory=RawCaller)
    sub_threads: dict[str, RawThread] = {}


class RawArgs(msgspec.Struct, gc=False):
    """The facts of an event besides its times; numbers stand as texts."""

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
    """One event; `ts` and `dur` are microseconds since the profile began."""

    name: str
    cat: str
    ts: int
    dur: int = 0
    tid: int = 0
    args: RawArgs = msgspec.field(default_factory=RawArgs)

    @property
    def interval(self) -> Interval:
        """Its begin and end in nanoseconds."""
        return self.ts * 1000, (self.ts + self.dur) * 1000

    @property
    def node(self) -> str:
        return self.name.removesuffix(NODE_SUFFIX)

    @property
    def key(self) -> NodeKey:
        """What its node is known by."""
        return self.node, self.args.op_name, self.args.node_index


class RawRun(NamedTuple):
    """One run of the model: its nodes in the order in which they began, and their works on a
    device, each asked for when its node began."""

    start_ns: int
    end_ns: int
    thread: int
    nodes: Iterable[RawEvent] = ()
    works: Iterable[DeviceWork] = ()


DECODER = msgspec.json.Decoder(list[RawEvent])
BYTES_AT_ONCE = 1 << 17
BETWEEN_EVENTS = b"},\n{"  # never within an event: its name is a single line


def runs_in(events: Iterable[RawEvent], load: list[RawEvent]) -> Iterator[RawRun]:
    """Yield the runs that ended; `load` takes what the engine did besides."""
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
    """Return a run that has ended, with its own nodes among those before its end."""
    own = sorted((it for it in nodes if event.ts <= it.ts <= event.ts + event.dur), key=START)
    start_ns, end_ns = event.interval
    # It ends no sooner than its last node, as both are rounded down.
    end_ns = max((end_ns, *(node.interval[1] for node in own)))
    return RawRun(start_ns, end_ns, event.tid, own, works)


def events_in(path: str) -> Iterator[RawEvent]:
    """Yield the events in a file with one event a line, without holding all of them.

    Raises:
        msgspec.MsgspecError, ValueError: it is damaged.
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
    """Return the events in a list.

    Raises:
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    try:
        return DECODER.decode(data)
    except msgspec.DecodeError:
        return DECODER.decode(NAMES.sub(escape_name, data))


def escape_name(found: re.Match[bytes]) -> bytes:
    """Return a name as JSON has it: the engine writes those of nodes as they are."""
    return json.dumps(found[0].decode(), ensure_ascii=False)[1:-1].encode()


def work_of(event: RawEvent, node: RawEvent) -> DeviceWork:
    """Return what the engine itself reports of a node's kernel or, without a grid, of a copy."""
    args = event.args
    is_copy = args.grid_x in ("", "-1")
    return DeviceWork(
        *(event.name, node.interval[0], *event.interval),
        int(args.stream) if args.stream.isdigit() else 0,
        None if is_copy else (int(args.grid_x), int(args.grid_y), int(args.grid_z)),
        None if is_copy else (int(args.block_x), int(args.block_y), int(args.block_z)),
    )


class ThreadUses:
    """The use of threads by each operator of one session, summed up in the order of time."""

    def __init__(self) -> None:
        self.by_operator: dict[int, ThreadUse] = {}
        self._done: dict[str, int] = {}  # the shares done by each thread, at the last event

    def add(self, operator: int, found: RawScheduling | str, *, timed: bool) -> None:
        """Add what the event of an execution reports; before the timed ones, it only starts the
        counts. A session without threads of its own reports nothing."""
        if isinstance(found, str):
            return
        caller, before = found.main_thread, self._done
        # A thread that has not begun yet has another name, which is gone later.
        self._done = {name: it.num_run for name, it in found.sub_threads.items()}
        if timed:
            more = ((count, count - before.get(name, 0)) for name, count in self._done.items())
            use = ThreadUse(
                executions=1,
                computing_ns=1000 * caller.run,
                handing_out_ns=1000 * (caller.distribution + caller.distribution_enqueue),
                waiting_ns=1000 * (caller.wait + caller.wait_revoke),
                # An engine that began to count anew counts from 0.
                tasks=tuple(new if new >= 0 else count for count, new in more),
            )
            known = self.by_operator.get(operator, ThreadUse())
            self.by_operator[operator] = known.with_that_of(use)

    def busy_threads(self) -> tuple[str, ...]:
        """Return the engine's own threads that have done some of the work, besides the caller's."""
        return tuple(name for name, count in self._done.items() if count)
