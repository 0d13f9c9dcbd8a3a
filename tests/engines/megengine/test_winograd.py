"""--winograd-transform: winograd algorithms are preferred, run, timed and compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lar.engines.megengine.algorithms import choices_in
from lar.engines.megengine.cache import AlgorithmCache, bytes_of, read_cache, winograd_of
from lar.engines.megengine.cache_operators import operators_of
from lar.records.bench import read_bench
from lar.records.run import RunResult, read_result
from tests.cli.failures import check_error
from tests.engines.megengine.caches import candidates, convolutions
from tests.engines.megengine.programs import CACHE, DIGITS, MODELS, REPOSITORY, run_well
from tests.running.isolated_runs import SOON

if TYPE_CHECKING:
    from tests.conftest import RunLar

POLICY = "--fast-run-algo-policy"
LAYOUT = "--enable-nchw44"


@dataclass(frozen=True)
class Done:
    """A command line that was run, and its result."""

    process: subprocess.CompletedProcess[str]
    result: RunResult

    @property
    def out(self) -> str:
        return self.process.stdout

    @property
    def err(self) -> str:
        return self.process.stderr


def run_with(run_lar: RunLar, folder: Path, *arguments: str, model: str = DIGITS) -> Done:
    file = folder / "result.json"
    done = run_well(run_lar, "run", model, "--iter", "2", "--json", str(file), *arguments)
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
    lines = done.out.splitlines()
    for beginning in ("lar ", "load model:", "=== prepare", "warmup 0:", "iter 0/2:", "iter 1/2:"):
        assert sum(line.startswith(beginning) for line in lines) == 1
    first = lines.index(next(line for line in lines if line.startswith("winograd: ")))
    assert lines[first] == f"winograd: {count} of 3 kinds of convolution"
    assert lines[first + 1].startswith("error of winograd in ")
    assert [line[:4] for line in lines[first + 2 :]] == ["  F("] * count
    assert done.err.count("[warn] enable winograd transform") == 1


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
    ran = {each.algorithm for each in choices_in(done.err) if "Conv" in each.operator}
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
    assert "winograd: 0 of 3 kinds of convolution\n" in done.out
    assert done.result.numeric_errors == ()
    assert os.listdir(tmp_path) == ["result.json"]  # a search needs no cache file


def test_a_run_without_iterations_makes_the_cache(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    flags = ["--iter", "0", "--fast-run", "--winograd-transform", POLICY, str(cache)]
    run_well(run_lar, "run", DIGITS, *flags)
    assert len(convolutions(read_cache(cache))) == 3


def test_in_this_process_the_run_itself_is(run_lar: RunLar, tmp_path: Path) -> None:
    flags = ["--in-process", "--winograd-transform", POLICY, str(CACHE)]
    assert any(each.winograd for each in run_with(run_lar, tmp_path, *flags).result.algorithms)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([POLICY, "none.cache"], "none.cache: no such file"),
        ([POLICY, DIGITS], "this is the model"),
        (["--fast-run", "--driver", "graph"], "--driver graph cannot do --fast-run"),
        (["--fast-run", "--input", "none.npy"], "lar: error: --input: none.npy: no such file"),
    ],
)
def test_what_cannot_be_is_refused(
    run_lar: RunLar, tmp_path: Path, arguments: list[str], words: str
) -> None:
    check_error(run_lar("run", DIGITS, "--winograd-transform", *arguments, cwd=tmp_path), 2, words)
    assert os.listdir(tmp_path) == []


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
    run_well(run_lar, "bench", f"{DIGITS} ", *variants, *flags)
    _, transformed, preferred = read_bench(out.read_bytes()).variants
    assert transformed.output_difference
    assert preferred.output_difference
    assert transformed.output_difference.max_error == 0
    assert preferred.output_difference.agreement == "within the tolerance"
    assert cache.read_bytes() == before


@pytest.mark.parametrize("search", ["--fast-run", "--full-run"])
def test_a_search_cannot_take_turns(run_lar: RunLar, tmp_path: Path, search: str) -> None:
    done = run_lar("bench", DIGITS, "--winograd-transform", search, cwd=tmp_path)
    assert done.returncode == 2
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
    done = run_lar("run", str(MODELS / "mobilenet_v2.mge"), *flags)
    assert done.returncode == 124
    assert time.monotonic() - began < 1.5 + SOON
    assert "lar: error: the search: timed out after 1.5 s in phase" in done.stderr


def test_an_interrupted_search_keeps_what_it_found(tmp_path: Path) -> None:
    cache = tmp_path / "new.cache"
    flags = ["--fast-run", "--winograd-transform", POLICY, str(cache)]
    model = str(MODELS / "mobilenet_v2.mge")
    with subprocess.Popen(
        [sys.executable, "-m", "lar", model, *flags],
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
