"""What others make of an ONNX model: quantisers, the conversion to float16, the optimiser."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
import onnxruntime
from network import Array
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
    shape_inference,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

CALIBRATIONS = 4


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """What a model is calibrated with: its own input, and it with noise."""

    def __init__(self, feeds: Mapping[str, Array]) -> None:
        random = np.random.RandomState(0)
        self.left = [dict(feeds)]
        floats = [each for each in feeds.items() if each[1].dtype == np.float32]
        for _ in range(CALIBRATIONS - 1):
            noisy = {name: it + random.normal(0, 0.3, it.shape).astype("f") for name, it in floats}
            self.left.append({**feeds, **noisy})

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def quantize(
    recipe: str, model: onnx.ModelProto, feeds: Mapping[str, Array], only: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """Return what ONNX Runtime's quantiser makes of a model.

    `recipe` is `qdq`, `qdq channels`, `qoperator`, `dynamic` or `int4`; `only` are the kinds of
    operators that are quantised. Integers have seven bits: some processors add products of eight
    bits in sixteen. `int4` packs weights into four bits, and rounds what they multiply to eight.
    """
    logging.getLogger().setLevel(logging.ERROR)  # the quantiser gives advice
    if recipe == "int4":
        quantizer = MatMulNBitsQuantizer(copy.deepcopy(model), block_size=16, accuracy_level=4)
        quantizer.process()
        return quantizer.model.model
    if recipe == "dynamic":
        # ONNX Runtime has no ConvInteger with weights of int8.
        convert = partial(quantize_dynamic, weight_type=QuantType.QUInt8, reduce_range=True)
    else:
        convert = partial(
            quantize_static,
            calibration_data_reader=Samples(feeds),
            quant_format=QuantFormat.QOperator if recipe == "qoperator" else QuantFormat.QDQ,
            op_types_to_quantize=list(only) or None,
            # Channels have scales of their own from opset 13 on.
            per_channel=recipe == "qdq channels" and model.opset_import[0].version >= 13,
            reduce_range=True,
        )
    return through_files(model, convert)


def through_files(model: onnx.ModelProto, convert: Callable[[str, str], object]) -> onnx.ModelProto:
    """Return what is made of a model by what reads one file and writes another."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/model.onnx")
        convert(f"{folder}/model.onnx", f"{folder}/converted.onnx")
        return onnx.load(f"{folder}/converted.onnx")


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as the quantiser's manual asks for it: optimised, with shapes."""
    convert = partial(shape_inference.quant_pre_process, skip_symbolic_shape=True)
    return through_files(model, convert)


def halve(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in float16 between its inputs and its outputs."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half: onnx.ModelProto = convert_float_to_float16(copy.deepcopy(model), keep_io_types=True)
    return half


def optimize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as ONNX Runtime saves it after its basic optimisations."""

    def convert(read: str, written: str) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = written
        onnxruntime.InferenceSession(read, options)

    return through_files(model, convert)
