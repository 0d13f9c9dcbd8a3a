"""Dumps of plain arrays: a folder of `.npy`, a `.npz`, one `.npy`, arrays in Python.

They have names and values, but no operators: another framework or a chip's tools wrote them.

Source of the format: numpy.lib.format.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from lar.dumps.dump import Dump, DumpedTensor, DumpIndex
from lar.errors import DumpError
from lar.files.input_file import open_input

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Source = TypeVar("Source")
Found = TypeVar("Found")

SUFFIX = ".npy"
ONE_ARRAY = "array"  # the name of an array that has none
# What Python's reader of .zip files raises where one is damaged: RuntimeError too, where a bit says
# that an array is encrypted or packed in an unknown way.
DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, KeyError, OverflowError, RuntimeError),
)


def dump_of_arrays(
    arrays: Mapping[str, object], source: str = "arrays", what: str = "array"
) -> Dump:
    """Return a dump of arrays in memory, by their names.

    Raises:
        DumpError: there is no array, or one is not an array of numbers.
    """
    import numpy as np

    held: dict[str, Array] = {}
    for name, value in arrays.items():
        try:
            array = np.asarray(value)
        except Exception as error:  # whatever the owner of the values raises
            problem = " ".join(str(error).split())[:200]
            raise DumpError(
                f"the {what} {name!r} cannot be read: {problem}", subject=source
            ) from None
        check_dtype(array.dtype, f"{source}: {name}")
        held[str(name)] = in_own_order(array)
    if not held:
        raise DumpError("holds no arrays", "give at least one", subject=source)
    tensors = [tensor_of(name, array.dtype, array.shape) for name, array in held.items()]
    return dump_of(source, tensors, lambda tensor: held[tensor.key])


def open_files(path: Path) -> Dump:
    """Open a `.npy` file, or those of a folder; a name is that of its file, without `.npy`.

    Raises:
        DumpError: one is damaged, or not an array of numbers.
    """
    places = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    files = {place.name.removesuffix(SUFFIX): place for place in places}
    tensors = []
    for name, place in files.items():
        with open_input(place, error=DumpError) as stream:
            size = os.fstat(stream.fileno()).st_size
            tensors.append(read_header(stream, name, size, str(place)))

    def read(tensor: DumpedTensor) -> Array:
        with open_input(files[tensor.key], error=DumpError) as stream:
            return read_values(stream, str(files[tensor.key]))

    return dump_of(str(path), tensors, read)


def open_archive(path: Path) -> Dump:
    """Open a `.npz` archive; each array is read when it is asked for.

    Raises:
        DumpError: it is damaged, or holds something else than arrays of numbers.
    """
    tensors, hint = [], "save arrays with numpy.savez"
    with opened_archive(path) as archive:
        for member in archive.infolist():
            file = member.filename
            if file.endswith(SUFFIX):
                with unless_damaged(path, archive.open, file) as stream:
                    name = file.removesuffix(SUFFIX)
                    tensors.append(read_header(stream, name, member.file_size, f"{path}: {name}"))
            elif not member.is_dir():
                raise DumpError(f"holds {file}, which is not a .npy array", hint, subject=path)
    if not tensors:
        raise DumpError("holds no arrays", hint, subject=path)

    def read(tensor: DumpedTensor) -> Array:
        with (
            opened_archive(path) as archive,
            unless_damaged(path, archive.open, tensor.key + SUFFIX) as stream,
        ):
            return read_values(stream, f"{path}: {tensor.name}")

    return dump_of(str(path), tensors, read)


def dump_of(
    source: str, tensors: list[DumpedTensor], read: Callable[[DumpedTensor], Array]
) -> Dump:
    return Dump(source, DumpIndex(tensors=tuple(tensors), operators=()), read)


def tensor_of(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> DumpedTensor:
    return DumpedTensor(key=name, name=name, dtype=dtype.name, shape=shape)


@contextmanager
def opened_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with (
        open_input(path, error=DumpError) as file,
        unless_damaged(path, zipfile.ZipFile, file) as archive,
    ):
        yield archive


def unless_damaged(path: Path, function: Callable[[Source], Found], source: Source) -> Found:
    """Return what Python's reader of .zip files makes of something.

    Raises:
        DumpError: the file is damaged.
    """
    try:
        return function(source)
    except DAMAGES:
        raise DumpError(
            "is damaged, or not a .npz archive", "copy or save it again", subject=path
        ) from None


def read_header(stream: IO[bytes], name: str, size: int, where: str) -> DumpedTensor:
    """Read the header of an array that takes `size` bytes with it.

    Raises:
        DumpError: it is damaged, or not of an array of numbers.
    """
    import numpy as np

    form: Any = np.lib.format  # NumPy 1 leaves this module untyped
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    try:
        version = form.read_magic(stream)
        shape, _, dtype = readers[version](stream)
    except Exception:  # NumPy's parser lets through whatever Python's tokenizer raises
        raise DumpError("is not a .npy array", "save it with numpy.save", subject=where) from None
    check_dtype(dtype, where)
    promised, present = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if promised > present or any(axis < 0 for axis in shape):
        raise DumpError(
            f"is cut short: its header promises {promised} bytes, {present} are there",
            "copy or save it again",
            subject=where,
        )
    return tensor_of(name, dtype, tuple(shape))


def read_values(stream: IO[bytes], where: str) -> Array:
    """Read an array, of any order and byte order.

    Raises:
        DumpError: it is damaged.
    """
    import numpy as np

    try:
        form: Any = np.lib.format
        array: Array = form.read_array(stream, allow_pickle=False)
    except MemoryError:
        raise
    except Exception:
        raise DumpError("is damaged", "copy or save it again", subject=where) from None
    return in_own_order(array)


def in_own_order(array: Array) -> Array:
    """Return an array in this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Refuse arrays of text, records and Python objects.

    Raises:
        DumpError: it is one.
    """
    if dtype.kind not in "biufc" or dtype.subdtype is not None:
        content = "Python objects" if dtype.hasobject else f"elements of dtype {dtype}"
        raise DumpError(f"holds {content}", "save arrays of numbers", subject=where)
