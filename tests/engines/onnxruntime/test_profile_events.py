"""The events in ONNX Runtime's own profile: read from the file, and on a device."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.onnx_file.fields import Message, bits_of
from lar.engines.onnxruntime import profile_file
from lar.engines.onnxruntime.kernels import OptimizedGraph
from lar.engines.onnxruntime.profile import (
    NO_KERNELS,
    NO_PARTS,
    Call,
    RunEvents,
    cut_of,
    match_nodes,
    place_runs,
)
from lar.engines.onnxruntime.profile_file import (
    DeviceWork,
    RawEvent,
    RawRun,
    RawScheduling,
    ThreadUses,
    decode_events,
    events_in,
    runs_in,
)
from lar.engines.operator_times import decode_any
from lar.records.profile import Alignment, Execution, Span, Step, TensorFact, ThreadUse
from tests.tables import each_row

CUDA_PROFILE = Path(__file__).resolve().parents[2] / "data" / "onnxruntime_cuda_profile.json"

Pairs = list[list[str]]

# The file


def event(name: str, category: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    fields = {"name": name, "cat": category, "ts": ts, "dur": dur, "tid": 7}
    return {**fields, "pid": 7, "ph": "X", "args": args}


def node(name: str, ts: int, dur: int, provider: str = "CPU", **args: Any) -> dict[str, Any]:
    shapes = {"input_type_shape": [{"float": [2, 3]}], "output_type_shape": [{"float": [2]}]}
    given = {"op_name": name.capitalize(), "node_index": "0", **shapes, **args}
    given["provider"] = f"{provider}ExecutionProvider"
    return event(f"{name}_kernel_time", "Node", ts, dur, **given)


def events_of(*events: dict[str, Any]) -> list[RawEvent]:
    return decode_events(json.dumps(events).encode())


def test_a_file_that_is_read_some_events_at_a_time_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_file, "BYTES_AT_ONCE", 30)
    events = [event("session_initialization", "Session", 0, 90)]
    for at in range(1000, 9000, 1000):
        events += [
            node('odd "name"', at + 5, 2, op_name="Odd"),
            node("mul", at + 8, 3, output_type_shape=[{"float": [at // 4000]}]),
            event("SequentialExecutor::Execute", "Session", at + 4, 8),
            event("model_run", "Session", at + 3, 10),
        ]
    events.append(node("add", 9005, 2))  # its run was cut
    lines = ",\n".join(json.dumps(each) for each in events).replace('\\"', '"')
    # As the engine writes it: names as they are, an event on each line.
    lines = re.sub(
        r'"name": "(.*?)", "cat": (.*), "args": {', r'"cat": \2, "name" :"\1","args" : {', lines
    )
    path = tmp_path / "raw.json"
    path.write_text(f"[\n{lines}\n]\n")
    assert [*events_in(str(path))] == decode_events(path.read_bytes())
    read = RunEvents(events_in(str(path)))
    assert [run.start_ns for run in read.runs] == [
        at * 1000 + 3000 for at in range(1000, 9000, 1000)
    ]
    # Of each operator the first event: one is new where a node has other shapes.
    assert [each.node for each in read.nodes] == ['odd "name"', "mul", "mul", "mul"]
    assert [each.operator for each in read.executions] == [0, 1] * 3 + [0, 2] * 4 + [0, 3]


def test_nodes_belong_to_the_run_around_them() -> None:
    events = [
        event("lost_kernel", "Kernel", 1, 1),
        event("session_initialization", "Session", 0, 90),
        node("early", 102, 2),
        node("last", 113, 2),
        node("add", 103, 2),
        node("mul", 108, 3) | {"name": "mul_fence_before"},
        node("mul", 108, 3),
        event("SequentialExecutor::Execute", "Session", 104, 8),
        event("model_run", "Api", 103, 10),
        event("model_run", "Session", 103, 10),
        node("late", 214, 9),
        node("add", 205, 9),
        event("model_run", "Session", 203, 10),
        node("add", 305, 2),  # its run was cut
    ]
    load: list[RawEvent] = []
    runs = [*runs_in(events_of(*events), load)]
    assert [each.name for each in load] == ["session_initialization"]
    assert [[each.node for each in run.nodes] for run in runs] == [["add", "mul", "last"], ["add"]]
    assert [(run.start_ns, run.end_ns) for run in runs] == [(103_000, 115_000), (203_000, 214_000)]
    assert cut_of(2, 2) == []
    assert cut_of(4, 5) == [
        "the operators of the last 1 of 5 iterations: ONNX Runtime keeps 1000000 events"
    ]


def test_names_that_the_engine_writes_as_they_are_are_read() -> None:
    """No JSON, but what ONNX Runtime makes of a line break, a quote and a backslash."""
    line = '{{"cat" : "{}","tid" :7,"dur" :2,"ts" :{},"ph" : "X","name" :"{}","args" : {{{}}}}}'
    given = '"op_name" : "Relu","provider" : "CPUExecutionProvider","node_index" : "0"'
    names = ("a\nb", 'c"d\\q', "plain")
    lines = [line.format("Node", 105, f"{name}_kernel_time", given) for name in names]
    content = f"[{','.join([*lines, line.format('Session', 103, 'model_run', '')])}]"
    (run,) = runs_in(decode_events(content.encode()), [])
    assert tuple(each.node for each in run.nodes) == names


# On a device


def placed_on(
    device: str, *events: dict[str, Any], works: Sequence[DeviceWork] = ()
) -> EngineTrace:
    found = RunEvents(events_of(*events))
    placed = [(Step(k, 0, 10**9), 500) for k in range(len(found.runs))]
    return found.trace(device, OptimizedGraph(), placed, 20, works=works)


def span(category: Any, name: str, *times: int, thread: int, **more: Any) -> Span:
    start_ns, end_ns = times
    given = {"thread": thread, "start_ns": start_ns, "end_ns": end_ns, **more}
    return Span(category=category, name=name, **given)


def test_kernels_are_the_execution_and_the_node_is_its_dispatch() -> None:
    grid = {f"grid_{axis}": str(size) for axis, size in zip("xyz", (4, 2, 1), strict=True)}
    block = {f"block_{axis}": str(size) for axis, size in zip("xyz", (64, 3, 5), strict=True)}
    none = dict.fromkeys((*grid, *block), "-1")
    found = placed_on(
        "cuda:0",
        event("session_initialization", "Session", 1, 90),
        node("add", 105, 2, "CUDA"),
        event("fast_kernel", "Kernel", 110, 20, stream="7", **grid, **block),
        event("memcpyHostToDevice", "Kernel", 130, 5, **none),
        node("mul", 108, 3, "CUDA", op_name="Transpose"),
        event("model_run", "Session", 103, 10),
    )
    assert [*found.executions] == [
        Execution(0, 0, 2, 110_500, 135_500, 0, 105_500, 107_500, HOST_THREAD)
    ]
    assert found.threads == {2: "stream 7", 3: "stream 0"}
    # Of the other operator the engine tells no time on the device: it has no execution.
    copy: dict[str, Any] = {"operator": 0, "device": "cuda:0", "step": 0, "stream": 0}
    kernel = {**copy, "stream": 7, "grid": (4, 2, 1), "block": (64, 3, 5)}
    assert [*found.spans] == [
        span("runtime", "session_initialization", 1_020, 91_020, thread=1),
        span("kernel", "fast_kernel", 110_500, 130_500, thread=2, **kernel),
        span("memcpy", "memcpyHostToDevice", 130_500, 135_500, thread=3, **copy),
        span("runtime", "mul", 108_500, 111_500, thread=1, step=0, operator=1),
    ]
    assert (found.dropped, found.dispatch_only, found.thread_count) == ((), False, 1)


def test_other_threads_other_shapes_and_runs_that_were_not_called_are_told() -> None:
    shapes, stat = [{"float": [4]}, {"double": []}], {"Distribution": 1, "DistributionEnqueue": 2}
    stat |= {"Run": 3, "Wait": 4, "WaitRevoke": 5}
    done = {"main_thread": stat, "sub_threads": {"11": {"num_run": 1}, "12": {"num_run": 0}}}
    found = placed_on(
        "cpu",
        node("add", 105, 2, thread_scheduling_stats=done),
        node("turn", 108, 3, op_name="Transpose", node_index="4") | {"tid": 8},
        node("add", 112, 2, input_type_shape=shapes),
        event("model_run", "Session", 103, 12),
    )
    add, turn = Execution(0, 0, 1, 105_500, 107_500), Execution(1, 0, 2, 108_500, 111_500)
    assert [*found.executions] == [add, turn, Execution(2, 0, 1, 112_500, 114_500)]
    relayout = {"thread": 2, "step": 0, "operator": 1, "size_bytes": 8}
    assert [*found.spans] == [span("relayout", "[relayout]", 108_500, 111_500, **relayout)]
    assert found.threads == {2: "thread 8", 3: "intra-op 1"}
    assert [(it.id, it.name) for it in found.operators] == [
        *(("0", "add"), ("4", "turn"), ("0.2", "add"))
    ]
    assert found.operators[2].inputs == (TensorFact((4,), "float32"), TensorFact((), "float64"))
    assert found.operators[0].threads == ThreadUse(1, 3_000, 3_000, 9_000, (1, 0))
    assert (found.dropped, found.dispatch_only, found.thread_count) == ((NO_PARTS,), False, 2)


def test_what_cupti_records_is_of_the_node_that_was_begun_then() -> None:
    events = (
        node("add", 105, 20, "CUDA"),
        node("mul", 130, 20, "CUDA", node_index="1"),
        node("shape", 155, 4, node_index="2"),
        event("model_run", "Session", 100, 70),
    )
    kernel = DeviceWork("fast", 0, 0, 0, 7, (4, 2, 1), (64, 1, 1))
    copy = DeviceWork("[CUDA memcpy HtoD]", 0, 0, 0, 7, size_bytes=64)
    works = [
        kernel._replace(called_ns=50_000),  # of an earlier run
        kernel._replace(called_ns=105_500, start_ns=110_250, end_ns=111_000),
        copy._replace(called_ns=126_500, start_ns=112_000, end_ns=113_000),
        kernel._replace(called_ns=126_501),  # between the nodes
        kernel._replace(called_ns=131_000, start_ns=140_000, end_ns=145_000),
    ]
    found = placed_on("cuda:0", *events, works=works)
    # Between the kernel and the copy the device waited for the host; the CPU ran the last.
    assert [*found.executions] == [
        Execution(0, 0, 2, 110_250, 113_000, 1_000, 105_500, 125_500, HOST_THREAD),
        Execution(1, 0, 2, 140_000, 145_000, 0, 130_500, 150_500, HOST_THREAD),
        Execution(2, 0, 1, 155_500, 159_500),
    ]
    spans = [(span.category, span.name, span.start_ns, span.size_bytes) for span in found.spans]
    assert spans == [
        ("kernel", "fast", 110_250, None),
        ("memcpy", "[CUDA memcpy HtoD]", 112_000, 64),
        ("kernel", "fast", 140_000, None),
    ]


def test_where_no_kernels_are_reported_the_dispatches_are_the_times() -> None:
    # As the packages of ONNX Runtime 1.31 for CUDA report it, of three runs on an H100.
    found = decode_any(CUDA_PROFILE.read_bytes(), "raw.json")
    assert (found.facts.device, found.facts.dispatch_only, found.on_device) == ("cuda", True, False)
    assert NO_KERNELS in found.facts.dropped
    assert [operator.type for operator in found.operators] == ["Conv", "Relu", "Reshape", "MatMul"]
    assert len(found.executions) == 3 * len(found.operators)
    assert {execution.thread for execution in found.executions} == {HOST_THREAD}
    assert found.executions[-1].duration_ns == 22_000


def test_copies_to_a_device_are_memcpys() -> None:
    copy = node("memcpy", 105, 2, "CUDA", op_name="MemcpyFromHost")
    span = placed_on("cuda:0", copy, event("model_run", "Session", 103, 10)).spans[-1]
    assert (span.category, span.name, span.size_bytes) == ("memcpy", "[CUDA memcpy HtoD]", 8)
    assert (span.source_kind, span.destination_kind) == ("host", "device")


@each_row("engines/onnxruntime/profile/matched")
def test_events_are_matched_by_order_or_name(
    rule: str, nodes: Pairs, events: Pairs, found: dict[str, str]
) -> None:
    """Each node and event is a type and a name."""
    graph = OptimizedGraph()
    graph.nodes = [Message("Node", op_type=type, name=name) for type, name in nodes]
    given = [
        node(name, 105 + at, 1, op_name=type, node_index=str(at))
        for at, (type, name) in enumerate(events)
    ]
    raw = RunEvents(events_of(*given, event("model_run", "Session", 100, 90)))
    matched = match_nodes(raw.runs, raw.nodes, graph)
    assert {key[0]: each.name for key, each in matched.items()} == found, rule


def test_elements_have_their_bits_by_the_engines_names_too() -> None:
    names = {"bool": 8, "int64": 64, "float16": 16, "bfloat16": 16, "Int4x2": 4, "Float8E4M3FN": 8}
    names |= {"QuantizedS8": 8, "Quantized4Asymm": 4, "float32": 32}
    assert {name: bits_of(name) for name in names} == names
    assert bits_of("string") is None


def facts(**shapes: str) -> dict[str, TensorFact]:
    """Tensors by name, each written as `float32 2x3`."""
    found = {}
    for name, text in shapes.items():
        dtype, _, axes = text.partition(" ")
        found[name] = TensorFact(tuple(map(int, axes.split("x"))) if axes else (), dtype)
    return found


@each_row("engines/onnxruntime/profile/bytes")
def test_bytes_are_counted_once_by_type_and_shape(
    type: str, inputs: dict[str, str], outputs: dict[str, str], size: int | None
) -> None:
    node = Message("Node", op_type=type, input=[*inputs], output=[*outputs])
    graph = OptimizedGraph()
    graph.outputs = {"out"}
    assert graph.moved_bytes_of(node, facts(**inputs), facts(**outputs)) == size


# How operators use the threads


def stats(run: int, wait: int, done: dict[str, int], handing_out: int = 0) -> RawScheduling:
    caller = {
        **{"thread_pool_name": "session-1-intra-op", "thread_id": "7", "block_size": [8]},
        **{"core": 0, "Distribution": handing_out, "DistributionEnqueue": 0},
        **{"Run": run, "Wait": wait, "WaitRevoke": 1},
    }
    others = {name: {"num_run": count, "core": 1} for name, count in done.items()}
    whole = json.dumps({"main_thread": caller, "sub_threads": others})
    return msgspec.json.decode(whole, type=RawScheduling)


def test_times_are_summed_and_shares_counted_since_the_event_before() -> None:
    uses = ThreadUses()
    uses.add(0, stats(90, 9, {"11": 4, "12": 2}), timed=False)  # the warm-up
    uses.add(0, stats(30, 9, {"11": 6, "12": 2}, handing_out=2), timed=True)
    uses.add(1, stats(0, 0, {"11": 6, "12": 2}), timed=True)
    uses.add(0, stats(10, 0, {"11": 9, "12": 3, "13": 0}), timed=True)
    conv, relu = uses.by_operator.values()
    assert conv == ThreadUse(2, 40_000, 2_000, 11_000, (5, 1, 0))
    assert conv.share_of("waiting") == 11 / 53
    assert (relu.executions, relu.tasks) == (1, (0, 0))
    assert uses.busy_threads() == ("11", "12")


def test_a_thread_that_has_begun_late_is_one_with_the_unnamed_one_before() -> None:
    uses = ThreadUses()
    uses.add(0, stats(1, 1, {"thread::id of a non-executing thread": 0}), timed=False)
    uses.add(0, stats(1, 1, {"11": 3}), timed=True)
    assert uses.by_operator[0].tasks == (3,)
    assert uses.busy_threads() == ("11",)


def test_a_session_without_threads_of_its_own_reports_nothing() -> None:
    uses = ThreadUses()
    uses.add(0, "", timed=True)
    assert (uses.by_operator, uses.busy_threads()) == ({}, ())
    assert ThreadUse(executions=3).share_of("waiting") is None


def test_counts_that_begin_anew_are_taken_as_they_are() -> None:
    uses = ThreadUses()
    uses.add(0, stats(1, 1, {"11": 40}), timed=True)
    uses.add(0, stats(1, 1, {"11": 3}), timed=True)
    assert uses.by_operator[0].tasks == (43,)


# The clocks: aligned within the error that is stated


SPANS = st.lists(st.tuples(*[st.integers(0, 10**6)] * 4), min_size=1, max_size=9)


@given(SPANS, st.integers(-(10**12), 10**12), st.integers(-(10**7), 10**7))
def test_clocks_are_aligned_within_the_error_stated(
    gaps: list[tuple[int, ...]], offset_ns: int, guess_error_ns: int
) -> None:
    """Calls made of gaps: before a call, before its run, the run, and after it."""
    now, calls, runs = 0, [], []
    for number, (idle, before, took, after) in enumerate(gaps):
        begin = now + idle
        start, end = begin + before, begin + before + took
        now = end + after
        step = Step(number, begin, now)
        calls.append(Call(step, begin, now))
        # Whole microseconds, rounded down, on the engine's clock.
        first = (start - offset_ns) // 1000 * 1000
        runs.append(RawRun(first, first + took // 1000 * 1000, 7, ()))
    found, alignment = place_runs(runs, calls, offset_ns + guess_error_ns)
    assert alignment.error_ns is not None
    assert abs(alignment.offset_ns - offset_ns) <= alignment.error_ns + 1000
    for call, run, (step, own_ns) in zip(calls, runs, found, strict=True):
        assert step == call.step
        assert call.begin_ns <= run.start_ns + own_ns <= run.end_ns + own_ns <= call.end_ns


@pytest.mark.parametrize(
    ("guess_ns", "offset_ns", "error_ns"),
    [(1_234, 1_234, 4_234), (-9_000, -3_000, 7_000), (9_000, 4_000, 7_000)],
)
def test_a_good_guess_is_kept(guess_ns: int, offset_ns: int, error_ns: int) -> None:
    calls = [Call(Step(0, 0, 9_000), 0, 9_000)]
    _, found = place_runs([RawRun(2_000, 5_000, 7, ())], calls, guess_ns)
    assert (found.offset_ns, found.error_ns) == (offset_ns, error_ns)
    assert place_runs([], calls, 77) == ([], Alignment("onnxruntime", 77))


def test_a_clock_that_was_set_meanwhile_is_told_by_the_error() -> None:
    steps = [Step(number, number * 10_000, number * 10_000 + 5_000) for number in (0, 1)]
    calls = [Call(step, step.start_ns, step.end_ns) for step in steps]
    runs = [RawRun(0, 4_000, 7, ()), RawRun(50_000, 54_000, 7, ())]
    found, alignment = place_runs(runs, calls, 0)
    assert found == [(steps[0], 0), (steps[1], -39_000)]
    assert alignment == Alignment("onnxruntime", -20_000, 19_000)
