"""Converts ONNX models with other programs: quantisers, a float16 converter, an optimiser."""

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
    """The calibration data of a model: its own inputs, and its inputs with noise added."""

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
    """Return a model as ONNX Runtime's quantiser converts it.

    `recipe` is `qdq`, `qdq channels`, `qoperator`, `dynamic` or `int4`; `only` are the types of the
    operators to quantise. Weights are reduced to seven bits, since some processors add products of
    8-bit integers in 16 bits, which may overflow. `int4` packs weights into four bits, and rounds
    the tensors that are multiplied by these weights to eight bits.
    """
    logging.getLogger().setLevel(logging.ERROR)  # without the quantiser's advice
    if recipe == "int4":
        quantizer = MatMulNBitsQuantizer(copy.deepcopy(model), block_size=16, accuracy_level=4)
        quantizer.process()
        return quantizer.model.model
    if recipe == "dynamic":
        # ONNX Runtime cannot compute a ConvInteger with int8 weights.
        convert = partial(quantize_dynamic, weight_type=QuantType.QUInt8, reduce_range=True)
    else:
        convert = partial(
            quantize_static,
            calibration_data_reader=Samples(feeds),
            quant_format=QuantFormat.QOperator if recipe == "qoperator" else QuantFormat.QDQ,
            op_types_to_quantize=list(only) or None,
            # A scale for each channel is possible from opset 13 on.
            per_channel=recipe == "qdq channels" and model.opset_import[0].version >= 13,
            reduce_range=True,
        )
    return through_files(model, convert)


def through_files(model: onnx.ModelProto, convert: Callable[[str, str], object]) -> onnx.ModelProto:
    """Convert a model with a function that reads one file and writes another file."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/model.onnx")
        convert(f"{folder}/model.onnx", f"{folder}/converted.onnx")
        return onnx.load(f"{folder}/converted.onnx")


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model prepared as the quantiser's manual asks: optimised, with inferred shapes."""
    convert = partial(shape_inference.quant_pre_process, skip_symbolic_shape=True)
    return through_files(model, convert)


def halve(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that computes in float16; its inputs and outputs keep their dtypes."""
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
