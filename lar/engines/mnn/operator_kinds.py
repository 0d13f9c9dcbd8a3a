"""The kinds of MNN's operators, in words for all engines."""

from __future__ import annotations

from lar.dumps.dump import DumpedOperator
from lar.graphs.operator_kinds import OperatorKinds, Steps, kinds_by_type


def steps_by_mode(operator: DumpedOperator) -> Steps:
    """Return the steps of an operator whose parameters say what it does, none for another."""
    known = operator.parameters
    if "activation" in known:
        heavy = "deconv" if operator.type.startswith("Deconv") else "conv"
        return tuple(filter(None, (heavy, "add" if known["bias"] else "", known["activation"])))
    return (known["mode"],) if known.get("mode") else ()


TYPES = {
    "conv": "convolution convolutiondepthwise convint8 depthwiseconvint8 convolution3d",
    "deconv": "deconvolution deconvolutiondepthwise convtranspose3d",
    "matmul": "matmul batchmatmul innerproduct fusedlinear",
    "pool": "pooling pooling3d",
    "reduce": "reduction",
    "norm": "layernorm batchnorm instancenorm groupnorm normalize",
    "move": "raster converttensor reshape flatten squeeze unsqueeze expanddims permute transpose"
    " identity copy dropout broadcastto",
    "cast": "cast floattoint8 int8tofloat",
    "softmax": "softmax",
    "clip": "relu6",
    "sum": "add",
}

KINDS = OperatorKinds(
    kinds_by_type(TYPES),
    steps_by_mode=steps_by_mode,
    opaque=frozenset({"while", "if", "plugin", "extra"}),
    random=frozenset({"randomuniform", "randomnormal"}),
)
