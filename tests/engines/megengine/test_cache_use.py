"""A cache that is only read: what a run takes of it is counted, and what it misses told."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lar.engines.megengine.algorithms import LoggedChoice, find_known
from lar.engines.megengine.cache_operators import operators_of
from tests.engines.megengine.caches import algorithm
from tests.engines.megengine.programs import CACHE, DIGITS, MODELS, run_well

if TYPE_CHECKING:
    from tests.conftest import RunLar

POLICY = "--fast-run-algo-policy"

Read = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def read(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Run with a cache of digits_cnn that this engine has made, and with these flags."""
    cache = tmp_path_factory.mktemp("use") / "digits.cache"
    made = run_lar("run", DIGITS, "--fast-run", POLICY, str(cache), "--iter", "0")
    assert made.returncode == 0, made.stderr

    def read(*flags: str) -> subprocess.CompletedProcess[str]:
        return run_well(run_lar, "run", DIGITS, POLICY, str(cache), "--iter", "1", *flags)

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
    model = str(MODELS / "mobilenet_v2.mge")
    done = run_lar("run", model, POLICY, cache, "--iter", "1")
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
