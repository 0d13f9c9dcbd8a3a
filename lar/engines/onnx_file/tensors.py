"""Reads the values of tensors from an ONNX file, or from a file beside it, as arrays."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lar.engines.onnx_file.fields import EXTERNAL, NUMBERS, Message, bits_of, place_of, type_name

Array = np.ndarray[Any, np.dtype[Any]]

# The fields of a message that hold elements which are not raw bytes, by type. Elements of other
# types are in `int32_data`, as integers or as their bits.
LISTS = {
    "float_data": "float32 complex64",
    "double_data": "float64 complex128",
    "int64_data": "int64",
    "uint64_data": "uint32 uint64",
}
FIELDS = {name: field for field, names in LISTS.items() for name in names.split()}
STORED = {"float_data": "f4", "double_data": "f8"}


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy type with this name; if NumPy lacks the type, `ml_dtypes` provides it."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def array_of(tensor: Message, folder: Path) -> Array:
    """Return the values of a tensor.

    `folder` is the folder of the tensor's model file.

    Raises:
        ValueError, LookupError, OSError: the values are damaged, or cannot be read.
    """
    name, shape = type_name(tensor.data_type), tuple(tensor.dims)
    if name == "object":
        return np.array([it.decode() for it in tensor.string_data], object).reshape(shape)
    dtype, bits = dtype_of(name), bits_of(name)
    data = data_of(tensor, folder)
    if not data and prod(shape):
        field = FIELDS.get(name, "int32_data")
        stored = STORED.get(field, f"u{dtype.itemsize}")
        data = np.array(getattr(tensor, field)).astype(stored).tobytes()
    if not bits or bits >= 8:
        return np.frombuffer(data, dtype).reshape(shape)
    # A byte has several elements, the first element in its lowest bits.
    packed = np.frombuffer(data, np.uint8)[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    elements = (packed & ((1 << bits) - 1)).reshape(-1)[: prod(shape)].reshape(shape)
    if name.startswith("float"):
        return elements.view(dtype)
    top = 1 << (bits - 1)
    signed = elements.astype(np.int8)
    return (signed if name.startswith("u") else (signed ^ top) - top).astype(dtype)


def data_of(tensor: Message, folder: Path) -> bytes:
    """Return the bytes of a tensor's elements, from the model or from another file.

    The bytes are empty if the elements are in a typed field, such as `float_data`.

    Raises:
        OSError: the file cannot be read.
    """
    if tensor.data_location != EXTERNAL:
        raw: bytes = tensor.raw_data
        return raw
    place = place_of(tensor)
    with open(folder / place.location, "rb") as file:
        file.seek(place.offset)
        return file.read(place.length or -1)


def tensor_of(array: Array, name: str = "", note: str = "") -> Message:
    """Return an array as a tensor message.

    `note` is written into a field that other programs ignore.
    """
    is_text = array.dtype.kind in "OSU"
    number, texts = NUMBERS["object" if is_text else array.dtype.name], {"doc_string": note}
    content: dict[str, Any] = {"name": name, **(texts if note else {})}
    if is_text:
        content["string_data"] = [str(each).encode() for each in array.reshape(-1)]
    else:
        content["raw_data"] = array.tobytes()
    return Message("Tensor", dims=[*array.shape], data_type=number, **content)


def dense_of(sparse: Message, folder: Path) -> Message:
    """Convert a sparse tensor to a dense tensor.

    The indices of the sparse tensor are positions in the flattened tensor, or positions along each
    axis.
    """
    values, places = (array_of(each, folder) for each in (sparse.values, sparse.indices))
    array = np.zeros(tuple(sparse.dims), values.dtype)
    array[np.unravel_index(places, array.shape) if places.ndim == 1 else (*places.T,)] = values
    return tensor_of(array, sparse.values.name)


def move_inside(tensor: Message, folder: Path) -> None:
    """Move the data of a tensor from a separate file into the model.

    Raises:
        OSError: the file cannot be read.
    """
    tensor.raw_data = data_of(tensor, folder)
    tensor.data_location, tensor.external_data = 0, []
