"""A profiled run as the parent process makes it: twice, and what it adds to the profile."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.engines.listener import Listener
from lar.errors import UsageError
from lar.profiles import trace_file
from lar.profiles.costs import cost_of
from lar.profiles.ranges import patterns_of
from lar.records.profile import Peak
from lar.records.run import Failure, RunContext, RunResult, RunSpec, Samples, Status
from lar.running.plan import plan_run
from lar.running.steps import (
    ProfiledRun,
    command_line,
    make_run,
    maker_of,
    plain_spec,
    run_profiled,
)
from tests.command_lines import run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import finished, known

OPERATORS = [
    {"name": "conv1", "type": "Convolution", "part": 0.5},
    {"name": "conv2", "type": "Convolution", "part": 0.25},
    {"name": "fc", "type": "MatMul", "part": 0.125},
]
TIMES = [[0.5, 0.25, None], [0.75, 0.25, None], [1.0, 0.25, None]]


@pytest.fixture
def script(write_script: WriteScript) -> str:
    return write_script(times=TIMES, operators=OPERATORS)


def spec_with(settings: dict[str, Any], **fields: Any) -> RunSpec:
    return RunSpec(model="m.fake", engine="fake", driver="script", settings=settings, **fields)


def samples_of(*seconds: float, delays: tuple[float, ...] = ()) -> Samples:
    device = (None,) * len(seconds)
    return Samples(end_to_end=seconds, host=seconds, device=device, queue_delay=delays)


def result_of(spec: RunSpec, *seconds: float) -> RunResult:
    return RunResult(spec=spec, status="ok", phase="finish", samples=samples_of(*seconds))


def test_a_profile_is_completed_by_what_the_parent_knows(script: str, tmp_path: Path) -> None:
    options = ["--iter", "5", "--profile", "p.json", "--range-by", "conv=body", "--json", "r.json"]
    done = run_lar(script, *options, cwd=tmp_path, code=0)
    # The warm-up is the script's first, 0.5 s.
    assert "profile: p.json; 750.000ms with the profiler, 750.000ms without (+0.0%)" in done.stdout
    assert done.stdout.count("load model") == 1
    profile = lar.read_profile(tmp_path / "p.json")
    facts = profile.facts
    assert facts.arguments[1:] == (script, *options)
    assert facts.folder == str(tmp_path)
    assert facts.machine["processor"] or facts.machine
    assert known(facts.peak_memory_bytes) > 1e6
    assert facts.cost is not None
    assert (facts.cost.profiled_seconds, facts.cost.unprofiled_seconds) == (0.75, 0.75)
    assert (facts.cost.profiled_iterations, facts.cost.unprofiled_iterations) == (5, 5)
    assert known(facts.peak).threads == 1
    assert [span.name for span in profile.spans_of("user_annotation")] == ["body"] * 5
    profiled = json.loads((tmp_path / "r.json").read_text())["profiled"]
    assert profiled["end_to_end"] == [0.75, 1.0, 0.5, 0.75, 1.0]


def test_the_command_line_is_lars_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for own in (["/usr/bin/lar", "m.mge"], ["/x/lar/__main__.py", "m.mge"]):
        monkeypatch.setattr("sys.argv", own)
        assert command_line() == tuple(own)
    for other in (["/x/another/__main__.py", "--secret"], ["service.py"], []):
        monkeypatch.setattr("sys.argv", other)
        assert command_line() == ()


def test_the_current_folder_may_be_gone_in_the_end(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)

    class Leaving(Listener):
        def on_progress(self, text: str, elapsed: float) -> None:
            if text.startswith("profiling") and gone.exists():
                gone.rmdir()

    spec = plan_run(script, {"profile": str(tmp_path / "p.json")})
    assert make_run(spec, RunContext(), Leaving()).status == "ok"
    assert lar.read_profile(tmp_path / "p.json").facts.folder == ""


def test_a_pattern_that_matches_nothing_is_told(script: str, tmp_path: Path) -> None:
    flags = ["--profile", "p.json", "--range-by", "conv=body", "--range-by", "x+=none"]
    done = run_lar(script, *flags, cwd=tmp_path)
    assert "lar: warning: --range-by x+=none: no operator's name matches; one is conv1" in (
        done.stderr
    )
    assert done.stderr.count("matches") == 1


@pytest.mark.parametrize("given", [5, "conv", ["conv=body", ""], ["a=b\nc=d"]])
def test_what_python_code_gives_is_checked_too(script: str, given: object) -> None:
    with pytest.raises(UsageError, match=r"--range-by: .* is not REGEX=NAME"):
        lar.run(script, profile="p.json", range_by=given)


def test_the_plain_run_writes_nothing() -> None:
    settings = {"profile": "p.json", "profile_memory": True, "range_by": "a=b", "multithread": 2}
    spec = spec_with({**settings, "bin_out_dump": "dump"}, iterations=1000)
    assert plain_spec(spec) == replace(spec, settings={"multithread": 2})


def test_a_plain_run_that_ends_badly_is_the_result() -> None:
    spec = spec_with({"profile": "p.json"})
    ran: list[RunSpec] = []

    def plain(each: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        ran.append(each)
        assert context == RunContext(began=context.began)
        failure = Failure("timed out after 1 s in phase load", "more time")
        return replace(result_of(each, 0.5), status="timed_out", failure=failure)

    context = RunContext(written={"profile": "never written"})
    result = run_profiled(plain, spec, context, Listener())
    assert (result.status, result.spec) == ("timed_out", spec)
    assert result.failure == Failure("timed out after 1 s in phase load", "more time")
    assert (result.samples.end_to_end, result.profiled.end_to_end) == ((0.5,), ())
    assert [each.settings for each in ran] == [{}]


@pytest.mark.parametrize("option", ["profile", "profile_host", "profile_raw"])
@pytest.mark.parametrize(
    ("status", "problem"), [("crashed", "with the profiler: gone"), ("interrupted", "gone")]
)
def test_the_times_stay_where_the_profiler_ends_badly(
    option: str, status: Status, problem: str
) -> None:
    def make(each: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        if not each.settings:
            return replace(result_of(each, 0.5), warnings=("slow",), peak_memory_bytes=1)
        broken = replace(result_of(each, 9.0), status=status, phase="load", log_tail="x")
        failure = Failure("gone", exit_code=4)
        return replace(broken, failure=failure, warnings=("slow", "lost"), peak_memory_bytes=2)

    spec = spec_with({option: "p.json"})
    result = maker_of(spec, make)(spec, RunContext(written={option: "p.new"}), Listener())
    assert (result.spec, result.status, result.phase) == (spec, status, "load")
    assert result.failure == Failure(problem, exit_code=4)
    assert (result.samples.end_to_end, result.profiled.end_to_end) == ((0.5,), (9.0,))
    assert (result.warnings, result.log_tail) == (("slow", "lost"), "x")
    assert result.peak_memory_bytes == 1


def test_an_interrupt_while_the_peak_is_measured_leaves_the_earlier_profile(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(threads: int, deadline: float | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # where no peak is kept
    monkeypatch.setattr("lar.measurement.peak.measure_peak", interrupt)
    path = tmp_path / "p.json"
    path.write_text("earlier")
    result = make_run(plan_run(script, {"profile": str(path)}), RunContext())
    assert result.status == "interrupted"
    assert known(result.failure).exit_code == 130
    assert len(result.samples.end_to_end) == 10
    assert path.read_text() == "earlier"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.json", "script_0.fake"]


def test_without_time_left_no_peak_is_measured(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    spec = spec_with({"profile": str(path)}, timeout_seconds=0.0)
    lar.run(script, profile=str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # where no peak is kept
    result = run_profiled(
        lambda each, context, listener: result_of(each, 0.75 if context.written else 0.5),
        spec,
        RunContext(written={"profile": str(path)}, began=0.0),
        Listener(),
    )
    assert result.status == "ok"
    assert lar.read_profile(path).facts.peak is None


def test_four_runs_have_the_same_peak(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run used to measure for itself: 43.7 to 128.4 GFLOP/s."""
    speeds = iter((128.4e9, 43.7e9, 60e9, 90e9))
    now = datetime.now(timezone.utc).isoformat()

    def measure(threads: int, deadline: float | None) -> Peak:
        return Peak(next(speeds), 2e10, threads, "x", spread=0.1, measured_at=now, rounds=3)

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("lar.measurement.peak.measure_peak", measure)
    path = tmp_path / "p.json"
    found = []
    for _ in range(4):
        finished(lar.run(script, profile=str(path)))
        found.append(lar.read_profile(path).facts.peak)
    assert [each and each.flops_per_second for each in found] == [128.4e9] * 4
    assert [each and each.rounds for each in found] == [3, 6, 9, 12]
    assert found[-1] is not None
    # The best and the last are kept.
    assert found[-1].spread == pytest.approx(1 - (128.4 + 90) / 2 / 128.4)


@pytest.mark.parametrize(("name", "is_said"), [("p.json", True), ("p.json.gz", False)])
def test_a_large_profile_is_said_to_be_in_gzip(
    name: str, is_said: bool, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "LARGEST_PLAIN_BYTES", 1000)
    result = lar.run(script, profile=tmp_path / name, iter=1)
    assert any("`gzip -dc FILE`" in text for text in result.warnings) == is_said


def test_a_profile_of_the_warm_up_alone_is_told(script: str, tmp_path: Path) -> None:
    flags = ["--iter", "0", "--warmup-iter", "1", "--profile", "p.json"]
    assert run_lar(script, *flags, cwd=tmp_path).stdout.splitlines()[-1] == "profile: p.json"
    assert lar.read_profile(tmp_path / "p.json").facts.cost is None


def test_the_profiled_run_shows_as_progress_alone() -> None:
    class Screen(Listener):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_log(self, text: bytes) -> None:
            self.seen.append(text.decode())

        def on_progress(self, text: str, elapsed: float) -> None:
            self.seen.append(text)

    screen = Screen()
    listener = ProfiledRun(screen)
    result = result_of(spec_with({}, iterations=10, warmup_iterations=2))
    listener.on_rows(None, 0, 3, result)  # type: ignore[arg-type]
    listener.on_log(b"words")
    listener.on_progress("searching", 1.0)
    assert screen.seen == [
        "profiling: 3 of 12 iterations",
        "words",
        "searching",
    ]


def test_the_cost_is_that_of_the_medians() -> None:
    cost = known(cost_of(samples_of(3.0, 1.0, 2.0), samples_of(1.0, 1.5)))
    assert (cost.profiled_seconds, cost.unprofiled_seconds) == (2.0, 1.25)
    assert (cost.calm, cost.disturbed) == ((2.0, 1.25), False)
    assert cost_of(samples_of(1.0), Samples()) is None
    assert cost_of(samples_of(), samples_of(1.0)) is None


@pytest.mark.parametrize(
    ("calm", "disturbed"),
    [(6, 6), (5, 6), (3, 0)],  # of three that nothing disturbed all count
)
def test_the_cost_is_that_of_calm_iterations(calm: int, disturbed: int) -> None:
    delays = (0.0,) * calm + (5.0,) * disturbed
    profiled = samples_of(*[1.0] * calm, *[9.0] * disturbed, delays=delays)
    cost = known(cost_of(profiled, samples_of(0.5)))
    assert (cost.disturbed, cost.calm) == (False, (1.0, 0.5))


@pytest.mark.parametrize(
    ("plain", "delay", "is_known"),
    [(0.9, 0.0, True), (0.95, 0.0, False), (0.5, 0.5, False)],  # of the last all were disturbed
)
def test_the_fastest_iteration_of_a_disturbed_run_shows_what_is_sure(
    plain: float, delay: float, is_known: bool
) -> None:
    profiled = samples_of(1.0, 5.0, 9.0, delays=(delay, 4.0, 8.0))
    cost = known(cost_of(profiled, samples_of(0.1, plain, 9.0)))
    assert cost.disturbed != is_known
    assert cost.calm == ((1.0, plain) if is_known else (5.0, plain))


def test_patterns_end_at_the_last_sign() -> None:
    assert patterns_of({}) == []
    assert patterns_of({"range_by": "a=b=c\nx|y=z"}) == [("a=b", "c"), ("x|y", "z")]
