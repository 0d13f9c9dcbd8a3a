"""Graphs of operators and tensors, and the twins (matching tensors) of two graphs.

This module gives each kind of operator a name that is the same for all engines. A `Conv` with a
bias and a fused activation has three steps: convolution, addition of a constant, activation. Two
tensors of different engines can be twins only if the last steps that compute the two tensors are of
the same kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from lar.dumps import DumpedOperator

Steps = tuple[str, ...]


class OperatorKinds(NamedTuple):
    """A table of an engine's operator types (in lower case) and of what their operators do.

    `kinds` maps a type to its kind. A type that is not in this table is its own kind. `biased`
    operators add a bias that is not among their inputs. `may_fuse` operators may end in an
    activation that no parameter names. `steps_by_mode` returns the steps of an operator if the type
    alone does not show these steps, or else (). `opaque` operators run a function or another
    library: no dump shows what happens inside. Some tensors are computed in a wider type than the
    model says: for these tensors, `rounded` maps the beginning of the name to the type in the
    model. `random` operators draw random numbers. `rounding` says, by operator type, which numbers
    an operator with float inputs may round to integers. A value of `rounding` is `8-bit-factors`,
    `4-bit-weights`, or both names with a space between them. A key of `rounding` is a type, or a
    type with a parameter, such as `matmulnbits bits=4`.
    """

    kinds: Mapping[str, str] = {}
    biased: frozenset[str] = frozenset()
    may_fuse: frozenset[str] = frozenset()
    steps_by_mode: Callable[[DumpedOperator], Steps] = lambda operator: ()
    opaque: frozenset[str] = frozenset()
    rounded: Mapping[str, str] = {}
    random: frozenset[str] = frozenset()
    rounding: Mapping[str, str] = {}

    def kind_of(self, type: str) -> str:
        """Return the kind of an operator type."""
        name = type.lower()
        return self.kinds.get(name, name.removesuffix("forward"))

    def rounded_type_of(self, name: str) -> str:
        """Return the type that a tensor has in the model.

        The result is empty, unless the engine computes the tensor in a wider type.
        """
        return next((it for start, it in self.rounded.items() if name.startswith(start)), "")

    def rounding_of(self, operator: DumpedOperator) -> set[str]:
        """Return what an operator with float inputs rounds, such as `8-bit-factors`."""
        name = operator.type.lower()
        known = (name, *(f"{name} {key}={value}" for key, value in operator.parameters.items()))
        return {what for each in known for what in self.rounding.get(each, "").split()}

    def __or__(self, other: OperatorKinds) -> OperatorKinds:
        """Return both tables as one, for a dump of an unknown engine.

        If both tables have an entry, the entry of `other` is used.
        """
        return OperatorKinds(
            {**self.kinds, **other.kinds},
            self.biased | other.biased,
            self.may_fuse | other.may_fuse,
            lambda it: self.steps_by_mode(it) or other.steps_by_mode(it),
            self.opaque | other.opaque,
            {**self.rounded, **other.rounded},
            self.random | other.random,
            {**self.rounding, **other.rounding},
        )


# Kinds that may replace one another, such as MAX and MIN of constants for Clip.
GROUPS = {
    "activation": ("relu", "relu6", "clip", "max", "min"),
    "average": ("pool", "reduce"),
    "affine": ("add", "norm", "scale"),
}
GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}

# If all inputs but one are constants, the constants are a bias or a factor.
WITH_CONSTANT = {"sum": "add", "sub": "add", "mul": "scale", "div": "scale"}

# The kinds that do most of the computing in a fused operator.
HEAVY = ("conv", "deconv", "matmul")

# The last step of an operator that may end in a fused activation, if no parameter names it.
UNKNOWN = "?"

# The steps of a tensor in a dump that has no operators.
UNKNOWN_STEPS: Steps = (UNKNOWN,)

# Operators whose output may jump if their input changes by a rounding error.
DISCRETE = re.compile(
    r"arg(max|min|sort|_max|_min)|topk|cond_?take|nonzero|nonmaxsuppression|nms|round|floor|ceil"
    r"|\b(sign|lt|leq|eq|equal|(less|greater)(orequal)?|where)\b|onehot|quantize|typecvt|cast|unique",
    re.IGNORECASE,
)


def steps_of(operator: DumpedOperator, constants: Sequence[bool], table: OperatorKinds) -> Steps:
    """Return the kinds of an operator's steps in order.

    `constants` says for each input whether the input is a constant.
    """
    name = operator.type.lower()
    alone = any(constants) and sum(constants) >= len(constants) - 1
    if moded := table.steps_by_mode(operator):
        kinds = [table.kinds.get(step, step) for step in moded]
        return tuple(WITH_CONSTANT.get(kind, kind) if alone else kind for kind in kinds)
    kind = table.kind_of(name)
    if kind in HEAVY:
        return (kind, *fused_steps(operator, name, constants, table))
    return (WITH_CONSTANT.get(kind, kind) if alone else kind,)


def fused_steps(
    operator: DumpedOperator, name: str, constants: Sequence[bool], table: OperatorKinds
) -> list[str]:
    """Return the steps that a convolution or a matrix product applies to its own result."""
    if name in table.biased:
        return ["add"]
    steps = ["add" if constant else "sum" for constant in constants[2:]]
    parameters = {key.lower(): value for key, value in operator.parameters.items()}
    known = parameters.get("activation", parameters.get("nonlinemode"))
    if known is not None:
        mode = str(known).lower()
        return steps if mode in ("", "identity") else [*steps, mode]
    return [*steps, UNKNOWN] if name in table.may_fuse else steps


@cache
def kind_score(one: Steps, other: Steps) -> float:
    """Return how well the last steps of two operators match, from 2 (exactly) to 0 (not at all).

    The result is -1 if one operator adds a bias and the other operator does not. If one of two
    operators adds a bias and the other operator does not, the outputs are no twins (matching
    tensors), although the values are similar if the bias is small.
    """
    short, long = sorted((one, other), key=len)
    if len(short) == 1 and short[0] in HEAVY and long == (*short, "add"):
        return -1.0
    if UNKNOWN_STEPS in (one, other):
        return 2.0 if one == other else 0.0
    if UNKNOWN in (one[-1], other[-1]):
        known, another = (one, other) if one[-1] == UNKNOWN else (other, one)
        if another[0] == known[0]:
            return 1.5 if another[: len(known) - 1] == known[:-1] else 0.0
        # `another` may be the last operator of several, which the other side has fused.
        return 1.0 if another[-1] in known or another[-1] in GROUPS["activation"] else 0.0
    if one[-1] == other[-1]:
        return 2.0
    group = GROUP_OF.get(one[-1])
    return 1.0 if group is not None and group == GROUP_OF.get(other[-1]) else 0.0
