"""Which cache files a fast-run takes without having made them, and which it refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lar.engines.megengine.algorithms import LoggedChoice, find_known, use_cache, work_copy
from lar.engines.megengine.cache import operators_of, read_cache
from lar.records.run import RunContext
from tests.conftest import RunLar
from tests.engines.megengine.caches import algorithm
from tests.engines.megengine.programs import CACHE, DIGITS, MODELS

POLICY = "--fast-run-algo-policy"


def test_an_empty_cache_is_one(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "empty.cache"
    cache.write_bytes(bytes(4))
    assert run_lar("run", DIGITS, POLICY, str(cache), "--iter", "1").returncode == 0
    assert cache.read_bytes() == bytes(4)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused_before_the_search(
    run_lar: RunLar, tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    done = run_lar("run", DIGITS, "--fast-run", POLICY, str(tmp_path / "new.cache"))
    tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "cannot be written: permission denied" in done.stderr


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="there is no such folder")
def test_the_cause_is_named_where_nobody_may_write(run_lar: RunLar) -> None:
    done = run_lar("run", DIGITS, "--fast-run", POLICY, "/sys/kernel/new.cache")
    assert (done.returncode, "iter 0/" in done.stdout) == (2, False)
    problem, hint = done.stderr.splitlines()[-2:]
    assert re.search(
        r"--fast-run-algo-policy: /sys/kernel/new\.cache: cannot be written: "
        "(permission denied|read-only file system|operation not permitted)$",
        problem,
    )
    assert hint == "hint: choose another file"


def test_a_search_without_a_file_begins_with_an_empty_cache(tmp_path: Path) -> None:
    given: list[tuple[str, bool]] = []
    library = SimpleNamespace(set_persistent_cache=lambda *asked: given.append(asked))
    context = RunContext(work_folder=str(tmp_path))
    lite = SimpleNamespace(LiteGlobal=library)
    driver: Any = SimpleNamespace(runner=0, context=context, lite=lite)
    use_cache(driver, None, searching=True)
    assert given == [(str(work_copy(context)), True)]
    assert read_cache(work_copy(context)) == {}


# What a run takes of a cache that is only read, and what it misses


Read = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def read(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Run with a cache of digits_cnn that this engine has made, and with these flags."""
    cache = tmp_path_factory.mktemp("use") / "digits.cache"
    run_lar("run", DIGITS, "--fast-run", POLICY, str(cache), "--iter", "0", code=0)

    def read(*flags: str) -> subprocess.CompletedProcess[str]:
        return run_lar("run", DIGITS, POLICY, str(cache), "--iter", "1", *flags, code=0)

    return read


# Runs


@pytest.mark.parametrize("flags", [[], ["--thread", "2"], ["--verbose"]])
def test_a_run_that_takes_all_is_not_warned(read: Read, flags: list[str]) -> None:
    assert "warning" not in read(*flags).stderr


def test_a_run_in_another_layout_is_warned(read: Read) -> None:
    said = read("--enable-nchw44").stderr
    assert f"lar: warning: {POLICY}: the cache has " in said
    assert " operators that ran: it is of another model, of a search with other" in said
    assert "operators that ran" not in read("--enable-nchw44", "--warmup-iter", "0").stderr


def test_a_run_of_another_model_is_warned(run_lar: RunLar, tmp_path: Path) -> None:
    cache = shutil.copy(CACHE, tmp_path)
    done = run_lar("run", str(MODELS / "mobilenet_v2.mge"), POLICY, cache, "--iter", "1")
    assert f"{POLICY}: the cache has none of the " in done.stderr
    assert Path(cache).read_bytes() == CACHE.read_bytes()


def test_winograd_that_is_not_in_the_cache_is_told_so(read: Read) -> None:
    done = read("--enable-nchw44", "--winograd-transform")
    assert "winograd: 0 of 3 kinds of convolution" in done.stdout
    assert f"{POLICY}: the cache has " in done.stderr


def test_a_choice_is_known_by_its_shapes_and_its_algorithm() -> None:
    key = b"0,8,4,4;Float32|16,8,3,3;Float32|0,16,4,4;Float32|"
    place = "profile:plat=cpu:ConvBiasForwardv5X0", key
    operators = operators_of({place: (algorithm("PLAIN"), algorithm("OTHER"))})
    shapes = ((2, 8, 4, 4), (16, 8, 3, 3), (2, 16, 4, 4))  # of any batch

    def known(name: str, shapes: tuple[tuple[int, ...], ...], type: str = "ConvBiasForward") -> Any:
        return find_known(LoggedChoice(type, shapes, "Float32", name, 0), operators)

    assert known("OTHER", shapes) == (operators[0], operators[0].algorithms[1])
    assert known("NAIVE", shapes) == (None, None)
    assert known("OTHER", ((2, 9, 4, 4), *shapes[1:])) == (None, None)
    assert known("OTHER", shapes[:2]) == (None, None)
    assert known("OTHER", shapes, "PoolingForward") == (None, None)
