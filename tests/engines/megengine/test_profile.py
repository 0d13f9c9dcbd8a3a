"""Profiles that MegEngine makes, of both drivers: what they tell, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines.megengine.lite import LiteDriver
from lar.engines.megengine.profile import MegEngineProfiler, ProfileClock, release_loaded
from lar.profiles.times import merge_intervals, total_of
from lar.records.profile import Profile, Step
from lar.records.run import RunResult, RunSpec
from tests.conftest import RunLar
from tests.engines.megengine.probe import say_with_tool
from tests.engines.megengine.programs import MODELS
from tests.tables import each_row

DIGITS = MODELS / "digits_cnn.mge"
CHOSEN = {"ConvolutionForward", "ConvBiasForward", "PoolingForward", "MatrixMul"}


class Made:
    """A run, its profile, and the folder with its files."""

    def __init__(self, folder: Path, model: Path, inputs: Any = None, **options: Any) -> None:
        self.folder = folder
        folder.mkdir()
        key = "profile_host" if options.pop("host", False) else "profile"
        options[key] = str(folder / "profile.json")
        self.result: RunResult = lar.run(model, inputs, **options)
        assert self.result.status == "ok", self.result.failure
        self.profile: Profile = lar.read_profile(folder / "profile.json")

    def spans(self, *names: str, step: int | None = None) -> list[tuple[str, str]]:
        """Category and name of the spans of those categories."""
        return [
            (span.category, span.name)
            for span in self.profile.spans
            if span.category in names and (step is None or span.step == step)
        ]


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The usual run; with what lar writes besides a profile."""
    folder = tmp_path_factory.mktemp("mobilenet") / "run"
    return Made(
        folder,
        MODELS / "mobilenet_v2.mge",
        iter=4,
        profile_raw=str(folder / "raw.json"),
        profile_memory=True,
    )


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of digits in batches of 1, 1, 3 and 1."""
    folder = tmp_path_factory.mktemp("shapes")
    for number, batch in enumerate((1, 1, 3, 1)):
        np.save(folder / f"{number}.npy", np.ones((batch, 1, 8, 8), np.float32))
    return folder


@pytest.fixture(scope="module", params=["lite", "graph"])
def data_set(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shapes: Path
) -> Made:
    """A data set in which the shape changes and changes back, on each driver."""
    folder = tmp_path_factory.mktemp("set") / request.param
    return Made(folder, DIGITS, shapes, driver=request.param, iter=2, profile_memory=True)


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run in the calling thread, in another layout, whose outputs are copied."""
    folder = tmp_path_factory.mktemp("in_place") / "run"
    options = {"cpu_default": True, "enable_nchw44": True, "copy_to_host": True}
    return Made(folder, DIGITS, iter=3, warmup_iter=2, host=True, **options)


@pytest.fixture(scope="module")
def multi_input(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("multi_input") / "run"
    return Made(folder, MODELS / "multi_input.mge", iter=3, warmup_iter=0, multithread=2)


def check_times(profile: Profile) -> None:
    """Executions lie in their iterations, one after the other, each operator once in each."""
    steps = {step.number: step for step in profile.steps}
    for each in profile.executions:
        step = steps[each.step]
        assert step.start_ns <= each.start_ns <= each.end_ns <= step.end_ns
        assert each.warmup == step.warmup
        assert each.wait_ns is not None
        assert 0 <= each.wait_ns <= each.duration_ns
        if each.dispatch_start_ns is not None and each.dispatch_end_ns is not None:
            assert step.start_ns <= each.dispatch_start_ns <= each.dispatch_end_ns <= step.end_ns
    found = Counter((each.step, each.operator) for each in profile.executions)
    assert set(found.values()) == {1}
    for number in steps:
        times = [(each.start_ns, each.end_ns) for each in profile.executions if each.step == number]
        assert total_of(times) == total_of(merge_intervals(times))


def test_each_iteration_tells_each_operator(mobilenet: Made) -> None:
    profile = mobilenet.profile
    assert [step.warmup for step in profile.steps] == [True, False, False, False, False]
    check_times(profile)
    assert len(profile.executions) == 5 * len(profile.operators)
    types = Counter(operator.type for operator in profile.operators)
    assert types["ConvolutionForward"] == 52
    assert types["MatrixMul"] == types["Reshape"] == types["Host2DeviceCopy"] == 1
    assert profile.threads == {1: "host", 2: "cpu0:0"}
    assert {each.thread for each in profile.executions} == {2}
    assert {each.dispatch_thread for each in profile.executions} == {1}
    assert profile.facts.threads == 1
    assert profile.facts.dropped == ()


def test_the_end_of_an_iteration_leaves_the_writing_of_the_profile_out(mobilenet: Made) -> None:
    """The engine needs longer for that than the operators of this model take."""
    profile, samples = mobilenet.profile, mobilenet.result.profiled
    timed = profile.timed_steps()
    expected = [seconds * 1e9 for seconds in samples.end_to_end]
    assert [step.duration_ns for step in timed] == pytest.approx(expected, abs=1000)
    ends = {each.step: each.end_ns for each in profile.executions}
    assert min(step.end_ns - ends[step.number] for step in timed) < 5e6
    assert profile.facts.cost is not None
    assert profile.facts.cost.unprofiled_iterations == 4


def test_the_clocks_are_told_with_their_errors(mobilenet: Made) -> None:
    host, device = mobilenet.profile.facts.clock.align
    assert (host.domain, device.domain) == ("MegEngine's host clock", "MegEngine's device clock")
    assert host.error_ns is not None
    assert host.error_ns >= 1000


def test_operators_have_their_figures_and_algorithms(mobilenet: Made) -> None:
    profile = mobilenet.profile
    flops = sum(operator.flops or 0 for operator in profile.operators)
    assert flops == pytest.approx(116e6, rel=0.01)
    for operator in profile.operators:
        assert (operator.algorithm is not None) == (operator.type in CHOSEN)


def test_calls_and_copies_of_lite_are_spans(mobilenet: Made) -> None:
    before = [
        (span.category, span.name, span.size_bytes, span.tensor)
        for span in mobilenet.profile.spans
        if span.step is None and span.category != "phase"
    ]
    assert before[0] == ("runtime", "LITE_load_model_from_path", None, None)
    assert sorted(before[1:]) == [
        ("memcpy", "[CPU memcpy HtoH]", 602112, "data"),
        ("runtime", "LiteTensor.set_data_by_copy", None, None),
    ]
    forward, wait = ([("phase", name), ("runtime", f"LITE_{name}")] for name in ("forward", "wait"))
    assert mobilenet.spans("runtime", "phase", step=2) == forward + wait


def most_held(profile: Profile) -> list[int]:
    """The most memory that each iteration holds, which gives all of it back."""
    assert all(each.source == "static plan" for each in profile.allocations)
    most = []
    for step in profile.steps:
        own = [each for each in profile.allocations if step.start_ns <= each.at_ns <= step.end_ns]
        *_, last = held = [*accumulate(each.size_bytes for each in own)]
        assert last == 0
        most.append(max(held))
    return most


def test_each_shape_has_a_memory_plan(data_set: Made) -> None:
    one, *_, three, _, _ = most = most_held(data_set.profile)
    assert most == [one] * 5 + [three] * 2 + [one] * 2
    assert one < three <= (data_set.profile.memory_plan.static_bytes or 0)


def test_the_engines_own_profile_is_that_of_the_last_iteration(
    mobilenet: Made, elsewhere: Callable[..., list[str]]
) -> None:
    raw, own = mobilenet.folder / "raw.json", mobilenet.folder / "profile.json"
    assert json.loads(mobilenet.profile.engine_raw) == json.loads(raw.read_bytes())
    # The engine's keys stand beside lar's.
    lines = [[str(path), "-t", "9"] for path in (raw, own)]
    of_raw, of_own = elsewhere(say_with_tool, "profile_analyze", *lines)
    assert "ConvolutionForward" in of_raw
    assert of_raw == of_own
    assert sorted(path.name for path in mobilenet.folder.iterdir()) == ["profile.json", "raw.json"]


def test_shapes_that_change_are_other_operators(data_set: Made) -> None:
    profile = data_set.profile
    check_times(profile)
    assert len(profile.timed_steps()) == 8
    of_steps: Counter[int] = Counter()
    for each in profile.executions:
        of_steps[each.step] += profile.operators[each.operator].flops or 0
    one, *_ = flops = [of_steps[step.number] for step in profile.timed_steps()]
    assert flops == [one] * 4 + [3 * one] * 2 + [one] * 2
    convolutions = [each for each in profile.operators if each.type == "ConvolutionForward"]
    assert [each.inputs[0].shape[0] for each in convolutions] == [1, 1, 1, 3, 3, 3]
    assert any(line.startswith("the algorithms of 6 operators") for line in profile.facts.dropped)


def test_the_feed_of_an_item_belongs_to_its_iteration(data_set: Made) -> None:
    graph = data_set.profile.facts.driver == "graph"
    call = "Tensor" if graph else "LiteTensor.set_data_by_copy"
    assert set(data_set.spans("runtime", "memcpy", step=4)) >= {
        ("runtime", call),
        ("memcpy", "[CPU memcpy HtoH]"),
        *([("runtime", "Graph.compile")] if graph else []),
    }
    assert ("runtime", call) not in data_set.spans("runtime", step=3)


def test_in_the_calling_thread_the_dispatch_is_the_computation(in_place: Made) -> None:
    profile = in_place.profile
    check_times(profile)
    assert profile.threads == {1: "host"}
    for each in profile.executions:
        assert (each.thread, each.dispatch_start_ns, each.dispatch_thread) == (1, None, None)
        assert profile.host_ns(each) == each.duration_ns
    assert [each.domain for each in profile.facts.clock.align] == ["MegEngine's device clock"]
    (dropped,) = profile.facts.dropped
    assert dropped.startswith("the dispatch of operators: the thread that dispatches computes th")


def test_the_copy_of_outputs_comes_after_the_wait(in_place: Made) -> None:
    assert in_place.profile.facts.warmup_iterations == 2
    for step in in_place.profile.steps:
        spans = in_place.profile.spans
        phases = [it for it in spans if (it.step, it.category) == (step.number, "phase")]
        assert [span.name for span in phases] == ["forward", "wait", "output_copy"]
        for before, after in pairwise(phases):
            assert before.end_ns == after.start_ns
        assert phases[-1].end_ns == step.end_ns
        assert ("runtime", "LiteTensor.to_numpy") in in_place.spans("runtime", step=step.number)


def test_a_conversion_of_a_layout_is_a_span_of_its_operator(in_place: Made) -> None:
    profile = in_place.profile
    spans = profile.spans_of("relayout")
    assert [span.step for span in spans] == [0, 1, 2]
    for span in spans:
        assert span.operator is not None
        assert profile.operators[span.operator].type == "Dimshuffle"
        assert span.size_bytes == 4 * 128
    algorithms = {each.algorithm for each in profile.operators if each.type == "ConvBiasForward"}
    assert any("NCHW44" in str(algorithm) for algorithm in algorithms)


def test_several_threads_and_inputs(multi_input: Made) -> None:
    profile = multi_input.profile
    check_times(profile)
    assert profile.facts.threads == 2
    assert profile.threads == {1: "host", 2: "multithread2:0"}
    assert [step.warmup for step in profile.steps] == [False] * 3
    assert {span.tensor for span in profile.spans if span.category == "memcpy"} == {"a", "b"}
    # Without a warm-up the algorithms are told in the first iteration.
    assert any(each.algorithm for each in profile.operators if each.type == "MatrixMul")


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_a_name_that_is_not_ascii_is_refused(run_lar: RunLar, tmp_path: Path, driver: str) -> None:
    """The engine cannot write it into its profile."""
    model = tmp_path / "named.mge"
    model.write_bytes(DIGITS.read_bytes().replace(b"conv1.bias", "cév1.bias".encode()))
    options = ["--iter", "1", "--driver", driver, "--profile-raw", "raw.json"]
    done = run_lar(str(model), *options, cwd=tmp_path, code=2)
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("lar: error: --profile-raw: ")
    assert "not ASCII" in line
    assert not (tmp_path / "raw.json").exists()


# Without the engine


class Driver(SimpleNamespace):
    """A lite driver as far as a profile needs one; the network keeps the callback."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.kept: list[Any] = []
        self.thread_count = lambda: 1
        api = SimpleNamespace(LITE_set_finish_callback=lambda _, call: self.kept.append(call))
        super().__init__(
            spec=RunSpec(model="m.mge", engine="megengine", driver="lite", settings=settings),
            network=SimpleNamespace(_api=api, _network=None),
            clock=lambda: self.now,
        )


@pytest.fixture
def finish_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the type of lite's callbacks, which its package defines."""
    kind = SimpleNamespace(LiteFinishCallback=lambda function: function)
    monkeypatch.setitem(sys.modules, "megenginelite.network", kind)
    monkeypatch.setitem(sys.modules, "megenginelite", SimpleNamespace(network=kind))


@pytest.mark.usefixtures("finish_callbacks")
def test_the_engines_own_time_is_what_follows_its_finish() -> None:
    driver: Any = Driver()
    clock = ProfileClock(driver)
    assert clock.own_seconds() == 0.0  # before the first iteration

    def wait() -> int:
        driver.now += 2.0
        status: int = driver.kept[0](None, None, 0)
        driver.now += 0.5
        return status

    assert clock.around(wait)() == 0
    assert clock.own_seconds() == 0.5
    driver.now += 1.0  # a copy of the outputs
    assert clock.own_seconds() == 0.5
    assert clock.missed_count == 0


@pytest.mark.usefixtures("finish_callbacks")
def test_a_wait_without_its_finish_is_counted_and_told() -> None:
    driver: Any = Driver(profile="p.json")
    driver.profile_clock = clock = ProfileClock(driver)

    def wait() -> int:
        driver.now += 2.0
        return 7

    assert clock.around(wait)() == 7
    assert clock.own_seconds() == 0.0
    assert clock.missed_count == 1
    dropped = MegEngineProfiler(driver).finish().dropped
    *_, told = [line.partition(":")[0] for line in dropped]
    assert (told, len(dropped) <= 2) == ("the ends of 1 iteration", True)


def test_an_engine_that_computes_nothing_gives_no_executions() -> None:
    """The first execution of --fake-first."""
    driver: Any = Driver(profile="p.json")
    profiler = MegEngineProfiler(driver)
    empty = b'{"profiler": {"device": {}, "host": {}}, "graph_exec": {"operator": {}, "var": {}}}'
    profiler.read = lambda: empty
    profiler.take(Step(0, 0, 10), 0, 5, 10)
    trace = profiler.finish()
    assert ([*trace.executions], trace.operators, trace.engine_raw) == ([], (), empty)


@each_row("engines/megengine/cases/threads asked for")
def test_threads_are_those_asked_for(settings: dict[str, Any], count: int) -> None:
    driver = object.__new__(LiteDriver)  # its library is not loaded
    driver.spec = RunSpec(model="m.mge", engine="megengine", driver="lite", settings=settings)
    assert driver.thread_count() == count
    driver.spec = replace(driver.spec, device="cuda:0")
    assert driver.thread_count() is None


def release_numpy() -> tuple[list[int], bool]:
    """Return the KiB that numpy's libraries hold: first, without release, and released.

    Also return whether numpy still computes the same.
    """
    held, before = [], np.linalg.inv(np.eye(3) * 2)
    sizes = re.compile(r"^\S+ r-\S+ .*/numpy/.*\n(?:\S+: .*\n)*?Rss: +(\d+)", re.MULTILINE)
    for folder in ("no such folder", "no such folder", "numpy"):
        release_loaded(folder)
        held.append(sum(map(int, sizes.findall(Path("/proc/self/smaps").read_text()))))
    return held, bool((np.linalg.inv(np.eye(3) * 2) == before).all())


@pytest.mark.skipif(sys.platform != "linux", reason="it is done on Linux alone")
def test_libraries_still_compute_when_what_loading_read_was_released(
    elsewhere: Callable[..., tuple[list[int], bool]],
) -> None:
    (first, kept, released), computes = elsewhere(release_numpy)
    assert (kept >= first > 4 * released, computes) == (True, True)
