"""Operators of the reference engine, each against ONNX Runtime.

`operators.json` has the inputs of each by the functions of INPUTS. Others are in
`tools/operator_variants.txt`, a part of which `test_sweep_operators.py` tries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from lar.engines.onnx_file.fields import Message
from lar.engines.reference.driver import evaluator_of
from tests.tables import each_row

Array = np.ndarray[Any, np.dtype[Any]]


def draw(*shape: int, scale: float = 1) -> list[Array]:
    return [scale * np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32)]


def steps(least: int, most: int, dtype: type, shape: Sequence[int]) -> list[Array]:
    return [np.random.RandomState(sum(shape)).randint(least, most, shape).astype(dtype)]


# Each gives an input, or the scale and the zero point that stand beside one.
INPUTS: Mapping[str, Callable[..., Sequence[Array | None]]] = {
    "f": draw,
    # So far apart that shares of the sum are rounded to 0.
    "far": lambda *shape: draw(*shape, scale=1000),
    "u": lambda *shape: steps(0, 256, np.uint8, shape),
    # Of 7 bits, since some processors sum products of more in 16 bits.
    "s": lambda *shape: steps(-64, 64, np.int8, shape),
    "sizes": lambda *sizes: [np.array(sizes)],
    "scale": lambda it: [np.array(it, np.float32)],
    "of": lambda kind, it: [np.array(it, kind)],
    "q": lambda scale, zero: [np.array(scale, np.float32), np.array(zero, np.uint8)],
    "channels": lambda n: [np.linspace(0.01, 0.03, n, dtype=np.float32), np.zeros(n, np.int8)],
    "bias": lambda count, step: [np.arange(count, dtype=np.int32) * step],
    "eye": lambda *shape: [np.eye(*shape) > 0],
    "left out": lambda: [None],
}


def arrays_of(inputs: list[list[Any]]) -> list[Array | None]:
    return [*chain.from_iterable(INPUTS[kind](*numbers) for kind, *numbers in inputs)]


def described(name: str, dtype: Any, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(model: list[Any], *fed: int) -> bytes:
    """A model of one operator; the inputs whose places are not in `fed` are constants."""
    operator, inputs, gives, attributes, domain, opset = model
    arrays = arrays_of(inputs)
    names = ["" if each is None else f"i{place}" for place, each in enumerate(arrays)]
    given = {name: each for name, each in zip(names, arrays, strict=True) if each is not None}
    taken = {names[it]: given.pop(names[it]) for it in fed}
    ends = [described(name, it.dtype, it.shape) for name, it in taken.items()]
    results = [described(f"y{at}", kind, None) for at, kind in enumerate(gives.split())]
    outputs = [each.name for each in results]
    node = helper.make_node(operator, names, outputs, domain=domain, **attributes)
    weights = [numpy_helper.from_array(each, name) for name, each in given.items()]
    graph = helper.make_graph([node], operator, ends, results, weights)
    opsets = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 3}
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    made = helper.make_model(graph, ir_version=8, opset_imports=imports)
    return bytes(made.SerializeToString())


def evaluate(content: bytes, **fed: Array) -> list[Any]:
    return evaluator_of(Message("Model", content), Path()).run(fed)


@each_row("engines/reference/operators/operators")
def test_an_operator_gives_what_onnx_runtime_gives(model: list[Any], fed: int) -> None:
    """`fed` is the place of the data; scales and zero points have to be constants for some
    operators of ONNX Runtime."""
    content, data = model_of(model, fed), np.asarray(arrays_of(model[1])[fed])
    expected = onnxruntime.InferenceSession(content).run(None, {f"i{fed}": data})
    wide = data.astype("f8") if data.dtype == np.float32 else data
    found = evaluate(content, **{f"i{fed}": wide})
    for kind, ours, its in zip(model[2].split(), found, expected, strict=True):
        assert ours.shape == its.shape
        if kind == "float32":
            assert ours.dtype == np.float64
            np.testing.assert_allclose(ours, its, rtol=1e-5, atol=1e-5)
        else:
            assert ours.dtype == kind
            # A number in the middle between two may be rounded to either.
            assert np.abs(ours.astype(int) - its.astype(int)).max() <= 1
            assert np.mean(ours == its) > 0.9


@each_row("engines/reference/operators/same")
def test_what_is_left_out_is_as_the_standard_says(model: list[Any], same: list[Any]) -> None:
    """What ONNX Runtime does otherwise, or lacks."""
    np.testing.assert_allclose(evaluate(model_of(model)), evaluate(model_of(same)), 1e-6)


@each_row("engines/reference/operators/no truth")
def test_what_has_no_single_right_result_is_not_computed(model: list[Any], says: str) -> None:
    """`says` is empty for what has a result."""
    assert {getattr(each, "says", "") for each in evaluate(model_of(model))} == {says}
