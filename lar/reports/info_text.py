"""The content of a model, as text."""

from __future__ import annotations

from lar.engines import engine_named
from lar.errors import printable
from lar.records.run import ModelInfo, TensorInfo
from lar.reports.text import PAPER, Screen, format_bytes, format_count, format_rows


def format_info(info: ModelInfo, screen: Screen = PAPER) -> list[str]:
    """Return the lines that describe a model."""
    unknown = f" (unknown for {', '.join(info.flops_unknown)})" if info.flops_unknown else ""
    facts = [
        f"model for {engine_named(info.engine).title}",
        f"parameters: {format_count(info.parameter_count)}",
        f"weights: {format_bytes(info.weight_bytes)}",
        f"FLOPs: {format_count(info.flops)}{unknown}; a multiply-accumulate counts as two",
        *(f"{printable(key)}: {printable(value)}" for key, value in info.metadata.items()),
    ]
    tensors = [
        [kind, printable(tensor.name), tensor.dtype, format_shape(tensor)]
        for kind, group in (("input", info.inputs), ("output", info.outputs))
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


def format_shape(tensor: TensorInfo) -> str:
    """Format a shape as {1,3,224,224}, with ? for an axis that takes any size."""
    return "{" + ",".join("?" if size is None else str(size) for size in tensor.shape) + "}"
