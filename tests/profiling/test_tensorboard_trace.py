"""The exported trace: the real plugin makes the same figures of it as the tensorboard style."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.cli import main
from lar.errors import UsageError
from lar.profiling.profile import (
    Allocation,
    DeviceFacts,
    Execution,
    MemoryPlan,
    Profile,
    Span,
    Step,
)
from lar.profiling.styles.tensorboard import build
from lar.profiling.tensorboard_trace import export_tensorboard, tensorboard_trace_of, ticks
from lar.profiling.trace_file import write_profile
from tests.profiling.styles import tensorboard_sample as sample
from tests.profiling.synthetic import operator_of, profile_of_times
from tests.profiling.timelines import (
    HOST,
    STREAM,
    WORKER,
    execution_of,
    profile_of,
    span_of,
    step_of,
)

needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("torch_tb_profiler") is None, reason="the plugin is not installed"
)
TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
TIMES = {"conv1": 300, "conv2": 500, "relu": 7}
SCRIPT = Path(__file__).parent / "plugin_views.py"


def timed_run(**fields: Any) -> Profile:
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def device_run() -> Profile:
    """Kernels by name on a stream, copies, and calls of the runtime within dispatches."""
    operators = [
        operator_of("loop", "Loop"),
        operator_of("conv", "Conv"),
        operator_of("copy", "Copy"),
    ]
    executions: list[Execution] = []
    spans: list[Span] = []
    for step in (3, 4):
        at = step * 1000
        given: dict[str, Any] = {"step": step, "device": "cuda0", "stream": STREAM}
        executions += [
            execution_of(0, at + 10, at + 20, step=step, thread=STREAM, dispatch=(at, at + 100)),
            execution_of(
                1, at + 60, at + 300, step=step, thread=STREAM, dispatch=(at + 20, at + 50)
            ),
            execution_of(
                2, at + 300, at + 400, step=step, thread=STREAM, dispatch=(at + 110, at + 120)
            ),
        ]
        spans += [
            span_of("kernel", "gemm", at + 60, at + 200, operator=1, **given),
            span_of("kernel", "gemm", at + 210, at + 300, operator=1, **given),
            span_of("kernel", "nobody's", at + 305, at + 310, **given),
            span_of("memcpy", "HtoD", at + 300, at + 400, operator=2, **given),
            span_of("memset", "zero", at + 420, at + 430, **given),
            span_of("runtime", "launch", at + 30, at + 37, step=step, operator=1),
            span_of("runtime", "synchronise", at + 500, at + 900, step=step),
            span_of("phase", "dataloader", at + 910, at + 960, step=step),
        ]
    return profile_of(
        operators,
        [step_of(3, 3000, 4000), step_of(4, 4000, 5000)],
        executions,
        spans,
        device="cuda0",
        devices=(DeviceFacts(0, "cuda", "a device", 24 << 30, 7, 5),),
    )


def untidy_run() -> Profile:
    """As clocks of two threads really give it: nanoseconds, gaps between iterations, operators
    that last no time or beyond their iteration, that overlap, and that nest."""
    draw = random.Random(11)
    operators = [
        operator_of(f"op{n}", f"Type{n % 7}", shape=(1, n % 3 + 1, 4, 4)) for n in range(40)
    ]
    executions: list[Execution] = []
    steps: list[Step] = []
    spans: list[Span] = []
    now = 1_000_003
    for number in range(6):
        start = now
        spans.append(loading_span(start, start + 7_777, number))
        now += 9_001
        dispatched = now
        for operator in range(len(operators)):
            length = draw.choice([0, 1000, draw.randrange(1, 90_000)])
            begin, done = dispatched, dispatched + draw.randrange(0, 4_000)
            dispatched = done + draw.randrange(0, 300)
            thread = draw.choice([WORKER] * 9 + [HOST + 7])
            executions.append(
                Execution(operator, number, thread, now, now + length, 0, begin, done, HOST)
            )
            inner = max(0, length // 3)
            if operator % 10 == 0:  # one within it, of another type
                other = (operator + 1) % 40
                executions.append(
                    Execution(other, number, thread, now + inner, now + 2 * inner, None)
                )
            now += max(0, length - draw.choice([0, 0, 0, min(length, 500)]))
        end = now - (300 if number == 2 else -2_000)  # the third ends within an operator
        steps.append(Step(number, start, end))
        now += draw.randrange(3_000, 20_000)
    return profile_of(operators, steps, executions, spans)


def kernels_of_sample() -> Profile:
    """Those kernels, an operator that the plugin needs, and a moment when nothing is done: in a
    step that one bucket fills, the plugin counts the others as if it were empty."""
    profile = sample.profile_of_kernels()
    end = profile.steps[0].end_ns
    return replace(
        profile,
        operators=(operator_of("a", "A"),),
        steps=(Step(0, 0, end + 1_000_000),),
        executions=(execution_of(0, 0, 5, dispatch=(0, 5)),),
    )


def memory_run() -> Profile:
    allocations = (
        Allocation(2_010_000, 4096, 0, 100, "cpu", "static plan"),
        Allocation(2_305_000, 1024, 1, 200, "cpu", "static plan"),
    )
    return replace(timed_run(), allocations=allocations, memory_plan=MemoryPlan(8192))


def loading_span(start_ns: int, end_ns: int, step: int) -> Span:
    return Span(
        category="phase",
        name="dataloader",
        start_ns=start_ns,
        end_ns=end_ns,
        thread=HOST,
        step=step,
    )


RUNS = {
    "cpu": timed_run(),
    "cpu with a worker": timed_run(dispatch_us=5),
    "cuda": timed_run(device="cuda0", dispatch_us=5),
    "kernels": device_run(),
    "operators of the sample": sample.profile_of_operators(),
    "kernels of the sample": kernels_of_sample(),
    "untidy": untidy_run(),
    "memory": memory_run(),
}


@pytest.fixture(scope="module")
def plugin_views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the plugin shows of each run."""
    folder = tmp_path_factory.mktemp("runs")
    workers = {f"host_{number}": name for number, name in enumerate(RUNS)}
    for worker, name in workers.items():
        trace = export_tensorboard(RUNS[name])
        (folder / f"{worker}.1700000000000.pt.trace.json").write_text(trace)
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {workers[worker]: views for worker, views in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def our_views() -> dict[str, Any]:
    return {name: build(profile, {}).document for name, profile in RUNS.items()}


each_run = pytest.mark.parametrize("name", RUNS)


@needs_plugin
@each_run
def test_the_plugins_overview_is_ours(
    name: str, plugin_views: dict[str, Any], our_views: dict[str, Any]
) -> None:
    ours = our_views[name]["overview"]
    theirs = plugin_views[name]["overview"]
    shown = [column.get("name") for column in theirs["steps"]["columns"]]
    assert [column.get("name") for column in ours["steps"]["columns"]] == shown
    assert len(ours["steps"]["rows"]) == len(theirs["steps"]["rows"])
    for own, other in zip(ours["steps"]["rows"], theirs["steps"]["rows"], strict=True):
        assert own[0] == other[0]
        # The trace has 1024ths of a microsecond, and many intervals.
        assert own[1::2] == pytest.approx(other[1::2], abs=0.05)
        if name != "untidy":
            assert own == other
    (own,), (other,) = ours["performance"], theirs["performance"]
    assert own["value"] == pytest.approx(other["value"], abs=1)
    for part, twin in zip(own["children"], other["children"], strict=True):
        assert part["name"] == twin["name"]
        assert part["value"] == pytest.approx(twin["value"], abs=1)
        assert part["extra"] == pytest.approx(twin["extra"], abs=0.02)


@needs_plugin
@each_run
@pytest.mark.parametrize(
    ("view", "group"), [("operator_table", "type"), ("operator_table_by_shape", "input_shape")]
)
def test_the_plugins_operators_are_ours(
    name: str, view: str, group: str, plugin_views: dict[str, Any]
) -> None:
    options = {"group_by": group, "view": ["operator_table"]}
    ours = build(RUNS[name], options).document["operator_table"]
    theirs = plugin_views[name][view]
    assert ours["metadata"] == theirs["metadata"]

    def by_key(table: Any) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["name"], row.get("input_shape", "")): row for row in table["data"]}

    rows = by_key(theirs)
    assert by_key(ours).keys() == rows.keys()
    for key, row in by_key(ours).items():
        for column, value in row.items():
            if column.endswith("duration"):
                assert value == pytest.approx(rows[key][column], abs=1), (key, column)
            elif not column.startswith("tc_"):
                assert value == rows[key][column], (key, column)


@needs_plugin
@each_run
@pytest.mark.parametrize("view", ["operator_pie", "kernel_pie"])
def test_the_plugins_pies_are_ours(
    name: str, view: str, plugin_views: dict[str, Any], our_views: dict[str, Any]
) -> None:
    ours, theirs = our_views[name][view], plugin_views[name][view]
    assert (ours or {}).keys() == (theirs or {}).keys()
    for pie, own in (ours or {}).items():
        other = theirs[pie]
        assert (own is None) == (other is None), pie
        if own is not None:
            assert own.get("title") == other.get("title")
            assert dict(own["rows"]) == pytest.approx(dict(other["rows"]), abs=1)


@needs_plugin
@each_run
def test_the_plugins_kernels_are_ours(
    name: str, plugin_views: dict[str, Any], our_views: dict[str, Any]
) -> None:
    own = our_views[name]["kernel_table"]
    other = plugin_views[name]["kernel_table"]
    assert (own is None) == (other is None) == (not RUNS[name].on_device)
    if own and other:
        # Who used tensor cores is not known to us.
        assert [[row[0], *row[2:]] for row in own["data"]["rows"]] == [
            [row[0], *row[2:]] for row in other["data"]["rows"]
        ]


@needs_plugin
def test_the_plugin_offers_kernels_of_a_device_alone(plugin_views: dict[str, Any]) -> None:
    assert plugin_views["cpu"]["shown"] == ["Overview", "Operator", "Trace"]
    assert plugin_views["kernels"]["shown"] == ["Overview", "Operator", "Kernel", "Trace"]
    assert plugin_views["cpu"]["device"] is None


@needs_plugin
def test_the_plugin_knows_the_device_as_we_do(plugin_views: dict[str, Any]) -> None:
    options = {"view": ["overview"]}
    ours = build(RUNS["kernels"], options).document["overview"]["gpu_metrics"]
    theirs = [row for row in plugin_views["kernels"]["device"] if "Tensor" not in row["title"]]
    assert ours["data"] == theirs


@needs_plugin
def test_the_plugin_draws_memory(plugin_views: dict[str, Any], our_views: dict[str, Any]) -> None:
    theirs = plugin_views["memory"]
    assert "Memory" in theirs["shown"]
    (other,), (own,) = (
        views["rows"]["CPU"]
        for views in (theirs["memory"], our_views["memory"]["memory"]["statistics"])
    )
    # Of calls the plugin counts those until the last allocation.
    assert [own[0], *own[2:]] == [other[0], *other[2:]]
    peaks = theirs["memory_curve"]["metadata"]["peaks"]
    assert peaks == our_views["memory"]["memory"]["curve"]["metadata"]["peaks"]


# The trace itself.


def events_of(profile: Profile, category: str) -> list[dict[str, Any]]:
    return [e for e in tensorboard_trace_of(profile)["traceEvents"] if e.get("cat") == category]


def test_warmup_is_left_out() -> None:
    steps = [e["name"] for e in events_of(timed_run(), "user_annotation")]
    assert steps == ["ProfilerStep#1", "ProfilerStep#2"]
    assert len(events_of(timed_run(), "cpu_op")) == 6


def test_on_a_cpu_nothing_is_called_a_kernel_or_a_call_of_the_runtime() -> None:
    trace = tensorboard_trace_of(timed_run(dispatch_us=5))
    assert trace["deviceProperties"] == []
    categories = {event.get("cat") for event in trace["traceEvents"]} - {None}
    assert categories == {"cpu_op", "user_annotation", "phase", "engine_api"}


def test_kernels_are_tied_to_their_operators() -> None:
    profile = device_run()
    operators = {e["args"]["External id"]: e["name"] for e in events_of(profile, "cpu_op")[:-2]}
    launches = {
        e["args"]["correlation"]: e["args"]["External id"] for e in events_of(profile, "runtime")
    }
    owners = [
        operators.get(launches.get(e["args"]["correlation"], 0))
        for e in events_of(profile, "kernel")
    ]
    assert sorted(owners, key=str) == ["Conv"] * 4 + [None] * 2


def test_iterations_lie_around_the_operators_where_these_fit() -> None:
    threads = {e["tid"] for e in events_of(timed_run(dispatch_us=5), "user_annotation")}
    assert threads in ({HOST}, {WORKER})
    across = execution_of(0, 5, 105)
    profile = profile_of([operator_of("a", "A")], [step_of(0, 0, 100)], [across])
    assert not {e["tid"] for e in events_of(profile, "user_annotation")} & {HOST, WORKER}


def test_times_add_up_without_rounding() -> None:
    for start in range(1_000_000_007, 1_000_003_007, 37):
        for length in (1, 333, 999, 123_457):
            begin, end = ticks(start), ticks(start + length)
            assert begin + (end - begin) == end
            assert abs(begin * 1000 - start) < 1


def test_nothing_timed_is_refused() -> None:
    with pytest.raises(UsageError, match="no timed operators"):
        export_tensorboard(profile_of_times(TYPES, [TIMES], step_us=1000, warmup=1))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "profile.json", tmp_path / "host_1.pt.trace.json"
    write_profile(timed_run(), source)
    assert main(["report", str(source), "--export", "tensorboard", "-o", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    assert json.loads(target.read_text()) == json.loads(
        json.dumps(tensorboard_trace_of(timed_run()))
    )
