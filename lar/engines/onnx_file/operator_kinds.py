"""The kinds of ONNX's operators and of those that ONNX Runtime fuses, in words for all engines."""

from __future__ import annotations

from lar.graphs.operator_kinds import OperatorKinds, kinds_by_type

TYPES = {
    "conv": "conv fusedconv qlinearconv convinteger nhwcconv nhwcfusedconv groupconv",
    "deconv": "convtranspose",
    "matmul": "matmul fusedmatmul gemm fusedgemm matmulinteger qgemm qlinearmatmul",
    "pool": "maxpool averagepool globalaveragepool globalmaxpool qlinearaveragepool"
    " qlinearglobalaveragepool",
    "reduce": "reducemean reducesum reducemax reducemin reduceprod",
    "norm": "batchnormalization layernormalization instancenormalization groupnormalization"
    " skiplayernormalization simplifiedlayernormalization",
    "move": "reshape transpose flatten squeeze unsqueeze expand identity dropout reorderinput"
    " reorderoutput",
    "cast": "cast quantizelinear dequantizelinear dynamicquantizelinear",
    "softmax": "softmax",
    "sum": "add sum qlinearadd",
    "mul": "mul qlinearmul",
    "sub": "sub",
    "div": "div",
}

KINDS = OperatorKinds(
    kinds_by_type(TYPES),
    biased=frozenset({"qlinearconv", "qlinearmatmul"}),
    opaque=frozenset({"sequencemap", "epcontext"}),
    random=frozenset(
        {"randomnormal", "randomnormallike", "randomuniform", "randomuniformlike"}
        | {"multinomial", "bernoulli"}
    ),
    # What a CPU has no float16 kernel for is computed in float32, and casts between are removed.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
