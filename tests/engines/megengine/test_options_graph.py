"""What the options that change MegEngine's graph do to its operators and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.cli.failures import check_error
from tests.engines.megengine.probed import difference, probe
from tests.engines.megengine.programs import INT8

if TYPE_CHECKING:
    from tests.conftest import RunLar


def test_inference_optimisation_leaves_fewer_operators() -> None:
    plain = probe("graph", "digits_cnn", {})
    optimized = probe("graph", "digits_cnn", {"optimize_for_inference": True})
    assert optimized.types["Elemwise"] < plain.types["Elemwise"]
    assert optimized.types["ConvolutionForward"] == plain.types["ConvolutionForward"] == 3
    assert difference(optimized, plain) < 1e-4


@pytest.mark.parametrize(
    "key",
    # A sum to fuse (z) needs quantised tensors, which the models have none of.
    ["enable_fuse_conv_bias_nonlinearity", "enable_fuse_conv_bias_with_z"],
)
def test_bias_and_activation_are_fused_into_the_convolution(key: str) -> None:
    fused, plain = probe("graph", "digits_cnn", {key: True}), probe("graph", "digits_cnn")
    assert fused.types["ConvBiasForward"] == plain.types["ConvolutionForward"] == 3
    assert fused.types["ConvolutionForward"] == plain.types["ConvBiasForward"] == 0
    found = {each["nonlinearity"] for each in fused.operators if each["nonlinearity"]}
    assert found == {"RELU"}
    assert difference(fused, plain) < 1e-4


@pytest.mark.parametrize("key", ["weight_preprocess", "winograd_transform"])
@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_weights_transformed_ahead_give_the_same_numbers(driver: str, key: str) -> None:
    """What else it does shows in a search, which only lite can make: test_algorithms.py."""
    probed = probe(driver, "digits_cnn", {key: True})
    assert difference(probed, probe(driver, "digits_cnn")) < 1e-4


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_a_preprocessed_input_gives_the_same_numbers(driver: str) -> None:
    """It fuses the cast, padding and transposition of a quantised image, which no model has; the
    graph driver optimises the graph for inference with it."""
    fused = probe(driver, "uint8_input", {"enable_fuse_preprocess": True})
    plain = probe(driver, "uint8_input")
    assert difference(fused, plain) < 1e-3
    if driver == "graph":
        assert fused.types["Elemwise"] < plain.types["Elemwise"]


def test_floats_are_halved() -> None:
    """Its numbers are wrong on a CPU, where the engine's max-pooling of float16 is."""
    probed = probe("graph", "digits_cnn", {"enable_ioc16": True})
    for kind in ("ConvolutionForward", "MatrixMul", "PoolingForward"):
        found = {each["dtype"] for each in probed.operators if each["type"] == kind}
        assert found == {"float16"}
    (output,) = probed.outputs[-1].values()
    assert np.shape(output) == (1, 10)
    assert probe("graph", "digits_cnn").operators[-1]["dtype"] == "float32"


def test_integers_that_cannot_be_halved_are_refused_by_the_options_name(run_lar: RunLar) -> None:
    check_error(run_lar("run", INT8, "--enable-ioc16"), 2, "--enable-ioc16")


def occupied(chunks: Sequence[tuple[int, int]]) -> int:
    """Return how many bytes the chunks take, those that share a place counted once."""
    total, end = 0, 0
    for place, size in sorted(chunks):
        total += max(0, place + size - max(place, end))
        end = max(end, place + size)
    return total


def test_without_memory_optimisation_operators_share_none() -> None:
    plain = probe("graph", "digits_cnn")
    spread = probe("graph", "digits_cnn", {"disable_mem_opt": True})
    assert occupied(spread.memory) == sum(size for _, size in spread.memory)
    assert occupied(plain.memory) < sum(size for _, size in plain.memory)
    assert occupied(spread.memory) > occupied(plain.memory)
    assert difference(spread, plain) < 1e-4
