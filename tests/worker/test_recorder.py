"""What a profiled run records, played by the scripted engine."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lar
from lar.measurement import syscalls
from lar.profiles.times import iteration_times_of
from lar.records.profile import CpuUse, Profile, Span, Step
from lar.records.run import RunContext, RunSpec
from lar.reports.styles.operators import profiled_seconds_of
from lar.worker.recorder import Recorder, cpu_use_of, read_times
from tests.conftest import WriteScript
from tests.running.isolated_runs import finished, known
from tests.tables import each_row

INPUT = {"name": "data", "dtype": "float32", "shape": [1, None]}
OPERATORS = [
    {"name": "conv1", "type": "Convolution", "part": 0.5},
    {"name": "conv2", "type": "Convolution", "part": 0.25},
    {"name": "fc", "type": "MatMul", "part": 0.125},
]
# It sleeps its times, so that all clocks are one.
SCRIPT = {
    "inputs": [INPUT],
    "outputs": {"prob": [0.25, 0.75]},
    "operators": OPERATORS,
    "load_seconds": 0.004,
    "prepare_seconds": 0.002,
    "times": [[0.008, 0.002, None], [0.004, 0.001, None]],
    "real_time": True,
}


def profile_of(script: str, inputs: Any = None, **options: Any) -> Profile:
    path = Path(script).with_suffix(".json")
    finished(lar.run(script, inputs, profile=str(path), **options))
    return lar.read_profile(path)


def phases_of(profile: Profile, step: int | None) -> list[Span]:
    return sorted(
        (span for span in profile.spans if span.category == "phase" and span.step == step),
        key=lambda span: span.start_ns,
    )


def names_of(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


@pytest.fixture
def profile(write_script: WriteScript) -> Profile:
    return profile_of(write_script(**SCRIPT), iter=3, warmup_iter=2)


def test_what_comes_before_the_iterations_are_phases(profile: Profile) -> None:
    before = {span.name: span for span in phases_of(profile, None)}
    assert list(before) == ["load", "dataloader", "prepare", "warmup"]
    assert before["load"].duration_ns >= 4e6
    assert before["prepare"].duration_ns >= 2e6
    for step in profile.steps[:2]:
        assert before["warmup"].start_ns <= step.start_ns
        assert step.end_ns <= before["warmup"].end_ns <= profile.steps[2].start_ns


def test_each_iteration_is_a_step_and_the_warm_up_comes_first(profile: Profile) -> None:
    assert [step.number for step in profile.steps] == [-1, -2, 0, 1, 2]
    assert [step.title for step in profile.steps[:3]] == ["warm-up 0", "warm-up 1", "iteration 0"]
    assert [step.warmup for step in profile.steps] == [True, True, False, False, False]
    for step, least in zip(profile.steps, (8e6, 4e6, 8e6, 4e6, 8e6), strict=True):
        assert step.duration_ns >= least
        forward, wait = phases_of(profile, step.number)
        assert names_of([forward, wait]) == ["forward", "wait"]
        assert (forward.start_ns, wait.end_ns) == (step.start_ns, step.end_ns)
        assert forward.end_ns == wait.start_ns
        assert forward.warmup == wait.warmup == step.warmup


def test_operators_are_those_that_the_engine_tells(profile: Profile) -> None:
    told = [(each.name, each.type) for each in profile.operators]
    assert told == [("conv1", "Convolution"), ("conv2", "Convolution"), ("fc", "MatMul")]
    assert [each.operator for each in profile.timed_executions] == [0, 1, 2] * 3
    assert profile.threads == {1: "host"}


def test_a_scripted_clock_gives_exact_times(write_script: WriteScript) -> None:
    script = write_script(
        times=[[0.5, 0.25, None], [0.75, 0.125, None]], operators=OPERATORS, real_time=False
    )
    profile = profile_of(script, iter=3, warmup_iter=1)
    assert [step.duration_ns for step in profile.steps] == [5e8, 7.5e8, 5e8, 7.5e8]
    waits = [phases_of(profile, step.number)[1].duration_ns for step in profile.steps]
    assert waits == [2.5e8, 6.25e8, 2.5e8, 6.25e8]


def test_facts_tell_where_the_profile_comes_from(profile: Profile, tmp_path: Path) -> None:
    facts = profile.facts
    assert (facts.engine, facts.driver, facts.device) == ("fake", "script", "cpu")
    assert (facts.iterations, facts.warmup_iterations, facts.batch, facts.threads) == (3, 2, 1, 1)
    assert facts.model.path == str(tmp_path / "script_0.fake")
    assert len(facts.model.sha256) == 64
    assert facts.options == {"profile": str(tmp_path / "script_0.json")}
    assert facts.clock.base == "perf_counter_ns"
    assert facts.clock.unix_ns > 1.7e18


def test_memory_and_cpu_are_read_with_each_iteration(profile: Profile) -> None:
    assert [sample.at_ns for sample in profile.counters] == [step.end_ns for step in profile.steps]
    assert {sample.name for sample in profile.counters} == {"rss"}
    assert all(sample.value > 1e6 for sample in profile.counters)
    assert profile.facts.cpu.count > 0


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """A data set of three items of different sizes."""
    (tmp_path / "items").mkdir()
    for number in range(3):
        np.save(tmp_path / "items" / f"{number}.npy", np.zeros((1, number + 1), np.float32))
    return tmp_path / "items"


def test_an_item_of_a_data_set_begins_its_iteration(write_script: WriteScript, items: Path) -> None:
    profile = profile_of(write_script(**SCRIPT), items, iter=2, warmup_iter=1)
    assert [step.warmup for step in profile.steps] == [True] + [False] * 6
    assert names_of(phases_of(profile, None)) == ["load", "dataloader", "prepare", "warmup"]
    for step in profile.steps:
        own = phases_of(profile, step.number)
        feeds = ["dataloader", "input_copy"] if step.number in (2, 4) else []
        assert names_of(own) == [*feeds, "forward", "wait"]
        assert (own[0].start_ns, own[-1].end_ns) == (step.start_ns, step.end_ns)
        if feeds:
            assert own[1].duration_ns >= 2e6


def test_of_a_data_set_reports_have_the_iterations_of_the_profiled_run(
    write_script: WriteScript, items: Path, tmp_path: Path
) -> None:
    """A step is the loading of an item, the copy of the input and an iteration."""
    path = tmp_path / "p.json"
    result = lar.run(write_script(**SCRIPT), str(items), profile=str(path), iter=1, warmup_iter=1)
    profile = lar.read_profile(path)
    times_ns = [1e9 * each for each in result.profiled.end_to_end]
    known = statistics.median(times_ns)
    steps = [step.duration_ns for step in profile.timed_steps()]
    assert statistics.median(iteration_times_of(profile)) == pytest.approx(known, abs=2)
    # An input is copied in 2 ms, the first one before a warm-up.
    assert all(step > time_ns + 1e6 for step, time_ns in zip(steps[1:], times_ns[1:], strict=True))
    assert profiled_seconds_of(profile) == pytest.approx(known / 1e9, abs=2e-9)


def test_a_copy_of_the_outputs_ends_the_iteration(write_script: WriteScript) -> None:
    profile = profile_of(write_script(**SCRIPT), iter=2, copy_to_host=True)
    for step in profile.steps:
        forward, wait, copy = phases_of(profile, step.number)
        assert names_of([forward, wait, copy]) == ["forward", "wait", "output_copy"]
        assert wait.duration_ns >= 2e6
        assert wait.end_ns == copy.start_ns
        assert copy.end_ns == step.end_ns


def test_a_run_that_fails_writes_no_profile(write_script: WriteScript, tmp_path: Path) -> None:
    script = write_script(**SCRIPT, faults=[{"at": "start", "do": "raise", "index": 2}])
    place = tmp_path / "profile.json"
    place.write_text("what was there")
    result = lar.run(script, iter=3, profile=str(place))
    assert result.status == "failed"
    assert "scripted failure" in known(result.failure).message
    assert "profile" in result.spec.settings
    assert place.read_text() == "what was there"


# The recorder alone


class Profiler:
    def __init__(self) -> None:
        self.taken: list[tuple[Step, int, int]] = []

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self.taken.append((step, forward_ns, dispatched_ns))


def driver_with(**fields: Any) -> Any:
    return SimpleNamespace(
        **{
            "calls": {"forward": "go", "wait": "sync", "outputs": "fetch"},
            "copied_at": None,
            "own_seconds": None,
            "profiler": Profiler(),
            **fields,
        }
    )


def named(recorder: Recorder) -> list[tuple[str, str, int]]:
    return [(span.category, span.name, span.duration_ns) for span in recorder.spans]


def at(recorder: Recorder, seconds: float) -> float:
    """A time of the driver's clock, that long after the recorder's zero."""
    return recorder.t0_ns / 1e9 + seconds


def test_calls_of_the_engine_are_told_by_its_names() -> None:
    recorder, driver = Recorder(), driver_with()
    recorder.record(driver, at(recorder, 0.5), at(recorder, 0.625), at(recorder, 1))
    ((step, forward, dispatched),) = driver.profiler.taken
    assert step == recorder.steps[0]
    assert step.duration_ns == pytest.approx(5e8, abs=2000)
    assert dispatched - forward == pytest.approx(1.25e8, abs=2000)
    told = [(kind, name) for kind, name, _ in named(recorder)]
    assert told == [("phase", "forward"), ("runtime", "go"), ("phase", "wait"), ("runtime", "sync")]


def test_the_engines_own_time_is_neither_wait_nor_copy() -> None:
    """The engine waits until 1.0 s and writes its profile until 1.25 s; then comes the copy, until
    1.5 s. The loop has taken the writing off the end."""
    recorder = Recorder()
    driver = driver_with(copied_at=lambda: at(recorder, 1.25), own_seconds=lambda: 0.25)
    recorder.record(driver, at(recorder, 0.5), at(recorder, 0.75), at(recorder, 1.25))
    durations = {name: duration for kind, name, duration in named(recorder) if kind == "phase"}
    expected = dict.fromkeys(("forward", "wait", "output_copy"), 2.5e8)
    assert durations == pytest.approx(expected, abs=2000)


def test_a_copy_is_a_call_and_what_it_moves() -> None:
    recorder = Recorder()
    with recorder.copy("set_data", 64, "data"):
        pass
    copy, call = sorted(recorder.spans, key=lambda span: span.category)
    assert (copy.category, copy.name, copy.size_bytes) == ("memcpy", "[CPU memcpy HtoH]", 64)
    assert (copy.tensor, copy.source_kind, copy.destination_kind) == ("data", "host", "host")
    assert (call.category, call.name) == ("runtime", "set_data")
    assert call.start_ns <= copy.start_ns <= copy.end_ns <= call.end_ns


def test_what_fails_is_recorded_until_it_failed() -> None:
    recorder = Recorder()
    with pytest.raises(RuntimeError), recorder.phase("load"):
        raise RuntimeError
    assert [(kind, name) for kind, name, _ in named(recorder)] == [("phase", "load")]


def test_cpu_time_counts_in_timed_iterations_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without the first of several."""
    seconds = iter(range(20))
    monkeypatch.setattr("lar.worker.recorder.read_times", lambda: (float(next(seconds)) ** 2,) * 4)
    recorder, driver, counted = Recorder(), driver_with(), []
    for recorder.warmup in (True, False, False, False):
        recorder.record(driver, 0.0, 0.0, 0.0)
        counted.append(recorder.cpu[0])
        if recorder.warmup:
            recorder.recorded.clear()
    assert counted == [0, 2**2 - 1, 4**2 - 3**2, (4**2 - 3**2) + (6**2 - 5**2)]


@each_row("worker/cases/use of CPUs")
def test_the_use_of_cpus_is_told_if_the_times_are_known_and_long_enough(
    times: list[float], process: float | None, machine: float | None
) -> None:
    assert cpu_use_of(times) == CpuUse(os.cpu_count() or 0, process, machine)


def test_the_times_of_the_cpus_only_grow() -> None:
    before = read_times()
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until:
        pass
    grown = [after - earlier for earlier, after in zip(before, read_times(), strict=True)]
    assert grown[0] >= 0.01
    assert grown[1] > 0
    assert 0 <= grown[2] <= grown[3]


@pytest.mark.parametrize("kind", ["profile", "profile_host"])
def test_system_calls_are_traced_beside_the_profile(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []
    monkeypatch.setattr(syscalls, "SyscallTrace", folders.append)
    settings: dict[str, bool | int | float | str] = {"profile_syscalls": True, kind: "p.json"}
    driver: Any = SimpleNamespace(
        runner=0,
        spec=RunSpec(model="m", engine="fake", driver="script", settings=settings),
        context=RunContext(written={"bin_out_dump": "/b/out", kind: "/a/p.json"}),
    )
    Recorder().attach(driver)
    assert folders == ["/a"]
