"""Describes ONNX model files: inputs, outputs, operators, parameters and FLOPs.

The package onnx is imported only for `lar info`, to infer shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines.formats import ONNX, begins_like_ort, read_head, require_format
from lar.engines.onnx_file import fields
from lar.engines.onnx_file.fields import Message, attributes_of, check_size, place_of, type_name
from lar.engines.onnx_file.operators import FACTS, WORK
from lar.engines.onnx_file.tensors import move_inside
from lar.engines.operator_facts import Operation, Shape, count_flops
from lar.errors import UsageError
from lar.records.run import ModelInfo, TensorInfo

# The domains of the operators in `WORK`: ONNX's own, and those of ONNX Runtime's fused operators.
DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")

# Operators with any number of inputs, which they combine one by one.
VARIADIC = ("Max", "Mean", "Min", "Sum")


def operation_of(node: Message, shapes: Mapping[str, Shape]) -> Operation:
    """Return a node as an `Operation`, for which lar has FLOP formulas.

    `shapes` has the shapes of tensors by name.
    """
    kind = WORK.get(node.op_type) if node.domain in DOMAINS else None
    if kind is None or kind == "movement":
        return Operation(type=node.op_type, kind=kind)
    attributes = attributes_of(node)
    order = FACTS.inputs.get(node.op_type, range(len(node.input)))
    inputs = [shapes.get(node.input[index]) for index in order if index < len(node.input)]
    outputs = [shapes.get(name) for name in node.output]
    if attributes.get("channels_last") or node.op_type.startswith("Nhwc"):
        inputs[:1], outputs = map(channels_first, inputs[:1]), [*map(channels_first, outputs)]
    if kind == "matrix product" and attributes.get("transA") and (first := inputs[0]):
        inputs[0] = (*first[:-2], first[-1], first[-2])
    biases = FACTS.biases.get(node.op_type, ())
    fused = sum(index < len(node.input) and node.input[index] != "" for index in biases)
    return Operation(
        type=node.op_type,
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        taps=taps_of(node, kind, attributes),
        fused=fused + bool(attributes.get("activation")),
    )


def taps_of(node: Message, kind: str, attributes: Mapping[str, Any]) -> int:
    """Return the factor `taps` in the FLOP formula for a node of this kind."""
    if node.op_type == "LRN":
        return 2 * int(attributes.get("size", 1))
    if kind == "pooling":
        return prod(attributes.get("kernel_shape", ()))
    if node.op_type in VARIADIC:
        return max(1, len(node.input) - 1)
    if kind == "interpolation":
        mode = attributes.get("mode", "linear" if node.op_type == "GridSample" else "nearest")
        return {"nearest": 0, "cubic": 16, "bicubic": 16}.get(mode, 4)
    return FACTS.taps.get(node.op_type, 1)


def channels_first(shape: Shape) -> Shape:
    """Move the last axis of a shape, which is the axis of the channels, to the second place."""
    return shape and (shape[0], shape[-1], *shape[1:-1])


# A constant with more elements is no shape but a weight, and its values are not needed here.
MOST_SHAPE_ELEMENTS = 1024

# Parts of the type names of operators that take quantised tensors.
QUANTISED = ("quantize", "qlinear", "qgemm", "integer", "nbits")


class Known(NamedTuple):
    """The type (NumPy's name) and the shape of a tensor; an unknown type is an empty string."""

    type: str = ""
    shape: Shape = None

    @property
    def elements(self) -> int:
        """The number of the tensor's elements, if the shape of the tensor is known."""
        return prod(size or 0 for size in self.shape or ())

    @property
    def size_bytes(self) -> int | None:
        """The tensor's size in bytes, None if its shape or the size of an element is unknown."""
        bits = fields.bits_of(self.type)
        if bits is None or self.shape is None or None in self.shape:
            return None
        return -(-self.elements * bits // 8)


def read_model(
    path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None, engine: str = "onnxruntime"
) -> ModelInfo:
    """Read a description of an ONNX model file, without reading large weights.

    The number of parameters is the number of elements in the floating-point constants that
    operators read, and in the integer constants that quantised operators read. Constants with one
    element are not counted, since most of these constants are plain numbers. FLOPs are counted for
    the given `shapes` of inputs. If no shapes are given, an open batch axis is assumed to be 1, and
    `flops_at` in the metadata reports this. If an axis other than the batch axis is open, the FLOPs
    are unknown, and `open_axes` names the axis.

    Raises:
        UsageError: the file or its external weights cannot be read, or the file is damaged or is
            not an ONNX model.
    """
    try:
        return describe_model(without_weights(read_message(path), path), shapes or {}, engine)
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        raise fields.damaged(path) from error


def read_message(path: Path) -> Message:
    """Open a model file; damage inside a field is detected later, when the field is read.

    Raises:
        UsageError: the file cannot be read, is not an ONNX model, or is damaged.
    """
    if begins_like_ort(read_head(path)):
        problem = "a model in the ORT format, which only ONNX Runtime itself reads"
        raise UsageError(problem, "give the .onnx file from which the model was made", subject=path)
    require_format(path, (ONNX,), "ONNX Runtime")
    try:
        model = fields.open_model(path)
        if not model.graph.output:
            raise fields.damaged(path)
    except ValueError as error:
        raise fields.damaged(path) from error
    return model


def without_weights(model: Message, path: Path) -> Message:
    """Return a model without the values of its weights, and with its functions inlined.

    Values that may be shapes are kept, and are read from external files if necessary.

    Raises:
        UsageError: an external file is missing or too short.
    """
    sizes: dict[str, int] = {}
    for graph in fields.graphs_in(model.graph):
        for tensor in graph.initializer:
            is_small = prod(tensor.dims) <= MOST_SHAPE_ELEMENTS
            if tensor.data_location == fields.EXTERNAL:
                check_size(place_of(tensor), path, sizes)
                if is_small and place_of(tensor).length:
                    move_inside(tensor, path.parent)
            elif not is_small:
                tensor.raw_data = b""
    if model.functions:
        import onnx
        from onnx import inliner

        inlined = inliner.inline_local_functions(onnx.load_from_string(model.encode()))
        model = Message("Model", inlined.SerializeToString())
    return model


def describe_model(model: Message, given: Mapping[str, tuple[int, ...]], engine: str) -> ModelInfo:
    """Return the description of a model, with FLOPs and bytes for the given input shapes."""
    graphs = [*fields.graphs_in(model.graph)]
    nodes = [node for graph in graphs for node in graph.node if node.op_type != "Constant"]
    constants = constants_in(graphs)
    weights = weights_in(nodes, constants)
    inputs = [info for info in model.graph.input if info.name not in constants]
    metadata = format_metadata(model)
    graph = infer_shapes(model).graph
    infos, outputs = inputs_in(model, constants), tuple(map(info_of, graph.output))
    closed = {} if given else closed_batches(inputs)
    if given or closed:
        set_shapes(model.graph, given or closed, infers_others=bool(given))
        graph = infer_shapes(model).graph
    tensors = tensors_in(graph) | constants
    shapes = {name: each.shape for name, each in tensors.items()}
    flops, flops_unknown = count_flops(operation_of(node, shapes) for node in graph.node)
    open_axes = () if given or flops is not None else open_axes_of(infos)
    if open_axes:  # lar counts the types in WORK for known sizes
        flops_unknown = tuple(it for it in flops_unknown if it not in WORK)
    if closed and flops is not None:
        metadata["flops_at"] = ", ".join(f"{name}[0]=1" for name in closed)
    given_out = [info.name for info in graph.output]
    made = {it for node in graph.node if node.op_type != "Constant" for it in node.output if it}
    return ModelInfo(
        engine=engine,
        inputs=infos,
        outputs=outputs,
        operators=dict(Counter(node.op_type for node in nodes).most_common()),
        parameter_count=sum(each.elements for each in weights),
        weight_bytes=sum(each.size_bytes or 0 for each in weights),
        flops=flops,
        flops_unknown=flops_unknown,
        open_axes=open_axes,
        input_bytes=bytes_in(tensors, (info.name for info in inputs)),
        output_bytes=bytes_in(tensors, given_out),
        activation_bytes=bytes_in(tensors, made.difference(given_out)),
        at=dict(given),
        metadata=metadata,
    )


def inputs_in(model: Message, constants: Container[str]) -> tuple[TensorInfo, ...]:
    """Return the inputs of a model; optional inputs, which have a value in the file, come last.

    Models before IR version 4 have no optional inputs, since they list all weights as inputs.
    """
    held = [info for info in model.graph.input if info.name in constants]
    return (
        *(info_of(info) for info in model.graph.input if info.name not in constants),
        *(replace(info_of(info), optional=True) for info in held if model.ir_version >= 4),
    )


def read_ends(path: Path) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Return the inputs and the outputs of a model file, without inferring shapes.

    Raises:
        UsageError: as `read_message`.
    """
    model = read_message(path)
    held = {each.name for each in fields.held_in(model.graph)}
    return inputs_in(model, held), tuple(map(info_of, model.graph.output))


def set_shapes(graph: Message, shapes: Mapping[str, Shape], *, infers_others: bool) -> None:
    """Set the shapes of a graph's inputs and outputs.

    If `infers_others` is true, all other open shapes are removed, so that they can be inferred.
    """
    for info in (*graph.input, *graph.output):
        tensor = info.type.tensor_type
        if "tensor_type" in info.type and (shape := shapes.get(info.name)) is not None:
            axes = [Message("Axis") if n is None else Message("Axis", dim_value=n) for n in shape]
            tensor.shape = Message("Shape", dim=axes)
        elif infers_others and None in (shape_of(tensor) or ()):
            kind = Message("TensorType", elem_type=tensor.elem_type)
            info.type = Message("Type", tensor_type=kind)
    if infers_others:
        graph.value_info = []


def bytes_in(tensors: Mapping[str, Known], names: Iterable[str]) -> int | None:
    """Return the size of some tensors in bytes, None if the size of one of them is unknown."""
    sizes = [tensors.get(name, Known()).size_bytes for name in names]
    return None if None in sizes else sum(size or 0 for size in sizes)


def closed_batches(inputs: Iterable[Message]) -> dict[str, Shape]:
    """Return the shapes of inputs whose first axis (the batch) is open, with this axis set to 1."""
    shapes = {info.name: shape_of(info.type.tensor_type) for info in inputs}
    return {name: (1, *it[1:]) for name, it in shapes.items() if it and it[0] is None}


def open_axes_of(infos: Iterable[TensorInfo]) -> tuple[str, ...]:
    """Return the open axes of inputs, as `--shape` names them; the batch is left out."""
    found = {
        name if name.isidentifier() else f"{info.name}[{place}]": None
        for info in infos
        for place, name in enumerate(info.axes or [""] * len(info.shape))
        if place and info.shape[place] is None and not info.optional
    }
    return tuple(found)


def constants_in(graphs: Iterable[Message]) -> dict[str, Known]:
    """Return the initializers and the outputs of Constant nodes, by name.

    Sparse initializers count as dense tensors, since engines convert sparse initializers to dense
    tensors.
    """
    found = {}
    for graph in graphs:
        whole = (*graph.initializer, *graph.sparse_initializer)
        for tensor, each in zip(fields.held_in(graph), whole, strict=True):
            found[tensor.name] = Known(type_name(tensor.data_type), tuple(each.dims))
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                found[node.output[0]] = constant_of(node)
    return found


def constant_of(node: Message) -> Known:
    """Return the tensor of a Constant node."""
    given = attributes_of(node)
    if "value" in given:
        return Known(type_name(given["value"].data_type), tuple(given["value"].dims))
    # Without `value`, a Constant holds a list, a number or a string.
    numbers = given.get("value_floats", given.get("value_ints"))
    kind = "float32" if "value_floats" in given else "int64"
    return Known(kind, () if numbers is None else (len(numbers),))


def weights_in(nodes: Sequence[Message], constants: Mapping[str, Known]) -> Collection[Known]:
    """Return the constants that are parameters of the model."""
    found = {}
    for node in nodes:
        quantised = any(word in node.op_type.lower() for word in QUANTISED)
        settings = FACTS.settings.get(node.op_type, ())
        for index, name in enumerate(node.input):
            constant = None if index in settings else constants.get(name)
            if constant and (quantised or "float" in constant.type) and constant.elements > 1:
                found[name] = constant
    return found.values()


def infer_shapes(model: Message) -> Message:
    """Return a model with the shapes of inner tensors, as far as they can be inferred."""
    from onnx import shape_inference

    try:
        found = shape_inference.infer_shapes(model.encode(), data_prop=True)
    except shape_inference.InferenceError:
        return model
    return Message("Model", found.SerializeToString())


def tensors_in(graph: Message) -> dict[str, Known]:
    """Return the types and shapes of a graph's tensors, by name."""
    infos = (*graph.value_info, *graph.input, *graph.output)
    return {
        name: Known(type_name(it.elem_type) if it.elem_type else "", shape_of(it))
        for name, it in {info.name: info.type.tensor_type for info in infos}.items()
    }


def axes_in(tensor: Message) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the sizes and the names of the axes of a tensor type.

    A size of -1 in the file stands for any size, as it does in engines.
    """
    return fields.axes_of(
        it.dim_value if "dim_value" in it else it.dim_param for it in tensor.shape.dim
    )


def shape_of(tensor: Message) -> Shape:
    """Return the shape of a tensor type, None if the number of axes is unknown."""
    return axes_in(tensor)[0] if "shape" in tensor else None


def kind_of(value: Message) -> str:
    """Return the kind of an input or output, such as tensor, sequence or map."""
    kinds = (name for name in fields.SCHEMA["Type"] if name in value.type)
    return next(kinds, "tensor_type").removesuffix("_type")


def info_of(value: Message) -> TensorInfo:
    """Describe an input or output; its shape is empty if the number of axes may vary."""
    kind, sequence = value.type, "sequence_type" in value.type
    if sequence and "tensor_type" in kind.sequence_type.elem_type:
        kind = kind.sequence_type.elem_type
    elif kind_of(value) != "tensor":
        return TensorInfo(name=value.name, dtype=kind_of(value), shape=(), any_rank=True)
    tensor = kind.tensor_type
    shape, axes = ((), ()) if sequence else axes_in(tensor)
    # The file may lack the type; it is then known only after shape inference.
    dtype = type_name(tensor.elem_type) if tensor.elem_type else "unknown"
    return TensorInfo(
        name=value.name,
        dtype="string" if dtype == "object" else dtype,
        shape=shape,
        axes=axes,
        any_rank=sequence or "shape" not in tensor,
        sequence=sequence,
    )


def format_metadata(model: Message) -> dict[str, str]:
    """Return a model's metadata as texts by name."""
    producer = f"{model.producer_name} {model.producer_version}".strip()
    return {
        **{each.key: each.value.decode() for each in model.metadata_props},
        "ir_version": str(model.ir_version),
        "opset": ", ".join([f"{it.domain or 'ai.onnx'} {it.version}" for it in model.opset_import]),
        **({"producer": producer} if producer else {}),
    }


def refuse_others(path: Path, inputs: Iterable[Message]) -> None:
    """Refuse inputs that are neither tensors nor sequences.

    Raises:
        UsageError: an input is neither a tensor nor a sequence; the error names the input.
    """
    for each in inputs:
        kind = kind_of(each)
        if kind not in ("tensor", "sequence"):
            problem = f"the model's input {each.name} is a {kind}, which lar cannot feed"
            raise UsageError(problem, subject=path)
