"""The operators of OpenVINO's models: their kinds, in words for all engines, and their work."""

from __future__ import annotations

from collections.abc import Mapping

from lar.dumps.dump import DumpedOperator
from lar.graphs.operator_kinds import OperatorKinds, Steps, kinds_by_type

# The parameter of a dumped operator that has the kinds of what it does, in order.
STEPS = "steps"

TYPES = {
    "conv": "convolution groupconvolution",
    "deconv": "convolutionbackpropdata groupconvolutionbackpropdata deconvolution",
    "matmul": "matmul fullyconnected",
    "pool": "maxpool avgpool pooling adaptiveavgpool adaptivemaxpool",
    "reduce": "reducemean reducesum reducemax reducemin reduceprod",
    "norm": "batchnorminference mvn groupnormalization normalizel2",
    "move": "reshape transpose squeeze unsqueeze reorder broadcast identity",
    "cast": "convert fakequantize",
    "softmax": "softmax",
    "sum": "add",
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "clip": "clamp",
    "max": "maximum",
    "min": "minimum",
    "hardswish": "hswish",
    "hardsigmoid": "hsigmoid",
    "lstm": "lstmsequence",
    "gru": "grusequence",
    "rnn": "rnnsequence",
}

# The types of operators of a model by the work that they do, as `lar.engines.flops` counts it.
WORK: Mapping[str, str] = {
    **kinds_by_type(
        {
            "convolution": "Convolution GroupConvolution",
            "deconvolution": "ConvolutionBackpropData GroupConvolutionBackpropData",
            "matrix product": "MatMul",
            "pooling": "MaxPool AvgPool",
            "elementwise": "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceiling Clamp Cos Cosh Divide"
            " Elu Equal Erf Exp Floor FloorMod Gelu Greater GreaterEqual HSigmoid HSwish"
            " HardSigmoid Less LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor Maximum"
            " Minimum Mish Mod Multiply Negative NotEqual PRelu Power Relu Round Select Selu"
            " Sigmoid Sign Sin Sinh SoftPlus SoftSign Sqrt SquaredDifference Subtract Swish Tan"
            " Tanh",
            "reduction": "CumSum ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd"
            " ReduceSum",
            "softmax": "LogSoftmax Softmax",
            "batch normalisation": "BatchNormInference",
            "normalisation": "GroupNormalization MVN",
            "rms normalisation": "NormalizeL2",
            "movement": "Broadcast Concat Convert ConvertLike DepthToSpace FakeQuantize Gather"
            " GatherElements GatherND Identity NonZero OneHot Pad Range Reshape Reverse"
            " ScatterElementsUpdate ScatterNDUpdate ScatterUpdate ShapeOf Slice SpaceToDepth Split"
            " Squeeze StridedSlice Tile TopK Transpose Unsqueeze VariadicSplit",
        }
    )
}


def steps_of(operator: DumpedOperator) -> Steps:
    """Return the kinds of what an operator of a dump does, none if the dump does not say them."""
    text = operator.parameters.get(STEPS)
    return tuple(text.split(",")) if isinstance(text, str) and text else ()


KINDS = OperatorKinds(
    kinds_by_type(TYPES),
    steps_by_mode=steps_of,
    opaque=frozenset({"if", "loop", "tensoriterator"}),
    random=frozenset({"randomuniform", "multinomial"}),
)
