"""ONNX Runtime's values, also texts, sequences, maps and types that NumPy has no name for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lar.dumps.recording import Unheld, leaves_of
from lar.engines.driver import LateOutputs
from lar.engines.onnx_file.fields import NUMBERS, Message
from lar.engines.onnx_file.tensors import dtype_of, tensor_of
from lar.engines.onnxruntime.providers import CPU
from lar.inputs.dtypes import NARROW as WITHOUT_NUMPY
from lar.inputs.dtypes import is_narrow

Array = np.ndarray[Any, Any]

WHOLE = (f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
PLAIN = ("bool", *WHOLE, "float16", "float32", "float64")
OTHER_NAMES = {"float32": "float", "float64": "double"}  # in ONNX Runtime
# lar's names of element types by the engine's; NumPy has none of those in NARROW.
DTYPES = {f"tensor({OTHER_NAMES.get(name, name)})": name for name in PLAIN}
NARROW = {f"tensor({name.replace('8_', '8')})": name for name in WITHOUT_NUMPY}
TEXT = "tensor(string)"
# lar's names of the elements that it feeds.
FED = {**DTYPES, TEXT: "string", **NARROW}


def tensor_type(dtype: str) -> Message:
    """Return the type of tensors of elements that NumPy calls so."""
    return Message("Type", tensor_type=Message("TensorType", elem_type=NUMBERS[dtype]))


def type_named(name: str) -> Message:
    """Return a type by the engine's name of it: `tensor(float)`, `seq(tensor(float))`.

    Raises:
        LookupError: lar cannot feed it.
    """
    kind, _, inner = name.removesuffix(")").partition("(")
    if kind == "tensor":
        dtype = FED.get(name, inner)
        return tensor_type("object" if dtype == "string" else dtype)
    field = {"seq": "sequence_type", "optional": "optional_type"}[kind]
    content: dict[str, Any] = {field: Message("Sequence", elem_type=type_named(inner))}
    return Message("Type", **content)


def graph_alone(
    nodes: Iterable[Message], types: Mapping[str, Message], outputs: Iterable[str], **content: Any
) -> Message:
    """Return a graph of some nodes, which is fed with tensors of these types."""
    return Message(
        "Graph",
        name="alone",
        node=[*nodes],
        input=[Message("Value", name=name, type=kind) for name, kind in types.items()],
        output=[Message("Value", name=name) for name in outputs],
        **content,
    )


def model_alone(graph: Message, *domains: str) -> bytes:
    """Return a model of a graph, with the operators of other domains."""
    opsets = [Message("Opset", domain=domain, version=1) for domain in domains]
    opsets.append(Message("Opset", version=17))
    return Message("Model", ir_version=8, graph=graph, opset_import=opsets).encode()


def make_value(
    onnxruntime: Any, given: Array | Sequence[Array], device: tuple[str, int] = ("cpu", 0)
) -> Any:
    """Return an OrtValue of an array, or of several as a sequence.

    On the CPU the value is the memory of an array of numbers, which it keeps.
    """
    # Only models make sequences and texts.
    if not isinstance(given, np.ndarray):
        values = {f"item{at}": make_value(onnxruntime, each) for at, each in enumerate(given)}
        return run_node(onnxruntime, "SequenceConstruct", values)
    if given.dtype.kind == "O":
        return run_node(onnxruntime, "Identity", {}, tensor_of(given, "texts"))
    if is_narrow(given.dtype):
        plain, number = given.view(f"u{given.itemsize}"), NUMBERS[given.dtype.name]
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, number)
    return onnxruntime.OrtValue.ortvalue_from_numpy(given, *device)


def run_node(
    onnxruntime: Any, operator: str, values: Mapping[str, Any], *constants: Message
) -> Any:
    """Return what an operator gives, as an OrtValue."""
    names = [*values, *(each.name for each in constants)]
    node = Message("Node", op_type=operator, input=names, output=["value"])
    types = {name: type_named(it.data_type()) for name, it in values.items()}
    graph = graph_alone([node], types, ["value"], initializer=[*constants])
    session = onnxruntime.InferenceSession(model_alone(graph), providers=[CPU])
    return session.run_with_ort_values(["value"], values)[0]


def read_tensor(name: str, value: Any) -> Array | Unheld | None:
    """Return what an OrtValue holds that is no sequence and no map; None if it is an optional value
    that is missing; an array as it is."""
    if isinstance(value, np.ndarray):
        return value
    if not value.has_value():
        return None
    kind = value.data_type()
    if kind in DTYPES or kind == TEXT:
        array: Array = value.numpy()
        return array
    if kind not in NARROW:
        return Unheld(name, f"no file holds a {kind}")
    size = value.tensor_size_in_bytes()
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), dtype_of(NARROW[kind])).reshape(value.shape())


def read_value(session: Any, name: str, value: Any) -> object:
    """Return the content of an OrtValue, an output of a session with that name, or the reason why
    no array holds it."""
    if value.is_tensor() or not value.has_value():
        return read_tensor(name, value)
    # Only a binding reads sequences and maps; it crashes where there are texts among its outputs.
    binding = session.io_binding()
    binding.bind_ortvalue_output(name, value)
    try:
        return binding.copy_outputs_to_cpu()[0]
    except RuntimeError:
        return Unheld(name, f"no array holds a {value.data_type()}")


def outputs_of(session: Any, binding: Any) -> Mapping[str, Any]:
    """Return the outputs of a session, each made an array when it is asked for.

    Parts of sequences and maps have names of their own, `s[0]` and `p[cat]`. If no array can hold a
    part, a text says why."""
    from onnxruntime import OrtValue  # loaded already

    tensors, parts = dict[str, Any](), dict[str, Any]()
    vector = binding.get_outputs_as_ortvaluevector()  # to iterate over it takes 20 us
    for at, node in enumerate(session.get_outputs()):
        value = OrtValue(vector[at])
        if value.is_tensor():
            tensors[node.name] = parts[node.name] = value
        else:
            parts.update(leaves_of(node.name, read_value(session, node.name, value)))

    def read(name: str) -> Any:
        found = read_tensor(name, tensors[name]) if name in tensors else parts[name]
        return found.reason if isinstance(found, Unheld) else np.asarray(found)

    return LateOutputs([*parts], read)
