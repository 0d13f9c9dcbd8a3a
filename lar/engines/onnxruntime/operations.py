"""ONNX operators as the FLOP formulas take them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from onnx import helper

from lar.engines.flops import Operation, Shape

# The domains whose operators are meant below: ONNX's own, and those that ONNX Runtime fuses to.
DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")

# Operators by kind of work. One that stands nowhere here has no known number of FLOPs; control
# flow is such a one, for its work depends on the data.
OPERATORS: Mapping[str, str] = {
    "convolution": "Conv ConvInteger DeformConv FusedConv NhwcConv NhwcFusedConv QLinearConv",
    "deconvolution": "ConvTranspose",
    "matrix product": "FusedGemm FusedMatMul Gemm MatMul MatMulInteger MatMulNBits QLinearMatMul",
    "recurrence": "GRU LSTM RNN",
    "pooling": "AveragePool LRN LpPool MaxPool NhwcMaxPool QLinearAveragePool",
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasAdd BiasGelu BitShift BitwiseAnd
        BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu
        Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less
        LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearAdd
        QLinearLeakyRelu QLinearMul QLinearSigmoid QuickGelu Reciprocal Relu Round Selu Shrink
        Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where
        Xor
    """,
    "reduction": """
        ArgMax ArgMin CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool
        QLinearGlobalAveragePool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    """,
    "softmax": "Hardmax LogSoftmax QLinearSoftmax Softmax",
    "batch normalisation": "BatchNormalization",
    "normalisation": "GroupNormalization InstanceNormalization LayerNormalization"
    " MeanVarianceNormalization SkipLayerNormalization",
    "rms normalisation": "LpNormalization RMSNormalization SimplifiedLayerNormalization"
    " SkipSimplifiedLayerNormalization",
    "interpolation": "GridSample Resize Upsample",
    "movement": """
        Cast CastLike CenterCropPad Col2Im Compress Concat Constant ConstantOfShape DepthToSpace
        DequantizeLinear Dropout DynamicQuantizeLinear Expand EyeLike Flatten Gather
        GatherElements GatherND Identity MaxUnpool NonMaxSuppression NonZero OneHot Pad
        QLinearConcat QuantizeLinear Range ReorderInput ReorderOutput Reshape ReverseSequence
        Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile TopK
        Transpose Trilu Unique Unsqueeze
    """,
}
KINDS = {name: kind for kind, names in OPERATORS.items() for name in names.split()}

# Which inputs are the data and the weights, where they are not the first two.
INPUT_ORDER: Mapping[str, tuple[int, ...]] = {
    "GRU": (0, 1, 2),
    "LSTM": (0, 1, 2),
    "RNN": (0, 1, 2),
    "QLinearConv": (0, 3),
}

# The input that is a bias, or is added.
BIAS_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Conv": (2, 3),
    "ConvTranspose": (2,),
    "DeformConv": (3,),
    "FusedConv": (2, 3),
    "FusedGemm": (2,),
    "Gemm": (2,),
    "NhwcConv": (2,),
    "NhwcFusedConv": (2, 3),
    "QLinearConv": (8,),
}

# Operators that take any number of inputs, and combine them one by one.
VARIADIC = ("Max", "Mean", "Min", "Sum")
SQUARING = ("ReduceL2", "ReduceSumSquare", "GlobalLpPool")


def operation_of(node: Any, shapes: Mapping[str, Shape]) -> Operation:
    """Return a node as the FLOP formulas take it, given the shapes of the graph's tensors."""
    kind = KINDS.get(node.op_type) if node.domain in DOMAINS else None
    if kind is None or kind == "movement":
        return Operation(type=node.op_type, kind=kind)
    attributes = attributes_of(node)
    order = INPUT_ORDER.get(node.op_type, range(len(node.input)))
    inputs = [shapes.get(node.input[index]) for index in order if index < len(node.input)]
    outputs = [shapes.get(name) for name in node.output]
    if attributes.get("channels_last") or node.op_type.startswith("Nhwc"):
        inputs[:1], outputs = map(channels_first, inputs[:1]), [*map(channels_first, outputs)]
    if kind == "matrix product" and attributes.get("transA"):
        inputs[0] = swap_last_axes(inputs[0])
    biases = BIAS_INPUTS.get(node.op_type, ())
    fused = sum(index < len(node.input) and node.input[index] != "" for index in biases)
    return Operation(
        type=node.op_type,
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        taps=taps_of(node, kind, attributes),
        fused=fused + bool(attributes.get("activation")),
    )


def taps_of(node: Any, kind: str, attributes: Mapping[str, Any]) -> int:
    """Return what the formula of a kind calls taps."""
    if node.op_type == "LRN":
        return 2 * int(attributes.get("size", 1))
    if kind == "pooling":
        return prod(attributes.get("kernel_shape", ()))
    if node.op_type in VARIADIC:
        return max(1, len(node.input) - 1)
    if node.op_type == "Clip":
        return 2
    if kind == "interpolation":
        mode = attributes.get("mode", b"linear" if node.op_type == "GridSample" else b"nearest")
        return {b"nearest": 0, b"cubic": 16, b"bicubic": 16}.get(mode, 4)
    return 2 if node.op_type in SQUARING else 1


def attributes_of(node: Any) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {it.name: helper.get_attribute_value(it) for it in node.attribute}


def channels_first(shape: Shape) -> Shape:
    """Return the shape with the last axis, which is that of the channels, as the second."""
    return shape and (shape[0], shape[-1], *shape[1:-1])


def swap_last_axes(shape: Shape) -> Shape:
    """Return the shape of the transposed matrix."""
    return None if shape is None else (*shape[:-2], shape[-1], shape[-2])
