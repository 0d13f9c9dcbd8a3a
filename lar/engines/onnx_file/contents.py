"""The contents of an ONNX model file, read without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper, inliner, numpy_helper, shape_inference

from lar.engines.flops import Operation, Shape, count_flops
from lar.engines.formats import BROKEN, ONNX, begins_like_ort, read_head, require_format
from lar.engines.onnx_file.axes import axes_of
from lar.errors import UsageError
from lar.records.run import ModelInfo, TensorInfo

# The domains whose operators are meant below: ONNX's own, and those that ONNX Runtime fuses to.
DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")

# Operators by kind of work. One that stands nowhere here has no known number of FLOPs; control
# flow is such a one, for its work depends on the data.
OPERATORS: Mapping[str, str] = {
    "convolution": "Conv ConvInteger DeformConv FusedConv NhwcConv NhwcFusedConv QLinearConv",
    "deconvolution": "ConvTranspose",
    "matrix product": "FusedGemm FusedMatMul Gemm MatMul MatMulInteger MatMulNBits QLinearMatMul",
    "recurrence": "GRU LSTM RNN",
    "pooling": "AveragePool LRN LpPool MaxPool NhwcMaxPool QLinearAveragePool",
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasAdd BiasGelu BitShift BitwiseAnd
        BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu
        Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less
        LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearAdd
        QLinearLeakyRelu QLinearMul QLinearSigmoid QuickGelu Reciprocal Relu Round Selu Shrink
        Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where
        Xor
    """,
    "reduction": """
        ArgMax ArgMin CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool
        QLinearGlobalAveragePool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    """,
    "softmax": "Hardmax LogSoftmax QLinearSoftmax Softmax",
    "batch normalisation": "BatchNormalization",
    "normalisation": "GroupNormalization InstanceNormalization LayerNormalization"
    " MeanVarianceNormalization SkipLayerNormalization",
    "rms normalisation": "LpNormalization RMSNormalization SimplifiedLayerNormalization"
    " SkipSimplifiedLayerNormalization",
    "interpolation": "GridSample Resize Upsample",
    "movement": """
        Cast CastLike CenterCropPad Col2Im Compress Concat Constant ConstantOfShape DepthToSpace
        DequantizeLinear Dropout DynamicQuantizeLinear Expand EyeLike Flatten Gather
        GatherElements GatherND Identity MaxUnpool NonMaxSuppression NonZero OneHot Pad
        QLinearConcat QuantizeLinear Range ReorderInput ReorderOutput Reshape ReverseSequence
        Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile TopK
        Transpose Trilu Unique Unsqueeze
    """,
}
KINDS = {name: kind for kind, names in OPERATORS.items() for name in names.split()}

# Which inputs are the data and the weights, where they are not the first two.
INPUT_ORDER: Mapping[str, tuple[int, ...]] = {
    "GRU": (0, 1, 2),
    "LSTM": (0, 1, 2),
    "RNN": (0, 1, 2),
    "QLinearConv": (0, 3),
}

# The input that is a bias, or is added.
BIAS_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Conv": (2, 3),
    "ConvTranspose": (2,),
    "DeformConv": (3,),
    "FusedConv": (2, 3),
    "FusedGemm": (2,),
    "Gemm": (2,),
    "NhwcConv": (2,),
    "NhwcFusedConv": (2, 3),
    "QLinearConv": (8,),
}

# Operators that take any number of inputs, and combine them one by one.
VARIADIC = ("Max", "Mean", "Min", "Sum")
SQUARING = ("ReduceL2", "ReduceSumSquare", "GlobalLpPool")


def operation_of(node: Any, shapes: Mapping[str, Shape]) -> Operation:
    """Return a node as the FLOP formulas take it, given the shapes of the graph's tensors."""
    kind = KINDS.get(node.op_type) if node.domain in DOMAINS else None
    if kind is None or kind == "movement":
        return Operation(type=node.op_type, kind=kind)
    attributes = attributes_of(node)
    order = INPUT_ORDER.get(node.op_type, range(len(node.input)))
    inputs = [shapes.get(node.input[index]) for index in order if index < len(node.input)]
    outputs = [shapes.get(name) for name in node.output]
    if attributes.get("channels_last") or node.op_type.startswith("Nhwc"):
        inputs[:1], outputs = map(channels_first, inputs[:1]), [*map(channels_first, outputs)]
    if kind == "matrix product" and attributes.get("transA"):
        inputs[0] = swap_last_axes(inputs[0])
    biases = BIAS_INPUTS.get(node.op_type, ())
    fused = sum(index < len(node.input) and node.input[index] != "" for index in biases)
    return Operation(
        type=node.op_type,
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        taps=taps_of(node, kind, attributes),
        fused=fused + bool(attributes.get("activation")),
    )


def taps_of(node: Any, kind: str, attributes: Mapping[str, Any]) -> int:
    """Return what the formula of a kind calls taps."""
    if node.op_type == "LRN":
        return 2 * int(attributes.get("size", 1))
    if kind == "pooling":
        return prod(attributes.get("kernel_shape", ()))
    if node.op_type in VARIADIC:
        return max(1, len(node.input) - 1)
    if node.op_type == "Clip":
        return 2
    if kind == "interpolation":
        mode = attributes.get("mode", b"linear" if node.op_type == "GridSample" else b"nearest")
        return {b"nearest": 0, b"cubic": 16, b"bicubic": 16}.get(mode, 4)
    return 2 if node.op_type in SQUARING else 1


def attributes_of(node: Any) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {it.name: helper.get_attribute_value(it) for it in node.attribute}


def channels_first(shape: Shape) -> Shape:
    """Return the shape with the last axis, which is that of the channels, as the second."""
    return shape and (shape[0], shape[-1], *shape[1:-1])


def swap_last_axes(shape: Shape) -> Shape:
    """Return the shape of the transposed matrix."""
    return None if shape is None else (*shape[:-2], shape[-1], shape[-2])


# Constants of more elements are weights: their values are never needed here.
MOST_SHAPE_ELEMENTS = 1024

# Bits of an element of the types that are smaller than a byte.
LOW_BITS: Mapping[str, int] = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}

# What the types of operators that take quantised tensors have in their names.
QUANTISED = ("quantize", "qlinear", "qgemm", "integer", "nbits")

# Inputs that are floating-point and yet say how to compute, not with what.
SETTINGS: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}


# Types without a size: unknown, and text.
NO_SIZE = (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)


class Constant(NamedTuple):
    """A constant tensor, as far as it counts: ONNX's name of its type, and its shape."""

    type: str
    shape: tuple[int, ...]


def read_model(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ModelInfo:
    """Read what an ONNX model file holds; large weights stay unread.

    A parameter is an element of a floating-point constant that an operator takes, or of an
    integer one that a quantised operator takes; constants of one element are left out, being
    plain numbers more often than weights. Where the batch is open the FLOPs are those of one item,
    and `flops_at` in the metadata says so; with another axis open they are unknown. With `shapes`
    of inputs they are those at these shapes.

    Raises:
        UsageError: the file or its external weights cannot be read, or it is not an ONNX model, or
            a damaged one.
    """
    model = read_proto(path)
    # Damage also shows in names and numbers that make no sense.
    try:
        check_names(model.graph)
        check_external_weights(model, path)
        if model.functions:
            model = inliner.inline_local_functions(model)
        return describe_model(model, shapes or {})
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        raise damaged(path) from error


def read_proto(path: Path) -> Any:
    """Read a model file as it is; weights in files of their own stay there.

    Raises:
        UsageError: the file cannot be read, or it is not an ONNX model, or a damaged one.
    """
    check_format(path)
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        raise damaged(path) from error
    if not model.graph.output:
        raise damaged(path)
    return model


def dense_of(sparse: Any) -> Any:
    """Return a sparse tensor, whose indices count its elements or its axes, as a plain one."""
    values, places = (numpy_helper.to_array(each) for each in (sparse.values, sparse.indices))
    array = np.zeros(tuple(sparse.dims), values.dtype)
    array[np.unravel_index(places, array.shape) if places.ndim == 1 else (*places.T,)] = values
    return numpy_helper.from_array(array, sparse.values.name)


def damaged(path: Path) -> UsageError:
    return UsageError("not an ONNX model, or a damaged one", BROKEN, subject=path)


def check_format(path: Path) -> None:
    """Check that a file can be read and does not begin like one of another format.

    Raises:
        UsageError: it cannot, or does.
    """
    if begins_like_ort(read_head(path)):
        raise UsageError(
            "a model in the ORT format, which only ONNX Runtime itself reads",
            "give the .onnx file that it was made from",
            subject=path,
        )
    require_format(path, (ONNX,), "ONNX Runtime")


def check_external_weights(model: Any, path: Path) -> None:
    """Check that the weights that lie in files of their own are there; read the smallest.

    Raises:
        UsageError: a file is missing or too short.
    """
    for graph in graphs_in(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            entries = {entry.key: entry.value for entry in tensor.external_data}
            file = path.parent / entries.get("location", "")
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
            if not file.is_file():
                raise UsageError(
                    f"its weights file {file} is missing", "keep it beside the model", subject=path
                )
            if file.stat().st_size < offset + length:
                raise UsageError(f"its weights file {file} is cut short", BROKEN, subject=path)
            if length and prod(tensor.dims) <= MOST_SHAPE_ELEMENTS:
                with file.open("rb") as data:
                    data.seek(offset)
                    tensor.raw_data = data.read(length)
                tensor.data_location = onnx.TensorProto.DEFAULT


def check_names(graph: Any) -> None:
    """Check that the names in a graph are text.

    Raises:
        ValueError: one is not; protobuf then gives it as bytes.
    """
    names = [info.name for info in (*graph.input, *graph.output, *graph.initializer)]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is not UTF-8")


def describe_model(model: Any, given: Mapping[str, tuple[int, ...]]) -> ModelInfo:
    """Return what a model holds; FLOPs and bytes where inputs have the shapes given."""
    graphs = list(graphs_in(model.graph))
    nodes = [node for graph in graphs for node in graph.node if node.op_type != "Constant"]
    constants = constants_in(graphs)
    weights = [constants[name] for name in weight_names(nodes, constants)]
    inputs = [info for info in model.graph.input if info.name not in constants]
    # Those that have a value in the file may be fed all the same; older models list all of these.
    others = [it for it in model.graph.input if it.name in constants and model.ir_version >= 4]
    metadata = format_metadata(model)
    graph = infer_shapes(model).graph
    optional = (tensor_of(info, optional=True) for info in others)
    infos, outputs = (*map(tensor_of, inputs), *optional), tuple(map(tensor_of, graph.output))
    if given:
        set_shapes(model.graph, given)
        graph = infer_shapes(model).graph
    elif closed := close_batch(inputs):
        metadata["flops_at"] = ", ".join(f"{name}[0]=1" for name in closed)
        graph = infer_shapes(model).graph
    shapes = shapes_in(graph) | {name: constant.shape for name, constant in constants.items()}
    flops, flops_unknown = count_flops(operation_of(node, shapes) for node in graph.node)
    sizes, given_out = bytes_in(graph), [info.name for info in graph.output]
    made = {it for node in graph.node if node.op_type != "Constant" for it in node.output if it}
    return ModelInfo(
        engine="onnxruntime",
        inputs=infos,
        outputs=outputs,
        operators=dict(Counter(node.op_type for node in nodes).most_common()),
        parameter_count=sum(prod(constant.shape) for constant in weights),
        weight_bytes=sum(map(bytes_of, weights)),
        flops=flops,
        flops_unknown=flops_unknown,
        input_bytes=sum_of(sizes.get(info.name) for info in inputs),
        output_bytes=sum_of(sizes.get(name) for name in given_out),
        activation_bytes=sum_of(sizes.get(name) for name in made if name not in given_out),
        at=dict(given),
        metadata=metadata,
    )


def set_shapes(graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give inputs these shapes, and leave all others to be inferred from them."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.HasField("tensor_type") and info.name in shapes:
            info.type.tensor_type.ClearField("shape")
            for size in shapes[info.name]:
                info.type.tensor_type.shape.dim.add().dim_value = size
        elif info.type.HasField("tensor_type") and None in (shape_of(info.type.tensor_type) or ()):
            info.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def bytes_in(graph: Any) -> dict[str, int | None]:
    """Return how many bytes each tensor of a graph has, None where its shape is not known."""
    sizes: dict[str, int | None] = {}
    for info in (*graph.value_info, *graph.input, *graph.output):
        tensor = info.type.tensor_type
        shape = None if tensor.elem_type in NO_SIZE else shape_of(tensor)
        if shape is not None and None not in shape:
            known = tuple(size or 0 for size in shape)
            sizes[info.name] = bytes_of(Constant(type_name(tensor.elem_type), known))
    return sizes


def sum_of(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, None where a part is not known."""
    known = [*sizes]
    return None if None in known else sum(size or 0 for size in known)


def close_batch(inputs: Sequence[Any]) -> list[str]:
    """Set the first axis of inputs to 1 where it is open; return the names of those inputs."""
    closed = []
    for info in inputs:
        axes = info.type.tensor_type.shape.dim
        if axes and (not axes[0].HasField("dim_value") or axes[0].dim_value < 0):
            axes[0].dim_value = 1
            closed.append(info.name)
    return closed


def graphs_in(graph: Any) -> Iterator[Any]:
    """Yield a graph and those of its control flow."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from graphs_in(inner)


def constants_in(graphs: Sequence[Any]) -> dict[str, Constant]:
    """Return the initializers and the outputs of Constant nodes, by name."""
    found = {}
    for graph in graphs:
        for tensor in graph.initializer:
            found[tensor.name] = Constant(type_name(tensor.data_type), tuple(tensor.dims))
        # ONNX Runtime makes sparse ones dense.
        for tensor in graph.sparse_initializer:
            name, number = tensor.values.name, tensor.values.data_type
            found[name] = Constant(type_name(number), tuple(tensor.dims))
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                found[node.output[0]] = constant_of(node)
    return found


def constant_of(node: Any) -> Constant:
    """Return the tensor of a Constant node."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return Constant(type_name(attribute.t.data_type), tuple(attribute.t.dims))
        if attribute.name == "value_floats":
            return Constant("FLOAT", (len(attribute.floats),))
        if attribute.name == "value_ints":
            return Constant("INT64", (len(attribute.ints),))
    # What else it can hold is one number or text.
    return Constant("INT64", ())


def type_name(number: int) -> str:
    """Return ONNX's name of a type of elements, UNDEFINED for one that ONNX does not have."""
    known = number in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(number)) if known else "UNDEFINED"


def weight_names(nodes: Sequence[Any], constants: Mapping[str, Constant]) -> set[str]:
    """Return the names of the constants that are parameters of the model."""
    names = set()
    for node in nodes:
        quantised = any(word in node.op_type.lower() for word in QUANTISED)
        for index, name in enumerate(node.input):
            constant = constants.get(name)
            if constant is None or index in SETTINGS.get(node.op_type, ()):
                continue
            is_number = quantised or "FLOAT" in constant.type or constant.type == "DOUBLE"
            if is_number and prod(constant.shape) > 1:
                names.add(name)
    return names


def bytes_of(constant: Constant) -> int:
    """Return how many bytes a constant takes in the file."""
    bits = LOW_BITS.get(constant.type)
    if bits is None:
        number = onnx.TensorProto.DataType.Value(constant.type)
        bits = 8 * helper.tensor_dtype_to_np_dtype(number).itemsize
    return -(-prod(constant.shape) * bits // 8)


def infer_shapes(model: Any) -> Any:
    """Return a model with all shapes that can be known; drops the values of its weights."""
    for graph in graphs_in(model.graph):
        for tensor in graph.initializer:
            if prod(tensor.dims) > MOST_SHAPE_ELEMENTS:
                tensor.ClearField("raw_data")
    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except shape_inference.InferenceError:
        return model


def shapes_in(graph: Any) -> dict[str, Shape]:
    """Return the shapes of a graph's tensors, by name."""
    return {
        info.name: shape_of(info.type.tensor_type)
        for info in (*graph.value_info, *graph.input, *graph.output)
    }


def shape_of(tensor: Any) -> Shape:
    """Return the shape of a tensor type, None where even the rank is unknown. A size of -1 is any
    size, as the engine takes it."""
    if not tensor.HasField("shape"):
        return None
    return tuple(
        axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0 else None
        for axis in tensor.shape.dim
    )


def tensor_of(info: Any, *, optional: bool = False) -> TensorInfo:
    """Return an input or output; the shape of one of unknown rank is empty."""
    kind, sequence = info.type, info.type.HasField("sequence_type")
    if sequence and kind.sequence_type.elem_type.HasField("tensor_type"):
        kind = kind.sequence_type.elem_type
    if not kind.HasField("tensor_type") and kind.WhichOneof("value"):
        named = kind.WhichOneof("value").removesuffix("_type")
        return TensorInfo(name=info.name, dtype=named, shape=(), any_rank=True)
    tensor = kind.tensor_type
    shape, axes = axes_of(
        axis.dim_value if axis.HasField("dim_value") else axis.dim_param
        for axis in tensor.shape.dim
        if not sequence
    )
    return TensorInfo(
        name=info.name,
        dtype=dtype_name(tensor.elem_type),
        shape=shape,
        axes=axes,
        any_rank=sequence or not tensor.HasField("shape"),
        optional=optional,
        sequence=sequence,
    )


def dtype_name(number: int) -> str:
    """Return lar's name of ONNX's type of elements. Without a type in the file, one is known only
    where shape inference finds it."""
    if not number:
        return "unknown"
    is_text = number == onnx.TensorProto.STRING
    return "string" if is_text else str(helper.tensor_dtype_to_np_dtype(number).name)


def format_metadata(model: Any) -> dict[str, str]:
    """Return what the file says about itself as text."""
    opsets = [f"{it.domain or 'ai.onnx'} {it.version}" for it in model.opset_import]
    producer = f"{model.producer_name} {model.producer_version}".strip()
    return {
        **{prop.key: prop.value for prop in model.metadata_props},
        "ir_version": str(model.ir_version),
        "opset": ", ".join(opsets),
        **({"producer": producer} if producer else {}),
    }
