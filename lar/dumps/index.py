"""Dumps on disk: a folder of tensors and, beside it, `FOLDER.index.json`.

The folder holds tensors only, since MegEngine's own tool reads every file in it. Without an index,
as load_and_run leaves a dump, the names inside the files tell what it holds.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.dumps.binary import TensorHeader, read_array, read_header
from lar.dumps.dump import DUMP_FORMAT, Dump, DumpedTensor, DumpIndex
from lar.dumps.graph import index_of
from lar.errors import DumpError
from lar.records import record_from_json, record_to_json

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".index.json"


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Open a dump: a folder, its index, or the file of one tensor. No tensor is read yet.

    Raises:
        DumpError: there is none, or it is damaged.
    """
    place = Path(path)
    if place.name.endswith(SUFFIX):
        place = place.with_name(place.name.removesuffix(SUFFIX))
    if place.is_dir():
        return Dump(str(place), index_of_folder(place), reader_of(place))
    return Dump(str(place), index_of([read_header(place)]), reader_of(place.parent))


def index_of_folder(folder: Path) -> DumpIndex:
    """Return what a folder's index tells, or the names inside its files.

    An index of other files than those in the folder is that of another dump, which stood there;
    one of no files is that of a dump whose end lar did not live to see.

    Raises:
        DumpError: the folder holds no dump, or the index is damaged.
    """
    place = index_place(folder)
    if place.exists():
        index = read_index(place)
        if {tensor.key for tensor in index.tensors} == set(tensor_files(folder)):
            return index
        if not index.tensors and not index.complete:
            found = index_of(read_headers(folder, damaged=True))
            return replace(index, tensors=found.tensors, operators=found.operators)
    headers = read_headers(folder)
    if not headers:
        raise DumpError(f"{folder}: holds no dumped tensors", "give the folder that a dump wrote")
    return index_of(headers)


def index_place(folder: Path) -> Path:
    """Return where the index of a folder stands."""
    return Path(os.path.abspath(folder) + SUFFIX)


def tensor_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, without hidden ones."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DumpError(f"{folder}: cannot be read: {reason}") from None


def read_headers(folder: Path, damaged: bool = False) -> list[TensorHeader]:
    """Read the headers of all tensors in a folder; those that are `damaged` may be left out.

    Raises:
        DumpError: a file is no dumped tensor, or damaged.
    """
    paths = [folder / name for name in tensor_files(folder)]
    return [read_header(path) for path in paths if not damaged or is_tensor(path)]


def is_tensor(path: Path) -> bool:
    """Tell a whole tensor's file from others."""
    try:
        read_header(path)
    except DumpError:
        return False
    return True


def reader_of(folder: Path) -> Any:
    """Return a function that reads a tensor of a folder."""

    def read(tensor: DumpedTensor) -> np.ndarray[Any, Any]:
        if os.path.basename(tensor.key) != tensor.key:
            raise DumpError(f"{folder}: the index names a file elsewhere: {tensor.key}")
        array = read_array(read_header(folder / tensor.key))
        if array.shape != tuple(tensor.shape):
            raise DumpError(
                f"{folder / tensor.key}: holds an array {array.shape}, not {tensor.shape} as its "
                "index says",
                "dump again, or remove the index",
            )
        return array

    return read


def read_index(path: Path) -> DumpIndex:
    """Read an index, of any version so far.

    Raises:
        DumpError: it is damaged, or of a version that this lar does not read.
    """
    try:
        index = record_from_json(path.read_bytes(), DumpIndex)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DumpError(f"{path}: cannot be read: {reason}") from None
    except ValueError as error:
        raise DumpError(
            f"{path}: is no index of a dump: {error}", "dump again, or remove this file"
        ) from None
    if index.format != DUMP_FORMAT:
        raise DumpError(f"{path}: its format {index.format!r} is not {DUMP_FORMAT!r}")
    return index


def write_index(path: Path, index: DumpIndex) -> None:
    """Write an index; it takes its place whole.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")  # not of tempfile: its owner's alone
    try:
        temporary.write_bytes(record_to_json(index))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
