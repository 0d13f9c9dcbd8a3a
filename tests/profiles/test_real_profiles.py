"""Profiles of real models on both engines: their figures agree, and their tables are the samples'.

The samples (`tests/data`) are what the profilers themselves print; what a CPU cannot have is told
apart here, by title.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest

import lar
from lar.engines.advice import suggestions_of
from lar.engines.operator_times import read_profile
from lar.profiles.activities import launches_of, put_in_ranges
from lar.profiles.breakdown import breakdown_of, disturbed_steps
from lar.profiles.costs import describe_cost, fit_to_plain
from lar.profiles.roofline import NEAR_PERCENT, host_peak_of, piece_of, work_of
from lar.profiles.times import self_times_of, timed_allocations
from lar.records.profile import Profile
from lar.reports.styles import STYLES
from lar.running.variants import Variant, plan_variant
from lar.worker.recorder import SHORTEST_CPU_SECONDS
from tests.cli.marks import needs_megengine
from tests.conftest import RunLar
from tests.known import known
from tests.profiles.synthetic import executions_by_operator
from tests.profiles.test_every_report import check_kernels, check_times, check_work

MODELS = [pytest.param("digits_cnn.mge", marks=needs_megengine), "mobilenet_v2.onnx"]
ITERATIONS = 5
# What models hold of these is executed, each of them, under these names.
WORK = {"mge": ("Convolution", "ConvBias", "MatrixMul", "Pooling"), "onnx": ("Conv", "Gemm")}


@pytest.fixture(scope="module", params=MODELS)
def made(
    request: pytest.FixtureRequest,
    run_lar: RunLar,
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Profile, str]:
    """A model's name, the profile of a run of it, and what the run printed."""
    path = tmp_path_factory.mktemp("profiles") / "profile.json"
    flags = ["--iter", str(ITERATIONS), "--profile", str(path), "--profile-memory"]
    flags += ["--copy-to-host", "--range-by", "conv|relu=body"]
    done = run_lar(str(root / "models" / request.param), *flags, code=0)
    return request.param, read_profile(path), done.stdout


@pytest.fixture
def profile(made: tuple[str, Profile, str]) -> Profile:
    return made[1]


def test_operators_sum_to_no_more_than_an_iteration_without_the_profiler(profile: Profile) -> None:
    """Where the cost is known to be high; as recorded those of a small model take longer. What
    other work disturbed may take longer still: the scale is made from the other iterations."""
    cost = known(profile.facts.cost)
    found = fit_to_plain(profile)
    if found.correction is not None:
        times = {step: sum(own) for step, own in self_times_by_step(found).items()}
        calm = times.keys() - disturbed_steps(found).keys() or times.keys()
        assert median(times[step] for step in calm) <= 1.01e9 * cost.calm[1]
    said = "is not known" if cost.disturbed else "Profiling "
    assert said in describe_cost(found)


def self_times_by_step(profile: Profile) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {}
    for each, ns in zip(profile.timed_executions, self_times_of(profile), strict=True):
        times.setdefault(each.step, []).append(ns)
    return times


@pytest.mark.parametrize(
    ("model", "driver"),
    [
        pytest.param("digits_cnn.mge", "lite", marks=needs_megengine),
        pytest.param("digits_cnn.mge", "graph", marks=needs_megengine),
        ("digits_cnn.onnx", "session"),
    ],
)
def test_the_profiler_changes_no_output(
    model: str, driver: str, root: Path, tmp_path: Path
) -> None:
    run = partial(lar.run, root / "models" / model, driver=driver, iter=2)
    plain, profiled = run(), run(profile=tmp_path / "p.json")
    assert plain.status == profiled.status == "ok"
    assert profiled.outputs == plain.outputs  # each with its checksum


def test_every_iteration_is_there_and_holds_its_operators(profile: Profile) -> None:
    assert [step.warmup for step in profile.steps] == [True] + [False] * ITERATIONS
    steps = {step.number: step for step in profile.steps}
    counts = [sum(execution.step == number for execution in profile.executions) for number in steps]
    assert len(set(counts[1:])) == 1
    assert counts[1]
    slack = max(known(each.error_ns) for each in profile.facts.clock.align)
    for execution in profile.executions:
        step = steps[execution.step]
        assert step.start_ns - slack <= execution.start_ns <= execution.end_ns
        assert execution.end_ns <= step.end_ns + slack


def test_every_operator_of_the_graph_appears(
    made: tuple[str, Profile, str], run_lar: RunLar, root: Path
) -> None:
    model, profile, _ = made
    executed = {profile.operators[index].type for index in executions_by_operator(profile)}
    words = WORK[model.rpartition(".")[2]]
    ours = sum(
        each.type.startswith(words)
        for index, each in enumerate(profile.operators)
        if index in executions_by_operator(profile)
    )
    told = run_lar("info", str(root / "models" / model)).stdout
    counts = {name: int(number) for name, number in re.findall(r"^(\w+) +(\d+)$", told, re.M)}
    assert executed
    assert ours == sum(number for name, number in counts.items() if name.startswith(words)), counts


def test_what_operators_do_not_account_for_has_a_name(profile: Profile) -> None:
    assert all(0 <= each.compute_ns <= each.duration_ns for each in profile.timed_executions)
    steps = profile.timed_steps()
    assert [each.step for each in profile.facts.noise] == [step.number for step in steps]
    named = ("CPU Exec", "Output Copy", "Engine Overhead", "Waiting for a CPU")
    told = sum(step.buckets_ns.get(each, 0) for step in breakdown_of(profile) for each in named)
    whole = sum(step.duration_ns for step in steps)
    assert abs(told - whole) <= whole * 0.03


def test_what_is_not_known_is_said_and_not_zero(profile: Profile) -> None:
    if all(each.dispatch is None for each in profile.executions):
        assert any("dispatch" in line for line in profile.facts.dropped)
    counted = [each for each in profile.operators if each.flops is not None]
    assert counted
    assert all(each.source != "none" for each in counted)
    assert sum(each.flops or 0 for each in counted) > 0
    assert profile.facts.threads
    assert profile.facts.peak is not None
    seconds = sum(step.duration_ns for step in profile.timed_steps()) / 1e9
    assert profile.facts.cpu.process_percent or seconds < 2 * SHORTEST_CPU_SECONDS


# What holds or shows values that are there, under the engines' names.
UNMOVED = re.compile(r"ImmutableTensor|Host2DeviceCopy|Reshape|Flatten|Identity")


def test_views_constants_and_forwarded_pointers_have_no_bandwidth(profile: Profile) -> None:
    """The copy of an input that is handed on was at 3,336 % of the memory's peak."""
    peak = known(host_peak_of(profile))
    unmoved = 0
    for place, executions in executions_by_operator(profile).items():
        operator = profile.operators[place]
        work = work_of(piece_of(profile, place, each.compute_ns) for each in executions)
        if UNMOVED.match(operator.type):
            unmoved += 1
            assert operator.size_bytes == 0, operator
            assert work.memory_percent(peak) is None
            assert (work.bound(peak), work.saving_ns(peak)) == (None, None)
        elif (percent := work.memory_percent(peak)) is not None:
            assert percent <= 100 or work.bound(peak) in ("cache", "compute"), operator
            assert percent >= NEAR_PERCENT or work.bound(peak) in ("far", "compute", None)
    assert unmoved
    assert known(profile.facts.peak).rounds
    assert known(profile.facts.peak).measured_at


def test_memory_is_taken_and_given_back(profile: Profile) -> None:
    assert profile.allocations
    assert sum(each.size_bytes for each in profile.allocations) == 0
    held, most = 0, 0
    for each in sorted(profile.allocations, key=lambda each: (each.at_ns, each.size_bytes)):
        held += each.size_bytes
        most = max(most, held)
    assert most > 0
    told = {
        step.number
        for step in profile.steps
        for each in profile.allocations
        if step.start_ns <= each.at_ns < step.end_ns
    }
    assert {step.number for step in profile.timed_steps()} <= told
    assert any(sample.name == "rss" and sample.value > 0 for sample in profile.counters)


def test_a_range_holds_the_operators_whose_names_match(profile: Profile) -> None:
    names = [profile.operators[each.operator].name for each in profile.timed_executions]
    matching = [place for place, name in enumerate(names) if re.search("conv|relu", name)]
    launches = put_in_ranges(profile, launches_of(profile))
    assert [it.execution for it in launches if it.ranges] == matching


def test_every_style_says_the_same(profile: Profile) -> None:
    check_times(profile)
    check_work(profile)
    check_kernels(profile)


@pytest.mark.skipif(find_spec("torch_tb_profiler") is None, reason="the plugin is not installed")
def test_tensorboards_plugin_says_the_same(
    profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    views = STYLES["tensorboard"].build(profile, {"view": ["operator", "memory"]}).document
    types = [profile.operators[each.operator].type for each in profile.timed_executions]
    rows = views["operator"][1]["data"]
    assert {row["name"]: row["calls"] for row in rows} == Counter(types)
    total_us = sum(row["host_self_duration"] for row in rows)
    work = sum(end - start for start, end in (each.work for each in profile.timed_executions))
    nested = any(row["host_total_duration"] > row["host_self_duration"] + 1 for row in rows)
    assert not nested
    assert total_us == pytest.approx(work / 1000, abs=len(rows))
    statistics, _, events = (each["rows"]["CPU"] for each in views["memory"])
    taken = [each for each in timed_allocations(profile) if each.size_bytes > 0]
    of_types = Counter(profile.operators[it.operator or 0].type for it in taken)
    assert {row[0]: row[5] for row in statistics if row[5]} == of_types
    assert Counter(row[0] for row in events) == of_types
    assert all(row[4] is not None for row in events)
    assert caplog.text == ""


@pytest.mark.parametrize("style", sorted(STYLES))
def test_each_style_tells_of_a_real_profile(profile: Profile, style: str) -> None:
    baseline = [profile] * (STYLES[style].profiles[0] - 1)
    report = STYLES[style].build(profile, {}, *baseline)
    assert report.text
    assert any(table.records for table in report.tables) or style == "tensorboard"
    assert "GPU 0" not in report.text
    assert "cuda" not in report.text.lower() or style == "torch"


def test_what_is_suggested_fits_the_machine_and_can_be_run(profile: Profile) -> None:
    found = suggestions_of(profile)
    sets = profile.facts.machine["instruction_sets"].split()
    options = {key for each in found for key in each.choice.options}
    if "sse2" in sets:  # on x86 these are slow
        assert not {"enable_nchw44", "enable_ioc16", "enable_nhwcd4"} & options
    assert "avx2" in sets or "enable_nchw88" not in options
    for each in found:
        assert re.search(r"\d", each.why)
        variant = Variant(each.flags, profile.facts.model.path, each.choice.options)
        assert plan_variant(variant).failure is None
