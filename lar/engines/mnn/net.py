"""What an `.mnn` file says of its operators and tensors, read without MNN.

The file is a FlatBuffers table, whose fields stand here by their numbers in MNN's schema
(schema/default/MNN.fbs in its sources). MNN checks a file before it loads it; this does not.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flatbuffers.number_types import BoolFlags, Int32Flags
from flatbuffers.table import Table

from lar.engines.formats import BROKEN
from lar.errors import UsageError

# The types of operators by their numbers, without those of training, of other frameworks and of
# older versions.
TYPE_TEXT = """
    0 AbsVal 2 ArgMax 4 InstanceNorm 6 Copy 7 BinaryOp 9 Cast 10 Concat 11 Const 12 Convolution
    13 ConvolutionDepthwise 14 Crop 17 Deconvolution 18 DeconvolutionDepthwise 19 Dequantize
    21 Dropout 22 Eltwise 23 ELU 24 Unique 25 Exp 26 ExpandDims 27 Fill 28 Flatten 29 Im2Col
    30 Gather 31 GatherV2 33 InnerProduct 34 Input 35 Interp 37 LRN 38 LSTM 39 MatMul
    41 NonMaxSuppression 42 NonMaxSuppressionV2 43 Normalize 44 Pack 45 Padding 46 Permute
    47 Pooling 48 Power 49 PReLU 65 Range 66 Rank 68 Reduction 69 ReLU 70 ReLU6 73 Reshape
    74 Resize 75 RNN 76 ROIPooling 77 Scale 78 Selu 80 Shape 81 Sigmoid 82 Size 83 Slice 84 SliceTf
    85 Softmax 86 SpaceToBatchND 88 Col2Im 90 Squeeze 91 StridedSlice 92 CastLike 95 TanH
    97 Threshold 98 Tile 99 TopKV2 100 Transpose 101 UnaryOp 102 Unpack 103 Where
    105 RNNSequenceGRU 106 BatchMatMul 107 Unsqueeze 109 DepthToSpace 110 SpaceToDepth
    111 ReverseSequence 112 Pooling3D 113 Convolution3D 114 MatrixBandPart 115 GatherND
    118 ScatterNd 119 OneHot 120 BroadcastTo 122 Interp3D 128 Raster 129 ConvertTensor 130 ArgMin
    131 LinSpace 132 RandomUniform 142 Reverse 143 ROIAlign 144 RandomNormal 147 EyeLike 148 CumSum
    149 Det 150 CumProd 151 ScatterElements 152 GatherElements 155 DynamicQuant 156 Stft 256 Plugin
    257 Select 258 ZerosLike 262 Identity 267 BatchNorm 268 ConvTranspose3D 299 Attention
    304 GroupNorm 307 FusedLinear 512 Extra 513 ConvInt8 514 Int8ToFloat 515 DepthwiseConvInt8
    517 FloatToInt8 518 EltwiseInt8 600 While 601 If 603 LayerNorm 604 GridSample
"""
TYPES = {int(number): name for number, name in re.findall(r"(\d+) (\S+)", TYPE_TEXT)}
# What operators on each element do, in the order of their numbers.
MODE_TEXT = {
    "BinaryOp": """
        add sub mul div max min pow div min max greater greaterorequal less floordiv
        squareddifference equal lessorequal floormod - mod atan2 or notequal bitwiseand bitwiseor
        bitwisexor xor leftshift rightshift mulsilu
    """,
    "UnaryOp": """
        abs neg floor ceil square sqrt rsqrt exp log sin cos tan asin acos atan reciprocal log1p
        bnll acosh sinh asinh atanh sign round cosh erf erfc erfinv expm1 sigmoid tanh hardswish
        gelu gelu silu
    """,
}
MODES = {name: dict(enumerate(text.split())) for name, text in MODE_TEXT.items()}
CONVOLUTIONS = ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DeconvolutionDepthwise")

# The operators whose result depends on shapes alone.
OF_SHAPES = ("Shape", "Rank", "Size")
# Those that give something else each time.
UNSTEADY = ("RandomUniform", "RandomNormal")


class NetOperator(NamedTuple):
    """An operator with the names of its tensors; `elements` counts those of its weights."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    elements: int


class Net(NamedTuple):
    """A model: its operators in their order, its outputs, and the axes of its inputs, -1 for one
    of any size."""

    operators: tuple[NetOperator, ...]
    outputs: tuple[str, ...]
    inputs: dict[str, tuple[int, ...]]

    def computed(self) -> list[NetOperator]:
        """Return the operators that compute something of what is fed.

        Conversions of a layout, which change no value, are left out: what takes their results
        takes what they took.
        """
        data, found = {*self.inputs}, []
        plain: dict[str, str] = {}
        for each in self.operators:
            taken = tuple(plain.get(name, name) for name in each.inputs)
            is_fixed = data.isdisjoint(taken) and each.type not in UNSTEADY
            if is_fixed or each.type in OF_SHAPES:
                continue
            data.update(each.outputs)
            if each.type == "ConvertTensor" and each.outputs[0] not in self.outputs:
                plain[each.outputs[0]] = taken[0]
            else:
                found.append(each._replace(inputs=taken))
        return found


class Record:
    """A table in the file; its fields have the numbers of the schema."""

    def __init__(self, data: bytes, place: int) -> None:
        self.table = Table(data, place)

    def number(self, field: int, default: int = 0, flags: Any = Int32Flags) -> int:
        offset = self.table.Offset(4 + 2 * field)
        return int(self.table.Get(flags, offset + self.table.Pos)) if offset else default

    def text(self, field: int) -> str:
        offset = self.table.Offset(4 + 2 * field)
        return str(self.table.String(offset + self.table.Pos), "utf-8") if offset else ""

    def array(self, field: int, dtype: str) -> np.ndarray[Any, Any]:
        """Return a list of numbers."""
        offset = self.table.Offset(4 + 2 * field)
        if not offset:
            return np.empty(0, dtype)
        count, begin = self.table.VectorLen(offset), self.table.Vector(offset)
        return np.frombuffer(self.table.Bytes, dtype, count, begin)

    def numbers(self, field: int) -> tuple[int, ...]:
        return tuple(map(int, self.array(field, "<i4")))

    def texts(self, field: int) -> list[str]:
        return [str(self.table.String(place), "utf-8") for place in self._places(field)]

    def records(self, field: int) -> list[Record]:
        places = map(self.table.Indirect, self._places(field))
        return [Record(self.table.Bytes, place) for place in places]

    def record(self, field: int) -> Record | None:
        """Return a table that stands in a field, one of a union too."""
        offset = self.table.Offset(4 + 2 * field)
        if not offset:
            return None
        return Record(self.table.Bytes, self.table.Indirect(offset + self.table.Pos))

    def _places(self, field: int) -> Iterable[int]:
        offset = self.table.Offset(4 + 2 * field)
        if not offset:
            return ()
        begin = self.table.Vector(offset)
        return range(begin, begin + 4 * self.table.VectorLen(offset), 4)


def read_net(path: Path) -> Net:
    """Read a model file.

    Raises:
        UsageError: it is damaged, or no such file.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    try:
        (root,) = struct.unpack_from("<I", data)
        net = Record(data, root)
        names = net.texts(7)
        operators = tuple(operator_of(each, names) for each in net.records(3))
        inputs = {
            name: parameters.numbers(0) if (parameters := each.record(2)) else ()
            for each, operator in zip(net.records(3), operators, strict=True)
            if operator.type == "Input"
            for name in operator.outputs
        }
        return Net(operators, tuple(net.texts(4)), inputs)
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise damaged(path) from error


def damaged(path: str | Path) -> UsageError:
    """Return the error of a file that is no whole model."""
    return UsageError("this is not an MNN model, or it is damaged", BROKEN, subject=path)


def operator_of(record: Record, names: list[str]) -> NetOperator:
    """Return an operator; inputs that are left out have the number -1."""
    number = record.number(5)
    kind, main = TYPES.get(number, f"operator {number}"), record.record(2)
    return NetOperator(
        name=record.text(3),
        type=kind,
        inputs=tuple(names[at] for at in record.numbers(0) if at >= 0),
        outputs=tuple(names[at] for at in record.numbers(4)),
        parameters=parameters_of(kind, main) if main else {},
        elements=elements_of(kind, main) if main else 0,
    )


def parameters_of(kind: str, main: Record) -> dict[str, Any]:
    """Return the parameters that say what an operator computes, as far as they are read."""
    if kind in MODES:
        return {"mode": MODES[kind].get(main.number(0), "")}
    common = main.record(0) if kind in CONVOLUTIONS else None
    if common is None:
        return {}
    activations = [name for at, name in ((12, "relu"), (13, "clip")) if is_set(common, at)]
    return {
        "kernel": [common.number(3, 1), common.number(2, 1)],
        "stride": [common.number(5, 1), common.number(4, 1)],
        "group": common.number(9, 1),
        "bias": bool(main.array(2, "<f4").any()),
        "activation": "".join(activations),
    }


def is_set(record: Record, field: int) -> bool:
    return bool(record.number(field, flags=BoolFlags))


def elements_of(kind: str, main: Record) -> int:
    """Return how many numbers an operator has as weights; single numbers are none."""
    if kind == "Const":
        shape, elements = main.numbers(0), main.number(2, 1)
        return prod(shape) if elements == 1 and prod(shape) > 1 else 0
    common = main.record(0) if kind in CONVOLUTIONS else None
    if common is None:
        return 0
    outputs, inputs, groups = common.number(10), common.number(11), common.number(9, 1)
    window = common.number(2, 1) * common.number(3, 1)
    return outputs * window * max(inputs // groups, 1) + outputs
