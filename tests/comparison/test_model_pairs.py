"""Pairs of small models, one of them changed, and what `lar compare` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conftest import RunLar
from tests.engines.onnx_models import drawn, model_of, save_named
from tests.tables import each_row


@each_row("comparison/model_pairs/pairs")
def test_a_change_is_reported(
    what: str,
    text: str,
    shapes: Mapping[str, Sequence[int]],
    factors: Mapping[str, float],
    change: tuple[str, str],
    flags: str,
    wanted: Sequence[str],
    run_lar: RunLar,
    tmp_path: Path,
) -> None:
    weights = {name: drawn(*shape, seed=len(what)) for name, shape in shapes.items()}
    changed = {name: array * np.float32(factors.get(name, 1)) for name, array in weights.items()}
    one = save_named(tmp_path / "a.onnx", text.replace(*change), changed)
    other = save_named(tmp_path / "b.onnx", text, weights)
    flags, _, its = flags.partition(" | ")
    printed = run_lar("compare", f"{one} {flags}", f"{other} {its or flags}", code=None).stdout
    assert [each for each in wanted if each not in printed] == []
    same = run_lar("compare", f"{other} {flags}", f"{other} {flags}", code=0).stdout
    assert "0 differ; without a twin: 0 of A, 0 of B" in same


@pytest.mark.parametrize(("bits", "kind"), [(4, TensorProto.INT4), (8, TensorProto.INT8)])
@pytest.mark.parametrize("block", ["", ", block_size = 16"])
def test_weights_with_a_scale_for_each_block_are_rounded_weights(
    bits: int, kind: int, block: str, run_lar: RunLar, tmp_path: Path
) -> None:
    rows = "(float[6,32] x) => (float[6,8] y)"
    weights, last = drawn(2, 16, 32), drawn(32, 8, seed=2)
    most = np.abs(weights).max(1 if block else (0, 1), keepdims=True) / (2 ** (bits - 1) - 1)
    packed = np.rint(weights / most).reshape(32, 32).astype(int)
    text = f"{rows} {{ w = DequantizeLinear<axis = {int(not block)}{block}>(q, s) h = MatMul(x, w)"
    tail = " r = Relu(h) y = MatMul(r, v) }"
    scales = most.reshape((2, 32) if block else 32)
    model = model_of(text + tail, {"s": scales, "v": last}, opset=21, ir_version=10)
    model.graph.initializer.append(helper.make_tensor("q", kind, [32, 32], packed.ravel().tolist()))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    plain = {"w": weights.reshape(32, 32), "v": last}
    other = save_named(tmp_path / "b.onnx", f"{rows} {{ h = MatMul(x, w){tail}", plain)
    flags = "--graph-optimization-level disable"
    done = run_lar("compare", f"{tmp_path / 'a.onnx'} {flags}", f"{other} {flags}", code=0)
    assert f"the same as int{bits} rounds" in done.stdout
