"""The events of ONNX Runtime's own profile as those of a profile of lar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lar.engines.onnxruntime.profile_file import (
    HINT,
    NodeEvent,
    RawEvent,
    RawRun,
    busy_threads,
    decode_raw,
)
from lar.engines.onnxruntime.profiled_operators import OperatorTable, bytes_of
from lar.engines.profiler import HOST_THREAD
from lar.errors import UsageError
from lar.records.profile import Category, Execution, Profile, ProfileFacts, Span, Step

RELAYOUTS = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})

# Nodes that copy between the host and a device: from where, where to, what the span is called.
COPIES = {
    "MemcpyFromHost": ("host", "device", "[CUDA memcpy HtoD]"),
    "MemcpyToHost": ("device", "host", "[CUDA memcpy DtoH]"),
}

NO_GRID = "-1"  # of a kernel event that is a copy
DEVICE_PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider")

NO_PARTS = "dispatch and wait of an operator: ONNX Runtime does not tell them apart from it"
NO_KERNELS = (
    "times on the device: this ONNX Runtime was built without them, and tells an operator's "
    "dispatch alone"
)


class TimedRun(NamedTuple):
    """A run that the engine tells, the iteration that it was, and what to add to its times."""

    raw: RawRun
    step: Step
    offset_ns: int


class RunEvents:
    """What is in runs: executions of operators, and spans that belong to them.

    On the CPU an operator is executed where and when the engine tells. On a device it is so while
    its kernels run, and what the engine tells is its dispatch.
    """

    def __init__(self, table: OperatorTable, device: str) -> None:
        self.table = table
        self.device = device
        self.on_device = not device.startswith("cpu")
        self.executions: list[Execution] = []
        self.spans: list[Span] = []
        self.threads: dict[int, str] = {}
        self.dropped: list[str] = [NO_PARTS]
        self._numbers: dict[str, int] = {}

    def add_runs(self, runs: Sequence[TimedRun]) -> None:
        """Add what is in runs, in the order of time."""
        for run in runs:
            for node in run.raw.nodes:
                self._add_node(run, node)
        self.executions.sort(key=lambda execution: execution.start_ns)

    def add_threads(self, names: Iterable[str]) -> None:
        """Add threads in which nothing begins or ends."""
        for number, name in enumerate(names, start=1):
            self._number_of(f"pool {name}", f"intra-op {number}")

    def _number_of(self, key: str, name: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = number = HOST_THREAD + 1 + len(self._numbers)
            self.threads[number] = name
        return self._numbers[key]

    def _add_node(self, run: TimedRun, node: NodeEvent) -> None:
        event, step = node.event, run.step
        start, end = event.start_ns + run.offset_ns, event.end_ns + run.offset_ns
        place = self.table.place_of(event)
        same = event.tid == run.raw.thread
        thread = HOST_THREAD if same else self._number_of(f"{event.tid}", f"thread {event.tid}")
        if not self.on_device:
            self.executions.append(
                Execution(place, step.number, thread, start, end, warmup=step.warmup)
            )
        elif node.kernels:
            self._add_kernels(run, node, place)
        else:
            if NO_KERNELS not in self.dropped:
                self.dropped.append(NO_KERNELS)
            self._add_span(run, "runtime", event.node, start, end, place, thread)
        if event.args.op_name in RELAYOUTS and not self.on_device:
            self._add_span(run, "relayout", "[relayout]", start, end, place, thread)
        elif event.args.op_name in COPIES:
            source, destination, name = COPIES[event.args.op_name]
            kinds = source, destination
            self._add_span(run, "memcpy", name, start, end, place, thread, kinds)

    def _add_kernels(self, run: TimedRun, node: NodeEvent, place: int) -> None:
        """Add what a node had the device do, and the execution that this makes."""
        event, offset = node.event, run.offset_ns
        streams = [
            self._number_of(f"stream {each.args.stream}", f"stream {each.args.stream}")
            for each in node.kernels
        ]
        self.executions.append(
            Execution(
                place,
                run.step.number,
                streams[0],
                min(each.start_ns for each in node.kernels) + offset,
                max(each.end_ns for each in node.kernels) + offset,
                dispatch_start_ns=event.start_ns + offset,
                dispatch_end_ns=event.end_ns + offset,
                dispatch_thread=HOST_THREAD,
                warmup=run.step.warmup,
            )
        )
        for each, thread in zip(node.kernels, streams, strict=True):
            args = each.args
            is_copy = args.grid_x in ("", NO_GRID)
            self.spans.append(
                Span(
                    category="memcpy" if is_copy else "kernel",
                    name=each.name,
                    start_ns=each.start_ns + offset,
                    end_ns=each.end_ns + offset,
                    thread=thread,
                    step=run.step.number,
                    warmup=run.step.warmup,
                    operator=place,
                    device=self.device,
                    stream=int(args.stream) if args.stream.isdigit() else None,
                    grid=None if is_copy else triple_of(args.grid_x, args.grid_y, args.grid_z),
                    block=None if is_copy else triple_of(args.block_x, args.block_y, args.block_z),
                )
            )

    def _add_span(
        self,
        run: TimedRun,
        category: Category,
        name: str,
        start_ns: int,
        end_ns: int,
        place: int,
        thread: int,
        kinds: tuple[str | None, str | None] = (None, None),
    ) -> None:
        outputs = self.table.operators[place].outputs
        self.spans.append(
            Span(
                category=category,
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                thread=thread,
                step=run.step.number,
                warmup=run.step.warmup,
                operator=place,
                size_bytes=None if category == "runtime" else bytes_of(outputs),
                source_kind=kinds[0],
                destination_kind=kinds[1],
            )
        )


def triple_of(x: str, y: str, z: str) -> tuple[int, int, int]:
    return int(x), int(y), int(z)


def load_spans(events: Iterable[RawEvent], offset_ns: int) -> tuple[Span, ...]:
    """Return what the engine did to load the model, as calls."""
    return tuple(
        Span(
            category="runtime",
            name=event.name,
            start_ns=event.start_ns + offset_ns,
            end_ns=event.end_ns + offset_ns,
            thread=HOST_THREAD,
        )
        for event in events
    )


def profile_of_raw(data: bytes, name: str) -> Profile:
    """Return the profile of the runs that the engine's own file holds, which may all be timed.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged, or holds no run.
    """
    raw = decode_raw(data, name)
    if not raw.runs:
        raise UsageError(f"{name}: no run of a model is in it", HINT)
    table = OperatorTable(raw, None)
    providers = {node.event.args.provider for run in raw.runs for node in run.nodes}
    events = RunEvents(table, "cuda" if providers & set(DEVICE_PROVIDERS) else "cpu")
    runs = [
        TimedRun(run, Step(number, run.start_ns, run.end_ns), 0)
        for number, run in enumerate(raw.runs)
    ]
    events.add_runs(runs)
    threads = busy_threads(node.event for run in raw.runs for node in run.nodes)
    events.add_threads(threads)
    return Profile(
        facts=ProfileFacts(
            engine="onnxruntime",
            device=events.device,
            iterations=len(runs),
            threads=1 + len(threads),
            dropped=(
                *events.dropped,
                "FLOPs and bytes: the file has neither the weights nor the attributes",
                "warm-up: the file does not tell which runs were part of it",
            ),
        ),
        operators=tuple(table.operators),
        steps=tuple(run.step for run in runs),
        executions=tuple(events.executions),
        spans=(*load_spans(raw.load, 0), *events.spans),
        threads={HOST_THREAD: "host", **events.threads},
    )
