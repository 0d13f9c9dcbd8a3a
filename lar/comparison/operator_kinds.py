"""What operators do, in words that hold for all engines: `Conv` with an activation fused in is
convolution, addition of a constant, activation.

Two tensors of different engines can be twins only where what was done last is of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lar.dumps.dump import DumpedOperator

Steps = tuple[str, ...]

# Kinds by operator type, in small letters. Those left out are their own kind.
KINDS = {
    "conv": "convolutionforward convbiasforward conv fusedconv qlinearconv convinteger nhwcconv"
    " nhwcfusedconv groupconv localshareforward deformableconvforward",
    "deconv": "convolutionbackwarddata convtranspose",
    "matmul": "matrixmul batchedmatrixmul matmul fusedmatmul gemm fusedgemm matmulinteger qgemm"
    " qlinearmatmul innerproduct",
    "pool": "poolingforward adaptivepoolingforward maxpool averagepool globalaveragepool"
    " globalmaxpool qlinearaveragepool qlinearglobalaveragepool",
    "reduce": "reduce reducemean reducesum reducemax reducemin reduceprod",
    "norm": "batchnorm batchnormforward batchnormalization layernorm layernormforward"
    " layernormalization instancenormalization groupnormforward groupnormalization"
    " skiplayernormalization simplifiedlayernormalization",
    "move": "reshape dimshuffle relayoutformat axisaddremove broadcast transpose flatten squeeze"
    " unsqueeze expand identity dropout copy reorderinput reorderoutput",
    "cast": "typecvt cast quantizelinear dequantizelinear dynamicquantizelinear",
    "softmax": "softmax softmaxforward",
    "sum": "add sum qlinearadd",
    "mul": "mul qlinearmul",
    "sub": "sub",
    "div": "div true_div",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}

# Kinds that may stand for one another, as MAX and MIN of constants for Clip.
GROUPS = {
    "activation": ("relu", "relu6", "clip", "max", "min"),
    "average": ("pool", "reduce"),
    "affine": ("add", "norm", "scale"),
}
GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}

# With a constant operand these are something else: a bias, a factor.
WITH_CONSTANT = {"sum": "add", "sub": "add", "mul": "scale", "div": "scale"}

# What does most of the computing, where several operators were fused.
HEAVY = ("conv", "deconv", "matmul")

# The end of an operator that may have an activation fused in: its parameters are unknown.
UNKNOWN = "?"

# Operators whose output jumps where their input changes by a rounding error.
DISCRETE = re.compile(
    r"arg(max|min|sort|_max|_min)|topk|cond_?take|nonzero|nonmaxsuppression|nms|round|floor|ceil"
    r"|sign$|equal|less|greater|lt|leq|eq|where|onehot|quantize|typecvt|cast|unique",
    re.IGNORECASE,
)

# MegEngine writes the mode of an elementwise operator in front of its operands.
MODE = re.compile(r"([A-Z][A-Z0-9_]*)\(")


def steps_of(operator: DumpedOperator, constants: Sequence[bool]) -> Steps:
    """Return the kinds of what an operator does, in order; `constants` tells for each of its
    inputs whether it is one."""
    name = operator.type.lower()
    if name in ("elemwise", "elemwisemultitype"):
        return elementwise_steps(operator, any(constants))
    kind = KIND_OF.get(name, name.removesuffix("forward"))
    if kind in HEAVY:
        return (kind, *fused_steps(operator, name, constants))
    return (WITH_CONSTANT.get(kind, kind) if any(constants) else kind,)


def elementwise_steps(operator: DumpedOperator, with_constant: bool) -> Steps:
    """Return the steps of an elementwise operator of MegEngine, as FUSE_ADD_RELU."""
    named = MODE.match(operator.name)
    mode = str(operator.parameters.get("mode", "") or (named[1] if named else "")).lower()
    mode = mode.removeprefix("q").removeprefix("fuse_")
    steps = []
    for first in ("mul_add3", "mul_add4", "add"):
        if mode.startswith(first + "_"):
            steps, mode = [first], mode.removeprefix(first + "_")
    kinds = [KIND_OF.get(step, step) for step in [*steps, mode or "elemwise"]]
    return tuple(WITH_CONSTANT.get(kind, kind) if with_constant else kind for kind in kinds)


def fused_steps(operator: DumpedOperator, name: str, constants: Sequence[bool]) -> list[str]:
    """Return what a convolution or a matrix product does with its result."""
    if name in ("qlinearconv", "qlinearmatmul"):
        return ["add"]
    steps = ["add" if constant else "sum" for constant in constants[2:]]
    parameters = {key.lower(): value for key, value in operator.parameters.items()}
    known = parameters.get("activation", parameters.get("nonlinemode"))
    if known is not None:
        mode = str(known).lower()
        return steps if mode in ("", "identity") else [*steps, mode]
    return [*steps, UNKNOWN] if name == "convbiasforward" else steps


def kind_score(one: Steps, other: Steps) -> float:
    """Return how well the ends of two operators fit: 0 not at all, 2 exactly."""
    if UNKNOWN in (one[-1], other[-1]):
        known, another = (one, other) if one[-1] == UNKNOWN else (other, one)
        if another[0] == known[0]:
            return 1.5 if another[: len(known) - 1] == known[:-1] else 0.0
        # Apart from the first, they may be the last of several operators.
        return 1.0 if another[-1] in known or another[-1] in GROUPS["activation"] else 0.0
    if one[-1] == other[-1]:
        return 2.0
    group = GROUP_OF.get(one[-1])
    return 1.0 if group is not None and group == GROUP_OF.get(other[-1]) else 0.0


def are_apart_by_bias(one: Steps, other: Steps) -> bool:
    """Tell whether one operator is the other one without its bias."""
    short, long = sorted((one, other), key=len)
    return short[0] in HEAVY and len(short) == 1 and long in ((short[0], "add"),)


def do_same(one: Steps, other: Steps) -> bool:
    """Tell whether two operators do the same with their operands."""
    return one[0] == other[0] and (one[0] in HEAVY or one == other)
