"""Dumps on disk: a folder of tensors and, beside it, `FOLDER.index.json`.

The folder holds only tensors, since MegEngine's own tool reads every file in it. load_and_run
writes a dump without an index; then the index is made from the names inside the files.

A dump may also consist of plain arrays: a folder of `.npy` files, a `.npz`, one `.npy`, or arrays
in Python. Plain arrays come from another framework or from the tools of a chip. Plain arrays have
names and values, but no operators. The format of `.npy` files is described in numpy.lib.format.
Functions import NumPy only when they need NumPy, since importing NumPy is slow.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from lar.dumps import Array, Dump, DumpedTensor, DumpIndex, Stored
from lar.dumps.binary import TensorHeader, read_header, read_tensor
from lar.dumps.excerpts import is_text_dump, open_text
from lar.dumps.graph import index_of
from lar.errors import DumpError, first_line
from lar.files.input_file import MOST_TEXT_BYTES, cannot_read, open_input, read_input
from lar.options.paths import INDEX_SUFFIX, index_place
from lar.records.record import record_of_format, record_to_json


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Open a file or folder with tensors; no tensor is read yet.

    `path` may be a dump's folder or its index, a folder of `.npy` files, a `.npz`, a `.npy`, the
    text file of `--io-dump`, or a tensor file.

    Raises:
        DumpError: the file or folder is missing, damaged, or of an unknown kind.
    """
    place = Path(str(path).removesuffix(INDEX_SUFFIX))
    if place.is_dir():
        if not index_place(place).exists() and any(place.glob(f"*{NPY}")):
            return open_arrays(place)
        index, missing = index_of_folder(place)
        return Dump(str(place), index, reader_of(place), missing)
    if place.suffix.lower() == ".npz":
        return open_archive(place)
    if place.suffix.lower() == NPY:
        return open_arrays(place)
    if is_text_dump(place):
        return open_text(place)
    return Dump(str(place), index_of([read_header(place)]), reader_of(place.parent))


def index_of_folder(folder: Path) -> tuple[DumpIndex, tuple[str, ...]]:
    """Return the index of a folder, and the keys of tensors whose files are missing.

    Tensors without a file are left out of the index. Without an index file, the index is made from
    the names inside the tensor files. If an index file names other files than those in the folder,
    lar does not use it, since it belongs to an earlier dump. If the index file names no files, lar
    was stopped before the end of the dump.

    Raises:
        DumpError: the folder holds no dump, or the index is damaged.
    """
    place = index_place(folder)
    if place.exists():
        index, files = read_index(place), set(tensor_files(folder))
        missing = tuple(tensor.key for tensor in index.tensors if tensor.key not in files)
        kept = tuple(tensor for tensor in index.tensors if tensor.key in files)
        if len(kept) == len(files) and (not missing or is_index_of(kept, folder)):
            return replace(index, tensors=kept), missing
        if not index.tensors and not index.complete:
            found = index_of(read_headers(folder, damaged=True))
            return replace(index, tensors=found.tensors, operators=found.operators), ()
    if headers := read_headers(folder):
        return index_of(headers), ()
    raise DumpError("holds no dumped tensors", "give the folder of a dump", subject=folder)


def is_index_of(tensors: Iterable[DumpedTensor], folder: Path) -> bool:
    """Return whether an index describes the files in a folder, and not files of an earlier dump."""
    listed, found = (
        {(tensor.key, tensor.name, tensor.dtype, tuple(tensor.shape)) for tensor in side}
        for side in (tensors, index_of(read_headers(folder)).tensors)
    )
    return bool(listed) and listed == found


def tensor_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, without hidden files."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise cannot_read(folder, error, error=DumpError) from None


def read_headers(folder: Path, damaged: bool = False) -> list[TensorHeader]:
    """Read the headers of all tensor files in a folder; with `damaged`, skip unreadable files.

    Raises:
        DumpError: a file is damaged, or not a dumped tensor.
    """
    paths = [folder / name for name in tensor_files(folder)]
    return [read_header(path) for path in paths if not damaged or is_tensor(path)]


def is_tensor(path: Path) -> bool:
    """Return whether a file holds a whole tensor."""
    with contextlib.suppress(DumpError):
        return bool(read_header(path))
    return False


def reader_of(folder: Path) -> Callable[[DumpedTensor], Stored]:
    """Return a function that reads a tensor of a folder."""

    def read(tensor: DumpedTensor) -> Stored:
        if os.path.basename(tensor.key) != tensor.key:
            raise DumpError(f"the index names files outside the dump: {tensor.key}", subject=folder)
        stored = read_tensor(folder / tensor.key)[1]
        if stored.raw.shape != tuple(tensor.shape):
            problem = f"holds an array {stored.raw.shape}, but the index says {tensor.shape}"
            raise DumpError(problem, "dump again, or remove the index", subject=folder / tensor.key)
        return stored

    return read


def read_index(path: Path) -> DumpIndex:
    """Read the index of a dump, in any format that lar has ever written.

    Raises:
        DumpError: the index is damaged, or has a format that this lar does not read.
    """
    data = read_input(path, error=DumpError, limit=MOST_TEXT_BYTES)
    try:
        return record_of_format(data, DumpIndex)
    except ValueError as error:
        problem = f"is not the index of a dump: {error}"
        raise DumpError(problem, "dump again, or remove this file", subject=path) from None


def write_index(path: Path, index: DumpIndex) -> None:
    """Write an index; an older index is replaced in one step.

    Raises:
        OSError: the index cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")  # files of `tempfile` are only for their owner
    try:
        temporary.write_bytes(record_to_json(index))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Dumps of plain arrays


NPY = ".npy"
HINT = "save arrays of numbers, with numpy.save or numpy.savez"


def dump_of_arrays(arrays: Mapping[str, object], source: str = "arrays") -> Dump:
    """Return a dump of named arrays in memory.

    Raises:
        DumpError: there are no arrays, or a value is not an array of numbers.
    """
    import numpy as np

    held = {
        str(name): numbers_of(partial(np.asarray, value), f"{source}: {name}")
        for name, value in arrays.items()
    }
    return dump_of(source, held.items(), held.__getitem__)


def open_arrays(path: Path) -> Dump:
    """Open a `.npy` file, or a folder of `.npy` files; the file names are the names of the arrays.

    Raises:
        DumpError: a file is damaged, or not an array of numbers.
    """
    import numpy as np

    places = sorted(path.glob(f"*{NPY}")) if path.is_dir() else [path]
    files = {place.name.removesuffix(NPY): place for place in places}

    def read(name: str, mode: Literal["r"] | None = None) -> Array:
        place = files[name]
        open_input(place, error=DumpError).close()  # its error says why a file cannot be read
        return numbers_of(partial(np.load, place, mode), str(place))

    return dump_of(str(path), ((name, read(name, "r")) for name in files), read)


def open_archive(path: Path) -> Dump:
    """Open a `.npz` archive; each array is read on demand.

    Raises:
        DumpError: the archive is damaged, or holds something else than arrays of numbers.
    """
    import numpy as np

    from lar.files.unpacking import check_zip

    open_input(path, error=DumpError).close()
    with naming(str(path)):
        archive = np.load(path)
        names = [name for name in archive.files if name[-1:] != "/"]
    check_zip(archive.zip, path.stat().st_size, str(path), DumpError)

    def read(name: str) -> Array:
        return numbers_of(lambda: archive[name], f"{path}: {name}")

    return dump_of(str(path), ((name, read(name)) for name in names), read)


def dump_of(source: str, heads: Iterable[tuple[str, Array]], read: Callable[[str], Array]) -> Dump:
    """Return a dump of arrays that `read` reads by name; types and shapes come from `heads`.

    Raises:
        DumpError: there are no arrays, or an array cannot be read.
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
    """Convert any error of NumPy, or of a value's own code, to a `DumpError` that names `where`.

    Raises:
        DumpError: the value cannot be read.
    """
    try:
        yield
    except Exception as error:
        raise DumpError(f"cannot be read: {first_line(error)}", HINT, subject=where) from None


def numbers_of(read: Callable[[], object], where: str) -> Array:
    """Read an array of numbers, and return it in this machine's byte order.

    Raises:
        DumpError: the array cannot be read, or contains strings, records or Python objects; or the
            value is no array.
    """
    import numpy as np

    with naming(where):
        array = read()
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        what = f"elements of dtype {array.dtype}" if isinstance(array, np.ndarray) else "no array"
        raise DumpError(f"holds {what}", HINT, subject=where)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
