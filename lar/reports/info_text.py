"""The content of a model, as text."""

from __future__ import annotations

from lar.engines import engine_named
from lar.errors import printable
from lar.records.run import ModelInfo, TensorInfo, format_shape
from lar.reports.cut_names import shorten
from lar.reports.text import PAPER, Screen, format_bytes, format_count, format_rows

# Of a model's own remarks: one of a text reader holds its alphabet, thousands of characters.
MOST_CHARACTERS = 200


def format_info(info: ModelInfo, screen: Screen = PAPER) -> list[str]:
    """Return the lines that describe a model."""
    unknown = f" (unknown for {', '.join(info.flops_unknown)})" if info.flops_unknown else ""
    sizes = {
        "inputs": info.input_bytes,
        "outputs": info.output_bytes,
        "between operators": info.activation_bytes,
    }
    known = [f"{what} {format_bytes(size)}" for what, size in sizes.items() if size is not None]
    memory = [f"memory: {', '.join(known)}"] if known else []
    shapes = [f"{printable(name)} {format_shape(shape)}" for name, shape in info.at.items()]
    facts = [
        f"model for {engine_named(info.engine).title}",
        f"parameters: {format_count(info.parameter_count)}",
        f"weights: {format_bytes(info.weight_bytes)}",
        f"FLOPs: {format_count(info.flops)}{unknown}; a multiply-accumulate counts as two",
        *memory,
        *([f"at: {', '.join(shapes)}"] if shapes else []),
        *(
            f"{printable(key)}: {shorten(printable(value), MOST_CHARACTERS)}"
            for key, value in info.metadata.items()
        ),
    ]
    kinds = {
        "input": [each for each in info.inputs if not each.optional],
        "optional input": [each for each in info.inputs if each.optional],
        "output": info.outputs,
    }
    tensors = [
        [kind, printable(tensor.name), describe_type(tensor), printable(tensor.shape_text)]
        for kind, group in kinds.items()
        for tensor in group
    ]
    counts = [[printable(name), str(count)] for name, count in info.operators.items()]
    total = sum(info.operators.values())
    return [
        *(line for fact in facts for line in screen.wrap(fact)),
        "",
        *format_rows(["tensor", "name", "dtype", "shape"], tensors, screen=screen),
        "",
        *format_rows([f"operator ({total})", "count"], counts, screen=screen),
    ]


def describe_type(tensor: TensorInfo) -> str:
    return f"sequence of {tensor.dtype}" if tensor.sequence else tensor.dtype
