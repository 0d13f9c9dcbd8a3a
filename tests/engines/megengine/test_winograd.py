"""--winograd-transform: winograd algorithms are preferred, run, timed and compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lar.engines.listener import Listener
from lar.engines.megengine.algorithms import choices_in, choices_of, run_with_winograd
from lar.engines.megengine.cache import (
    AlgorithmCache,
    bytes_of,
    operators_of,
    prefer_winograd,
    read_cache,
    winograd_of,
    with_first,
    without_winograd,
)
from lar.records.bench import read_bench
from lar.records.run import Failure, OutputSummary, RunContext, RunResult, RunSpec, read_result
from tests.conftest import RunLar
from tests.engines.megengine.caches import candidates, convolutions
from tests.engines.megengine.programs import CACHE, DIGITS, MODELS, REPOSITORY
from tests.running.isolated_runs import SOON
from tests.tables import each_row

POLICY = "--fast-run-algo-policy"
LAYOUT = "--enable-nchw44"


class Done(NamedTuple):
    """A command line that was run, and its result."""

    process: subprocess.CompletedProcess[str]
    result: RunResult


def run_with(run_lar: RunLar, folder: Path, *arguments: str, model: str = DIGITS) -> Done:
    file = folder / "result.json"
    done = run_lar("run", model, "--iter", "2", "--json", str(file), *arguments, code=0)
    return Done(done, read_result(file.read_bytes()))


@pytest.fixture(scope="module")
def searched(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A run that searched, and its cache file."""
    folder = tmp_path_factory.mktemp("winograd")
    cache = folder / "found.cache"
    flags = [LAYOUT, "--fast-run", "--winograd-transform", POLICY, str(cache)]
    return run_with(run_lar, folder, *flags), cache


def copy_of(cache: Path, folder: Path) -> Path:
    path = folder / "copy.cache"
    path.write_bytes(cache.read_bytes())
    return path


# The runs


def test_each_convolution_with_a_winograd_algorithm_runs_it(searched: tuple[Done, Path]) -> None:
    done, file = searched
    able = {each.shapes for each in convolutions(read_cache(file)) if candidates(each)}
    assert able
    assert {each.shapes for each in done.result.algorithms if each.winograd} == able
    assert len(done.result.algorithms) == len(convolutions(read_cache(file))) == 3
    for choice in done.result.algorithms:
        assert choice.winograd == winograd_of(choice.algorithm)
        assert choice.winograd in ("", "F(2,3)", "F(4,3)", "F(6,3)")
        assert choice.seconds is not None
        assert bool(choice.other_algorithm) == bool(choice.winograd)
        assert not winograd_of(choice.other_algorithm)


def test_the_numbers_are_compared_and_near(searched: tuple[Done, Path]) -> None:
    (error,) = searched[0].result.numeric_errors
    assert error.output == searched[0].result.outputs[0].name
    assert error.absolute is not None
    assert error.relative is not None
    assert 0 < error.relative <= error.absolute < 1e-4


def test_the_report_follows_the_lines_of_one_run(searched: tuple[Done, Path]) -> None:
    done = searched[0]
    count = sum(bool(choice.winograd) for choice in done.result.algorithms)
    lines = done.process.stdout.splitlines()
    for beginning in ("lar ", "load model:", "=== prepare", "warmup 0:", "iter 0/2:", "iter 1/2:"):
        assert sum(line.startswith(beginning) for line in lines) == 1
    first = lines.index(next(line for line in lines if line.startswith("winograd: ")))
    assert lines[first] == f"winograd: {count} of 3 kinds of convolution"
    assert lines[first + 1].startswith("error of winograd in ")
    assert [line[:4] for line in lines[first + 2 :]] == ["  F("] * count
    assert done.process.stderr.count("[warn] enable winograd transform") == 1


def test_the_record_tells_the_run_that_was_asked_for(searched: tuple[Done, Path]) -> None:
    done, file = searched
    assert done.result.spec.settings[POLICY.strip("-").replace("-", "_")] == str(file)
    assert (len(done.result.warmup.end_to_end), len(done.result.samples.end_to_end)) == (1, 2)
    assert done.result.warnings == ()


def test_the_timed_run_takes_winograd_where_the_cache_chose_another(
    run_lar: RunLar, searched: tuple[Done, Path], tmp_path: Path
) -> None:
    cache = copy_of(searched[1], tmp_path)
    cache.write_bytes(bytes_of(without_first_winograd(read_cache(cache))))
    before = cache.read_bytes()
    assert not any(winograd_of(each.chosen.name) for each in operators_of(read_cache(cache)))
    flags = [LAYOUT, "--winograd-transform", POLICY, str(cache), "--verbose"]
    done = run_with(run_lar, tmp_path, *flags)
    ran = {each.algorithm for each in choices_in(done.process.stderr) if "Conv" in each.operator}
    assert ran == {each.algorithm for each in done.result.algorithms}
    assert any(map(winograd_of, ran))
    assert cache.read_bytes() == before  # it is the user's


def without_first_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """The cache with another algorithm chosen, and the winograd ones behind it."""

    return {
        place: entry
        if isinstance(entry, bytes)
        else tuple(sorted(entry, key=lambda each: bool(each.winograd)))
        for place, entry in cache.items()
    }


def test_a_model_without_such_a_convolution_says_so(run_lar: RunLar, tmp_path: Path) -> None:
    model = str(MODELS / "int8.mge")
    done = run_with(run_lar, tmp_path, "--fast-run", "--winograd-transform", model=model)
    assert "winograd: 0 of 3 kinds of convolution\n" in done.process.stdout
    assert done.result.numeric_errors == ()
    assert os.listdir(tmp_path) == ["result.json"]  # a search needs no cache file


def test_a_run_without_iterations_makes_the_cache(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    flags = ["--iter", "0", "--fast-run", "--winograd-transform", POLICY, str(cache)]
    run_lar("run", DIGITS, *flags, code=0)
    assert len(convolutions(read_cache(cache))) == 3


def test_in_this_process_the_run_itself_is(run_lar: RunLar, tmp_path: Path) -> None:
    flags = ["--in-process", "--winograd-transform", POLICY, str(CACHE)]
    assert any(each.winograd for each in run_with(run_lar, tmp_path, *flags).result.algorithms)


# Runs that take turns


def test_a_run_that_takes_turns_prefers_winograd_too(
    run_lar: RunLar, searched: tuple[Done, Path], tmp_path: Path
) -> None:
    cache, out = copy_of(searched[1], tmp_path), tmp_path / "bench.json"
    cache.write_bytes(bytes_of(without_first_winograd(read_cache(cache))))
    before = cache.read_bytes()
    # One that transforms weights alone has the same bits; only winograd differs.
    variants = [f"{DIGITS} --weight-preprocess", f"{DIGITS} --winograd-transform"]
    flags = [LAYOUT, POLICY, str(cache), "--budget", "2", "--json", str(out)]
    run_lar("bench", f"{DIGITS} ", *variants, *flags, code=0)
    _, transformed, preferred = read_bench(out.read_bytes()).variants
    assert transformed.output_difference
    assert preferred.output_difference
    assert transformed.output_difference.max_error == 0
    assert preferred.output_difference.agreement == "within the tolerance"
    assert cache.read_bytes() == before


@pytest.mark.parametrize("search", ["--fast-run", "--full-run"])
def test_a_search_cannot_take_turns(run_lar: RunLar, tmp_path: Path, search: str) -> None:
    done = run_lar("bench", DIGITS, "--winograd-transform", search, cwd=tmp_path, code=2)
    assert done.stderr.splitlines()[-2:] == [
        f"lar: error: --winograd-transform: with {search} takes several processes, which cannot "
        "take turns",
        f"hint: make the run once with `lar run`, then give its cache without {search}",
    ]


# A search that does not come to its end


def test_one_deadline_counts_for_all_steps(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    flags = ["--timeout", "1.5", "--fast-run", "--winograd-transform", POLICY, str(cache)]
    began = time.monotonic()
    done = run_lar("run", str(MODELS / "mobilenet_v2.mge"), *flags, code=124)
    assert time.monotonic() - began < 1.5 + SOON
    assert "lar: error: the search: timed out after 1.5 s in phase" in done.stderr


def test_an_interrupted_search_keeps_what_it_found(tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    flags = ["--fast-run", "--winograd-transform", POLICY, str(cache)]
    with subprocess.Popen(
        [sys.executable, "-m", "lar", str(MODELS / "mobilenet_v2.mge"), *flags],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        end = time.monotonic() + 60
        while not any(file.stat().st_size > 4 for file in tmp_path.glob("lar-*/engine.cache")):
            assert time.monotonic() < end
            time.sleep(0.02)
        for _ in range(3):  # as somebody does who cannot wait
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith(b"lar: error: interrupted\n")  # after how far it is, if it is slow
    assert operators_of(read_cache(cache))
    assert os.listdir(tmp_path) == ["new.cache"]


# What becomes of a step


class Steps:
    """Stands in for the worker processes; `fails` is the folder whose step ends so."""

    def __init__(self, fails: str = "", far: float = 0.0, code: int = 4) -> None:
        self.fails, self.far, self.code = fails, far, code
        self.runs: list[tuple[RunSpec, RunContext]] = []

    def step(self, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        self.runs.append((spec, context))
        folder = Path(context.work_folder)
        if folder.name == self.fails:
            failure = Failure("the engine crashed", "some hint", exit_code=self.code)
            return RunResult(spec=spec, status="crashed", phase="warmup", failure=failure)
        (folder / "outputs").mkdir()
        values = np.ones(3, np.float32) + (self.far if folder.name == "winograd" else 0)
        np.save(folder / "outputs" / "000.npy", values)
        listener.on_log(log_of(read_cache(str(spec.settings["fast_run_algo_policy"]))))
        return RunResult(spec=spec, status="ok", phase="done", outputs=(output_named("prob"),))

    def run(self, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        self.runs.append((spec, context))
        return RunResult(spec=spec, status="ok", phase="done")

    def prefer_winograd(self, folder: Path, **settings: Any) -> RunResult:
        spec, context = spec_with(**settings), context_in(folder)
        return run_with_winograd(self.step, self.run, spec, context, Listener())


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


@each_row("engines/megengine/strategies/failures of steps")
def test_a_step_that_fails_is_the_runs_status(
    tmp_path: Path, name: str, code: int, subject: str
) -> None:
    steps = Steps(fails=name, code=code)
    result = steps.prefer_winograd(tmp_path)
    assert result.status == "crashed"
    assert result.failure == Failure("the engine crashed", "some hint", code, subject=subject)
    assert Path(steps.runs[-1][1].work_folder).name == name  # nothing ran after it


def test_numbers_that_are_far_off_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    near = Steps(far=0.001).prefer_winograd(tmp_path / "near")
    assert near.warnings == ()
    assert near.numeric_errors[0].absolute == pytest.approx(0.001, rel=1e-3)
    far = Steps(far=1.0).prefer_winograd(tmp_path)
    assert "the numbers of winograd algorithms are far from" in far.warnings[0]
    assert (far.numeric_errors[0].absolute, far.numeric_errors[0].relative) == (1.0, 0.5)
    (tmp_path / "none").mkdir()
    none = Steps(far=float("nan")).prefer_winograd(tmp_path / "none")
    assert none.warnings == far.warnings
    assert (none.numeric_errors[0].absolute, none.numeric_errors[0].relative) == (None, None)


def test_steps_run_alone_and_write_where_nobody_looks(tmp_path: Path) -> None:
    steps = Steps()
    settings = {"thread": 2, "multi_thread_core_ids": "0,1", "model_dump": "out.mge"}
    settings |= {"io_dump": "out.txt", "dump_filter": "x", "fast_run": True}
    steps.prefer_winograd(tmp_path, **settings)
    *trials, (timed, kept) = steps.runs
    assert [trial.iterations for trial, _ in trials] == [0, 1, 1]  # the search comes first
    for trial, context in trials:
        assert (trial.runners, trial.warmup_iterations) == (1, 1)
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
            assert new.chosen == min(candidates(old), key=lambda each: each.seconds)
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
    (first, *_) = convolutions(read_cache(CACHE))
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
    ran = choices_in(log_of(read_cache(CACHE)).decode())
    (first, *_) = choices_of(ran, {})
    assert first.shapes == "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32"
    assert first.seconds is None
