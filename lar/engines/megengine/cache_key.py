"""What the names and keys in a fast-run cache mean: operator, shapes, settings, winograd.

Category of a search, and the key of one entry in it:

    profile:DEVICE:OPERATORvVERSIONSET    profile:plat=cpu:ConvBiasForwardv5X0
    SHAPE[;STRIDES];DTYPE|...PARAMETERS   1,8,32,32;Float32|16,8,3,3;Float32|... raw struct

SET names the family of algorithms (X0: x86). The parameters are the operator's C struct, its
fields in the order of its definition; a size of 0 in a shape stands for any batch. Neither the
threads, the workspace limit nor the preprocessing of weights is part of a key, and of the machine
only `plat=cpu` (for CUDA the device's name, too).

Read from MegEngine 1.13: src/core/impl/utils/persistent_cache.cpp (key), dnn/scripts/
opr_param_defs.py (parameters), dnn/src/common/conv_bias.cpp (names of winograd algorithms).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

CATEGORY = re.compile(r"profile:(.*):(\w+?)v(\d+)(.*)")
OPERAND = re.compile(rb"(\d+(?:,\d+)*)?(?:;(-?\d+(?:,-?\d+)*))?;([A-Za-z]\w*)\|")
WINOGRAD = re.compile(r"WINOGRAD(?:_NCHW\d+)?:[^:]+:(\d+):(\d+):(\d+):(\d+)$")

# The attribute of an algorithm is a sum of these.
ATTRIBUTES: Mapping[int, str] = {
    1: "reproducible",
    2: "naive",
    4: "depends on shape",
    8: "depends on batch",
}


@dataclass(frozen=True)
class Field:
    """One field of an operator's parameters; told unless it has its default."""

    name: str
    default: int | None = None
    names: tuple[str, ...] = ()


PLANE = tuple(
    Field(f"{name}_{axis}", default)
    for name, default in (("pad", 0), ("stride", 1), ("dilate", 1))
    for axis in "hw"
)
MODE = Field("mode", 0, ("CROSS_CORRELATION", "CONVOLUTION"))
SPARSE = Field("sparse", 0, ("DENSE", "GROUP"))
COMPUTE = Field("compute_mode", 0, ("DEFAULT", "FLOAT32"))
FORMAT = Field(
    "format",
    0,
    (
        "NCHW",
        "NHWC",
        "NHWCD4",
        "NCHW4",
        "NCHW8",
        "NCHW32",
        "NCHW88",
        "NCHW44",
        "NCHW44_DOT",
        "NCHW4_NCHW32",
        "NCHW32_NCHW4",
        "NCHW4_NCHW",
        "NHWC_NCHW",
        "NHWC_NCHW4_IC_SMALL",
        "NCHW_NCHW4_IC_SMALL",
        "CHWN4",
        "NCHW64",
        "NCHW4_NHWC",
    ),
)
NONLINEAR = Field("nonlinear", 0, ("IDENTITY", "RELU", "SIGMOID", "H_SWISH"))
NO_YES = ("no", "yes")

CONVOLUTION = ("<10I", (MODE, *PLANE, SPARSE, FORMAT, COMPUTE))
POOLING = (
    "<8I",
    (
        Field("mode", None, ("MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING")),
        *PLANE[:2],
        *(Field(f"{name}_{axis}") for name in ("stride", "window") for axis in "hw"),
        FORMAT,
    ),
)
MATRIX_MUL = (
    "<??2xII",
    (
        Field("transpose_a", 0, NO_YES),
        Field("transpose_b", 0, NO_YES),
        COMPUTE,
        Field("format", 0, ("DEFAULT", "MK4", "MK8", "MK4_DOT", "N32K4_DOT")),
    ),
)
PARAMETERS: Mapping[str, tuple[str, tuple[Field, ...]]] = {
    "ConvBiasForward": ("<11I", (NONLINEAR, MODE, SPARSE, FORMAT, *PLANE, COMPUTE)),
    "BatchConvBiasForward": ("<11I", (NONLINEAR, MODE, *PLANE, SPARSE, FORMAT, COMPUTE)),
    "ConvolutionForward": CONVOLUTION,
    "ConvolutionBackwardData": CONVOLUTION,
    "ConvolutionBackwardFilter": CONVOLUTION,
    "DeformableConvForward": CONVOLUTION,
    "DeformableConvBackwardData": CONVOLUTION,
    "DeformableConvBackwardFilter": CONVOLUTION,
    "PoolingForward": POOLING,
    "PoolingBackward": POOLING,
    "MatrixMul": MATRIX_MUL,
    "BatchedMatrixMul": MATRIX_MUL,
}


@dataclass(frozen=True)
class Profile:
    """What the category of a search says."""

    device: str
    operator: str
    version: int


@dataclass(frozen=True)
class Operand:
    """One input or output; the strides are given where they are not the dense ones."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Key:
    """A decoded key. Without known parameters `settings` is empty."""

    operands: tuple[Operand, ...]
    settings: tuple[tuple[Field, int], ...] = field(default=())


def profile_of(category: str) -> Profile | None:
    """Read the name of a category, None for one that holds no search."""
    match = CATEGORY.fullmatch(category)
    return match and Profile(match[1], match[2], int(match[3]))


def key_of(operator: str, blob: bytes) -> Key:
    """Decode a key as far as it is understood."""
    operands, end = [], 0
    while match := OPERAND.match(blob, end):
        operands.append(Operand(numbers_of(match[1]), numbers_of(match[2]), match[3].decode()))
        end = match.end()
    layout, fields = PARAMETERS.get(operator, ("", ()))
    if struct.calcsize(layout) != len(blob) - end:
        return Key(tuple(operands))
    values = map(int, struct.unpack(layout, blob[end:]))
    return Key(tuple(operands), tuple(zip(fields, values, strict=True)))


def numbers_of(text: bytes | None) -> tuple[int, ...]:
    """Read 1,8,32,32."""
    return tuple(map(int, text.split(b","))) if text else ()


def value_of(part: Field, number: int) -> int | str:
    """Return the value of a field, by name where it has names."""
    return part.names[number] if number < len(part.names) else number


def format_key(key: Key) -> str:
    """Format {1,8,32,32} {16,8,3,3} -> {1,16,32,32} Float32, pad 1; the defaults are left out."""
    given = [operand for operand in key.operands if operand.shape]
    if not given:
        return "unknown shapes"
    *before, last = map(format_operand, given)
    dtypes = "/".join(dict.fromkeys(operand.dtype for operand in given))
    shapes = f"{' '.join(before)} -> {last} {dtypes}" if before else f"{last} {dtypes}"
    return ", ".join([shapes, *format_settings(key)])


def format_operand(operand: Operand) -> str:
    """Format a shape as {?,8,32,32}, ? where any size goes."""
    shape = "{" + ",".join(str(size) if size else "?" for size in operand.shape) + "}"
    strides = ",".join(map(str, operand.strides))
    return f"{shape} strides {{{strides}}}" if strides else shape


def format_settings(key: Key) -> list[str]:
    """Format the settings that are not the default ones, a pair of equal sizes as one."""
    told = {part.name: number for part, number in key.settings if number != part.default}
    both = dict.fromkeys(name[:-2] for name in told if name.endswith(("_h", "_w")))
    numbers = {part.name: number for part, number in key.settings}
    lines = [
        f"{part.name} {value_of(part, number)}"
        for part, number in key.settings
        if part.name in told and part.name[:-2] not in both
    ]
    for name in both:
        height, width = numbers[f"{name}_h"], numbers[f"{name}_w"]
        lines.append(f"{name} {height}" if height == width else f"{name} {height}x{width}")
    return lines


def winograd_of(algorithm: str) -> str:
    """Return which winograd an algorithm is, empty for none.

    F(m,r) computes m outputs of a filter of r by transforming tiles of m+r-1; the numbers in
    WINOGRAD:MATMUL:4:2:16:3 are the channels in a block, m, the tiles in a unit of work, and r.
    """
    if match := WINOGRAD.search(algorithm):
        return f"F({match[2]},{match[4]})"
    return "winograd" if "WINOGRAD" in algorithm else ""


def attributes_of(attribute: int) -> tuple[str, ...]:
    """Return the names of an algorithm's attributes."""
    return tuple(name for bit, name in ATTRIBUTES.items() if attribute & bit)
