"""Blocked layouts of a dump's tensors, found from the operators around them.

An array of five axes proves nothing: videos have five too. Certain are the formats that the engine
names, and convolutions over two axes whose result has five; operators that keep the layout pass it
on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from lar.dumps.dump import DumpedOperator, DumpedTensor
from lar.dumps.layouts import CHANNELS_LAST, block_of, fits_layout

CONVOLUTIONS = ("ConvolutionForward", "ConvBiasForward")
# The inputs and outputs of these have one layout, except constants of fewer axes.
KEEPING = re.compile(
    r"ConvolutionForward|ConvBiasForward|Elemwise(MultiType)?|TypeCvt|Concat|Identity"
    r"|(Adaptive)?PoolingForward|ResizeForward|WarpPerspectiveForward"
    r"|QLinear(Add|Mul|Concat|LeakyRelu|Sigmoid)"
)
# By the engine's own name for a tensor's format.
LAYOUTS = {
    r"I2D\{2,.*": "nhwcd4",
    r"NCHWC\{(\d{1,3})\}": r"nchw\1c",
    r"OIHWC\{(\d{1,3})\}": r"Oihw\1o",
    r"OIHWC\{(\d{1,3}),\d{1,3}\}": r"OIhw\1i\1o",
}
FORMATS = re.compile(r"(NCHW44_DOT|[A-Z]+\d*)(?:_(NCHW44_DOT|[A-Z]+\d*))?")


def layouts_of(
    tensors: Sequence[DumpedTensor], operators: Sequence[DumpedOperator]
) -> dict[str, str]:
    """Return the layouts of the tensors that are certainly blocked, by key.

    A layout that a tensor has already counts if it fits.
    """
    known = {tensor.key: tensor for tensor in tensors}
    found = {it.key: it.layout for it in tensors if fits_layout(it.shape, it.layout)}

    def mark(keys: Iterable[str], layout: str) -> None:
        for key in keys:
            if key in known and key not in found and fits_layout(known[key].shape, layout):
                found[key] = layout

    for operator in operators:
        before, after = layouts_of_operator(operator, known)
        mark(operator.outputs, after)
        if after == CHANNELS_LAST or operator.type in CONVOLUTIONS:
            mark(operator.inputs[:1], before)
        if operator.type in CONVOLUTIONS:
            group = operator.parameters.get("sparse") == "GROUP"
            for weight in filter(known.__contains__, operator.inputs[1:2]):
                mark([weight], layout_of_weight(known[weight].shape, before, after, group))
    count = -1
    while len(found) > count:
        count = len(found)
        for operator in operators:
            if KEEPING.fullmatch(operator.type):
                # The second and third inputs of a convolution are weights and bias.
                skipped = 2 if operator.type in CONVOLUTIONS else 0
                around = [*operator.outputs, *operator.inputs[skipped:]]
                mark(around, next((found[key] for key in around if key in found), ""))
    return found


def layout_of_weight(shape: tuple[int, ...], before: str, after: str, group: bool) -> str:
    """Return the layout of a convolution's weights, empty if it is unknown or plain.

    `before` and `after` are those of its input and output; `group` says that the engine calls it a
    convolution by groups. Source: `ConvBias` and `opr_param_defs.py` of MegDNN, and the dumps of
    MegEngine 1.13.
    """
    block = block_of(after)
    if after == "chwn4":
        tags = ["Ihwo4i"]
    elif re.fullmatch(r"nchw(4|32|64)", before):  # only blocks of input channels
        tags = [f"oIhw{block_of(before)}i", f"goIhw{block_of(before)}i"]
    elif after in ("nchw44", "nchw44_dot", "nchw88"):
        both = f"{block}o{block}i" if after == "nchw44_dot" else f"{block}i{block}o"
        # With one channel a group: {G/b,1,1,FH,FW,b}. A filter of the block's size looks alike.
        each = shape[1:3] == (1, 1) and (group or shape[-2] != block)
        tags = [f"Goihw{block}g" if each else f"OIhw{both}", f"gOIhw{both}", f"Ohwi{block}o"]
    else:
        return ""
    return next((tag for tag in tags if fits_layout(shape, tag)), "")


def layout_of_format(text: str) -> str:
    """Return the layout for an engine's name of a tensor's format, empty for an unknown format.

    `I2D{2,1}` is an image of four channels a pixel, `NCHWC{16}` has ONNX Runtime's blocks. Weights
    are images too, with another axis of channels.
    """
    return next((re.sub(*it, text) for it in LAYOUTS.items() if re.fullmatch(it[0], text)), "")


def layouts_of_operator(
    operator: DumpedOperator, tensors: Mapping[str, DumpedTensor]
) -> tuple[str, str]:
    """Return the layouts of an operator's inputs and outputs, empty if they are not certain."""
    kind, parameters = operator.type, operator.parameters
    # ONNX Runtime computes these operators with the channels of images last.
    last = kind.startswith("QLinear") and parameters.get("channels_last") == 1
    if last or kind.startswith("Nhwc"):
        return CHANNELS_LAST, CHANNELS_LAST
    named = FORMATS.fullmatch(str(parameters.get("format", "")))
    if named:
        return named[1].lower(), (named[2] or named[1]).lower()
    if kind not in CONVOLUTIONS or len(operator.inputs) < 2:
        return "", ""
    taken, weight, given = map(tensors.get, (*operator.inputs[:2], *operator.outputs[:1]))
    layout = guess_layout(given, weight) if given and weight else ""
    if re.fullmatch(r"nchw(4|32|64)", layout) and taken:  # it may have blocks of another size
        return f"nchw{taken.shape[-1] if taken.shape else 0}", layout
    return layout, layout


def guess_layout(given: DumpedTensor, weight: DumpedTensor) -> str:
    """Return the layout of the result of a convolution over two axes: it is blocked if it has five.

    nchw4, nchw44 and chwn4 hold the same numbers; the shape of the weights distinguishes them:
    {OC,IC/4,FH,FW,4}, {OC/4,IC/4,FH,FW,4,4} or {OC/4,FH,FW,IC,4}, {IC/4,FH,FW,OC,4}.
    """
    if len(given.shape) != 5 or given.shape[-1] not in (4, 8, 32, 64):
        return ""
    channels, block = given.shape[1], given.shape[-1]
    if len(weight.shape) != 5 or weight.shape[0] == channels:
        return {4: "nchw44", 8: "nchw88"}.get(block, f"nchw{block}")
    if weight.shape[0] == channels * block:
        return f"nchw{block}"
    return "chwn4" if block == 4 and weight.shape[3] == given.shape[0] * block else ""
