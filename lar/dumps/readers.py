"""The kinds of files and folders that hold tensors, and how each is opened: a row a kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lar.dumps.arrays import SUFFIX as ARRAY_SUFFIX
from lar.dumps.arrays import has_arrays, open_archive, open_file, open_folder
from lar.dumps.binary import begins_tensor
from lar.dumps.dump import Dump
from lar.dumps.excerpts import begins_text_dump, open_text
from lar.dumps.index import SUFFIX as INDEX_SUFFIX
from lar.dumps.index import open_dump
from lar.errors import DumpError
from lar.files.input_file import open_input

HEAD_BYTES = 4096


class Reader(NamedTuple):
    """A kind of what holds tensors; `reads` is asked with the path and the first bytes, which a
    folder lacks."""

    what: str
    reads: Callable[[Path, bytes], bool]
    open: Callable[[Path], Dump]


READERS = (
    Reader("the index of a dump", lambda path, _: path.name.endswith(INDEX_SUFFIX), open_dump),
    Reader("a folder of .npy files", lambda path, _: is_folder_of_arrays(path), open_folder),
    Reader("a dump's folder", lambda path, _: path.is_dir(), open_dump),
    Reader("a .npz archive", lambda path, _: path.suffix.lower() == ".npz", open_archive),
    Reader("a .npy file", lambda path, _: path.suffix.lower() == ARRAY_SUFFIX, open_file),
    Reader("the text of --io-dump", lambda _, head: begins_text_dump(head), open_text),
    Reader("a tensor's file", lambda _, head: begins_tensor(head), open_dump),
)


def open_tensors(path: str | os.PathLike[str]) -> Dump:
    """Open a file or folder that holds tensors. No tensor is read yet.

    Raises:
        DumpError: it is missing, damaged, or of no known kind.
    """
    place = Path(path)
    head = b"" if place.is_dir() or place.name.endswith(INDEX_SUFFIX) else read_head(place)
    for reader in READERS:
        if reader.reads(place, head):
            return reader.open(place)
    raise DumpError(
        "holds no tensors that lar reads",
        "give a dump's folder, a tensor's file, a folder of .npy files, a .npz, a .npy or the text "
        "of --io-dump",
        subject=place,
    )


def read_head(path: Path) -> bytes:
    with open_input(path, error=DumpError) as file:
        return file.read(HEAD_BYTES)


def is_folder_of_arrays(path: Path) -> bool:
    """Return whether a folder holds `.npy` files and is not a dump with an index."""
    return path.is_dir() and not Path(f"{path}{INDEX_SUFFIX}").exists() and has_arrays(path)
