"""Fast-run: what a search leaves in its cache file, and what a later run makes of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.caches import Operator
from lar.engines.megengine.algorithms import LoggedChoice, choices_in, strategy_of
from lar.engines.megengine.cache import bytes_of, read_cache, winograd_of
from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.engines.megengine.caches import choose_algorithm, names_in, names_of, operators_in
from tests.engines.megengine.programs import DIGITS, INT8
from tests.tables import each_row

POLICY = "--fast-run-algo-policy"

# In the attribute of an algorithm, as the engine's log has it.
DEPENDS_ON_BATCH = 8


def attributes_in(log: str) -> list[int]:
    """Return the attributes of the algorithms that the engine says it has chosen."""
    return [*map(int, re.findall(r"algo=.* attribute=(\d+)", log))]


@dataclass(frozen=True)
class Search:
    """A search that was made: its cache file and what the engine printed."""

    cache: Path
    done: subprocess.CompletedProcess[str]

    @property
    def operators(self) -> list[Operator]:
        return operators_in(self.cache)

    def attributes(self) -> list[tuple[str, ...]]:
        return [each.attributes for operator in self.operators for each in operator.algorithms]

    def copy_to(self, folder: Path) -> Path:
        """Copy the cache for a test that changes it."""
        path = folder / "copy.cache"
        path.write_bytes(self.cache.read_bytes())
        return path


@pytest.fixture(scope="module")
def search(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Search]:
    """Search digits_cnn with these options, once for all tests that ask for the same."""
    made: dict[tuple[str, ...], Search] = {}

    def search(*arguments: str) -> Search:
        if arguments not in made:
            cache = tmp_path_factory.mktemp("search") / "found.cache"
            options = ["--verbose", "--iter", "2", POLICY, str(cache)]
            done = run_lar("run", DIGITS, *arguments, *options, code=0)
            made[arguments] = Search(cache, done)
        return made[arguments]

    return search


# The strategy


@each_row("engines/megengine/strategies/strategies")
def test_the_strategy_for_the_options(settings: Mapping[str, Any], strategy: int) -> None:
    """1 is heuristic, 2 measured, 4 reproducible, 8 without naive algorithms."""
    assert strategy_of(settings) == strategy
    assert strategy in (1, 2, 3, 5, 6, 7, 10)  # those that the engine takes


# What a search leaves


def test_a_search_leaves_each_operator_and_runs_what_it_chose(
    search: Callable[..., Search],
) -> None:
    found = search("--fast-run")
    kinds = [operator.name for operator in found.operators]
    assert kinds.count("ConvolutionForward") == 3
    assert {"MatrixMul", "PoolingForward"} <= set(kinds)
    shapes = [each.shapes for each in found.operators if each.name == "ConvolutionForward"]
    assert any(text.startswith("{1,16,8,8} {32,16,3,3} -> {1,32,8,8}") for text in shapes)
    convolutions = {pair for pair in names_of(found.operators) if pair[0] == "ConvolutionForward"}
    assert convolutions <= names_in(found.done.stderr)
    assert not any("naive" in each for each in found.attributes())


def test_a_full_search_keeps_naive_algorithms_too(search: Callable[..., Search]) -> None:
    fast, full = search("--fast-run"), search("--full-run")
    assert any("naive" in each for each in full.attributes())
    assert len(full.attributes()) > len(fast.attributes())
    assert {each.shapes for each in fast.operators} == {each.shapes for each in full.operators}


def test_a_reproducible_search_keeps_reproducible_algorithms(search: Callable[..., Search]) -> None:
    attributes = search("--fast-run", "--reproducible").attributes()
    assert attributes
    assert all("reproducible" in each for each in attributes)


def test_a_search_for_equal_batches_keeps_no_algorithm_that_depends_on_the_batch(
    search: Callable[..., Search],
) -> None:
    depends = "depends on batch"
    assert any(depends in each for each in search("--fast-run").attributes())
    equal = search("--fast-run", "--binary-equal-between-batch")
    assert equal.operators
    assert not any(depends in each for each in equal.attributes())
    assert not any(each & DEPENDS_ON_BATCH for each in attributes_in(equal.done.stderr))


def test_a_search_with_a_shared_batch_is_for_any_batch(
    run_lar: RunLar, search: Callable[..., Search], tmp_path: Path
) -> None:
    shared = search("--fast-run", "--fast-run-shared-batch-size", "4")
    convolutions = [each for each in shared.operators if each.name == "ConvolutionForward"]
    assert len(convolutions) == 3
    for operator in convolutions:
        assert operator.operands[0].shape[0] == 0  # any
    # The same operators with another batch are known.
    cache = shared.copy_to(tmp_path)
    arguments = ["--fast-run", "--fast-run-shared-batch-size", "4", POLICY, str(cache)]
    run_lar("run", DIGITS, *arguments, "--input", "{3,1,8,8}", "--iter", "1", code=0)
    after = [each for each in operators_in(cache) if each.name == "ConvolutionForward"]
    assert [each.algorithms for each in after] == [each.algorithms for each in convolutions]


# A cache that is read


def test_a_run_with_the_file_alone_takes_its_choices(
    run_lar: RunLar, search: Callable[..., Search], tmp_path: Path
) -> None:
    cache = search("--fast-run").copy_to(tmp_path)
    before = cache.read_bytes()
    done = run_lar("run", DIGITS, POLICY, str(cache), "--iter", "2", "--verbose", code=0)
    operators = [each for each in operators_in(cache) if each.name == "ConvolutionForward"]
    assert names_of(operators) <= names_in(done.stderr)
    assert cache.read_bytes() == before


@each_row("engines/megengine/strategies/flags")
def test_a_cache_is_read_with_the_flags_of_its_search(
    run_lar: RunLar, search: Callable[..., Search], flags: str
) -> None:
    words = flags.split()
    found = search("--fast-run", *words)
    done = run_lar(
        "run", DIGITS, POLICY, str(found.cache), *words, "--iter", "1", "--verbose", code=0
    )
    assert names_in(done.stderr) == names_of(found.operators)


def test_equal_batches_leave_out_what_a_cache_has_for_others(
    run_lar: RunLar, search: Callable[..., Search]
) -> None:
    flags = ["--binary-equal-between-batch", "--iter", "1", "--verbose"]
    for cache in ([], [POLICY, str(search("--fast-run").cache)]):
        done = run_lar("run", DIGITS, *cache, *flags, code=0)
        assert attributes_in(done.stderr)
        assert not any(each & DEPENDS_ON_BATCH for each in attributes_in(done.stderr))


@pytest.mark.parametrize("searching", [False, True])
def test_an_algorithm_picked_by_hand_is_run(
    run_lar: RunLar, search: Callable[..., Search], tmp_path: Path, searching: bool
) -> None:
    cache = search("--fast-run").copy_to(tmp_path)
    operator = max(operators_in(cache), key=lambda each: len(each.algorithms))
    # The slowest for one operator may have been the fastest for another of the same name.
    slowest_first = [each.name for each in reversed(operator.algorithms)]
    found = names_of(operators_in(cache))
    picked = next(each for each in slowest_first if (operator.name, each) not in found)
    run_lar("cache", "pick", str(cache), str(operator.number), picked, code=0)
    arguments = ["run", DIGITS, POLICY, str(cache), "--iter", "1", "--verbose"]
    done = run_lar(*arguments, *(["--fast-run"] if searching else []))
    assert (operator.name, picked) in names_in(done.stderr)
    # What is known is not searched again.
    assert (operator.name, picked) in names_of(operators_in(cache))


def test_a_search_adds_to_the_file_and_keeps_what_it_held(
    run_lar: RunLar, search: Callable[..., Search], tmp_path: Path
) -> None:
    cache = search("--fast-run").copy_to(tmp_path)
    before = operators_in(cache)
    # A choice by hand, which a search would not make, must stand.
    operator = max(before, key=lambda each: len(each.algorithms))
    last = operator.algorithms[-1].name
    assert run_lar("cache", "pick", str(cache), str(operator.number), last).returncode == 0
    kept = {each.algorithms for each in operators_in(cache)}
    run_lar("run", INT8, "--fast-run", POLICY, str(cache), "--iter", "1", code=0)
    after = operators_in(cache)
    assert kept <= {each.algorithms for each in after}
    assert any("QuantizedS8" in each.shapes for each in after)
    assert len(after) > len(before)
    assert os.listdir(tmp_path) == ["copy.cache"]  # and nothing is left beside it


# Winograd


def workspaces(found: Search) -> dict[tuple[str, str], int]:
    """Return what each winograd algorithm of a search needs, by its operator and name."""
    return {
        (operator.shapes, algorithm.name): algorithm.workspace_bytes
        for operator in found.operators
        for algorithm in operator.algorithms
        if winograd_of(algorithm.name)
    }


@pytest.mark.parametrize("flag", ["--weight-preprocess", "--winograd-transform"])
def test_weights_transformed_ahead_need_no_workspace_for_it(
    search: Callable[..., Search], flag: str
) -> None:
    plain = workspaces(search("--full-run", "--enable-nchw44"))
    ahead = workspaces(search("--full-run", "--enable-nchw44", flag))
    both = plain.keys() & ahead.keys()
    assert both
    assert all(ahead[key] < plain[key] for key in both)


def test_the_manuals_three_command_lines(run_lar: RunLar, tmp_path: Path) -> None:
    def run(text: str) -> subprocess.CompletedProcess[str]:
        done = run_lar(DIGITS, *text.split(), "--verbose", "--iter", "2", cwd=tmp_path, code=0)
        assert len(re.findall(r"^iter \d/2:", done.stdout, re.MULTILINE)) == 2
        return done

    run("--enable-nchw44 --fast-run --fast-run-algo-policy ./algo.cache")
    cache = tmp_path / "algo.cache"
    shapes = "{1,4,8,8,4} {8,4,3,3,4,4}"
    (operator,) = (each for each in operators_in(cache) if each.shapes.startswith(shapes))
    winograd = [each for each in operator.algorithms if winograd_of(each.name)]
    assert winograd
    # So that the two runs have one to show, whatever was the fastest.
    picked = choose_algorithm(read_cache(cache), str(operator.number), winograd[-1].name)
    cache.write_bytes(bytes_of(picked))
    shown = []
    for flags in ("", " --winograd-transform"):
        done = run(f"--enable-nchw44 --fast-run-algo-policy ./algo.cache{flags}")
        assert ("enable winograd transform" in done.stderr) == bool(flags)
        chosen = [each for each in choices_in(done.stderr) if each.shapes[0] == (1, 4, 8, 8, 4)]
        assert {each.algorithm for each in chosen} == {winograd[-1].name}, done.stderr
        shown.append(chosen[0].workspace_mib)
    assert cache.read_bytes() == bytes_of(picked)
    assert shown[1] <= shown[0]


def test_one_runner_searches_for_all(run_lar: Any, tmp_path: Path) -> None:
    cache = tmp_path / "digits.cache"
    flags = ["--thread", "2", "--fast-run", "--fast-run-algo-policy", str(cache), "--iter", "1"]
    run_lar(DIGITS, *flags, code=0)
    assert read_cache(cache)
    check_error(run_lar(DIGITS, *flags, "--warmup-iter", "0"), 2, "give --warmup-iter 1")


# --workspace-limit


def test_a_workspace_limit_changes_the_choice(run_lar: RunLar) -> None:
    plain, limited = (
        run_lar("run", DIGITS, "--iter", "1", "--verbose", *arguments).stderr
        for arguments in ([], ["--workspace-limit", "0"])
    )
    assert names_in(limited) != names_in(plain)
    assert max(each.workspace_mib for each in choices_in(plain)) > 0


@pytest.mark.parametrize("arguments", [[], ["--fast-run"]], ids=["heuristic", "search"])
def test_no_algorithm_needs_more_workspace_than_the_limit(
    run_lar: RunLar, arguments: list[str]
) -> None:
    limit = ["--workspace-limit", "0", "--iter", "1", "--verbose"]
    done = run_lar("run", DIGITS, *limit, *arguments, code=0)
    chosen = [each for each in choices_in(done.stderr) if each.operator == "ConvolutionForward"]
    assert len(chosen) == 3
    assert [each for each in chosen if each.workspace_mib > 0] == []


@pytest.mark.parametrize("layout", ["--enable-nchw44", "--enable-nhwcd4"])
def test_a_workspace_limit_with_a_layout_holds_or_is_refused_by_its_name(
    run_lar: RunLar, layout: str
) -> None:
    done = run_lar("run", DIGITS, "--workspace-limit", "1M", layout, "--iter", "1")
    assert done.returncode in (0, 2)
    assert done.returncode == 0 or "--workspace-limit" in done.stderr


# As MegEngine 1.13 prints it.
HEAD = "[20 11:58:22 setup_algo@algo_chooser.cpp:87][DEBUG] "
LOG = Path(__file__).with_name("algorithms_log.txt").read_text()


def test_each_line_of_a_choice_is_read() -> None:
    first, second = choices_in(LOG)
    assert first == LoggedChoice(
        "ConvBiasForward",
        ((1, 4, 8, 8, 4), (8, 4, 3, 3, 4, 4), (1, 8, 1, 1, 4), (), (1, 8, 8, 8, 4)),
        "Float32",
        "WINOGRAD_NCHW44:FB_GI_F32_MK4_4x8:4:4:8:3",
        0.06,
    )
    assert first.text == "{1,4,8,8,4} {8,4,3,3,4,4} {1,8,1,1,4} -> {1,8,8,8,4} Float32"
    assert (second.operator, second.algorithm) == ("MatrixMul", "X86_F32_BLAS")
    # Twice is once, and the time and place may be missing.
    assert choices_in(LOG + LOG) == choices_in(LOG.replace(HEAD, "")) == [first, second]


SHAPES = st.lists(st.lists(st.integers(1, 9999), max_size=7).map(tuple), min_size=2, max_size=5)


def line_of(choice: LoggedChoice) -> str:
    shapes = (",".join(f"{size}(1)" for size in shape) for shape in choice.shapes)
    layouts = [f"{{{shape} {choice.dtype}}} " for shape in shapes]
    return (
        f"{HEAD}{choice.operator}: tensor layouts({', '.join(layouts[:-1])}) -> ({layouts[-1]})): "
        f"algo={choice.algorithm} workspace={choice.workspace_mib:.2f}MiB attribute=1\n"
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            LoggedChoice,
            st.sampled_from(["ConvBiasForward", "PoolingForward"]),
            SHAPES.filter(lambda shapes: any(shapes[:-1]) and bool(shapes[-1])).map(tuple),
            st.sampled_from(["Float32", "QuantizedS8"]),
            st.from_regex(r"[A-Z][A-Z0-9_:]{0,20}", fullmatch=True),
            st.integers(0, 10**6).map(lambda number: number / 100),
        ),
        unique=True,
    )
)
def test_any_choice_reads_back(choices: list[LoggedChoice]) -> None:
    assert choices_in("noise\n".join(map(line_of, choices))) == choices


@given(st.text())
def test_any_other_text_holds_none(text: str) -> None:
    assert choices_in(text) == []
