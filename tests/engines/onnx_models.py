"""Small `.onnx` models for the engines that read them: made of operators, and with a fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lar.engines import engine_named

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / "models"
DIGITS, MOBILENET = MODELS / "digits_cnn.onnx", MODELS / "mobilenet_v2.onnx"

Array = np.ndarray[Any, Any]
# What models may use besides ONNX's own operators.
DOMAINS = {"ai.onnx.ml": 3, "com.microsoft": 1, "own": 1}


def needs(engine: str) -> pytest.MarkDecorator:
    """Skip where an engine is not installed."""
    return pytest.mark.skipif(
        not engine_named(engine).is_installed, reason=f"{engine} is not installed"
    )


def model_of(
    text: str,
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    domains: Mapping[str, int] = DOMAINS,
) -> onnx.ModelProto:
    """A model: its graph, and its functions, as onnx.parser reads them, from the inputs on."""
    opsets = ", ".join(f'"{name}": {number}' for name, number in {"": opset, **domains}.items())
    head = f"<ir_version: {ir_version}, opset_import: [{opsets}]>"
    model = onnx.parser.parse_model(f"{head} g {text}")
    arrays = {name: np.asarray(it) for name, it in (weights or {}).items()}
    model.graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in arrays.items())
    return model


def text_of(name: str, **filled: object) -> str:
    """The text of a model in `models/`, as `model_of` takes it, with each `$NAME` filled in."""
    text = (Path(__file__).parent / "models" / f"{name}.txt").read_text()
    return Template(text).substitute(filled)


def save_model(path: Path, text: str, weights: Mapping[str, Any] | None = None, **how: Any) -> Path:
    """Write such a model; return its path."""
    onnx.save(model_of(text, weights, **how), path)
    return path


def save_named(path: Path, text: str, weights: Mapping[str, Any] | None = None) -> Path:
    """Write such a model, whose operators have the names of their outputs; return its path."""
    model = model_of(text, weights)
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.save(model, path)
    return path


def drawn(*shape: int, seed: int = 0) -> Array:
    """Return numbers that are always the same."""
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def write_attention(path: Path) -> Path:
    """Write a block of a transformer, for any batch."""
    text = text_of("attention")
    weights = {f"w{it}": drawn(16, 16, seed=at) for at, it in enumerate("qkv1")}
    weights |= {name: drawn(16, seed=at) for at, name in enumerate(("gain", "shift"))}
    return save_named(path, text, weights)


def write_lstm(path: Path) -> Path:
    """Write a recurrent layer with an output for each step and one for the last."""
    weights = {"w": drawn(1, 32, 4), "r": drawn(1, 32, 8), "b": drawn(1, 64)}
    return save_named(path, text_of("lstm"), weights)


def write_residual(path: Path) -> Path:
    """Write convolutions whose results are summed with their inputs, and joined besides."""
    convolution = "Conv<pads = [1, 1, 1, 1]>"
    nodes, weights = [f"r0 = {convolution}(x, w0)"], {"w0": drawn(8, 3, 3, 3)}
    for at in (1, 2, 3):
        weights |= {f"w{it}{at}": drawn(8, 8, 3, 3, seed=at + ord(it)) for it in "ab"}
        nodes += [
            f"a{at} = {convolution}(r{at - 1}, wa{at})",
            f"ra{at} = Relu(a{at})",
            f"b{at} = {convolution}(ra{at}, wb{at})",
            f"s{at} = Add(b{at}, r{at - 1})",
            f"r{at} = Relu(s{at})",
        ]
    nodes.append("joined = Concat<axis = 1>(r1, r2, r3)")
    text = "(float[1,3,16,16] x) => (float[] joined) {" + "\n".join(nodes) + "}"
    return save_named(path, text, weights)


def write_optional(path: Path) -> Path:
    """Write a product with a weight that is an input too."""
    text = "(float[batch,3] x, float[3] w) => (float[batch,3] y) { y = Mul(x, w) }"
    return save_named(path, text, {"w": np.array([1, 2, 3], np.float32)})


def with_fault(model: Path, weight: str, place: Path) -> Path:
    """Write a model with one number of a weight changed; return its path."""
    found = onnx.load(model)
    tensor = next(it for it in found.graph.initializer if it.name == weight)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[array.size // 2] += 1
    tensor.CopyFrom(numpy_helper.from_array(array, weight))
    onnx.save(found, place)
    return place
