"""The report of `lar info`: the content of a model."""

from __future__ import annotations

from shlex import quote

from lar.engines import engine_named
from lar.records.run import ModelInfo, TensorInfo, format_shape
from lar.reports.model import table_of_values
from lar.reports.report import Report
from lar.reports.text import format_bytes, format_count, shorten

# The longest metadata value that is shown: a model that reads text may hold its alphabet there,
# with thousands of characters.
MOST_CHARACTERS = 200


def report_info(info: ModelInfo) -> Report:
    """Return the report that describes a model."""
    reasons = [f"unknown for {', '.join(info.flops_unknown)}"] if info.flops_unknown else []
    if axes := info.open_axes:
        given = quote(",".join(f"{axis}=N" for axis in axes))
        reasons.append(f"open axes: {', '.join(axes)}; lar info --shape {given} counts them")
    unknown = f" ({'; '.join(reasons)})" if reasons else ""
    sizes = {
        "inputs": info.input_bytes,
        "outputs": info.output_bytes,
        "between operators": info.activation_bytes,
    }
    known = [f"{what} {format_bytes(size)}" for what, size in sizes.items() if size is not None]
    shapes = [f"{name} {format_shape(shape)}" for name, shape in info.at.items()]
    facts = [
        f"model for {engine_named(info.engine).title}",
        f"parameters: {format_count(info.parameter_count)}",
        f"weights: {format_bytes(info.weight_bytes)}",
        f"FLOPs: {format_count(info.flops)}{unknown}; a multiply-accumulate counts as two",
        *([f"memory: {', '.join(known)}"] if known else []),
        *([f"at: {', '.join(shapes)}"] if shapes else []),
        *(f"{key}: {shorten(value, MOST_CHARACTERS)}" for key, value in info.metadata.items()),
    ]
    kinds = {
        "input": [each for each in info.inputs if not each.optional],
        "optional input": [each for each in info.inputs if each.optional],
        "output": info.outputs,
    }
    tensors = [
        (kind, tensor.name, describe_type(tensor), tensor.shape_text)
        for kind, group in kinds.items()
        for tensor in group
    ]
    operators = (f"operator ({sum(info.operators.values())})", "count")
    counts = [(name, str(count)) for name, count in info.operators.items()]
    return Report(
        style="info",
        body=(
            *facts,
            "",
            table_of_values("tensors", "Tensors", ("tensor", "name", "dtype", "shape"), tensors),
            "",
            table_of_values("operators", "Operators", operators, counts),
        ),
        document=info,
    )


def describe_type(tensor: TensorInfo) -> str:
    return f"sequence of {tensor.dtype}" if tensor.sequence else tensor.dtype
