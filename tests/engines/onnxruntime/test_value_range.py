"""`--range`: what is found, how it is told, and that what is timed stays as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.errors import CheckFailed
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.onnxruntime.drivers import DIGITS, MakeDriver
from tests.tables import each_row

SHAPE = (1, 16, 4, 4)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A convolution that passes its input on, in the blocked layout where there is one, and the
    product of the result with 2 and 10."""
    identity = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)
    return save_model(tmp_path / "network.onnx", text_of("value_range"), {"w": identity})


def ones_but(number: float) -> np.ndarray[Any, Any]:
    """Return an input of ones with another number at one place."""
    array = np.ones(SHAPE, np.float32)
    array[0, 3, 2, 1] = number
    return array


@each_row("engines/onnxruntime/value_range/found")
def test_the_first_tensor_out_of_range_is_named(
    load_driver: MakeDriver,
    network: Path,
    number: float | str,
    limit: float,
    producer: str,
    found: str,
) -> None:
    """One limit is beyond float32; what is no number spreads to all channels of its pixel."""
    driver = load_driver(network, range=limit, graph_optimization_level="disable")
    with pytest.raises(CheckFailed) as caught, np.errstate(all="ignore"):
        driver.feed({"x": ones_but(float(number))})
    assert caught.value.message == f"--range {limit:.9g}: tensor {producer} holds {found}"
    load_driver(network, range=1e9, graph_optimization_level="disable").feed({"x": ones_but(7)})


@pytest.mark.parametrize("setting", ["basic", "extended", "all"])
def test_the_place_is_that_of_the_plain_layout_whatever_runs(
    load_driver: MakeDriver, network: Path, setting: str
) -> None:
    """The products are fused into the convolution; at the level all, it has a blocked layout."""
    driver = load_driver(network, range=139, graph_optimization_level=setting)
    with pytest.raises(CheckFailed, match=r"of Conv .+ holds 140 at \[0,3,2,1\]$"):
        driver.feed({"x": ones_but(7)})


def test_a_failed_check_is_a_failed_run_and_exit_code_1(run_lar: RunLar, network: Path) -> None:
    np.save(network.parent / "x.npy", ones_but(7))
    given = ["--input", str(network.parent / "x.npy"), "--iter", "1", "--json", "-"]
    ended = run_lar(str(network), *given, "--range", "139", code=1)
    assert re.search(r"^lar: error: --range 139: tensor .* holds 140 at", ended.stderr, re.M)
    result = json.loads(ended.stdout)
    assert (result["status"], result["samples"]["end_to_end"]) == ("failed", [])
    assert run_lar(str(network), *given, "--range", "140").returncode == 0


def test_what_is_timed_is_the_model_as_it_is(run_lar: RunLar, tmp_path: Path) -> None:
    outputs: list[Any] = []
    for flags in ([], ["--range", "1e6"]):
        result = tmp_path / "result.json"
        run_lar(str(DIGITS), "--iter", "1", "--json", str(result), *flags, code=0)
        outputs.append(json.loads(result.read_text())["outputs"])
    assert outputs[0] == outputs[1]


def test_halves_are_checked_in_their_own_range(load_driver: MakeDriver, tmp_path: Path) -> None:
    """The limit is beyond what float16 holds: only what is infinite is out of it."""
    path = save_model(tmp_path / "half.onnx", "(float16[2] x) => (float16[2] y) { y = Mul(x, x) }")
    load_driver(path, range=1e6).feed({"x": np.array([1, 200], np.float16)})
    with pytest.raises(CheckFailed, match=r"holds inf at \[1\]"):
        load_driver(path, range=1e6).feed({"x": np.array([1, 300], np.float16)})
