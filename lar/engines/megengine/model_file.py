"""Describes a MegEngine model file without running the model.

A damaged file can crash the library that reads the file, so this code must run in a separate
process.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from lar.datasets.testcases import graphs_in
from lar.engines.formats import BROKEN, MEGENGINE, require_format
from lar.engines.megengine.driver import explain_megengine, import_package
from lar.engines.megengine.operator_kinds import FACTS
from lar.engines.megengine.packed_model import graph_in, is_packed, open_packed
from lar.engines.operator_facts import Operation, Shape, count_flops
from lar.errors import UsageError
from lar.records.run import ModelInfo, TensorInfo

KINDS = FACTS.work_by_type


def operation_of(
    type: str, inputs: Sequence[Shape], outputs: Sequence[Shape], parameters: Mapping[str, Any]
) -> Operation:
    """Return an operator as an `Operation`, for which lar has FLOP formulas.

    Raises:
        LookupError: a parameter or an input of the operator is missing.
    """
    kind = KINDS.get(type)
    if kind is None or kind == "movement":
        return Operation(type=type, kind=kind)
    taken, made, fused = list(inputs), list(outputs), 0
    if type in FACTS.inputs:
        taken = [taken[index] for index in FACTS.inputs[type]]
    if kind in ("convolution", "deconvolution"):
        taken[0] = channels_first(taken[0], parameters.get("format", "NCHW"))
        made[0] = channels_first(made[0], parameters.get("format", "NCHW"))
        if type == "ConvBiasForward":
            # The inputs after data and filter are the bias and a tensor to add.
            fused = len(taken) - 2 + (parameters.get("nonlineMode", "IDENTITY") != "IDENTITY")
    elif kind == "matrix product" and parameters.get("transposeA"):
        taken[0] = taken[0] and (*taken[0][:-2], taken[0][-1], taken[0][-2])
    taps = taps_of(type, kind, parameters)
    return Operation(
        type=type, kind=kind, inputs=tuple(taken), outputs=tuple(made), taps=taps, fused=fused
    )


def operation_in(operator: Any) -> Operation:
    """Return an operator of a loaded graph as an `Operation`, for which lar has FLOP formulas."""
    inputs, outputs = ([*map(shape_of, side)] for side in (operator.inputs, operator.outputs))
    return operation_of(operator.type, inputs, outputs, json.loads(operator.params or "{}"))


def taps_of(type: str, kind: str, parameters: Mapping[str, Any]) -> int:
    """Return the factor `taps` in the FLOP formula for an operator of this kind."""
    if type == "LRNForward":
        return int(2 * parameters["n"])
    if kind == "pooling":
        return int(parameters["window_h"] * parameters["window_w"])
    if kind == "elementwise":
        return operations_in(parameters.get("mode", ""))
    if kind == "interpolation":
        return FACTS.taps.get(parameters.get("imode", ""), 4)
    return 2 if parameters.get("mode") == "SUM_SQR" else 1


def operations_in(mode: str) -> int:
    """Return the number of operations of an elementwise mode, such as 2 for FUSE_MUL_ADD3."""
    if "FUSE_MUL_ADD4" in mode:
        return 3
    return 2 if "FUSE" in mode or mode in ("CLIP", "RELU6") else 1


def channels_first(shape: Shape, layout: str) -> Shape:
    """Return a tensor's shape in the order batch, channels, spatial axes."""
    if shape is None or None in shape:
        return None
    axes = FACTS.positions.get(layout, [0, 2, 3])
    channels = prod(length or 0 for axis, length in enumerate(shape) if axis not in axes)
    return (shape[axes[0]], channels, *(shape[axis] for axis in axes[1:]))


def shape_of(variable: Any) -> Shape:
    """Return a variable's shape, None if the shape depends on the data."""
    try:
        return None if variable.shape is None else tuple(variable.shape)
    except RuntimeError:
        return None


# The types of operators that are inputs or constants.
INPUT = "Host2DeviceCopy"
CONSTANTS = FACTS.moves["constants"]

# The bits of an element, for types that are smaller than a byte.
LOW_BITS: Mapping[str, int] = {"QuantizedS1": 1, "QuantizedS4": 4, "Quantized4Asymm": 4}


def read_model(path: Path) -> ModelInfo:
    """Read a description of a MegEngine model file.

    If the file has testcases, only the model is described, without the operators that compare
    outputs. The number of parameters is the number of elements in the floating-point and quantised
    constants that operators read. Constants with one element are not counted, since MegEngine also
    stores plain numbers as constants with one element.

    Raises:
        UsageError: the file cannot be read, is not a MegEngine model, or is damaged.
        EngineMissing: the package MegEngine, which reads the file, is not installed.
    """
    require_format(path, (MEGENGINE,), "MegEngine")
    graph, container = graph_in(str(path)), describe_container(str(path))
    megbrain_graph = import_package("megengine.core.tensor.megbrain_graph")
    try:
        loaded = megbrain_graph.load_graph(io.BytesIO(graph))
        info = describe_graph(model_outputs(loaded.output_vars_list))
        metadata = format_metadata(loaded.metadata)
    # A damaged file causes an error of the engine, or has names and numbers that make no sense.
    except (RuntimeError, ValueError, LookupError, MemoryError) as error:
        damage = UsageError("is not a MegEngine model, or is damaged", BROKEN, subject=path)
        raise explain_megengine(str(error), str(path), loading=True) or damage from error
    return ModelInfo(engine="megengine", metadata={**metadata, **container}, **info)


def describe_container(path: str) -> dict[str, str]:
    """Return what a file contains besides the model: testcases, or the parts of a packed file.

    Raises:
        UsageError: the file is damaged.
    """
    if not is_packed(path):
        graphs = graphs_in(path)
        return {"testcases": str(len(graphs) - 1)} if graphs else {}
    packed = open_packed(path)
    parts = [packed.name or "without a name"]
    parts += ["with settings"] if packed.info is not None else []
    parts += ["with a fast-run cache"] if packed.cache is not None else []
    return {"packed": ", ".join(parts)}


def model_outputs(outputs: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return a graph's outputs with names; an assertion is replaced by the compared output."""
    named = []
    for output in outputs:
        if output.owner.type == "AssertEqual":
            expected, actual = output.owner.inputs[:2]
            named.append((expected.name.removesuffix(":expect"), actual))
        else:
            named.append((output.name, output))
    return named


def describe_graph(outputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of ModelInfo for the graph that computes the given outputs."""
    from megengine.utils.comp_graph_tools import get_dep_vars

    owners = [variable.owner for variable in get_dep_vars([variable for _, variable in outputs])]
    found = {owner.id: owner for owner in sorted(owners, key=lambda owner: owner.id)}.values()
    operators = [it for it in found if it.type != INPUT and it.type not in CONSTANTS]
    taken = {variable.id: variable for operator in operators for variable in operator.inputs}
    weights = [variable for variable in taken.values() if is_weight(variable)]
    flops, flops_unknown = count_flops(map(operation_in, operators))
    inputs = [operator.outputs[0] for operator in found if operator.type == INPUT]
    return {
        "inputs": tuple(tensor_of(variable.name, variable, True) for variable in inputs),
        "outputs": tuple(tensor_of(name, variable, False) for name, variable in outputs),
        "operators": dict(Counter(operator.type for operator in operators).most_common()),
        "parameter_count": sum(prod(variable.shape) for variable in weights),
        "weight_bytes": sum(map(bytes_of, weights)),
        "flops": flops,
        "flops_unknown": flops_unknown,
    }


def tensor_of(name: str, variable: Any, resizable: bool) -> TensorInfo:
    """Describe an input or output; its shape is empty if the shape depends on the data."""
    dtype, shape = dtype_name(variable.dtype), shape_of(variable) or ()
    return TensorInfo(name=name, dtype=dtype, shape=shape, resizable=resizable)


def dtype_name(dtype: Any) -> str:
    """Return the NumPy name of a type, such as `bfloat16` for MegEngine's `pybfloat16`."""
    return str(dtype.name).removeprefix("py")


def quantised_name(dtype: Any) -> str:
    """Return MegEngine's name of a quantised type, an empty string for another type."""
    return str((dtype.metadata or {}).get("mgb_dtype", {}).get("name", ""))


def is_weight(variable: Any) -> bool:
    """Return whether a variable is a constant that holds parameters of the model."""
    is_number = "float" in dtype_name(variable.dtype) or quantised_name(variable.dtype)
    return variable.owner.type in CONSTANTS and bool(is_number) and prod(variable.shape) > 1


def bytes_of(variable: Any) -> int:
    """Return how many bytes a constant takes in the file."""
    bits = LOW_BITS.get(quantised_name(variable.dtype), 8 * int(variable.dtype.itemsize))
    return -(-int(prod(variable.shape)) * bits // 8)


def format_metadata(metadata: Any) -> dict[str, str]:
    """Return a model file's metadata as texts by name."""
    if not metadata.is_valid:
        return {}
    from megengine.core.tensor.megbrain_graph import deserialize_infer_option

    texts = {"optimized_for_inference": str(metadata.optimized_for_inference).lower()}
    # In a file that was not optimised, the options are uninitialised memory.
    if metadata.optimized_for_inference:
        options = deserialize_infer_option(metadata.optimize_options)
        texts["optimize_options"] = ", ".join(sorted(options)) or "none"
    if metadata.graph_modified:
        texts["graph_modified"] = "true"
    return texts
