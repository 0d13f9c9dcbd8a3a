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
import pytest
from onnx import helper, numpy_helper

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.onnx_file.fields import Message
from lar.engines.reference.driver import evaluator_of
from lar.engines.reference.operators import OWN, Call
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
    "zero": lambda it: [np.array(it, np.uint8)],
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


@each_row("engines/reference/operators/operators")
def test_an_operator_gives_what_onnx_runtime_gives(
    operator: str,
    inputs: list[list[Any]],
    gives: str,
    attributes: dict[str, Any],
    domain: str,
    opset: int,
    fed: int,
) -> None:
    """`fed` is the place of the data; scales and zero points have to be constants for some
    operators of ONNX Runtime."""
    arrays, results = arrays_of(inputs), [f"y{at}" for at, _ in enumerate(gives.split())]
    names = ["" if each is None else f"i{place}" for place, each in enumerate(arrays)]
    given = {name: each for name, each in zip(names, arrays, strict=True) if each is not None}
    data = given.pop(names[fed])
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    given_ends = [described(names[fed], data.dtype, data.shape)]
    ends = given_ends, [described(*it, None) for it in zip(results, gives.split(), strict=True)]
    weights = [numpy_helper.from_array(each, name) for name, each in given.items()]
    graph = helper.make_graph([node], operator, *ends, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    expected = onnxruntime.InferenceSession(content).run(None, {names[fed]: data})
    wide = data.astype("f8") if data.dtype == np.float32 else data
    found = evaluator_of(Message("Model", content), Path()).run({names[fed]: wide})
    for kind, ours, its in zip(gives.split(), found, expected, strict=True):
        assert ours.shape == its.shape
        if kind == "float32":
            assert ours.dtype == np.float64
            np.testing.assert_allclose(ours, its, rtol=1e-5, atol=1e-5)
        else:
            assert ours.dtype == kind
            # A number in the middle between two may be rounded to either.
            assert np.abs(ours.astype(int) - its.astype(int)).max() <= 1
            assert np.mean(ours == its) > 0.9


@each_row("engines/reference/operators/no truth")
def test_what_has_no_single_right_result_is_not_computed(
    operator: str, inputs: list[list[Any]], attributes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(NoTruthHere, match=problem):
        OWN["", operator](Call(operator, arrays_of(inputs), attributes, opset=10))
