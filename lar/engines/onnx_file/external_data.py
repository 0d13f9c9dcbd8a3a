"""Weights in files beside a model: which files a model may have ONNX Runtime read.

ONNX Runtime 1.23 opens whatever path a model names. So that a model from elsewhere cannot have
any file of this machine read, dumped or packed, lar takes files in the model's own folder only,
and in those that `--allow-external-data` names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lar.engines.formats import BROKEN
from lar.engines.onnx_file.fields import (
    ExternalData,
    external_data_in,
    is_ort_format,
    mapped,
    may_have_external_data,
    weights_files,
)
from lar.errors import UsageError, printable
from lar.files.input_file import open_input

FLAG = "--allow-external-data"

# ONNX Runtime takes the offset of a tensor with this location for an address in memory.
MEMORY = "*/_ORT_MEM_ADDR_/*"


def check_external_data(model: Path, allowed: Sequence[str] = ()) -> None:
    """Refuse a model whose weights are in files that it may not name, before it is loaded.

    Raises:
        UsageError: naming the tensor; a file is outside the folders, missing or cut short.
    """
    for folder in allowed:
        if not os.path.isdir(folder):
            raise UsageError("no such folder", "check the path", flag=FLAG, subject=folder)
    with mapped(model) as data:
        if is_ort_format(data):
            return
        try:
            found = set(external_data_in(data))
        except (ValueError, RecursionError):
            # The engine says what is wrong with the file, unless it might take it all the same.
            if may_have_external_data(data):
                problem = "not an ONNX model, or a damaged one"
                raise UsageError(problem, BROKEN, subject=model) from None
            return
    sizes: dict[str, int] = {}
    for each in sorted(found):
        check_tensor(each, model, allowed, sizes)


def files_beside(model: Path) -> tuple[str, ...]:
    """Return the files that a model's weights are in, as it names them.

    Raises:
        ValueError, OSError: it cannot be read.
    """
    with mapped(model) as data:
        if is_ort_format(data) or not may_have_external_data(data):
            return ()
        return weights_files(data)


def check_tensor(
    tensor: ExternalData, model: Path, allowed: Sequence[str], sizes: dict[str, int]
) -> None:
    """Refuse a tensor whose data is in a file that the model may not name, or not all there.

    `sizes` keeps the sizes of files seen before.

    Raises:
        UsageError: naming the tensor.
    """
    subject = f"{model}: tensor {printable(tensor.tensor)!r}"
    location = tensor.location
    if not location or "\0" in location or location == MEMORY:
        raise UsageError("its data is in a file without a name", BROKEN, subject=subject)
    folders = [os.path.realpath(folder) for folder in allowed]
    if not os.path.isabs(location) and ".." not in Path(location).parts:
        folders.append(os.path.realpath(model.parent))
    path = str(model.parent / location)
    place = os.path.realpath(path)
    if not any(os.path.commonpath([folder, place]) == folder for folder in folders):
        raise UsageError(
            f"its data is in {printable(location)!r}, outside the model's folder",
            f"move the file there; or, if you trust the model, {FLAG} {os.path.dirname(place)}",
            subject=subject,
        )
    if place not in sizes:
        try:
            with open_input(path) as file:
                sizes[place] = os.fstat(file.fileno()).st_size
        except UsageError as error:
            problem = f"its weights file {path}: {error.problem}"
            raise UsageError(problem, "keep it beside the model", subject=subject) from None
    if sizes[place] < tensor.offset + tensor.length:
        raise UsageError(f"its weights file {path} is cut short", BROKEN, subject=subject)
