"""Dumps of plain arrays: a folder of `.npy`, a `.npz`, one `.npy`, arrays in Python.

They have names and values, but no operators: another framework or a chip's tools wrote them.

Source of the format: numpy.lib.format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from lar.dumps import Array, Dump, DumpedTensor, DumpIndex
from lar.errors import DumpError, first_line
from lar.files.input_file import open_input
from lar.files.unpacking import check_unpacked

SUFFIX = ".npy"
HINT = "save arrays of numbers, with numpy.save or numpy.savez"


def dump_of_arrays(arrays: Mapping[str, object], source: str = "arrays") -> Dump:
    """Return a dump of arrays in memory, by their names.

    Raises:
        DumpError: there are no arrays, or one is not an array of numbers.
    """
    held = {
        str(name): numbers_of(partial(np.asarray, value), f"{source}: {name}")
        for name, value in arrays.items()
    }
    return dump_of(source, held.items(), held.__getitem__)


def open_files(path: Path) -> Dump:
    """Open a `.npy` file, or a folder of them; an array's name is its file's, without `.npy`.

    Raises:
        DumpError: a file is damaged, or not an array of numbers.
    """
    places = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    files = {place.name.removesuffix(SUFFIX): place for place in places}

    def read(name: str, mode: Literal["r"] | None = None) -> Array:
        place = files[name]
        open_input(place, error=DumpError).close()  # if it cannot be read, this says why
        return numbers_of(partial(np.load, place, mode), str(place))

    return dump_of(str(path), ((name, read(name, "r")) for name in files), read)


def open_archive(path: Path) -> Dump:
    """Open a `.npz` archive; each array is read when it is asked for.

    Raises:
        DumpError: it is damaged, or holds other things than arrays of numbers.
    """
    open_input(path, error=DumpError).close()
    with naming(str(path)):
        archive = np.load(path)
        unpacked_bytes = sum(member.file_size for member in archive.zip.infolist())
        names = [name for name in archive.files if name[-1:] != "/"]
    check_unpacked(unpacked_bytes, path.stat().st_size, str(path), error=DumpError)

    def read(name: str) -> Array:
        return numbers_of(lambda: archive[name], f"{path}: {name}")

    return dump_of(str(path), ((name, read(name)) for name in names), read)


def dump_of(source: str, heads: Iterable[tuple[str, Array]], read: Callable[[str], Array]) -> Dump:
    """Return a dump of arrays that are read by their names; `heads` has types and shapes.

    Raises:
        DumpError: there are no arrays, or one cannot be read.
    """
    tensors = tuple(
        DumpedTensor(key=name, name=name, dtype=array.dtype.name, shape=array.shape)
        for name, array in heads
    )
    if not tensors:
        raise DumpError("holds no arrays", HINT, subject=source)
    return Dump(source, DumpIndex(tensors=tensors, operators=()), lambda it: read(it.key))


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Add the place to whatever NumPy's parsers, or the owner of a value, raise.

    Raises:
        DumpError: the value cannot be read.
    """
    try:
        yield
    except Exception as error:
        raise DumpError(f"cannot be read: {first_line(error)}", HINT, subject=where) from None


def numbers_of(read: Callable[[], object], where: str) -> Array:
    """Return an array in this machine's order of bytes.

    Raises:
        DumpError: it cannot be read, is no array, or contains texts, records or Python objects.
    """
    with naming(where):
        array = read()
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        what = f"elements of dtype {array.dtype}" if isinstance(array, np.ndarray) else "no array"
        raise DumpError(f"holds {what}", HINT, subject=where)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
