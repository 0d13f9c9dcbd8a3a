"""Algorithms of a cache that are timed again: what is chosen, left out, measured and written."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from lar.engines.engine import CachedAlgorithm, CachedOperator
from lar.engines.megengine.cache import AlgorithmCache, bytes_of, read_cache
from lar.engines.megengine.cache_choices import operators_of
from lar.engines.megengine.cache_files import CACHES
from lar.errors import LarError, UsageError
from lar.records.algorithms import AlgorithmsResult
from lar.records.bench import Turn
from lar.records.profile import Execution, Profile, ProfiledOperator, ProfileFacts, Step
from lar.records.run import Failure, OutputSummary, RunResult, RunSpec, Samples
from lar.records.summary import Difference, Interval
from lar.running.variants import Variant
from lar.tuning import algorithms as module
from lar.tuning.algorithms import (
    AlgorithmsProgress,
    Played,
    Timing,
    TurnIterations,
    judge_whole,
    seconds_of,
    seconds_of_turns,
    shares_of,
    tune_algorithms,
)
from tests.conftest import WriteScript

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = str(REPOSITORY / "models" / "digits_cnn.mge")
CACHE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"
needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="MegEngine is not installed"
)


# Simulated: each operator takes as long as its algorithm says, with noise.

SECONDS = {"A": 10e-6, "B": 8e-6, "C": 11e-6, "D": 9e-6}
OPERATORS = tuple(
    CachedOperator(key, key, "{1}", tuple(CachedAlgorithm(name, SECONDS[name]) for name in "ABCD"))
    for key in ("conv1", "conv2", "fc")
)


def output(shape: tuple[int, ...], sha256: str) -> OutputSummary:
    return OutputSummary(
        name="y",
        dtype="float32",
        shape=shape,
        minimum=0.0,
        maximum=0.0,
        mean=0.0,
        nonfinite_count=0,
        sha256=sha256,
    )


FASTER = Difference(
    ratio=0.9, interval=None, verdict="faster", smallest_detectable=None, processes=5, pairs=50
)


class Simulated(Timing):
    """Timing without processes. `faults` says what choices fail with, by operator and algorithm."""

    def __init__(self, folder: Path, faults: Mapping[tuple[str, str], str], **settings: Any):
        self.faults, self.noise = faults, random.Random(2)
        self.tried: list[dict[str, str]] = []
        self.hung = 0.0
        self.failed_once = self.is_full = False
        self.found = FASTER
        files = SimpleNamespace(write_choices=self.write)
        self.files_written: list[tuple[Mapping[str, str], str]] = []
        spec = RunSpec(model=DIGITS, engine="megengine", driver="lite")
        settings = {"budget_seconds": 100.0, "report": lambda progress: None, **settings}
        super().__init__(
            spec,
            files,  # type: ignore[arg-type]
            ["a.cache"],
            OPERATORS,
            folder=str(folder),
            began=time.monotonic(),
            order=random.Random(0),
            **settings,
        )

    def write(
        self,
        paths: Sequence[str],
        choices: Mapping[str, str],
        output: str,
        proofs: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.proofs = dict(proofs)
        if output == "out.cache" and self.is_full:
            raise LarError("no space left on device", subject=output)
        self.files_written.append((choices, output))

    def run_with(self, choices: Mapping[str, str]) -> Played:
        self.tried.append(dict(choices))
        taken = {each.key: choices.get(each.key, "A") for each in OPERATORS}
        result = RunResult(spec=self.spec, status="ok", phase="finish", wall_seconds=0.1)
        for fault in filter(None, map(self.faults.get, taken.items())):
            if fault == "once":
                if self.failed_once:
                    continue
                self.failed_once = True
            if fault == "interrupt":
                raise KeyboardInterrupt
            if fault == "hang":
                hung = min(self.patience, self.most_seconds)
                self.hung += hung
                fault = f"it hung for {hung:.0f} s"
            if fault == "wrong":
                result = replace(result, outputs=(output((2,), "other"),))
            else:
                return Played(replace(result, status="crashed", failure=Failure(fault)), "")
        if not result.outputs:
            result = replace(result, outputs=(output((1,), "same"),))
        seconds = {key: SECONDS[name] * self.noise.gauss(1, 0.01) for key, name in taken.items()}
        operators = tuple(
            ProfiledOperator(id=key, type="x", name=key, algorithm=name)
            for key, name in taken.items()
        )
        places = {key: (place,) for place, key in enumerate(taken)}
        executions = tuple(Execution(place, 0, 0, 0, 1000) for place in range(len(taken)))
        profile = Profile(facts=ProfileFacts(), operators=operators, executions=executions)
        return Played(result, "", {**seconds, "": sum(seconds.values())}, profile, places)

    def play(self, lanes: Any, seconds: float = 0.0) -> list[Played]:
        return [self.run_with(lane) for lane in lanes]

    def try_choices(self, choices: Any) -> Played:
        return self.run_with(choices or {})

    def confirm(self, variant: Variant) -> None:
        self.whole = self.found

    def outcome(self) -> AlgorithmsResult:
        with contextlib.ExitStack() as stack:
            self.run_to_end(stack, Variant("x", DIGITS, {}), "out.cache")
        return self.describe("out.cache")


def simulate(folder: Path, **faults: str) -> tuple[AlgorithmsResult, Simulated]:
    """Time the simulated operators; a fault is named `conv1_B`."""
    pairs = {(name[:-2], name[-1]): text for name, text in faults.items()}
    timing = Simulated(folder, pairs)
    return timing.outcome(), timing


def test_the_fastest_algorithms_are_written(tmp_path: Path) -> None:
    result, timing = simulate(tmp_path)
    assert result.ending == "settled"
    assert [each.after for each in result.operators] == ["B", "B", "B"]
    assert len(result.changed) == 3
    assert result.written
    choices = {"conv1": "B", "conv2": "B", "fc": "B"}
    assert timing.files_written[-1] == (choices, "out.cache")
    # The time of what is chosen, not of what was chosen before.
    assert timing.proofs == {each.key: pytest.approx(SECONDS["B"], rel=0.05) for each in OPERATORS}
    assert sum(each.gain for each in result.operators) == pytest.approx(0.2, abs=0.02)
    # One process has an algorithm of every operator.
    assert {"conv1": "B", "conv2": "B", "fc": "B"} in timing.tried
    assert result.to_json().startswith("{")


def test_one_that_crashes_is_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    result, timing = simulate(tmp_path, conv2_B="it crashed")
    assert [each.after for each in result.operators] == ["B", "D", "B"]
    [out] = [each for each in result.operators[1].tried if each.failure]
    assert (out.name, out.verdict, out.failure and out.failure.problem) == (
        "B",
        "out",
        "it crashed",
    )
    assert result.written
    assert timing.files_written[-1][0]["conv2"] == "D"


def test_a_choice_that_stays_is_measured_again_too(tmp_path: Path) -> None:
    result, timing = simulate(tmp_path, fc_B="it crashed", fc_C="it crashed", fc_D="it crashed")
    assert result.operators[2].after == "A"
    assert timing.files_written[-1][0] == {"conv1": "B", "conv2": "B"}
    assert timing.proofs["fc"] == pytest.approx(SECONDS["A"], rel=0.05)


def test_one_that_gives_wrong_numbers_is_out(tmp_path: Path) -> None:
    result, _ = simulate(tmp_path, fc_B="wrong")
    [fc] = [each for each in result.operators if each.name == "fc"]
    assert fc.after == "D"
    [out] = [each for each in fc.tried if each.failure]
    assert out.failure is not None
    assert out.failure.problem == "gives another y: shape 2 instead of 1"


def test_a_process_that_failed_by_chance_blames_nobody(tmp_path: Path) -> None:
    result, _ = simulate(tmp_path, conv2_B="once")
    assert [each.after for each in result.operators] == ["B", "B", "B"]
    assert result.warnings == ("a process has failed once and then not again: once",)


def test_an_interrupt_writes_nothing(tmp_path: Path) -> None:
    result, timing = simulate(tmp_path, conv1_C="interrupt")
    assert (result.ending, result.written) == ("interrupted", False)
    assert not [path for _, path in timing.files_written if path == "out.cache"]


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_full_disk_loses_no_row(tmp_path: Path, is_searched: bool) -> None:
    timing = Simulated(tmp_path, {}, is_searched=is_searched)
    timing.is_full = True
    result = timing.outcome()
    timing.keep_searches("out.cache")
    assert (result.ending, result.written, len(result.changed)) == ("settled", False, 3)
    assert result.failure == Failure("no space left on device", subject="out.cache")
    assert result.reason == "it cannot be written"


def test_a_cache_that_is_slower_is_not_written(tmp_path: Path) -> None:
    timing = Simulated(tmp_path, {})
    timing.found = replace(FASTER, ratio=1.1, verdict="slower")
    result = timing.outcome()
    assert (result.written, result.reason) == (False, "the whole model is slower with them")
    assert not [path for _, path in timing.files_written if path == "out.cache"]


@pytest.mark.parametrize(
    ("interval", "is_written"),
    [
        (Interval(0.95, 1.005), True),
        (Interval(0.7, 1.1), False),  # it may be slower
        (None, False),
    ],
)
def test_a_cache_that_may_be_slower_is_not_written(
    tmp_path: Path, interval: Interval | None, is_written: bool
) -> None:
    timing = Simulated(tmp_path, {})
    timing.found = replace(FASTER, verdict="no difference shown", interval=interval)
    result = timing.outcome()
    assert result.written == is_written
    assert ("may be slower" in result.reason) == (not is_written)


def test_a_model_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    result, _ = simulate(tmp_path, conv1_A="it crashed")
    assert (result.ending, result.written) == ("failed", False)
    assert result.failure is not None
    assert result.failure.problem == "it crashed"


@pytest.mark.parametrize("budget", [8.0, 100.0])
def test_algorithms_that_hang_end_with_the_budget(
    budget: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {("conv1", "B"): "hang", ("conv2", "B"): "hang", ("fc", "C"): "hang"}
    timing = Simulated(tmp_path, faults, budget_seconds=budget)
    clock = SimpleNamespace(monotonic=lambda: timing.began + timing.hung)
    monkeypatch.setattr(module, "time", clock)
    result = timing.outcome()
    assert 0 < timing.hung <= budget + module.LEAST_PROCESS_SECONDS
    out = {it.name: {each.name for each in it.tried if each.failure} for it in result.operators}
    assert "B" in out["conv1"]
    assert not {"B", "C"} & {it.after for it in result.operators if it.after in out[it.name]}


def test_a_disk_that_gets_full_meanwhile_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = Simulated(tmp_path, {})
    result = timing.outcome()
    play, rounds = Simulated.play, result.rounds
    timing = Simulated(tmp_path, {})

    def play_until_full(timing: Simulated, lanes: Any, seconds: float = 0.0) -> list[Played]:
        if timing.rounds == rounds - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return play(timing, lanes, seconds)

    monkeypatch.setattr(Simulated, "play", play_until_full)
    result = timing.outcome()
    assert (result.ending, result.written) == ("failed", False)
    assert result.failure is not None
    assert result.failure.problem == "cannot be written: no space left on device"
    assert all(each.seconds for it in result.operators for each in it.tried if each.processes)


def test_a_cache_whose_own_choices_fail_meanwhile_blames_no_algorithm(tmp_path: Path) -> None:
    timing = Simulated(tmp_path, {})
    crashed = RunResult(spec=timing.spec, status="crashed", phase="finish")
    timing.skip_round(crashed)
    assert timing.warnings == ["the cache's own choices have failed once: crashed"]
    with pytest.raises(LarError, match="the cache's own choices"):
        timing.skip_round(crashed)


def test_a_spent_budget_ends_it_with_what_is_known(tmp_path: Path) -> None:
    timing = Simulated(tmp_path, {}, budget_seconds=0.0)
    result = timing.outcome()
    assert (result.ending, result.rounds, result.written) == ("budget", 1, False)
    assert {each.verdict for it in result.operators for each in it.tried} == {"too few processes"}


# The times in a profile


def test_the_shortest_times_of_a_process_count() -> None:
    # Two turns of one untimed and three timed iterations; a warm-up before them.
    times = [90, 50, 10, 30, 12, 50, 14, 11, 99]
    steps = tuple(Step(place, 0, 1, warmup=not place) for place in range(9))
    executions = tuple(
        Execution(operator, place, 0, 0, microseconds * 1000, wait_ns=0)
        for place, microseconds in enumerate(times)
        for operator in (0, 1, 2)
    )
    profile = Profile(facts=ProfileFacts(), steps=steps, executions=executions)
    turns = [TurnIterations(1, Samples(end_to_end=(1.0, 2.0, 3.0))) for _ in range(2)]
    found = seconds_of(profile, {"conv": (0, 2), "fc": (1,)}, turns)
    assert found == pytest.approx({"conv": 20e-6, "fc": 10e-6, "": 1.0})
    # One long execution does not make an operator matter.
    shares = shares_of(profile, {"conv": (0, 2), "fc": (1,)})
    assert shares == pytest.approx({"conv": 2 / 3, "fc": 1 / 3})


# The whole model


def turns_of(*processes: float) -> list[Turn]:
    """Turns of processes, one with iterations of so many milliseconds and two disturbed ones."""
    return [
        Turn(
            round=number,
            cycle=cycle,
            began=0.0,
            samples=Samples(end_to_end=(each * 5, each, each * (7 + number + cycle))),
        )
        for number, each in enumerate(processes)
        for cycle in range(3)
    ]


def test_the_shortest_times_show_what_disturbances_hide() -> None:
    old, new = turns_of(10, 10.1, 9.9, 10, 10.1), turns_of(9, 9.0, 8.9, 9.1, 9)
    unclear = replace(FASTER, ratio=1.2, verdict="no difference shown")
    found = judge_whole(old, new, unclear)
    assert found is not None
    assert (found.verdict, round(found.ratio, 1)) == ("faster", 0.9)
    assert seconds_of_turns(old) == 10
    # What the bench has shown stays, and one process shows nothing.
    assert judge_whole(new, old, FASTER) is FASTER
    assert judge_whole(old[:3], new[:3], unclear) is unclear
    assert judge_whole([], [], None) is None


# Real processes


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROUND_SECONDS", 0.01)
    monkeypatch.setattr(module, "MOST_ROUND_SECONDS", 0.02)
    monkeypatch.setattr(module, "LEAST_CYCLES", 2)
    monkeypatch.setattr(module, "LEAST_PROCESS_SECONDS", 60.0)


def spoil(path: Path) -> str:
    """Write the cache with an algorithm that is not there as the best of others of one operator;
    return its name."""
    cache = read_cache(CACHE)
    category = cache.categories[0]
    entry = category.entries[0]
    best = entry.algorithms[0]
    name = best.name[:-3] + "XXX"
    bad = replace(best, name=name, blob=best.blob.replace(best.name.encode(), name.encode()))
    entry = replace(entry, algorithms=(best, bad, *entry.algorithms[1:3]))
    category = replace(category, entries=(entry, *category.entries[1:]))
    path.write_bytes(bytes_of(AlgorithmCache((category, *cache.categories[1:]))))
    return name


@needs_megengine
@pytest.mark.usefixtures("hurry", "nothing_left")
def test_a_real_cache_is_timed_again(tmp_path: Path) -> None:
    cache, output = tmp_path / "spoilt.cache", tmp_path / "out.cache"
    bad = spoil(cache)
    before = cache.read_bytes()
    seen: list[AlgorithmsProgress] = []
    result = tune_algorithms(DIGITS, [cache], output=output, budget_seconds=1.5, report=seen.append)
    assert result.ending in ("budget", "settled")
    assert result.failure is None
    assert result.engine is not None
    assert result.rounds >= 1
    assert any(each.seconds for each in result.operators)
    tried = [each for operator in result.operators for each in operator.tried]
    [out] = [each for each in tried if each.name == bad]
    assert out.failure is not None
    assert "the cache names an algorithm that is not here" in out.failure.message
    # Where the budget ends before each is tried alone, all that may be at fault are out.
    failures = [each.failure for each in tried if each.failure and each is not out]
    assert all("it or another that was tried with it" in each.message for each in failures)
    assert seen[-1].rivals == len(tried)
    assert cache.read_bytes() == before
    assert output.exists() == result.written
    if result.written:
        assert len(operators_of(read_cache(output))) == 9


@needs_megengine
@pytest.mark.usefixtures("hurry", "nothing_left")
def test_a_search_makes_the_cache_to_begin_with(tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    result = tune_algorithms(DIGITS, [cache], budget_seconds=1.0, fast_run=True)
    assert result.failure is None
    assert (result.searched, result.rounds >= 1) == (True, True)
    assert len(operators_of(read_cache(cache))) == 9
    # A model that has nothing to choose.
    model = str(REPOSITORY / "models" / "one_operator.mge")
    with pytest.raises(UsageError, match="has no operator whose algorithms were measured"):
        tune_algorithms(model, [tmp_path / "x.cache"], budget_seconds=1.0, fast_run=True)
    assert not (tmp_path / "x.cache").exists()


@pytest.mark.parametrize(
    ("model", "caches", "options", "message"),
    [
        (DIGITS, [], {}, "--algorithms: no cache is given"),
        (DIGITS, ["missing"], {}, "--algorithms: missing: no such file"),
        (DIGITS, [CACHE], {"fast_run_algo_policy": "x"}, "--fast-run-algo-policy: the cache of"),
        (DIGITS, [CACHE], {"thread": 2}, "--thread: "),
    ],
)
def test_what_cannot_be_timed_is_refused(
    model: str, caches: list[Path], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tune_algorithms(model, caches, output="x", **options)
    assert message in caught.value.message


def test_an_engine_without_algorithms_is_named(write_script: WriteScript) -> None:
    with pytest.raises(UsageError, match="keeps no cache of algorithms"):
        tune_algorithms(write_script(), [CACHE])


def test_a_cache_without_operators_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.cache"
    empty.write_bytes(bytes(4))
    assert not CACHES.read_operators([str(empty)], {})
    with pytest.raises(UsageError, match="has no operator whose"):
        tune_algorithms(DIGITS, [empty])
