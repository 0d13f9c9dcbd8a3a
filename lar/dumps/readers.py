"""The kinds of files and folders that hold tensors, and how each is opened."""

from __future__ import annotations

import os
from pathlib import Path

from lar.dumps.arrays import SUFFIX as ARRAY_SUFFIX
from lar.dumps.arrays import open_archive, open_files
from lar.dumps.binary import begins_tensor
from lar.dumps.dump import Dump
from lar.dumps.excerpts import begins_text_dump, open_text
from lar.dumps.index import SUFFIX as INDEX_SUFFIX
from lar.dumps.index import index_place, open_dump
from lar.errors import DumpError
from lar.files.input_file import open_input

HEAD_BYTES = 4096


def open_tensors(path: str | os.PathLike[str]) -> Dump:
    """Open a file or folder that holds tensors: a dump's folder or its index, a folder of `.npy`
    files, a `.npz`, a `.npy`, the text of `--io-dump`, a tensor's file. No tensor is read yet.

    Raises:
        DumpError: it is missing, damaged, or of no known kind.
    """
    place = Path(path)
    if place.name.endswith(INDEX_SUFFIX):
        return open_dump(place)
    if place.is_dir():
        has_arrays = next(place.glob(f"*{ARRAY_SUFFIX}"), None) is not None
        return (
            open_files(place)
            if has_arrays and not index_place(place).exists()
            else open_dump(place)
        )
    with open_input(place, error=DumpError) as file:
        head = file.read(HEAD_BYTES)
    if place.suffix.lower() == ".npz":
        return open_archive(place)
    if place.suffix.lower() == ARRAY_SUFFIX:
        return open_files(place)
    if begins_text_dump(head):
        return open_text(place)
    if begins_tensor(head):
        return open_dump(place)
    raise DumpError(
        "holds no tensors that lar reads",
        "give a dump's folder, a tensor's file, a folder of .npy files, a .npz, a .npy or the text "
        "of --io-dump",
        subject=place,
    )
