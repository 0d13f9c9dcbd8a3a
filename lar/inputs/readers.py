"""Reading of files: one reader for each format, by suffix, in READERS."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lar.errors import UsageError
from lar.files.input_file import open_input, read_input
from lar.inputs.dtypes import cast_values, dtype_of, kind_of
from lar.inputs.grammar import FORMS, RAW_HINT, RawForm
from lar.inputs.image_files import read_image, read_netpbm
from lar.inputs.literals import MOST_AXES, array_of_values
from lar.inputs.loaded import LESS, Array, Loaded, check_memory, input_error, pick_names
from lar.inputs.npy import read_npy, read_npz
from lar.inputs.numbered_files import INPUT, OUTPUT, numbered
from lar.records.run import format_shape

Reader = Callable[[str, str], tuple[Loaded, ...]]
"""Reads the arrays of a file; if a name is given and several have names, only the one wanted."""


def read_path(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read a file by its suffix, or the inputs of a test-set folder.

    Raises:
        UsageError: there is no such file, no reader for it, or nothing readable in it.
    """
    reader = read_test_set if os.path.isdir(path) else _reader_of(path)
    try:
        return reader(path, wanted)
    except UsageError:
        raise
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise input_error(path, problem, "check the path and its permissions") from None
    except MemoryError:
        raise input_error(path, "does not fit into memory", LESS) from None
    except Exception as error:
        # Broken files make zipfile, protobuf and OpenCV raise nearly anything.
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise input_error(path, f"cannot be read: {problem}") from None


def _reader_of(path: str) -> Reader:
    suffix = os.path.splitext(path)[1].lower()
    if not os.path.exists(path):
        raise input_error(path, "no such file", "check the path" if suffix in READERS else FORMS)
    with open_input(path, "--input") as file:
        size = os.fstat(file.fileno()).st_size
    if suffix not in READERS:
        raise input_error(path, "has an unknown format", f"lar reads {', '.join(READERS)}")
    if size == 0 and suffix not in RAW:
        raise input_error(path, "is empty")
    check_memory(size, path)
    return READERS[suffix]


def read_test_set(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read input_0.pb, input_1.pb, ... of an ONNX `test_data_set_N` folder.

    Raises:
        UsageError: it holds no inputs, one is broken, or the item names it as if it were a file.
    """
    if wanted:
        hint = "leave out the name, or name one of the folder's .pb files"
        raise input_error(path, "is a folder, which names its inputs itself", hint)
    found = numbered(path, INPUT)
    if not found:
        raise input_error(path, "is a folder without input_0.pb", FORMS)
    return tuple(loaded for _, file in found for loaded in read_path(file))


def expected_outputs(path: str) -> list[str]:
    """Return the names of output_0.pb, ... in a folder, none if it is not a folder."""
    found = numbered(path, OUTPUT) if os.path.isdir(path) else []
    return [os.path.basename(file) for _, file in found]


def read_json(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read load_and_run's JSON: `{"name": {"shape": [2], "type": "float32", "raw": [1, 2]}}`.

    `type` is a NumPy name, or float or int for 32 bits; without it the numbers are as inline
    ones. `raw` is flat, in C order.

    Raises:
        UsageError: the file is of another form, or `raw` does not fill the shape, or a value is no
            number or does not fit the type.
    """
    try:
        document = json.loads(read_input(path, "--input"))
    except RecursionError:
        raise input_error(path, "is nested too deeply", _JSON_FORM) from None
    except ValueError as error:
        raise input_error(path, f"is not JSON: {error}", _JSON_FORM) from None
    if not isinstance(document, dict):
        raise input_error(path, "is not an object of named tensors", _JSON_FORM)
    return tuple(
        _load_entry(document[name], name, path) for name in pick_names([*document], wanted, path)
    )


_JSON_FORM = 'write {"data": {"shape": [1, 2], "type": "float32", "raw": [0.5, 2]}}'


def _load_entry(entry: Any, name: str, path: str) -> Loaded:
    where = f"{path}: {name[:60]!r}"
    if not isinstance(entry, dict) or not {"shape", "raw"} <= entry.keys():
        raise input_error(where, "has no shape and raw", _JSON_FORM)
    shape, raw, type_name = entry["shape"], entry["raw"], entry.get("type")
    if not _is_shape(shape):
        raise input_error(where, "its shape is not a list of sizes", _JSON_FORM)
    if not isinstance(raw, list):
        raise input_error(where, "its raw is not a list of numbers", _JSON_FORM)
    if math.prod(shape) != len(raw):
        text = format_shape(tuple(shape))[:60]
        problem = f"its shape {text} does not hold the {len(raw)} numbers of raw"
        raise input_error(where, problem, "change the shape, or give as many numbers as it holds")
    try:
        array = array_of_values(raw).reshape(shape)
        if type_name is not None:
            array = cast_values(array, dtype_of(str(type_name)))
    except ValueError as error:
        raise input_error(where, str(error), "change the type, or the numbers") from None
    return Loaded(
        array, path, "text" if type_name is None else "tensor", name=name, name_binds=True
    )


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_AXES
        and all(type(axis) is int and 0 <= axis < 2**63 for axis in value)
    )


def read_pb(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read an ONNX TensorProto, or a SequenceProto of some; `input_N.pb` has the position N.

    Source of the format: onnx.proto and onnx-data.proto of ONNX.

    Raises:
        UsageError: the file is no such message, or its data is elsewhere or incomplete.
    """
    import onnx

    content, match = read_input(path, "--input"), re.fullmatch(INPUT, os.path.basename(path))
    position = int(match[1]) if match else None
    tensor = onnx.TensorProto.FromString(content)
    if tensor.HasField("segment"):  # only in sequences: the number of their items
        sequence = onnx.SequenceProto.FromString(content)
        return tuple(
            Loaded(_array_in(each, path), path, name=f"{sequence.name}[{at}]", position=position)
            for at, each in enumerate(sequence.tensor_values)
        )
    named = {"name": tensor.name, "note": tensor.doc_string}
    return (Loaded(_array_in(tensor, path), path, position=position, **named),)


def _array_in(tensor: Any, path: str) -> Array:
    """Return the array of a TensorProto.

    Raises:
        UsageError: it has none, or not all of it.
    """
    import onnx
    from onnx import helper, numpy_helper

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise input_error(path, "keeps its data in another file", "save it with the data inside")
    if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
        raise input_error(path, "is not a TensorProto: it has no data type")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if kind_of(dtype) not in "biufcO":
        name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        problem = f"holds {name} elements, which lar does not feed"
        raise input_error(path, problem, "save it as numbers of 8 bits or more, or texts")
    promised = math.prod(tensor.dims) * dtype.itemsize
    if any(axis < 0 for axis in tensor.dims):
        raise input_error(path, f"its shape {format_shape(tuple(tensor.dims))[:60]} is impossible")
    if tensor.HasField("raw_data") and promised != len(tensor.raw_data):
        problem = f"its shape needs {promised} bytes of data, it has {len(tensor.raw_data)}"
        raise input_error(path, problem)
    array: Array = numpy_helper.to_array(tensor)
    return np.vectorize(bytes.decode, "O")(array) if array.dtype.kind == "S" else array


def read_raw(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read the bytes of a file that says neither dtype nor shape."""
    with open_input(path, "--input") as file:
        return (Loaded(np.fromfile(file, np.uint8), path, "raw"),)


def shape_raw(loaded: Loaded, form: RawForm) -> Loaded:
    """Return raw bytes as an array, little-endian and in C order.

    Raises:
        UsageError: the dtype is unknown, or the bytes are not as many as dtype and shape need.
    """
    try:
        dtype = dtype_of(form.dtype).newbyteorder("<")
    except ValueError as error:
        raise input_error(loaded.source, str(error), RAW_HINT) from None
    promised = math.prod(form.shape) * dtype.itemsize
    if promised != loaded.array.size:
        problem = f"holds {loaded.array.size} bytes"
        wanted = f"{form.dtype} of shape {format_shape(form.shape)} takes {promised}"
        raise input_error(loaded.source, f"{problem}, {wanted}", RAW_HINT)
    return Loaded(loaded.array.view(dtype).reshape(form.shape), loaded.source)


RAW = (".bin", ".raw")
READERS: Mapping[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".json": read_json,
    ".ppm": read_netpbm,
    ".pgm": read_netpbm,
    ".jpg": read_image,
    ".jpeg": read_image,
    ".png": read_image,
    ".bmp": read_image,
    ".webp": read_image,
    ".pb": read_pb,
    **dict.fromkeys(RAW, read_raw),
}
