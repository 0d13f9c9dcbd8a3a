"""The inputs, outputs and other tensors of OpenVINO's models: names, types, shapes and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lar.engines.flops import Shape
from lar.records.run import TensorInfo

Array = np.ndarray[Any, Any]

# OpenVINO's names of element types that NumPy has too, and of those that it has no name for.
DTYPES: Mapping[str, str] = {
    "boolean": "bool",
    **{f"{kind[0]}{n}": f"{kind}{n}" for kind in ("float", "int", "uint") for n in (8, 16, 32, 64)},
}
NARROW = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
FED = {**DTYPES, **NARROW}


def tensor_name(output: Any) -> str:
    """Return the name of a tensor that an operator gives, or of an input or output of a model: the
    operator's own name if it is among the tensor's names, else the first of these. A tensor without
    names is called by its operator, a result by the operator that it is the result of."""
    names, node = sorted(output.get_names()), output.get_node()
    own = str(node.get_friendly_name().partition("/sink_port_")[0])
    if names:
        return own if own in names else str(names[0])
    return f"{own}:{output.get_index()}" if node.get_output_size() > 1 else own


def shape_of(value: Any) -> Shape:
    """Return the shape of an output or input, with None for open axes."""
    shape = value.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(axis.get_length() if axis.is_static else None for axis in shape)


def describe(port: Any) -> TensorInfo:
    """Describe an input or output of a model; axes that are open take any size."""
    type_name, shape = port.get_element_type().get_type_name(), shape_of(port)
    return TensorInfo(
        name=tensor_name(port),
        dtype=FED.get(type_name, type_name),
        shape=shape or (),
        any_rank=shape is None,
    )


def results_of(model: Any) -> list[Any]:
    """Return the tensors that a model gives."""
    return [it.get_node().input_value(0) for it in model.outputs]


def array_of(tensor: Any) -> Array | str:
    """Return the array of a tensor, or the name of its type if lar has no such type."""
    type_name = tensor.element_type.get_type_name()
    if type_name in NARROW:
        import ml_dtypes  # most models do not need it

        narrow: Array = np.asarray(tensor.data).view(getattr(ml_dtypes, NARROW[type_name]))
        return narrow
    return tensor.data if type_name in DTYPES else f"tensor({type_name})"


def reshape(model: Any, arrays: Mapping[str, Array]) -> None:
    """Give the inputs of a model the shapes of arrays."""
    model.reshape({port: list(arrays[tensor_name(port)].shape) for port in model.inputs})
