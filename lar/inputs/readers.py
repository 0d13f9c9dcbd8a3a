"""Readers of inputs: one for each file format, and one for numbers in the text of `--input`.

Sources of the formats: numpy.lib.format (versions 1.0 and 2.0; 3.0 is for structured dtypes only),
onnx.proto and onnx-data.proto of ONNX, load_and_run's JSON. NumPy parses the headers of its files.
lar reads the data itself, to check sizes before anything is allocated.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lar.errors import UsageError, first_line
from lar.files.input_file import cannot_read, open_input
from lar.files.unpacking import check_zip
from lar.inputs import INPUT, LESS, Array, Loaded, check_memory, input_error, numbered
from lar.inputs.dtypes import cast_values, dtype_of, kind_of
from lar.inputs.grammar import FORMS, IMAGES, RAW, RAW_HINT, RawForm
from lar.inputs.images import check_whole, read_image

if TYPE_CHECKING:
    from zipfile import ZipFile
from lar.records.run import format_shape

Reader = Callable[[io.BufferedReader, str, str], tuple[Loaded, ...]]
"""A function of an open file, its path and a wanted name, which returns the arrays of the file. Of
several named arrays, only the one with the wanted name is returned."""

# The most axes of an array in NumPy 1.
MOST_AXES = 32
npy_format: Any = np.lib.format

# The bit in the flags of a .zip's member that marks it as encrypted.
ENCRYPTED = 1
SAVE_ARRAYS = "save arrays with numpy.savez"

_JSON_FORM = 'write {"data": {"shape": [1, 2], "type": "float32", "raw": [0.5, 2]}}'


def read_path(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read a file by its suffix, or the inputs in an ONNX `test_data_set_N` folder.

    Raises:
        UsageError: the file is missing or damaged, or no reader reads its format.
    """
    try:
        return read_test_set(path, wanted) if os.path.isdir(path) else _read_file(path, wanted)
    except UsageError:
        raise
    except OSError as error:
        raise cannot_read(path, error, "--input") from None
    except MemoryError:
        raise input_error(path, "does not fit into memory", LESS) from None
    except Exception as error:
        # Broken files make zipfile, protobuf and OpenCV raise nearly anything.
        raise input_error(path, f"cannot be read: {first_line(error)}") from None


def _read_file(path: str, wanted: str) -> tuple[Loaded, ...]:
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
        return READERS[suffix](file, path, wanted)


def read_test_set(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read input_0.pb, input_1.pb, ... of an ONNX `test_data_set_N` folder.

    Raises:
        UsageError: the folder has no inputs, an input is broken, or the item has a name before the
            path of the folder.
    """
    if wanted:
        hint = "leave out the name, or name one of the folder's .pb files"
        raise input_error(path, "is a folder, which names its inputs itself", hint)
    if not (found := numbered(path, INPUT)):
        raise input_error(path, "is a folder without input_0.pb", FORMS)
    return tuple(loaded for _, file in found for loaded in read_path(file))


def pick_names(names: Sequence[str], wanted: str, path: str) -> Sequence[str]:
    """Return the names of the arrays to read: all arrays, or the array that the item names.

    If a file has only one array, the item may give the array any name.

    Raises:
        UsageError: the file has no arrays, or has several arrays but no array of the given name.
    """
    if not names:
        raise input_error(path, "holds no arrays")
    if not wanted or len(names) == 1:
        return names
    if wanted not in names:
        raise input_error(path, f"holds no array {wanted!r}", f"it holds {', '.join(names)}")
    return [wanted]


def read_numbers(text: str) -> Array:
    """Read numbers that the text of an item contains.

    The text `[1.5,2,3]` gives the shape (1,3), the text `[[1,2],[3,4]]` gives (1,2,2), and `1,2`
    gives (2,).

    The shape follows from the nesting of brackets, with one more pair of brackets around the whole
    text.

    Returns:
        An array of float64 if any number has a point or an exponent, of booleans if all values are
        booleans, and of texts if all values are texts. Whole numbers make an array of int64, or of
        uint64 if int64 is too small for them.

    Raises:
        ValueError: the text is not a list of numbers, or its lists differ in length.
    """
    try:
        nested = np.array(json.loads(f"[{text}]"), object)
    except RecursionError:
        raise ValueError(f"has more than {MOST_AXES} levels of brackets") from None
    except ValueError:
        raise ValueError("is not a list of numbers such as [1.5,2,3]") from None
    values = nested.ravel().tolist()
    is_whole = not any(isinstance(value, list) for value in values)
    if nested.ndim > MOST_AXES or (nested.ndim == MOST_AXES and not is_whole):
        raise ValueError(f"has more than {MOST_AXES} levels of brackets")
    if not is_whole:
        raise ValueError("is ragged: its lists differ in length or depth")
    return array_of_values(values).reshape(nested.shape)


def array_of_values(values: Sequence[Any]) -> Array:
    """Return an array of one axis with the values.

    If all values are booleans, the array is of booleans; if all values are texts, it is of texts.
    Whole numbers make an array of int64, or of uint64 if int64 is too small for them. If any value
    is a float, the array is of float64.

    Raises:
        ValueError: a value is not a number, or fits no dtype.
    """
    types = {type(value) for value in values}
    if types in ({bool}, {str}):
        return np.array(values, np.bool_ if types == {bool} else object)
    if not types <= {int, float}:
        culprit = next(value for value in values if type(value) not in (int, float))
        raise ValueError(f"{json.dumps(culprit)[:40]} is not a number")
    dtype: type[np.generic] = np.float64
    if types == {int}:
        dtype = np.uint64 if min(values) >= 0 and max(values) >= 2**63 else np.int64
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise ValueError("holds a number that no dtype holds") from None


def read_json(file: IO[bytes], path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read load_and_run's JSON: `{"name": {"shape": [2], "type": "float32", "raw": [1, 2]}}`.

    `type` is the NumPy name of a dtype, or `float` or `int` for a dtype of 32 bits. If an entry has
    no `type`, lar reads its numbers like numbers in the text of `--input`. `raw` is a flat list in
    C order.

    Raises:
        UsageError: the file is not JSON in load_and_run's form, `raw` does not fill the shape, or a
            value is no number or does not fit the type.
    """
    try:
        document = json.load(file)
    except RecursionError:
        raise input_error(path, "is nested too deeply", _JSON_FORM) from None
    except ValueError as error:
        raise input_error(path, f"is not JSON: {error}", _JSON_FORM) from None
    if not isinstance(document, dict):
        raise input_error(path, "is not an object of named tensors", _JSON_FORM)
    return tuple(
        _load_entry(document[name], name, path) for name in pick_names([*document], wanted, path)
    )


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
    kind: Any = "text" if type_name is None else "tensor"
    return Loaded(array, path, kind, name=name, name_binds=True)


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_AXES
        and all(type(axis) is int and 0 <= axis < 2**63 for axis in value)
    )


def read_npy(file: io.BufferedReader, path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read one array of numbers or texts, in any memory order and byte order.

    Elements of a type that NumPy does not name, such as bfloat16, are read as bytes.

    Raises:
        UsageError: the file is no .npy, is truncated, or holds objects or records.
    """
    return (Loaded(_read_array(file, os.fstat(file.fileno()).st_size, path), path),)


def read_npz(file: io.BufferedReader, path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read all arrays of an archive, or only the array `wanted`.

    Raises:
        UsageError: an array is refused by `read_npy`, or the archive is broken, is empty or lacks
            the wanted array.
    """
    import zipfile  # slow to import, and few inputs are archives

    try:
        with zipfile.ZipFile(file) as archive:
            return _read_members(archive, os.fstat(file.fileno()).st_size, path, wanted)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # zipfile may raise any error for a damaged file
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: a wrong seek
            raise
        problem = "is damaged, or not a .npz archive"
        raise input_error(path, problem, "copy or save it again") from None


def _read_members(archive: ZipFile, size: int, path: str, wanted: str) -> tuple[Loaded, ...]:
    members = {member.filename: member for member in archive.infolist()}
    check_zip(archive, size, path, flag="--input")
    strangers = [name for name in members if not name.endswith(".npy")]
    if strangers:
        raise input_error(path, f"holds {strangers[0]}, which is not a .npy array", SAVE_ARRAYS)
    names, found = pick_names([name[:-4] for name in members], wanted, path), []
    for name in names:
        member, where = members[f"{name}.npy"], f"{path}: array {name!r}"
        if member.flag_bits & ENCRYPTED:
            raise input_error(where, "is encrypted", SAVE_ARRAYS)
        with archive.open(member) as stream:
            array = _read_array(stream, member.file_size, where)
        found.append(Loaded(array, path, name=name, name_binds=len(names) > 1))
    return tuple(found)


def _read_array(stream: Any, size: int, where: str) -> Array:
    """Read the header and data of a .npy; the array may be a view of any memory or byte order."""
    try:
        start = stream.read(8)
        length = stream.read(2 if start[6:7] == b"\1" else 4)
        header = start + length + stream.read(int.from_bytes(length, "little"))
        shape, fortran_order, dtype = _parse_header(header)
    except (zlib.error, EOFError):
        raise
    except Exception as error:
        if type(error).__name__ == "BadZipFile":
            raise
        # NumPy's parser of headers raises any error of Python's tokenizer.
        raise input_error(where, f"is not a .npy file: {first_line(error)}") from None
    is_plain = dtype.kind in "biufcUS" or (dtype.kind == "V" and dtype.fields is None)
    if not is_plain or dtype.subdtype is not None:
        content = "Python objects" if dtype.hasobject else f"elements of dtype {dtype}"
        raise input_error(where, f"holds {content}", "save an array of numbers, or of str")
    if len(shape) > MOST_AXES or any(axis < 0 for axis in shape):
        raise input_error(where, f"the header's shape {format_shape(shape)[:60]} is impossible")
    promised = math.prod(shape) * dtype.itemsize
    check_whole(promised, size - len(header), where)
    check_memory(promised, where)
    data = np.empty(promised, np.uint8)
    check_whole(promised, stream.readinto(data.data), where)  # an archive may state a wrong size
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


@lru_cache(maxsize=8)  # the files of a data set have the same header
def _parse_header(header: bytes) -> tuple[Any, bool, np.dtype[Any]]:
    stream = io.BytesIO(header)
    version = npy_format.read_magic(stream)
    if version > (2, 0):
        raise ValueError(f"version {version[0]}.{version[1]} is for records")
    shape, fortran_order, dtype = getattr(npy_format, f"read_array_header_{version[0]}_0")(stream)
    return shape, fortran_order, dtype


def read_pb(file: IO[bytes], path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read an ONNX TensorProto, or a SequenceProto of several tensors.

    The file `input_N.pb` feeds the input number N.

    Raises:
        UsageError: the file holds neither a TensorProto nor a SequenceProto, or its data is
            incomplete or in another file.
    """
    import onnx

    content, match = file.read(), re.fullmatch(INPUT, os.path.basename(path))
    position = int(match[1]) if match else None
    tensor = onnx.TensorProto.FromString(content)
    if tensor.HasField("segment"):  # only a sequence has this field: its number of items
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
        UsageError: the tensor has no data, incomplete data, or a type that lar does not feed.
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


def read_raw(file: io.BufferedReader, path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read the bytes of a file, which has neither dtype nor shape."""
    return (Loaded(np.fromfile(file, np.uint8), path, "raw"),)


def shape_raw(loaded: Loaded, form: RawForm) -> Loaded:
    """Return an array from raw bytes, which are little-endian and in C order.

    Raises:
        UsageError: the dtype is unknown, or the number of bytes does not fit dtype and shape.
    """
    try:
        dtype = dtype_of(form.dtype).newbyteorder("<")
    except ValueError as error:
        raise input_error(loaded.source, str(error), RAW_HINT) from None
    promised = math.prod(form.shape) * dtype.itemsize
    if promised != loaded.array.size:
        needs = f"{form.dtype} of shape {format_shape(form.shape)} takes {promised}"
        raise input_error(loaded.source, f"holds {loaded.array.size} bytes, {needs}", RAW_HINT)
    return Loaded(loaded.array.view(dtype).reshape(form.shape), loaded.source)


READERS: Mapping[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".json": read_json,
    **dict.fromkeys(IMAGES, read_image),
    ".pb": read_pb,
    **dict.fromkeys(RAW, read_raw),
}
