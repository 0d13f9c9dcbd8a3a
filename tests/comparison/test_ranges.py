"""Ranges of quantised tensors: scales that are far too coarse, and elements that a type clips."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.items import CollectedItems
from lar.dumps.dump import Dump
from lar.records.comparison import Comparison
from lar.records.quantization import Quantization
from tests.comparison.known_engines import compare_dumps

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.comparison.handmade import Step, dump_of

Array = npt.NDArray[Any]

DATA = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
WEIGHTS = [
    np.random.default_rng(1 + layer).standard_normal((48, 48)).astype(np.float32) / np.float32(5)
    for layer in range(4)
]
FLOAT = "float"


def floats(data: Array = DATA) -> dict[str, Array]:
    """Return what the layers give in float32."""
    found = {"data": data, "quantised": data}
    for layer, weight in enumerate(WEIGHTS):
        data = np.maximum(data @ weight, 0)
        found[f"dense{layer}"] = data
    found["prob"] = 1 / (1 + np.exp(np.float32(6) - data))
    return found


CALIBRATED = {name: float(np.abs(array).max()) / 127 for name, array in floats().items()}
CALIBRATED["prob"] = 1 / 127


def network(factors: Mapping[str, float] | str, data: Array = DATA) -> Dump:
    """Return a dump of the layers in float32, or in int8 with scales that are so many times those
    which were calibrated."""
    types = {"data": "Input", "quantised": "TypeCvt", "prob": "Sigmoid"}
    wanted = floats(data)
    x = data
    steps: list[Step] = []
    for name, array in wanted.items():
        if name.startswith("dense"):
            x = np.maximum(x @ WEIGHTS[int(name[5:])], 0)
        elif name == "prob":
            x = 1 / (1 + np.exp(np.float32(6) - x))
        taken = (steps[-1].name,) if steps else ()
        kind = types.get(name, "MatMul")
        if name == "data" or isinstance(factors, str):
            if name != "quantised":
                steps.append(Step(name, kind, taken, array))
            continue
        scale = CALIBRATED[name] * factors.get(name, 1.0)
        stored = np.clip(np.rint(x / scale), -128, 127).astype(np.int8)
        x = stored.astype(np.float32) * np.float32(scale)
        quantization = Quantization(scale=(scale,))
        steps.append(Step(name, kind, taken, stored, quantization=quantization))
    return dump_of(*steps, prefix="f" if isinstance(factors, str) else "i")


def culprits_of(found: Comparison) -> list[str]:
    return [it.output for culprit in found.culprits for it in culprit.actual]


@pytest.mark.parametrize("other", [FLOAT, "int8"])
@pytest.mark.parametrize("name", ["dense0", "dense1", "dense3"])
def test_a_scale_that_is_far_too_coarse_is_named(name: str, other: str) -> None:
    sides = network({name: 12.0}), network(FLOAT if other == FLOAT else {})
    found = compare_dumps(*sides)
    assert (found.finding, culprits_of(found)) == ("fault", [name])
    (culprit,) = found.culprits
    assert culprit.is_coarse
    assert culprit.kind == "scale: that of A is 12 times coarser than the values need"
    # Seen from the other side it is the same.
    found = compare_dumps(*sides[::-1])
    assert [it.output for each in found.culprits for it in each.expected] == [name]
    assert found.culprits[0].kind == "scale: that of B is 12 times coarser than the values need"


def test_two_scales_that_are_too_coarse_alike_are_no_difference() -> None:
    found = compare_dumps(network({"dense1": 12.0}), network({"dense1": 12.0}))
    assert (found.finding, found.culprits) == ("same", ())


def test_a_scale_may_be_a_few_times_coarser() -> None:
    found = compare_dumps(network({"dense1": 5.0}), network(FLOAT))
    assert (found.finding, found.culprits, found.precision) == ("same", (), "int8")


@pytest.mark.parametrize("brightness", [0.0, 0.01, 0.05])
def test_dark_data_fill_no_range(brightness: float) -> None:
    dark = DATA * np.float32(brightness)
    sides = network({}, dark), network(FLOAT, dark)
    for found in (compare_dumps(*sides), compare_dumps(*sides[::-1])):
        assert (found.finding, found.culprits) == ("same", ())


def test_a_range_may_hold_all_that_an_operator_can_give() -> None:
    sides = network({}), network(FLOAT)
    assert floats()["prob"].max() < 1
    small = compare_dumps(network({}, DATA / 2), network(FLOAT, DATA / 2))
    assert floats(DATA / 2)["prob"].max() < 1 / 12
    assert (compare_dumps(*sides).finding, small.finding) == ("same", "same")


def quiet_data() -> Array:
    """Return data as large as any that the first layer makes next to nothing of."""
    left, _, _ = np.linalg.svd(WEIGHTS[0])
    quiet = np.outer(DATA[:, 0], left[:, -1]) + np.outer(DATA[:, 1], left[:, -2])
    scaled: Array = (quiet * np.abs(DATA).max() / np.abs(quiet).max()).astype(np.float32)
    return scaled


def test_all_items_say_whether_a_scale_is_too_coarse() -> None:
    def collect(factors: Mapping[str, float], *feeds: Array) -> Comparison:
        collected = CollectedItems()
        for number, data in enumerate(feeds):
            found = compare_dumps(network(factors, data), network(FLOAT, data))
            collected.add(f"item{number}", found)
        return collected.sum_up()

    assert culprits_of(collect({"dense1": 12.0}, DATA, -DATA)) == ["dense1"]
    assert culprits_of(collect({}, quiet_data())) == ["dense0"]
    for feeds in ((quiet_data(), DATA), (DATA, quiet_data())):
        found = collect({}, *feeds)
        assert (found.finding, found.culprits, found.precision) == ("same", (), "int8")


def test_clipped_elements_are_no_fault_and_noted() -> None:
    data = DATA.copy()
    data[2] *= np.float32(1.6)
    found = compare_dumps(network({}, data), network(FLOAT, data))
    (note,) = [each for each in found.notes if "too narrow" in each]
    assert found.culprits == ()
    assert note.startswith("a type is too narrow for some elements, which end there: ")
    assert " of A (" in note
    assert "steps at most)" in note
    assert not compare_dumps(network({}), network(FLOAT)).notes


def with_bias(scale: float, made_for: float) -> Dump:
    """Return a dump of an int8 layer whose input has a scale, and of a bias whose integers were
    made for a scale of the input."""
    x, weight = np.tanh(DATA), WEIGHTS[0]
    bias = np.random.default_rng(9).standard_normal(48)
    steps = [Step("data", "Input", (), DATA)]

    def add(name: str, kind: str, taken: tuple[str, ...], integers: Array, scale: float) -> None:
        quantization = Quantization(scale=(scale,))
        steps.append(Step(name, kind, taken, integers, quantization=quantization))

    add("x", "Tanh", ("data",), np.rint(x / scale).astype(np.int8), scale)
    add("weight", "constant", (), np.rint(weight / 0.01).astype(np.int8), 0.01)
    add("bias", "constant", (), np.rint(bias / (made_for * 0.01)).astype(np.int32), scale * 0.01)
    found = x @ weight + bias * (scale / made_for)
    add("y", "Gemm", ("x", "weight", "bias"), np.rint(found / 0.1).astype(np.int8), 0.1)
    return dump_of(*steps, prefix=f"{scale}")


def test_a_bias_that_is_read_by_another_scale_is_the_fault_of_that_scale() -> None:
    found = compare_dumps(with_bias(0.04, 0.01), with_bias(0.01, 0.01))
    (culprit,) = found.culprits
    assert culprits_of(found) == ["x"]
    assert culprit.kind == (
        "scale: bias is 4 times as large in A as in B, since it is read by the scale of x"
    )
    # A bias that is wrong itself is its operator's fault.
    wrong = with_bias(0.01, 0.0025)
    assert culprits_of(compare_dumps(wrong, with_bias(0.01, 0.01))) == ["y"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [0.0, -0.1])
def test_a_scale_may_be_no_scale(scale: float) -> None:
    quantization = Quantization(scale=(scale,))
    zeros = np.zeros((1, 4), np.int8)
    one = dump_of(
        Step("data", "Input", (), zeros),
        Step("x", "Tanh", ("data",), zeros, quantization=quantization),
    )
    other = dump_of(
        Step("data", "Input", (), zeros), Step("x", "Tanh", ("data",), DATA[:1, :4] * 0)
    )
    for sides in ((one, other), (other, one)):
        assert compare_dumps(*sides).culprits == ()
