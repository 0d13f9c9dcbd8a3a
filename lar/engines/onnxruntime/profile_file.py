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

import json
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

import msgspec

from lar.engines.onnxruntime.cupti import DeviceWork
from lar.records.profile import Count, Interval, ThreadUse

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
