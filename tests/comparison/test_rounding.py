"""What the rounding of a coarse type explains, on a small network computed in several types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.rounding import Explained
from lar.dumps import Dump
from lar.records.comparison import Figures, Tolerance
from lar.records.run import Quantization
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps, verdict_of
from tests.tables import each_row

Array = npt.NDArray[Any]
Fault = Callable[[str, Array], Array]

LAYERS = 12
DATA = np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32)
WEIGHTS = [
    np.random.default_rng(1 + layer).standard_normal((64, 64)).astype(np.float32) / np.float32(5.5)
    for layer in range(LAYERS)
]


def no_fault(name: str, array: Array) -> Array:
    return array


def quantised(array: Array, scale: float) -> Array:
    integers: Array = np.clip(np.rint(array / scale), -128, 127).astype(np.float32)
    return integers


def to_tf32(array: Array) -> Array:
    """Round to ten bits of mantissa, as NVIDIA's tensor cores do with what they multiply."""
    rounded: Array = ((array.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return rounded


def network(kind: str, fault: Fault = no_fault) -> Dump:
    """Matrix products and activations one behind the other, in a type; a fault alters what an
    operator gives."""
    x = DATA
    steps = [Step("data", "Input", (), x)]

    def add(name: str, operator: str, array: Array) -> Array:
        # The engine computes in float32, and stores in its type.
        array = fault(name, array)
        quantization, dtype = None, ""
        if kind in ("float16", "float64"):
            with np.errstate(over="ignore"):
                stored = array.astype(kind)
            array = stored.astype(np.float32)
        elif kind == "BFloat16":
            bits = (array.view(np.uint32) + 0x8000) & np.uint32(0xFFFF0000)
            array = stored = bits.view(np.float32)
            dtype = kind
        elif kind == "int8":
            scale = float(np.abs(array).max()) / 127
            stored = quantised(array, scale).astype(np.int8)
            array = stored.astype(np.float32) * np.float32(scale)
            quantization = Quantization(scale=(scale,))
        else:
            stored = array
        steps.append(
            Step(name, operator, (steps[-1].name,), stored, dtype=dtype, quantization=quantization)
        )
        return array

    x = add("stem", "Tanh", x)
    for layer, weight in enumerate(WEIGHTS):
        if kind == "int8":
            scale = float(np.abs(weight).max()) / 127
            weight = quantised(weight, scale) * np.float32(scale)
        elif kind == "float16":
            weight = weight.astype(np.float16).astype(np.float32)
        factors = (x, weight) if kind != "tf32" else (to_tf32(x), to_tf32(weight))
        with np.errstate(invalid="ignore"):
            product = factors[0] @ factors[1]
        x = add(f"dense{layer}", "MatMul", product)
        x = add(f"relu{layer}", "Relu", np.maximum(x, 0))
    add("out", "MatMul", x @ WEIGHTS[0])
    dump = dump_of(*steps, prefix=kind[0])
    if kind != "tf32":
        return dump
    return replace(dump, index=replace(dump.index, products=kind))


@pytest.fixture(scope="module")
def healthy() -> dict[str, Dump]:
    kinds = ("float64", "float32", "tf32", "float16", "BFloat16", "int8")
    return {kind: network(kind) for kind in kinds}


@pytest.mark.parametrize("coarse", ["float16", "tf32"])
def test_a_coarse_run_is_the_same_within_its_rounding(
    healthy: dict[str, Dump], coarse: str
) -> None:
    for one, other in itertools.permutations(("float32", coarse), 2):
        found = compare_dumps(healthy[one], healthy[other])
        assert (found.finding, found.culprits, found.precision) == ("same", (), coarse)
        assert verdict_of(found) == f"result: the same within {coarse}'s rounding"


def test_what_comes_before_the_first_product_is_not_rounded_to_tf32(
    healthy: dict[str, Dump],
) -> None:
    wrong = network("tf32", altered("stem", lambda array: array * np.float32(1.0003)))
    found = compare_dumps(wrong, healthy["float32"], only="common")
    assert [it.output for it in found.culprits[0].actual] == ["stem"]
    # A side that is not known to round has the tolerance of float32.
    dump = healthy["tf32"]
    unknown = replace(dump, index=replace(dump.index, products=""))
    assert compare_dumps(unknown, healthy["float32"]).finding != "same"


@pytest.mark.parametrize("other", ["float64", "float32", "float16"])
def test_coarser_types_round_more(healthy: dict[str, Dump], other: str) -> None:
    for sides in (("BFloat16", other), (other, "BFloat16")):
        found = compare_dumps(healthy[sides[0]], healthy[sides[1]])
        assert verdict_of(found) == "result: the same within bfloat16's rounding"
    for sides in (("int8", other), (other, "int8")):
        found = compare_dumps(healthy[sides[0]], healthy[sides[1]])
        assert (found.finding, found.culprits, found.precision) == ("same", (), "int8")
        assert 15 < (found.snr_db or 0) < 40
        assert verdict_of(found) == f"result: the same as int8 rounds: {found.snr_db:.0f} dB"


def test_fine_types_have_their_fixed_tolerance(healthy: dict[str, Dump]) -> None:
    found = compare_dumps(healthy["float32"], healthy["float64"])
    assert (found.finding, found.precision) == ("same", "")
    assert all(each.explained is None for each in found.tensors)
    assert verdict_of(found) == "result: the same within the tolerance"


def test_a_tolerance_that_is_given_decides_alone(healthy: dict[str, Dump]) -> None:
    sides = healthy["float16"], healthy["float32"]
    assert compare_dumps(*sides, Tolerance(rtol=1e-6)).finding == "fault"
    assert compare_dumps(*sides, Tolerance(rtol=0.2)).precision == ""


@each_row("comparison/rounding/explained")
def test_what_rounding_explains_of_each_tensor(
    healthy: dict[str, Dump], sides: list[str], explained: list[float]
) -> None:
    found = compare_dumps(healthy[sides[0]], healthy[sides[1]])
    assert [it.explained or 0 for it in found.tensors] == pytest.approx(explained, rel=0.05)


@each_row("comparison/rounding/limits")
def test_an_error_within_the_limits_is_rounding(
    explained: dict[str, Any],
    figures: dict[str, Any],
    sources: list[dict[str, Any]],
    worst_channel: float,
    passes: bool,
) -> None:
    given = {"elements": 8, "identical": False, "relative_l2": 0.0, "max_absolute": 1.0}
    one, *before = (Figures(**{**given, **each}) for each in (figures, *sources))
    assert Explained(**explained).passes(one, before, lambda: worst_channel) == passes


def altered(name: str, change: Callable[[Array], Array]) -> Fault:
    return lambda each, array: change(array) if each == name else array


FAULTS = {
    "scale": lambda array: array * np.float32(2),
    "half scale": lambda array: array / 2,
    "shift": lambda array: array + np.float32(0.7),
    "channels": lambda array: np.roll(array, 1, axis=1),
    "clipped": lambda array: np.clip(array, -np.abs(array).max() / 4, np.abs(array).max() / 4),
    "infinite": lambda array: np.where(array == array.max(), np.float32(1e6), array),
    "one channel": lambda array: np.where(np.arange(64) == 5, 0, array),
}


KINDS = {
    "scale": "scale: ",
    "half scale": "scale: ",
    "shift": "zero point: ",
    "clipped": "saturation: ",
    "infinite": "overflow to infinity: ",
    "one channel": "one wrong channel: number 5",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layer", [0, 6, 11])
@pytest.mark.parametrize(
    "kinds", ["float16-float32", "float16-float16", "tf32-float32", "tf32-tf32", "int8-float32"]
)
def test_a_fault_in_a_coarse_type_is_named(
    healthy: dict[str, Dump], kinds: str, layer: int, fault: str
) -> None:
    kind, expected = kinds.split("-")
    name = f"dense{layer}"
    if kind in ("int8", "tf32") and fault == "infinite":
        pytest.skip("a number that is infinite in float16 is not in it")
    wrong = network(kind, altered(name, FAULTS[fault]))
    found = compare_dumps(wrong, healthy[expected], only="common")
    assert found.finding == "fault"
    assert [it.output for it in found.culprits[0].actual] == [name]
    assert found.culprits[0].kind.startswith(KINDS.get(fault, ""))
    # Seen from the other side it is the same.
    found = compare_dumps(healthy[expected], wrong, only="common")
    assert [it.output for it in found.culprits[0].actual] == [name]


def test_there_may_be_more_behind_a_culprit(healthy: dict[str, Dump]) -> None:
    def wrong(name: str, array: Array) -> Array:
        return array * np.float32(1.5) if name in ("dense3", "dense8") else array

    found = compare_dumps(network("float32", wrong), healthy["float32"])
    assert [it.output for culprit in found.culprits for it in culprit.actual] == ["dense3"]
    assert found.notes == (
        "there may be more culprits behind these: --isolate runs each operator alone",
    )
    # Behind the last operator there is nothing.
    last = compare_dumps(network("float32", altered("out", lambda x: x * 2)), healthy["float32"])
    assert last.notes == ()


def dense_chain(weights: list[Array], outputs: list[Array]) -> Dump:
    """Matrix products one behind the other, with their weights."""
    steps = [Step("data", "Input", (), DATA)]
    for number, (weight, output) in enumerate(zip(weights, outputs, strict=True)):
        source = steps[-1].name
        steps.append(Step(f"w{number}", "constant", (), weight))
        steps.append(Step(f"y{number}", "MatMul", (source, f"w{number}"), output))
    return dump_of(*steps)


def test_weights_that_were_rounded_to_float16_and_stored_wider_round_all() -> None:
    def compute(weights: list[Array]) -> Dump:
        outputs = list(itertools.accumulate([DATA, *weights], np.matmul))[1:]
        return dense_chain(weights, outputs)

    halves = [it.astype(np.float16).astype(np.float32) for it in WEIGHTS[:3]]
    exact = compute(WEIGHTS[:3])
    assert verdict_of(compare_dumps(compute(halves), exact)) == (
        "result: the same within float16's rounding"
    )
    # Where one of them is, that operator is at fault.
    found = compare_dumps(compute([WEIGHTS[0], halves[1], WEIGHTS[2]]), exact)
    assert [it.output for culprit in found.culprits for it in culprit.actual] == ["y1"]
    assert found.culprits[0].kind.startswith("weights: w1 differs by 0.02% of its length")


@pytest.mark.parametrize("least", [-1e4, -65504.0, -np.inf])
def test_a_mask_is_the_same_in_a_type_that_lacks_its_number(least: float) -> None:
    scores = np.random.default_rng(3).standard_normal((12, 12)).astype(np.float32)
    hidden = np.tri(12) == 0

    def net(fill: float, dtype: str, shift: float = 0.0) -> Dump:
        masked = np.where(hidden, np.float32(fill), scores + np.float32(shift)).astype(dtype)
        weights = np.exp(masked.astype(np.float32))
        weights /= weights.sum(axis=1, keepdims=True)
        return dump_of(
            Step("scores", "Input", (), scores.astype(dtype)),
            Step("masked", "Add", ("scores",), masked),
            Step("weights", "Softmax", ("masked",), weights.astype(dtype)),
        )

    half, single = net(least, "float16"), net(-1e9, "float32")
    for sides in ((half, single), (single, half)):
        assert verdict_of(compare_dumps(*sides)) == "result: the same within float16's rounding"
    found = compare_dumps(net(least, "float16", 0.5), single, only="common")
    assert [it.output for culprit in found.culprits for it in culprit.actual] == ["masked"]
    # An activation that is too large for the type is no mask.
    large = np.where(scores == scores.max(), np.float32(1e5), scores)
    with np.errstate(over="ignore"):
        stored = large.astype(np.float16)
    one, other = (
        dump_of(Step("scores", "Input", (), scores), Step("y", "Tanh", ("scores",), array))
        for array in (stored, large)
    )
    found = compare_dumps(one, other)
    assert found.culprits[0].kind == "overflow to infinity: 1 of 144 elements are infinite in A"
