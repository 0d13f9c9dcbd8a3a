"""ONNX Runtime's values: of the types that NumPy has no name for, texts, sequences and maps too."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lar.dumps.values import Unheld, leaves_of
from lar.engines.onnx_file.fields import Message
from lar.engines.onnx_file.tensors import tensor_of

Array = np.ndarray[Any, Any]

# ONNX Runtime's names of element types, and what lar calls them.
DTYPES: Mapping[str, str] = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{
        f"tensor({kind}{bits})": f"{kind}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}
TEXT = "tensor(string)"
# Those that NumPy has no name for, with ONNX's numbers of them.
NARROW: Mapping[str, tuple[str, int]] = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}
NUMBERS = dict(NARROW.values())
# What lar calls the elements that it feeds.
FED = {**DTYPES, TEXT: "string", **{name: dtype for name, (dtype, _) in NARROW.items()}}


def make_value(
    onnxruntime: Any, given: Array | Sequence[Array], device: tuple[str, int] = ("cpu", 0)
) -> Any:
    """Return an OrtValue of an array, or of several as a sequence.

    On the CPU the value is the memory of an array of numbers, which it keeps.
    """
    if not isinstance(given, np.ndarray):
        return make_sequence(onnxruntime, given)
    if given.dtype.kind == "O":
        return make_texts(onnxruntime, given)
    if number := NUMBERS.get(given.dtype.name):
        plain = given.view(f"u{given.itemsize}")
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, number)
    return onnxruntime.OrtValue.ortvalue_from_numpy(given, *device)


def make_texts(onnxruntime: Any, texts: Array) -> Any:
    """Return an OrtValue of texts, which only a model makes."""
    node = Message("Node", op_type="Identity", input=["texts"], output=["value"])
    return run_node(onnxruntime, node, {}, [tensor_of(texts, "texts")])


def make_sequence(onnxruntime: Any, arrays: Sequence[Array]) -> Any:
    """Return an OrtValue of a sequence, which only a model makes."""
    values = {f"item{at}": make_value(onnxruntime, each) for at, each in enumerate(arrays)}
    node = Message("Node", op_type="SequenceConstruct", input=[*values], output=["value"])
    return run_node(onnxruntime, node, values)


def run_node(
    onnxruntime: Any, node: Message, values: Mapping[str, Any], constants: Sequence[Message] = ()
) -> Any:
    """Return what a node gives, as an OrtValue."""
    types = {
        name: Message("TensorType", elem_type=it.element_type()) for name, it in values.items()
    }
    graph = Message(
        "Graph",
        name="value",
        node=[node],
        initializer=[*constants],
        input=[
            Message("Value", name=name, type=Message("Type", tensor_type=kind))
            for name, kind in types.items()
        ],
        output=[Message("Value", name="value")],
    )
    opset = Message("Opset", version=17)
    model = Message("Model", ir_version=8, opset_import=[opset], graph=graph)
    session = onnxruntime.InferenceSession(model.encode(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("value")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def read_tensor(name: str, value: Any) -> Array | Unheld | None:
    """Return what an OrtValue holds that is no sequence and no map; None of an optional value that
    is not there."""
    if not value.has_value():
        return None
    kind = value.data_type()
    if kind in DTYPES or kind == TEXT:
        array: Array = value.numpy()
        return array
    if kind not in NARROW:
        return Unheld(name, f"no file holds a {kind}")
    from lar.inputs.dtypes import dtype_of

    size = value.tensor_size_in_bytes()
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), dtype_of(NARROW[kind][0])).reshape(value.shape())


def read_value(session: Any, name: str, value: Any) -> object:
    """Return what an OrtValue holds that a session gave as an output of a name; for what no array
    holds, why."""
    if value.is_tensor() or not value.has_value():
        return read_tensor(name, value)
    # Only a binding reads sequences and maps; it crashes where there are texts among its outputs.
    binding = session.io_binding()
    binding.bind_ortvalue_output(name, value)
    try:
        return binding.copy_outputs_to_cpu()[0]
    except RuntimeError:
        return Unheld(name, f"no array holds a {value.data_type()}")


class SessionOutputs(Mapping[str, Any]):
    """The outputs of a session, each made an array when it is asked for; the parts of sequences and
    maps by names of their own, `s[0]` and `p[cat]`. Of what no array holds, a text says why."""

    def __init__(self, session: Any, binding: Any) -> None:
        self._session = session
        self._values = dict(
            zip([node.name for node in session.get_outputs()], binding.get_outputs(), strict=True)
        )

    @cached_property
    def _parts(self) -> dict[str, Any]:
        return {
            part: leaf
            for name, value in self._values.items()
            for part, leaf in (
                [(name, value)]
                if value.is_tensor()
                else leaves_of(name, read_value(self._session, name, value))
            )
        }

    def __getitem__(self, name: str) -> Any:
        found = self._parts[name]
        if found is self._values.get(name):
            found = read_tensor(name, found)
        return found.reason if isinstance(found, Unheld) else np.asarray(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
