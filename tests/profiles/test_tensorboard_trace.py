"""The exported trace: the real plugin makes the same figures of it as the tensorboard style."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.export import export_tensorboard, tensorboard_trace_of
from lar.profiles.trace_file import write_profile
from lar.profiles.trace_writer import plugin_microseconds
from lar.records.profile import Profile
from lar.reports.styles.tensorboard import build
from tests.profiles.plugin_runs import MEMORY_RUNS, RUNS, TIMES, TYPES, device_run, timed_run
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import (
    HOST,
    WORKER,
    execution_of,
    profile_of,
    span_of,
    step_of,
)

needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("torch_tb_profiler") is None, reason="the plugin is not installed"
)
SCRIPT = Path(__file__).parent / "plugin_views.py"


@pytest.fixture(scope="module")
def plugin_views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the plugin shows of each run."""
    folder = tmp_path_factory.mktemp("runs")
    runs = RUNS | MEMORY_RUNS
    workers = {f"host_{number}": name for number, name in enumerate(runs)}
    for worker, name in workers.items():
        trace = export_tensorboard(runs[name])
        (folder / f"{worker}.1700000000000.pt.trace.json").write_bytes(b"".join(trace))
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {workers[worker]: views for worker, views in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def our_views() -> dict[str, Any]:
    return {name: build(profile, {}).document for name, profile in (RUNS | MEMORY_RUNS).items()}


each_run = pytest.mark.parametrize("name", RUNS)


@needs_plugin
@each_run
def test_the_plugins_overview_is_ours(
    name: str, plugin_views: dict[str, Any], our_views: dict[str, Any]
) -> None:
    ours = our_views[name]["overview"]
    theirs = plugin_views[name]["overview"]
    shown = [column["name"] for column in theirs["steps"]["columns"] if column.get("name")]
    buckets = [column["name"] for column in ours["steps"]["columns"] if column.get("name")]
    assert set(shown) <= set(buckets)
    assert len(ours["steps"]["rows"]) == len(theirs["steps"]["rows"])
    for own, other in zip(ours["steps"]["rows"], theirs["steps"]["rows"], strict=True):
        assert own[0] == other[0]
        # The trace has 1024ths of a microsecond, and many intervals.
        times = as_the_plugins(dict(zip(buckets[1:], own[1::2], strict=True)), shown)
        assert [times[bucket] for bucket in shown[1:]] == pytest.approx(other[1::2], abs=0.05)
        if name != "untidy" and buckets == shown:
            assert own == other
    (own,), (other,) = ours["performance"], theirs["performance"]
    assert own["value"] == pytest.approx(other["value"], abs=1)
    twins = {each["name"]: each for each in other["children"]}
    for key, error in (("value", 3), ("extra", 0.04)):
        parts = as_the_plugins({each["name"]: each[key] for each in own["children"]}, shown)
        assert parts == pytest.approx({each: twins[each][key] for each in twins}, abs=error)


def as_the_plugins(parts: dict[str, float], shown: list[str]) -> dict[str, float]:
    """Return the buckets that the plugin has; the others, which it does not know, are its Other."""
    known = {name: part for name, part in parts.items() if name in shown}
    return known | {"Other": sum(parts.values()) - sum(known.values()) + known["Other"]}


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
    # Which time of a CPU's operators it is, the plugin does not say.
    ours["metadata"]["tooltips"].pop("host_self_duration", None)
    assert ours["metadata"] == theirs["metadata"]

    def by_key(table: Any) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["name"], row.get("input_shape", "")): row for row in table["data"]}

    rows = by_key(theirs)
    assert by_key(ours).keys() == rows.keys()
    for key, row in by_key(ours).items():
        for column, value in rows[key].items():
            if column.endswith("duration"):
                assert row[column] == pytest.approx(value, abs=1), (key, column)
            elif not column.startswith("tc_"):
                assert row[column] == value, (key, column)


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
@pytest.mark.parametrize("name", MEMORY_RUNS)
def test_the_plugins_memory_is_ours(
    name: str, plugin_views: dict[str, Any], our_views: dict[str, Any]
) -> None:
    theirs, ours = plugin_views[name], our_views[name]["memory"]
    rows = theirs["memory"]["rows"]
    assert rows.keys() == ours["statistics"]["rows"].keys()
    untidy = name == "memory of untidy operators"
    for device, own in ours["statistics"]["rows"].items():
        # Of calls the plugin counts those of iterations with an allocation; ours do not nest.
        compared = [0, 3, 5, 7] if untidy else [0, 2, 3, 4, 5, 6, 7]
        found, expected = (
            [[row[at] for at in compared] for row in table] for table in (own, rows[device])
        )
        assert found == expected
        if not untidy:  # of operators at the same time
            curve, other = (
                [point[1] for point in part["rows"][device]]
                for part in (ours["curve"], theirs["memory_curve"])
            )
            assert curve == pytest.approx(other, abs=0.01)
    assert theirs["memory_curve"]["metadata"]["peaks"] == ours["curve"]["metadata"]["peaks"]


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


def check_durations(own: dict[str, Any], other: dict[str, Any]) -> None:
    """Check durations in microseconds; where we know of no device the plugin has 0."""
    for key, value in own.items():
        if key.endswith("duration"):
            assert (0 if value is None else value) == pytest.approx(other[key], abs=0.05), key


# The trace itself.


def events_of(profile: Profile, category: str) -> list[dict[str, Any]]:
    return [e for e in tensorboard_trace_of(profile)["traceEvents"] if e.get("cat") == category]


def test_warmup_is_left_out() -> None:
    steps = [e["name"] for e in events_of(timed_run(), "user_annotation")]
    assert steps == ["ProfilerStep#0", "ProfilerStep#1"]
    assert len(events_of(timed_run(), "cpu_op")) == 6


def test_ranges_of_the_program_are_there_where_something_was_timed() -> None:
    """The steps are at 1000, which is the warm-up, 2000 and 3000 us."""
    ranges = [
        span_of("user_annotation", name, start, end, step=None, thread=0)
        for name, start, end in (
            ("around", -50, 9000),
            ("within", 2100, 2200),
            ("of the warm-up", 900, 1500),
            ("after", 4000, 4100),
        )
    ]
    run = timed_run()
    profile = replace(run, spans=(*run.spans, *ranges))
    found = {e["name"]: e["ts"] for e in events_of(profile, "user_annotation")}
    assert found == {
        "ProfilerStep#0": 2050,
        "ProfilerStep#1": 3050,
        "around": 0,
        "within": 2150,
    }


def test_a_profile_that_has_lost_its_iterations_has_a_trace() -> None:
    assert len(events_of(replace(timed_run(), steps=()), "cpu_op")) == 6


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
            begin, lasting = plugin_microseconds(start, start + length)
            end, _ = plugin_microseconds(start + length, start + length)
            assert begin + lasting == end
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
