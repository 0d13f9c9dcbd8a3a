"""What single errors do to the outputs, measured in models that are played by functions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.compare import compare_dumps
from lar.comparison.injection import stored_at_random
from lar.comparison.items import CollectedItems
from lar.comparison.loss import layers_of_loss, squares_of_loss
from lar.dumps.dump import Dump, DumpedTensor
from lar.engines import operator_kinds_of
from lar.errors import LarError
from lar.records.comparison import AtOutput, Comparison, TensorComparison
from lar.records.quantization import Quantization

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.comparison.handmade import Step, dump_of

Array = npt.NDArray[Any]
Function = Callable[..., Array]
Model = Mapping[str, tuple[str, tuple[str, ...], Function]]
"""What each tensor is computed by, and from what: a type of operator, inputs, a function."""

START = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
STEP = Quantization(scale=(0.5,))


def changed(model: Model, **functions: Function) -> Model:
    """A model some of whose operators do something else."""
    return {
        name: (kind, inputs, functions.get(name, function))
        for name, (kind, inputs, function) in model.items()
    }


def evaluate(model: Model, output: str, values: Mapping[str, Array]) -> Array:
    if output in values:
        return values[output]
    _, inputs, function = model[output]
    return np.asarray(function(*(evaluate(model, name, values) for name in inputs)))


def run(model: Model, data: Array = START) -> Dump:
    """The dump of a model; a QuantizeLinear gives integers of `STEP`."""
    arrays = {name: evaluate(model, name, {"data": data}) for name in model}
    return dump_of(
        Step("data", "Input", (), data),
        *(
            Step(
                name,
                kind,
                inputs,
                arrays[name],
                quantization=STEP if kind == "QuantizeLinear" else None,
            )
            for name, (kind, inputs, _) in model.items()
        ),
    )


class Engine:
    """The operators of a played model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rests: list[tuple[str, frozenset[str]]] = []

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        return set()

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        return evaluate(self.model, output.name, values)

    def compute_rest(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        self.rests.append((output.name, frozenset(values)))
        return evaluate(self.model, output.name, values)


def isolate(actual: Model, expected: Model, engine: Engine, data: Array = START) -> Comparison:
    return compare_dumps(
        run(actual, data), run(expected, data), kinds_of=operator_kinds_of, operators=engine
    )


def found_of(comparison: Comparison) -> dict[str, TensorComparison]:
    return {each.actual.name: each for each in comparison.tensors}


def measured(comparison: Comparison) -> dict[str, list[float]]:
    return {
        name: [each.change for each in found.at_outputs]
        for name, found in found_of(comparison).items()
        if found.at_outputs
    }


def estimated(comparison: Comparison) -> dict[str, float]:
    """The squares of the loss as they are without what was measured."""
    tensors = [replace(each, at_outputs=()) for each in comparison.tensors]
    return {each.actual.name: square for each, square in squares_of_loss(tensors)}


# The error of `both` goes into two branches, whose sum is without it; that of `other` is seen.
CANCELLING: Model = {
    "both": ("Kinda", ("data",), np.tanh),
    "plus": ("Kindb", ("both",), lambda x: x * np.float32(3)),
    "minus": ("Kindc", ("both",), lambda x: x * np.float32(-3)),
    "other": ("Kindd", ("data",), np.sin),
    "sum": ("Kinde", ("plus", "minus", "other"), lambda x, y, z: x + y + z),
}

# Of what `both` gives, the activation swallows all but one element.
SWALLOWING: Model = {
    "both": ("Kinda", ("data",), np.tanh),
    "swallowed": ("Kindb", ("both",), lambda x: np.maximum(x - np.float32(5), 0)),
    "other": ("Kindd", ("data",), np.sin),
    "sum": ("Kinde", ("swallowed", "other"), lambda x, y: x + y),
}

WRONG: Mapping[str, Function] = {
    "both": lambda x: np.tanh(x) * np.float32(1.2),
    "other": lambda x: np.sin(x) + np.float32(0.01),
}


@pytest.mark.parametrize("model", [CANCELLING, SWALLOWING], ids=["cancelling", "swallowing"])
def test_what_the_output_does_not_see_has_no_share(model: Model) -> None:
    actual = changed(model, **WRONG)
    found = isolate(actual, model, Engine(actual))
    squares = {each.actual.name: square for each, square in squares_of_loss(found.tensors)}
    assert squares["both"] == pytest.approx(0, abs=1e-10)
    if model is CANCELLING:
        assert estimated(found)["both"] > estimated(found)["other"] > 0
    (layer,) = layers_of_loss(found.tensors)
    assert (layer.tensor.actual.name, layer.is_measured) == ("other", True)
    assert layer.share == pytest.approx(1)
    assert layer.tensor.at_outputs[0].change == pytest.approx(0.01 * START.size**0.5, rel=1e-3)


def test_it_is_what_the_run_of_a_gives_without_the_error() -> None:
    """The error is what the operator makes of the values of B; it is taken out of those of A."""
    model: Model = {
        "first": ("Kinda", ("data",), np.tanh),
        "second": ("Kindb", ("first",), np.sin),
        "third": ("Kindc", ("second",), np.exp),
    }
    wrong = changed(
        model,
        first=lambda x: np.tanh(x) * np.float32(1.3),
        second=lambda x: np.sin(x) + np.float32(0.1) * x**2,
    )
    engine = Engine(wrong)
    found = isolate(wrong, model, engine)
    mine, theirs = run(wrong), run(model)
    error = wrong["second"][2](theirs.read("first")) - theirs.read("second")
    change = np.exp(mine.read("second") - error) - mine.read("third")
    assert measured(found)["second"] == pytest.approx([np.linalg.norm(change)], rel=1e-5)
    assert measured(found)["third"] == [0.0]
    length = float(np.linalg.norm(theirs.read("third")))
    (at_output,) = found_of(found)["second"].at_outputs
    assert at_output.output == "third"
    assert at_output.length == pytest.approx(length)
    # Only what is behind is computed: once with the values of the run, then without the error.
    assert engine.rests == [
        ("third", frozenset({"first"})),
        ("third", frozenset({"first"})),
        ("third", frozenset({"second"})),
    ]


def quantize(x: Array) -> Array:
    integers: Array = np.clip(np.rint(x / 0.5), -128, 127).astype(np.int8)
    return integers


def dequantize(x: Array) -> Array:
    return x.astype(np.float32) * np.float32(0.5)


FLOAT: Model = {
    "first": ("Kinda", ("data",), lambda x: x * np.float32(9)),
    "second": ("Kindb", ("first",), lambda x: x + np.float32(0.3)),
}
QUANTIZED: Model = {
    "first_": ("Kinda", ("data",), lambda x: x * np.float32(9)),
    "first": ("QuantizeLinear", ("first_",), quantize),
    "first.real": ("DequantizeLinear", ("first",), dequantize),
    "second_": ("Kindb", ("first.real",), lambda x: x + np.float32(0.3)),
    "second": ("QuantizeLinear", ("second_",), quantize),
    "second.real": ("DequantizeLinear", ("second",), dequantize),
}


def test_rounding_is_taken_out_where_integers_have_become_numbers() -> None:
    """An error of less than half a step could not be taken out of the integers, and the output's
    own integers would not show it."""
    engine = Engine(QUANTIZED)
    found = isolate(QUANTIZED, FLOAT, engine)
    mine, theirs = run(QUANTIZED), run(FLOAT)
    error = np.linalg.norm(mine.read("first.real") - theirs.read("first"))
    assert measured(found)["first"] == pytest.approx([error], rel=1e-4)
    assert engine.rests[-1] == ("second_", frozenset({"first.real"}))
    # What the last one rounds is the change itself.
    last = dequantize(quantize(dequantize(quantize(theirs.read("first"))) + np.float32(0.3)))
    error = np.linalg.norm(last - theirs.read("second"))
    assert measured(found)["second"] == pytest.approx([error], rel=1e-4)


def test_both_sides_may_be_quantised() -> None:
    wrong = changed(QUANTIZED, second_=lambda x: x + np.float32(2))
    found = isolate(wrong, QUANTIZED, Engine(wrong))
    right, other = (run(model).read("second_") for model in (QUANTIZED, wrong))
    error = np.linalg.norm(other - right)
    assert measured(found)["second_"] == pytest.approx([error], rel=1e-4)
    assert [measured(found)[name] for name in ("first_", "first", "first.real")] == [[0.0]] * 3
    wrong = changed(QUANTIZED, first=lambda x: quantize(x) // 2)
    sides, engine = (run(wrong), run(QUANTIZED)), Engine(wrong)
    found = compare_dumps(*sides, kinds_of=operator_kinds_of, operators=engine, raw=True)
    assert found_of(found)["first"].estimate.startswith("its integers are compared")


@pytest.mark.parametrize(
    ("dtype", "quantization"), [("int8", STEP), ("float16", None), ("float32", None)]
)
def test_a_number_between_two_of_a_type_is_right_on_average(
    dtype: str, quantization: Quantization | None
) -> None:
    tensor = DumpedTensor(key="t", name="t", dtype=dtype, shape=(10000,))
    wanted = 0.6 if dtype == "int8" else 1 + 1e-4
    stored = stored_at_random(np.full(10000, wanted), tensor, quantization)
    assert stored.dtype == dtype
    assert len(np.unique(stored)) == 2
    real = stored.astype(np.float64) * (STEP.scale[0] if quantization else 1)
    assert real.mean() == pytest.approx(wanted, rel=0.02 if dtype == "int8" else 1e-5)
    exact = stored_at_random(np.array([1.5, -2.0]), tensor, quantization)
    assert (exact.astype(np.float64) * (0.5 if quantization else 1)).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dtype", ["bool", "BFloat16", "QuantizedS4", "complex64"])
def test_a_type_that_cannot_be_fed_is_named(dtype: str) -> None:
    tensor = DumpedTensor(key="t", name="t", dtype=dtype, shape=(1,))
    with pytest.raises(LarError, match=dtype):
        stored_at_random(np.ones(1), tensor, None)


class Unlike(Engine):
    """An engine that computes something else from within a model."""

    def compute_rest(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        return super().compute_rest(output, values) * np.float32(1.5)


class Unable(Engine):
    """An engine that cannot compute from within a model."""

    def compute_rest(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        raise LarError("the graph has no such tensor")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Unlike, "the engine does not compute the outputs from within as in the run"),
        (Unable, "the graph has no such tensor"),
    ],
)
def test_where_it_cannot_be_measured_the_estimate_remains(kind: type[Engine], reason: str) -> None:
    actual = changed(CANCELLING, **WRONG)
    found = isolate(actual, CANCELLING, kind(actual))
    assert found_of(found)["both"].estimate == reason
    assert found_of(found)["other"].single
    squares = {each.actual.name: square for each, square in squares_of_loss(found.tensors)}
    assert squares == estimated(found)
    assert not any(layer.is_measured for layer in layers_of_loss(found.tensors))


def test_what_float32_rounds_is_not_worth_a_run() -> None:
    actual = changed(CANCELLING, both=lambda x: np.tanh(x) * np.float32(1 + 1e-6))
    engine = Engine(actual)
    found = found_of(isolate(actual, CANCELLING, engine))
    assert engine.rests == []
    assert (found["both"].at_outputs, found["both"].estimate) == ((), "")
    assert [each.change for each in found["other"].at_outputs] == [0.0]  # it is equal


def test_squares_are_added_up_over_the_items_of_a_data_set() -> None:
    actual = changed(CANCELLING, **WRONG)
    collected = CollectedItems()
    each: list[AtOutput] = []
    for number in (1, 3):
        found = isolate(actual, CANCELLING, Engine(actual), START * np.float32(number))
        each += found_of(found)["other"].at_outputs
        collected.add(f"item {number}", found)
    (together,) = found_of(collected.sum_up())["other"].at_outputs
    assert together.change == pytest.approx(math.hypot(*(it.change for it in each)))
    assert together.length == pytest.approx(math.hypot(*(it.length for it in each)))
