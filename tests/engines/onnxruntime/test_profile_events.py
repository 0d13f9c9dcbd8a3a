"""The events in ONNX Runtime's own profile: read from the file, and on a device."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.driver import HOST_THREAD
from lar.engines.onnx_file.fields import Message, bits_of
from lar.engines.onnxruntime import profile_file
from lar.engines.onnxruntime.kernels import OptimizedGraph
from lar.engines.onnxruntime.profile import (
    NO_KERNELS,
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
from lar.records.profile import Alignment, Step, TensorFact, ThreadUse
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


def values_in(each: Any) -> dict[str, Any]:
    """The fields of a span or an execution that have a value."""
    values = msgspec.json.decode(msgspec.json.encode(each))
    return {name: it for name, it in values.items() if it is not None and it is not False}


@each_row("engines/onnxruntime/profile/traces")
def test_executions_and_spans_are_those_of_the_events(
    rule: str, device: str, events: list[Any], works: list[dict[str, Any]], told: dict[str, Any]
) -> None:
    """The engine's clock is 500 ns behind in the run, and 20 ns before it."""
    made: dict[str, Any] = {"node": node, "event": event}
    given = [made[kind](*it, **args) | more for kind, it, args, more in events]
    run = RunEvents(events_of(*given))
    work = DeviceWork("fast", 0, 0, 0, 7)._asdict()
    found = run.trace(
        *(device, OptimizedGraph(), [(Step(0, 0, 10**9), 500)], 20),
        works=[msgspec.convert([*(work | it).values()], DeviceWork) for it in works],
    )
    assert [values_in(it) for it in found.executions] == told["executions"], rule
    assert [values_in(it) for it in found.spans] == told["spans"]
    operators = [[it.id, it.name, len(it.inputs)] for it in found.operators]
    assert operators == told["operators"]
    assert {str(key): it for key, it in found.threads.items()} == told["threads"]
    dropped = [it.partition(":")[0] for it in found.dropped]
    assert (dropped, found.thread_count) == (told["dropped"], told["thread_count"])


def test_where_no_kernels_are_reported_the_dispatches_are_the_times() -> None:
    # As the packages of ONNX Runtime 1.31 for CUDA report it, of three runs on an H100.
    found = decode_any(CUDA_PROFILE.read_bytes(), "raw.json")
    assert (found.facts.device, found.facts.dispatch_only, found.on_device) == ("cuda", True, False)
    assert NO_KERNELS in found.facts.dropped
    assert [operator.type for operator in found.operators] == ["Conv", "Relu", "Reshape", "MatMul"]
    assert len(found.executions) == 3 * len(found.operators)
    assert {execution.thread for execution in found.executions} == {HOST_THREAD}
    assert found.executions[-1].duration_ns == 22_000


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


CALLER = ("Distribution", "DistributionEnqueue", "Run", "Wait", "WaitRevoke")


def scheduling(times: list[int], done: dict[str, int]) -> dict[str, Any]:
    """What the engine tells of an operator's threads, by the numbers that it tells."""
    caller = {"thread_pool_name": "session-1-intra-op", "thread_id": "7", "block_size": [8]}
    others = {name: {"num_run": count, "core": 1} for name, count in done.items()}
    return {"main_thread": caller | dict(zip(CALLER, times, strict=True)), "sub_threads": others}


@each_row("engines/onnxruntime/profile/threads")
def test_times_are_summed_and_tasks_counted_since_the_event_before(
    rule: str, events: list[Any], used: dict[str, list[Any]], busy: list[str]
) -> None:
    """Each event is of an operator, timed or of the warm-up."""
    found = ThreadUses()
    for operator, timed, *told in events:
        given = msgspec.convert(scheduling(*told) if told else "", RawScheduling | str)
        found.add(operator, given, timed=timed)
    expected = {int(key): msgspec.convert(it, ThreadUse) for key, it in used.items()}
    assert found.by_operator == expected, rule
    assert found.busy_threads() == tuple(busy)


def test_the_share_of_a_part_is_that_of_all_parts() -> None:
    assert ThreadUse(2, 40_000, 2_000, 11_000).share_of("waiting") == 11 / 53
    assert ThreadUse(executions=3).share_of("waiting") is None


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
