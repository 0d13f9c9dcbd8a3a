"""NumPy's own files: .npy and .npz.

Source of the format: numpy.lib.format (versions 1.0 and 2.0; 3.0 is for structured dtypes only).
Headers are read by NumPy, data here: sizes are checked before anything is allocated.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.files.unpacking import check_unpacked
from lar.inputs.literals import MOST_AXES
from lar.inputs.loaded import Array, Loaded, check_memory, input_error, pick_names
from lar.records.run import format_shape

# NumPy 1 leaves this module untyped.
npy_format: Any = np.lib.format

# The bit of a .zip's flags that an encrypted member has.
ENCRYPTED = 1


def read_npy(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read one array of numbers or texts, in any order and byte order; or the bytes of a type that
    NumPy has no name for, such as bfloat16.

    Raises:
        UsageError: the file is no .npy, is truncated, or holds objects or records.
    """
    with open_input(path, "--input") as stream:
        array = _read_array(stream, os.fstat(stream.fileno()).st_size, path)
    return (Loaded(array, path),)


def read_npz(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read all arrays of an archive, or only the one that is wanted.

    Raises:
        UsageError: as for `read_npy`, or the archive is broken, empty or lacks the wanted array.
    """
    with open_input(path, "--input") as file, _open_archive(file, path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        strangers = [name for name in members if not name.endswith(".npy")]
        if strangers:
            problem = f"holds {strangers[0]}, which is not a .npy array"
            raise input_error(path, problem, "save arrays with numpy.savez")
        names = pick_names([name[:-4] for name in members], wanted, path)
        return tuple(
            Loaded(
                _read_member(archive, members[f"{name}.npy"], f"{path}: array {name!r}"),
                path,
                name=name,
                name_binds=len(names) > 1,
            )
            for name in names
        )


@contextlib.contextmanager
def _open_archive(file: io.BufferedReader, path: str) -> Iterator[zipfile.ZipFile]:
    """Open a .zip; its damage, for which Python raises nearly anything, becomes one error."""
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked_bytes = sum(member.file_size for member in archive.infolist())
            check_unpacked(unpacked_bytes, os.fstat(file.fileno()).st_size, path, flag="--input")
            yield archive
    except (UsageError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # it seeks before the file
            raise
        raise input_error(
            path, "is damaged, or not a .npz archive", "copy or save it again"
        ) from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Array:
    if member.flag_bits & ENCRYPTED:
        raise input_error(where, "is encrypted", "save arrays with numpy.savez")
    with archive.open(member) as stream:
        return _read_array(cast(io.BufferedIOBase, stream), member.file_size, where)


def _read_array(stream: io.BufferedIOBase, size: int, where: str) -> Array:
    """Read header and data; the array may be a view in another order or byte order."""
    shape, fortran_order, dtype = _read_header(stream, where)
    is_plain = dtype.kind in "biufcUS" or (dtype.kind == "V" and dtype.fields is None)
    if not is_plain or dtype.subdtype is not None:
        content = "Python objects" if dtype.hasobject else f"elements of dtype {dtype}"
        raise input_error(where, f"holds {content}", "save an array of numbers, or of str")
    if len(shape) > MOST_AXES or any(axis < 0 for axis in shape):
        raise input_error(where, f"the header's shape {format_shape(shape)[:60]} is impossible")
    promised = math.prod(shape) * dtype.itemsize
    present = size - stream.tell()
    if promised > present:
        problem = f"truncated: the header promises {promised} bytes, {present} are there"
        raise input_error(where, problem)
    check_memory(promised, where)
    data = np.empty(promised, np.uint8)
    missing = promised - stream.readinto(data.data)
    if missing:
        raise input_error(where, f"truncated: {missing} of {promised} bytes are missing")
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _read_header(stream: io.BufferedIOBase, where: str) -> tuple[Any, bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(stream)
        if version > (2, 0):
            raise ValueError(f"version {version[0]}.{version[1]} is for records")
        read = getattr(npy_format, f"read_array_header_{version[0]}_0")
        shape, fortran_order, dtype = read(stream)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise
    except Exception as error:
        # NumPy's parser of headers lets through whatever Python's tokenizer raises.
        problem = " ".join(str(error).split())[:100] or type(error).__name__
        raise input_error(where, f"is not a .npy file: {problem}") from None
    return shape, fortran_order, dtype
