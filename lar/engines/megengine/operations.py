"""MegEngine's operators as the FLOP formulas take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from lar.engines.flops import Operation, Shape

# Operators by kind of work. One that stands nowhere here has no known number of FLOPs.
OPERATORS: Mapping[str, str] = {
    "convolution": "ConvolutionForward ConvBiasForward Convolution3DForward DeformableConvForward",
    "deconvolution": "ConvolutionBackwardData Convolution3DBackwardData",
    "local convolution": "LocalForward GroupLocalForward",
    "matrix product": "MatrixMul BatchedMatrixMul Dot",
    "recurrence": "RNN LSTM RNNCellForward LSTMCell",
    "pooling": "PoolingForward LRNForward",
    "elementwise": "Elemwise ElemwiseMultiType PowC AddUpdate WhereForward MaskedFill"
    " FakeQuantForward TQTForward LSQForward",
    "reduction": "Reduce Argmax Argmin Cumsum AdaptivePoolingForward",
    "softmax": "SoftmaxForward",
    "batch normalisation": "BatchNormForward",
    "normalisation": "LayerNormForward GroupNormForward InstanceNormForward GeneralNormForward",
    "interpolation": "ResizeForward RemapForward WarpAffineForward WarpPerspectiveForward",
    "movement": """
        Alloc ArgsortForward AxisAddRemove BatchedIncrMeshIndexing BatchedMeshIndexing
        BatchedSetMeshIndexing Broadcast Concat CondTake Copy Diag Dimshuffle Eye FlipForward
        GetVarShape Identity Images2NeibsForward IncrMeshIndexing IncrSubtensor
        IndexingIncrMultiAxisVec IndexingMultiAxisVec IndexingOneHot IndexingRemap
        IndexingSetMultiAxisVec IndexingSetOneHot Linspace MarkDynamicVar MarkNoBroadcastElemwise
        MeshIndexing NMSKeep NonZero PaddingForward ParamPackConcat ParamPackSplit
        PersistentOutputStorage RelayoutFormat RequireInputDynamicStorage Reshape RotateForward
        SetMeshIndexing SetSubtensor ShapeHint SlidingWindowTransposeForward Split Subtensor TopK
        TypeCvt VirtualDep
    """,
}
KINDS = {name: kind for kind, names in OPERATORS.items() for name in names.split()}

# Which inputs are the data and the weights, where they are not the first two.
INPUT_ORDER: Mapping[str, tuple[int, ...]] = {
    "ConvolutionBackwardData": (1, 0),
    "Convolution3DBackwardData": (1, 0),
    "RNN": (0, 2),
    "LSTM": (0, 3),
    "RNNCellForward": (0, 1, 4),
    "LSTMCell": (0, 1, 4),
}

# The batch and spatial axes of a layout; channels first, blocked or not, they are (0, 2, 3).
POSITION_AXES: Mapping[str, tuple[int, ...]] = {
    "NCDHW": (0, 2, 3, 4),
    "NDHWC": (0, 1, 2, 3),
    "NHWC": (0, 1, 2),
    "NCHW4_NHWC": (0, 1, 2),
    "NHWCD4": (0, 1, 3),
    "CHWN4": (3, 1, 2),
}

INTERPOLATION_TAPS: Mapping[str, int] = {"NEAREST": 0, "LINEAR": 4, "CUBIC": 16, "LANCZOS4": 64}


def operation_of(operator: Any) -> Operation:
    """Return an operator as the FLOP formulas take it."""
    kind = KINDS.get(operator.type)
    if kind is None or kind == "movement":
        return Operation(type=operator.type, kind=kind)
    inputs = [shape_of(variable) for variable in operator.inputs]
    outputs = [shape_of(variable) for variable in operator.outputs]
    if operator.type in INPUT_ORDER:
        inputs = [inputs[index] for index in INPUT_ORDER[operator.type]]
    parameters = json.loads(operator.params)
    fused = 0
    if kind in ("convolution", "deconvolution"):
        inputs[0] = channels_first(inputs[0], parameters["format"])
        outputs[0] = channels_first(outputs[0], parameters["format"])
        if operator.type == "ConvBiasForward":
            # The inputs behind data and filter are the bias and a tensor to add.
            fused = len(inputs) - 2 + (parameters["nonlineMode"] != "IDENTITY")
    elif kind == "matrix product" and parameters.get("transposeA"):
        inputs[0] = swap_last_axes(inputs[0])
    return Operation(
        type=operator.type,
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        taps=taps_of(operator.type, kind, parameters),
        fused=fused,
    )


def taps_of(type: str, kind: str, parameters: Mapping[str, Any]) -> int:
    """Return what the formula of a kind calls taps."""
    if type == "LRNForward":
        return int(2 * parameters["n"])
    if kind == "pooling":
        return int(parameters["window_h"] * parameters["window_w"])
    if kind == "elementwise":
        return operations_in(parameters.get("mode", ""))
    if kind == "interpolation":
        return INTERPOLATION_TAPS.get(parameters.get("imode", ""), 4)
    return 2 if parameters.get("mode") == "SUM_SQR" else 1


def operations_in(mode: str) -> int:
    """Return how many operations an elementwise mode is: FUSE_MUL_ADD3 is two."""
    if "FUSE_MUL_ADD4" in mode:
        return 3
    return 2 if "FUSE" in mode or mode in ("CLIP", "RELU6") else 1


def channels_first(shape: Shape, layout: str) -> Shape:
    """Return a tensor's shape as batch, channels, then the spatial axes."""
    if shape is None or None in shape:
        return None
    axes = POSITION_AXES.get(layout, (0, 2, 3))
    channels = prod(length or 0 for axis, length in enumerate(shape) if axis not in axes)
    return (shape[axes[0]], channels, *(shape[axis] for axis in axes[1:]))


def swap_last_axes(shape: Shape) -> Shape:
    """Return the shape of the transposed matrix."""
    return None if shape is None else (*shape[:-2], shape[-1], shape[-2])


def shape_of(variable: Any) -> Shape:
    """Return a variable's shape; None where it depends on the data."""
    try:
        return None if variable.shape is None else tuple(variable.shape)
    except RuntimeError:
        return None
