"""Dumps made by hand, from operators and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from lar.dumps import Dump, DumpedOperator, DumpedTensor, DumpIndex
from lar.records.run import Quantization


@dataclass(frozen=True)
class Step:
    """An operator of a dump made by hand and the tensor it gives; without inputs it is data."""

    name: str
    type: str
    inputs: tuple[str, ...]
    array: npt.NDArray[Any]
    layout: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    dtype: str = ""
    quantization: Quantization | None = None
    hidden: bool = False  # the dump lacks the tensor


def dump_of(*steps: Step, prefix: str = "", outputs: tuple[str, ...] = ()) -> Dump:
    """Return a dump made by hand; `prefix` makes the keys differ from those of other dumps,
    `outputs` are what the model gives."""
    tensors = tuple(
        DumpedTensor(
            key=prefix + step.name,
            name=step.name,
            dtype=step.dtype or step.array.dtype.name,
            shape=step.array.shape,
            layout=step.layout,
            operator=f"{prefix}op {step.name}",
            quantization=step.quantization,
        )
        for step in steps
        if not step.hidden
    )
    operators = tuple(
        DumpedOperator(
            key=f"{prefix}op {step.name}",
            name=f"{step.type}({','.join(step.inputs)})",
            type=step.type,
            inputs=tuple(prefix + name for name in step.inputs),
            outputs=(prefix + step.name,),
            parameters=step.parameters,
            constant=step.type == "constant",
        )
        for step in steps
    )
    arrays = {prefix + step.name: step.array for step in steps}
    index = DumpIndex(tensors=tensors, operators=operators, outputs=outputs)
    return Dump(prefix or "made by hand", index, lambda tensor: arrays[tensor.key])
