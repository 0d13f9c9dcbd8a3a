"""Exports a profile as a trace for Chrome's viewer, Perfetto, and TensorBoard's plugin.

Chrome's viewer, Perfetto and TensorBoard's plugin read the same format. A trace has the categories
of TensorBoard's plugin for the PyTorch profiler: operators (cpu_op), layers (python_function),
iterations (ProfilerStep#N), kernels, copies and allocations. TensorBoard's plugin draws other
categories, but does not include them in its sums. Viewers show operators by name. TensorBoard's
plugin adds up events with equal names. Therefore, in the trace for TensorBoard's plugin, operators
have their types as names, and the warm-up is left out.

The events of a thread are slices on one or more tracks. On a track, slices nest, since viewers and
TensorBoard's plugin drop overlapping slices. No two slices of a track begin or end at the same
time, since TensorBoard's plugin assigns an allocation to the innermost operator that runs at the
time of the allocation. To keep slices apart, times are moved by a few nanoseconds, and a slice
without duration gets one nanosecond.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, groupby
from typing import Any, NamedTuple

import msgspec

from lar.errors import UsageError
from lar.profiles.activities import (
    device_number,
    device_title,
    execution_of,
    is_of_device,
    kernel_name_of,
    places_of,
)
from lar.profiles.breakdown import leaf_calls
from lar.profiles.times import earliest_ns, timed_allocations, with_zero_at
from lar.profiles.trace_file import (
    FACTS,
    LATEST_NS,
    Event,
    arrow_end,
    complete,
    name_line,
    pieces_of_trace,
    point,
)
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Execution,
    Interval,
    Profile,
    ProfiledOperator,
    Span,
)

# The number of the host's process; the process of a device has the device's number.
HOST = 1000
# The names of categories in the trace that differ from the names in the profile.
ON_HOST = {"memcpy": "host_copy", "memset": "host_fill", "runtime": "engine_api"}
ON_DEVICE = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
# The plugin treats an operator of this name as the loading of data.
DATA_LOADER = "enumerate(DataLoader)#lar.__next__"


class Line(NamedTuple):
    """The slices of a thread that are drawn together.

    `calls` is false for iterations, layers and operators on the host, and for all slices of a
    device. `calls` is true for phases, ranges, calls, and dispatches on other threads of the host.
    """

    process: int
    thread: int
    calls: bool = False


class Slice(NamedTuple):
    """A named time interval on a line.

    `execution` is the execution that the slice shows on the host. An `arrow` leads from one slice
    to another slice that the first slice started; both slices have the number of the arrow.
    """

    line: Line
    name: str
    category: str
    interval: Interval
    args: dict[str, Any]
    execution: Execution | None = None
    arrow: tuple[str, int] | None = None


class Work(NamedTuple):
    """A time interval in which the host was busy with an execution, and the execution's number."""

    number: int
    execution: Execution
    line: Line
    interval: Interval


# The position of a slice in the trace: its begin, end and track.
Placed = tuple[int, int, int]


def export_chrome(profile: Profile) -> Iterator[bytes]:
    """Yield the trace for viewers as pieces of JSON."""
    return pieces_of_export(profile)


def export_tensorboard(profile: Profile) -> Iterator[bytes]:
    """Return an iterator over the trace for TensorBoard's plugin, as pieces of JSON.

    Raises:
        UsageError: no operator was timed, so that TensorBoard's plugin would show nothing.
    """
    if not profile.timed_executions:
        raise UsageError(
            "the profile has no timed operators, which TensorBoard's plugin needs",
            "run again with --iter 1 or more",
        )
    return pieces_of_export(timed_part(profile), for_plugin=True)


def timed_part(profile: Profile) -> Profile:
    """Return a profile with only the records of its timed iterations.

    Ranges that overlap with the iterations stay.
    """
    steps = profile.timed_steps()
    begin, end = (steps[0].start_ns, steps[-1].end_ns) if steps else (0, 0)

    def is_timed(span: Span) -> bool:
        if span.step is not None or span.warmup:
            return not span.warmup
        overlaps = span.start_ns < end and span.end_ns > begin
        return span.category == "user_annotation" and overlaps

    return replace(
        profile,
        steps=steps,
        executions=profile.timed_executions,
        spans=tuple(span for span in profile.spans if is_timed(span)),
        allocations=timed_allocations(profile),
    )


def pieces_of_export(profile: Profile, *, for_plugin: bool = False) -> Iterator[bytes]:
    """Return an iterator over a trace, as pieces of JSON.

    Times are microseconds from the profile's zero, or from the earliest event if this event begins
    before the profile's zero.
    """
    facts = profile.facts
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [],
        "otherData": {
            "lar_version": facts.lar_version,
            "engine": f"{facts.engine} {facts.engine_version}".strip(),
            "device": facts.device,
            "model": facts.model.path,
        },
    }
    trace = Trace(with_zero_at(profile, earliest_ns(profile)), for_plugin)
    return pieces_of_trace(msgspec.json.encode(head)[:-1], trace.events())


class Trace:
    """Makes the events of a trace.

    The slices are made anew each time they are needed, since all slices together would take much
    more memory than the profile.
    """

    def __init__(self, profile: Profile, for_plugin: bool) -> None:
        self.profile, self.for_plugin = profile, for_plugin
        self.names = [each.type if for_plugin else each.name for each in profile.operators]
        self.device = device_number(profile.facts.device)
        self.has_kernels = any(span.category == "kernel" for span in profile.spans)
        self.facts = [facts_of_operator(operator) for operator in profile.operators]
        self.paths = [re.findall(r"[^./]+", operator.module) for operator in profile.operators]
        # A layer has one number for each time it runs, and another number for its path.
        self.numbers, self.modules = count(1), dict[tuple[int | str, ...], int]()

    def events(self) -> Iterator[Event]:
        """Yield the events: names of processes and lines, slices, arrows, counters and memory."""
        profile, lines = self.profile, Lines()
        for part in self.slices():
            lines.add(part.line, part.interval)
        yield name_line("process_name", HOST, 0, profile.facts.model.path or "lar")
        if profile.on_device:
            title = f"{device_title(profile.facts.device)} {self.device}"
            yield name_line("process_name", self.device, 0, title)
        yield from lines.place(profile.threads)
        begun: dict[int, list[tuple[Execution, Placed]]] = {}
        for part, placed in zip(self.slices(), lines.placed(), strict=True):
            yield from self._events_of(part, placed)
            if (own := part.execution) is not None and profile.allocations:
                begun.setdefault(own.operator, []).append((own, placed))
        for sample in profile.counters:
            yield point("C", sample.name, HOST, 0, sample.at_ns, {sample.name: sample.value})
        yield from self._memory_events(begun)

    def _events_of(self, part: Slice, placed: Placed) -> Iterator[Event]:
        """Yield the event of a slice and, if an arrow begins or ends here, the arrow's event.

        At the end of an operator that the host dispatches to a device, an event of category runtime
        is added, since TensorBoard's plugin connects kernels to operators only by this event.
        """
        start, end, track = placed
        process = part.line.process
        yield complete(part.name, part.category, process, track, (start, end), part.args)
        if part.arrow:
            yield arrow_end(*part.arrow, process, track, start)
        if part.execution is not None and self.profile.on_device:
            number = part.args["External id"]
            ids = {"External id": number, "correlation": number}
            yield complete("launch", "runtime", process, track, (end - 1, end - 1), ids)

    def slices(self) -> Iterator[Slice]:
        """Yield all slices; of two equal slices, the outer slice comes first."""
        return chain(
            self._steps(), self._layers(), self._operators(), self._handing_over(), self._spans()
        )

    def _work(self) -> Iterator[Work]:
        """Yield the times in which the host was busy with executions, or with their dispatch."""
        for number, each in enumerate(self.profile.executions, 1):
            if not self.profile.on_device:
                yield Work(number, each, Line(HOST, each.thread), each.work)
            elif (dispatch := each.dispatch) is not None:
                yield Work(number, each, Line(HOST, each.host_thread), dispatch)

    def _steps(self) -> Iterator[Slice]:
        """Yield the iterations as slices, on the busiest thread of each copy of the model.

        When TensorBoard's plugin compares two traces, it compares the slices within iterations.
        """
        busy: Counter[int] = Counter()
        for _, _, line, (start, end) in self._work():
            busy[line.thread] += end - start
        busiest: dict[int, int] = {}
        for thread, _ in busy.most_common():
            busiest.setdefault(thread // THREADS_OF_A_COPY, thread)
        for step in self.profile.steps:
            line = Line(HOST, busiest.get(step.copy, step.copy * THREADS_OF_A_COPY))
            args = {"warmup": step.warmup}
            yield Slice(line, step.trace_name, "user_annotation", step.interval, args)

    def _layers(self) -> Iterator[Slice]:
        """Yield the layers; a layer covers successive operators, from the first to the last.

        A layer lies within one iteration. An operator within an outer operator belongs to the layer
        of the outer operator.
        """
        lines: dict[Line, list[Work]] = {}
        for each in self._work():
            own = lines.setdefault(each.line, [])
            if not own or each.interval[0] >= own[-1].interval[1]:
                own.append(each)
        for own in lines.values():
            yield from self._layers_in(own, 1)

    def _layers_in(
        self, work: Iterable[Work], depth: int, around: int | None = None
    ) -> Iterator[Slice]:
        """Yield the layers at a depth, and the layers inside them.

        `around` is the number of the outer layer.
        """

        def path_of(each: Work) -> tuple[int | str, ...]:
            return each.execution.step, *self.paths[each.execution.operator][:depth]

        for path, group in groupby(work, path_of):
            if len(path) > depth:
                own, number = [*group], next(self.numbers)
                module = self.modules.setdefault(path[1:], len(self.modules))
                args = {"Python id": number, "Python parent id": around}
                args["Python module id"] = module
                times_ns = own[0].interval[0], own[-1].interval[1]
                yield Slice(own[0].line, str(path[-1]), "python_function", times_ns, args)
                yield from self._layers_in(own, depth + 1, number)

    def _operators(self) -> Iterator[Slice]:
        """Yield the slices of operators on the host."""
        side = "s" if self.profile.on_device else "f"
        for number, each, line, interval in self._work():
            args = {"External id": number, "step": each.step, **self.facts[each.operator]}
            arrow = (side, number) if each.dispatch else None
            yield Slice(line, self.names[each.operator], "cpu_op", interval, args, each, arrow)

    def _handing_over(self) -> Iterator[Slice]:
        """Yield the slices that arrows connect with operators.

        The slices are an operator's dispatches on another thread, or its executions on a device.
        """
        for number, each in enumerate(self.profile.executions, 1):
            ids: dict[str, Any] = {"External id": number, "step": each.step}
            if self.profile.on_device:
                name, kind = self.names[each.operator], "device_op"
                if not self.has_kernels:
                    name, kind = kernel_name_of(self.profile.operators[each.operator]), "kernel"
                ids |= {"correlation": number, "device": self.device}
                args = self.facts[each.operator] | ids
                line = Line(self.device, each.thread)
                arrow = ("f", number) if each.dispatch else None
                yield Slice(line, name, kind, each.computation, args, arrow=arrow)
            elif each.dispatch:
                line = Line(HOST, each.host_thread, calls=True)
                name = f"dispatch {self.names[each.operator]}"
                yield Slice(line, name, "dispatch", each.dispatch, ids, arrow=("s", number))

    def _spans(self) -> Iterator[Slice]:
        """Yield the slices of phases, ranges and calls, and of a device's kernels and copies.

        In a run on a device, calls in which no operator is dispatched have the category runtime, so
        that the overview of TensorBoard's plugin adds up their times.
        """
        profile = self.profile
        runtime = {id(span) for span in leaf_calls(profile)} if profile.on_device else set()
        places = places_of(profile.executions, on_device=True) if profile.on_device else {}
        for number, span in enumerate(profile.spans, len(profile.executions) + 1):
            args = self._facts_of(span)
            line = Line(HOST, span.thread, calls=True)
            name, category = span.name, ON_HOST.get(span.category, span.category)
            if (span.category, name) == ("phase", "dataloader"):
                name, category = DATA_LOADER if self.for_plugin else name, "cpu_op"
            is_device = is_of_device(profile, span) and span.category in ON_DEVICE
            if is_device or id(span) in runtime:
                own = execution_of(span, places)
                tied = 0 if own is None else own + 1
                args["External id"] = tied
                args["correlation"] = tied if is_device and tied else number
                category = "runtime"
            if is_device:
                line, category = Line(self.device, span.thread), ON_DEVICE[span.category]
                args["device"] = self.device
            yield Slice(line, name, category, span.interval, args)

    def _facts_of(self, span: Span) -> dict[str, Any]:
        """Return the known facts of a span, with its operator's name."""
        facts = {name: getattr(span, name) for name in FACTS[Span]}
        if span.operator is not None:
            facts["operator"] = self.profile.operators[span.operator].name
        return {key: value for key, value in facts.items() if value is not None}

    def _memory_events(
        self, begun: Mapping[int, Sequence[tuple[Execution, Placed]]]
    ) -> Iterator[Event]:
        """Yield an event for each allocation or release, with the memory in use afterwards.

        Each event lies within an execution of its operator.
        """
        allocated: Counter[str] = Counter()
        for number, each in enumerate(self.profile.allocations):
            allocated[each.device] += each.size_bytes
            total, at_ns, track = allocated[each.device], each.at_ns, 0
            yield point("C", f"memory {each.device}", HOST, 0, at_ns, {"allocated": total})
            own = None if each.operator is None else begun.get(each.operator)
            if own:
                last = bisect_right(own, at_ns, key=lambda it: it[0].start_ns) - 1
                # A release exactly between two executions belongs to the first execution.
                last -= each.size_bytes < 0 and last > 0 and own[last - 1][0].end_ns == at_ns
                start, end, track = own[max(last, 0)][1]
                at_ns = min(max(at_ns, start), end - 1)
            args = self._facts_of_allocation(number, each, total)
            yield point("i", "[memory]", HOST, track, at_ns, args, s="t")

    def _facts_of_allocation(self, number: int, each: Allocation, total: int) -> dict[str, Any]:
        """Return the facts of an allocation.

        The memory curve of TensorBoard's plugin needs an address and the reserved memory, which is
        never less than the allocated memory.
        """
        on_host = device_title(each.device) == "CPU"
        reserved = self.profile.memory_plan.static_bytes
        return {
            "Device Type": 0 if on_host else 1,
            "Device Id": -1 if on_host else device_number(each.device),
            "Bytes": each.size_bytes,
            "Total Allocated": total,
            "Total Reserved": total if reserved is None else reserved,
            # An unknown address gets a unique value, so that the plugin pairs no release with it.
            "Addr": -1 - number if each.address is None else each.address,
        }


def facts_of_operator(operator: ProfiledOperator) -> dict[str, Any]:
    """Return the known facts of an operator.

    TensorBoard's plugin reads only the facts about the inputs.
    """
    facts = {
        "name": operator.name,
        "type": operator.type,
        "module": operator.module or None,
        "Input Dims": [list(fact.shape) for fact in operator.inputs],
        "Input type": [fact.dtype for fact in operator.inputs],
        "outputs": [f"{fact.dtype}{list(fact.shape)}" for fact in operator.outputs] or None,
        "flops": operator.flops,
        "bytes": operator.size_bytes,
        "algorithm": operator.algorithm,
        "provider": operator.provider or None,
    }
    return {key: value for key, value in facts.items() if value is not None}


class Lines:
    """Places the slices of a line on tracks; on one track, slices are nested or do not overlap."""

    def __init__(self) -> None:
        self.groups: dict[Line, array[int]] = {}  # for each line, the numbers of its slices
        self.starts, self.ends, self.tracks = array("q"), array("q"), array("q")

    def add(self, line: Line, interval: Interval) -> None:
        """Add the next slice."""
        self.groups.setdefault(line, array("q")).append(len(self.starts))
        self.starts.append(interval[0])
        self.ends.append(interval[1])

    def placed(self) -> Iterator[Placed]:
        """Return an iterator over the begin, end and track of each placed slice."""
        return zip(self.starts, self.ends, self.tracks, strict=True)

    def place(self, threads: Mapping[int, str]) -> Iterator[Event]:
        """Place the slices on tracks, and yield events with the names of the tracks.

        The first track of a thread has the number of the thread. Each further track has a number
        that is larger than the numbers of all threads.
        """
        self.tracks = array("q", bytes(8 * len(self.starts)))
        free = max([*threads, *(line.thread for line in self.groups)], default=0) + 1
        taken: set[tuple[int, int]] = set()
        for own, group in sorted(self.groups.items()):
            title = threads.get(own.thread) or f"thread {own.thread}"
            if (own.process, own.thread) in taken:
                title += ": calls"
            numbers = []
            for place in range(self._nest(group)):
                is_first = (own.process, own.thread) not in taken
                taken.add((own.process, own.thread))
                numbers.append(own.thread if is_first else free)
                free += not is_first
                name = f"{title} ({place + 1})" if place else title
                yield name_line("thread_name", own.process, numbers[-1], name)
            for number in group:
                self.tracks[number] = numbers[self.tracks[number]]

    def _nest(self, group: Sequence[int]) -> int:
        """Place the slices of a line on tracks, and return the number of tracks.

        No two slices of a track begin or end at the same time.
        """
        starts, ends = self.starts, self.ends
        # For each track: the ends and numbers of the slices that are still open, and the latest
        # time.
        going: list[list[tuple[int, int]]] = []
        latest: list[int] = []

        def moment(track: int, at_ns: int) -> int:
            latest[track] = max(at_ns, latest[track] + 1)
            return latest[track]

        def close(until_ns: int) -> None:
            for track, own in enumerate(going):
                while own and own[-1][0] <= until_ns:
                    end_ns, number = own.pop()
                    ends[number] = moment(track, end_ns)

        # A slice without length comes before other slices that begin at the same time.
        for at in sorted(group, key=lambda at: (starts[at], starts[at] < ends[at], -ends[at])):
            close(starts[at])
            fits = (track for track, own in enumerate(going) if not own or ends[at] <= own[-1][0])
            if (chosen := next(fits, len(going))) == len(going):
                going.append([])
                latest.append(-LATEST_NS)
            going[chosen].append((ends[at], at))
            self.tracks[at], starts[at] = chosen, moment(chosen, starts[at])
        close(LATEST_NS)
        return len(going)
