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
from typing import IO, TYPE_CHECKING, Any

from lar.dumps.dump import Dump, DumpedTensor, DumpIndex
from lar.errors import DumpError
from lar.files.input_file import open_input

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

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


def open_folder(folder: Path) -> Dump:
    """Open the `.npy` files of a folder; a name is that of its file, without `.npy`.

    Raises:
        DumpError: one is damaged, or not an array of numbers.
    """
    files = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    tensors = [header_of_file(path, name) for name, path in files.items()]
    return dump_of(str(folder), tensors, lambda tensor: read_file(files[tensor.key]))


def open_file(path: Path) -> Dump:
    """Open a `.npy` file.

    Raises:
        DumpError: it is damaged, or not an array of numbers.
    """
    return dump_of(str(path), [header_of_file(path, path.stem)], lambda _: read_file(path))


def open_archive(path: Path) -> Dump:
    """Open a `.npz` archive; each array is read when it is asked for.

    Raises:
        DumpError: it is damaged, or holds something else than arrays of numbers.
    """
    tensors = []
    with members_of(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            name = member.filename.removesuffix(SUFFIX)
            if name == member.filename:
                raise DumpError(
                    f"holds {name}, which is not a .npy array",
                    "save arrays with numpy.savez",
                    subject=path,
                )
            with open_member(archive, member, path) as stream:
                tensors.append(read_header(stream, name, member.file_size, f"{path}: {name}"))
    if not tensors:
        raise DumpError("holds no arrays", "save arrays with numpy.savez", subject=path)

    def read(tensor: DumpedTensor) -> Array:
        with (
            members_of(path) as archive,
            open_member(archive, tensor.key + SUFFIX, path) as stream,
        ):
            return read_values(stream, f"{path}: {tensor.name}")

    return dump_of(str(path), tensors, read)


def has_arrays(folder: Path) -> bool:
    """Return whether a folder holds a `.npy` file."""
    return next(folder.glob(f"*{SUFFIX}"), None) is not None


def dump_of(
    source: str, tensors: list[DumpedTensor], read: Callable[[DumpedTensor], Array]
) -> Dump:
    return Dump(source, DumpIndex(tensors=tuple(tensors), operators=()), read)


def tensor_of(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> DumpedTensor:
    return DumpedTensor(key=name, name=name, dtype=dtype.name, shape=shape)


def header_of_file(path: Path, name: str) -> DumpedTensor:
    with open_input(path, error=DumpError) as stream:
        return read_header(stream, name, os.fstat(stream.fileno()).st_size, str(path))


def read_file(path: Path) -> Array:
    with open_input(path, error=DumpError) as stream:
        return read_values(stream, str(path))


@contextmanager
def members_of(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a .zip.

    Raises:
        DumpError: it cannot be read.
    """
    with open_input(path, error=DumpError) as file:
        with damage_in(path):
            archive = zipfile.ZipFile(file)
        with archive:
            yield archive


def open_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, path: Path) -> IO[bytes]:
    """Open an array of a .zip.

    Raises:
        DumpError: there is no such array, or it cannot be read.
    """
    with damage_in(path):
        return archive.open(name)


@contextmanager
def damage_in(path: Path) -> Iterator[None]:
    """Report what Python raises where a .zip is damaged.

    Raises:
        DumpError: it is damaged.
    """
    try:
        yield
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
