"""--winograd-transform step by step: what becomes of failures, of caches and of the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.engines.megengine.algorithms import choices_in
from lar.engines.megengine.cache import AlgorithmCache, read_cache
from lar.engines.megengine.cache_operators import (
    operators_of,
    prefer_winograd,
    with_first,
    without_winograd,
)
from lar.engines.megengine.winograd import choices_of, run_with_winograd
from lar.measurement.listener import Listener
from lar.records.run import Failure, OutputSummary, RunContext, RunResult, RunSpec
from tests.engines.megengine.caches import candidates, convolutions
from tests.engines.megengine.programs import CACHE, DIGITS

# What becomes of a step


class Steps:
    """Stands in for the worker processes; `fails` is the folder whose step ends so."""

    def __init__(self, fails: str = "", far: float = 0.0) -> None:
        self.fails, self.far = fails, far
        self.runs: list[tuple[RunSpec, RunContext]] = []

    def step(self, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        self.runs.append((spec, context))
        folder = Path(context.work_folder)
        if folder.name == self.fails:
            failure = Failure("the engine crashed", "some hint")
            return RunResult(spec=spec, status="crashed", phase="warmup", failure=failure)
        (folder / "outputs").mkdir()
        values = np.ones(3, np.float32) + (self.far if folder.name == "winograd" else 0)
        np.save(folder / "outputs" / "000.npy", values)
        listener.on_log(log_of(read_cache(str(spec.settings["fast_run_algo_policy"]))))
        return RunResult(spec=spec, status="ok", phase="done", outputs=(output_named("prob"),))

    def run(self, spec: RunSpec, context: RunContext) -> RunResult:
        self.runs.append((spec, context))
        return RunResult(spec=spec, status="ok", phase="done")

    def prefer_winograd(self, folder: Path, **settings: Any) -> RunResult:
        spec, context = spec_with(**settings), context_in(folder)
        return run_with_winograd(spec, context, Listener(), self.step, self.run)


def output_named(name: str) -> OutputSummary:
    numbers: dict[str, Any] = {"minimum": 1, "maximum": 1, "mean": 1, "nonfinite_count": 0}
    return OutputSummary(name=name, dtype="float32", shape=(3,), sha256="", **numbers)


def log_of(cache: AlgorithmCache) -> bytes:
    """What the engine prints when it takes the first algorithm of each operator."""
    lines = []
    for operator in operators_of(cache):
        layouts = [
            "{" + ",".join(f"{size}(1)" for size in operand.shape) + f" {operand.dtype}" + "} "
            for operand in operator.operands
        ]
        shapes = f"{', '.join(layouts[:-1])}) -> ({layouts[-1]}"
        size = f"{operator.chosen.workspace_bytes / 2**20:.2f}MiB"
        lines.append(
            f"[20 11:58:22 setup_algo@algo_chooser.cpp:87][DEBUG] {operator.name}: tensor layouts"
            f"({shapes})): algo={operator.chosen.name} workspace={size} attribute=1\n"
        )
    return "".join(lines).encode()


def spec_with(**settings: Any) -> RunSpec:
    known: dict[str, Any] = {"winograd_transform": True, "fast_run_algo_policy": str(CACHE)}
    known |= settings
    return RunSpec(model=DIGITS, engine="megengine", driver="lite", settings=known)


def context_in(folder: Path) -> RunContext:
    return RunContext(
        work_folder=str(folder),
        written={"model_dump": str(folder / "beside.mge"), "io_dump": str(folder / "beside.txt")},
    )


@pytest.mark.parametrize("name", ["winograd", "direct"])
def test_a_step_that_crashes_is_the_runs_status_and_named(tmp_path: Path, name: str) -> None:
    steps = Steps(fails=name)
    result = steps.prefer_winograd(tmp_path)
    assert result.status == "crashed"
    subject = f"the trial of {name} algorithms"
    assert result.failure == Failure("the engine crashed", "some hint", subject=subject)
    assert Path(steps.runs[-1][1].work_folder).name == name  # nothing ran after it


def test_numbers_that_are_far_off_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    near = Steps(far=0.001).prefer_winograd(tmp_path / "near")
    assert near.warnings == ()
    assert near.numeric_errors[0].absolute == pytest.approx(0.001, rel=1e-3)
    far = Steps(far=1.0).prefer_winograd(tmp_path)
    assert "the numbers of winograd algorithms are far from" in far.warnings[0]
    assert (far.numeric_errors[0].absolute, far.numeric_errors[0].relative) == (1.0, 0.5)


def test_steps_run_alone_and_write_where_nobody_looks(tmp_path: Path) -> None:
    steps = Steps()
    settings = {"thread": 2, "multi_thread_core_ids": "0,1", "model_dump": "out.mge"}
    settings |= {"io_dump": "out.txt", "dump_filter": "x"}
    steps.prefer_winograd(tmp_path, **settings)
    *trials, (timed, kept) = steps.runs
    assert len(trials) == 2
    for trial, context in trials:
        assert trial.runners == 1
        assert not {"io_dump", "dump_filter"} & trial.settings.keys()
        assert list(context.written) == ["model_dump"]
        assert trial.settings["multi_thread_core_ids"] == "0"
        assert Path(context.written["model_dump"]).parent == Path(context.work_folder)
        assert Path(context.written["model_dump"]).suffix == ".mge"
    assert kept.written == context_in(tmp_path).written
    assert timed.settings["multi_thread_core_ids"] == "0,1"
    assert timed.runners == 2
    assert (timed.iterations, timed.warmup_iterations) == (10, 1)


# Caches


def test_a_preferred_algorithm_comes_first_and_none_is_lost() -> None:
    cache = read_cache(CACHE)
    preferred = prefer_winograd(cache)
    for old, new in zip(operators_of(cache), operators_of(preferred), strict=True):
        assert set(new.algorithms) == set(old.algorithms)
        if candidates(old):
            fastest = min(candidates(old), key=lambda each: each.seconds)
            assert new.chosen == fastest
        else:
            assert new.algorithms == old.algorithms
    assert prefer_winograd(preferred) == preferred


def test_a_winograd_algorithm_picked_by_hand_stays() -> None:
    cache = prefer_winograd(read_cache(CACHE))
    (first, *_) = convolutions(cache)
    slow = max(candidates(first), key=lambda each: each.seconds)
    assert slow != first.chosen
    picked = {**cache, first.place: with_first(first.algorithms, slow)}
    assert prefer_winograd(picked) == picked


def test_without_winograd_the_others_are_left() -> None:
    cache = read_cache(CACHE)
    assert without_winograd(prefer_winograd(cache)) == without_winograd(cache)
    for old, new in zip(operators_of(cache), operators_of(without_winograd(cache)), strict=True):
        assert not candidates(new)
        others = [each for each in old.algorithms if each not in candidates(old)]
        assert new.algorithms == tuple(others)


def test_an_operator_that_has_no_other_algorithm_keeps_winograd() -> None:
    cache = read_cache(CACHE)
    (first, *_) = convolutions(cache)
    only: AlgorithmCache = {first.place: tuple(candidates(first))}
    assert without_winograd(only) == only
    (choice,) = choices_of(choices_in(log_of(only).decode()), only)
    assert choice.winograd
    assert (choice.other_algorithm, choice.other_seconds) == ("", None)


def test_only_the_convolutions_that_ran_are_told() -> None:
    cache = read_cache(CACHE)
    ran = choices_in(log_of(cache).decode())
    assert len(choices_of(ran, cache)) == 3
    assert choices_of(ran[:1], cache) == choices_of(ran, cache)[:1]


def test_a_convolution_that_the_cache_does_not_know_is_told_without_a_time() -> None:
    cache = read_cache(CACHE)
    ran = choices_in(log_of(cache).decode())
    (first, *_) = choices_of(ran, {})
    assert first.shapes == "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32"
    assert first.seconds is None
