"""Weights in files beside a model: which files a model may have ONNX Runtime read.

ONNX Runtime 1.23 opens whatever path a model names. So that a model from elsewhere cannot have
any file of this machine read, dumped or packed, lar takes files in the model's own folder only,
and in those that `--allow-external-data` names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lar.engines.formats import BROKEN
from lar.engines.onnx_file.fields import EXTERNAL, SCHEMA, Message, damaged, open_model
from lar.errors import UsageError
from lar.files.input_file import open_input

FLAG = "--allow-external-data"

# ONNX Runtime takes the offset of a tensor with this location for an address in memory.
MEMORY = "*/_ORT_MEM_ADDR_/*"

# Messages that hold tensors: all others are passed over.
HOLDERS = {"Model", "Training", "Function", "Graph", "Node", "Attribute", "Sparse", "Tensor"}
LOCATION = re.compile(rb"location")  # the word that names a tensor's file


class Place(NamedTuple):
    """The place of a tensor's data in another file; a length of 0 is the rest of the file."""

    tensor: str
    location: str
    offset: int
    length: int


def place_of(tensor: Message) -> Place:
    """Return where the data of a tensor stands that is not in the model itself."""
    entries = {each.key: os.fsdecode(each.value) for each in tensor.external_data}
    numbers = {key: int(value) for key, value in entries.items() if value.isdecimal()}
    offset, length = (numbers.get(key, 0) for key in ("offset", "length"))
    # If there are two locations, nobody knows which one an engine takes.
    is_clear = len(entries) == len(tensor.external_data)
    return Place(tensor.name, entries.get("location", "") * is_clear, offset, length)


def tensors_outside(message: Message) -> Iterator[Message]:
    """Yield the tensors whose data is in other files, wherever in a model they are: weights, sparse
    ones, attributes of nodes, control flow and functions.

    Raises:
        ValueError: this is not a model.
    """
    if message.kind == "Tensor":
        if message.data_location == EXTERNAL:
            yield message
    # Most nodes need not be decoded.
    elif message.kind != "Node" or message.mentions(LOCATION):
        for name, field in SCHEMA[message.kind].items():
            if field.type in HOLDERS and name in message:
                value = getattr(message, name)
                for each in value if field.is_repeated else [value]:
                    yield from tensors_outside(each)


def files_beside(model: Path) -> tuple[str, ...]:
    """Return the files that a model's weights are in, as it names them.

    Raises:
        ValueError, OSError: it cannot be read.
    """
    return tuple(sorted({place_of(each).location for each in tensors_outside(open_model(model))}))


def check_external_data(model: Path, allowed: Sequence[str] = ()) -> None:
    """Refuse a model whose weights are in files that it may not name, before it is loaded.

    Raises:
        UsageError: naming the tensor; a file is outside the folders, missing or cut short.
    """
    for folder in allowed:
        if not os.path.isdir(folder):
            raise UsageError("no such folder", "check the path", flag=FLAG, subject=folder)
    content = open_model(model)
    try:
        found = {*map(place_of, tensors_outside(content))}
    except (ValueError, RecursionError):
        # The engine says what is wrong with the file, unless it might take it all the same.
        if content.mentions(LOCATION):
            raise damaged(model) from None
        return
    sizes: dict[str, int] = {}
    for each in sorted(found):
        check_folder(each, model, allowed)
        check_size(each, model, sizes)


def subject_of(place: Place, model: Path) -> str:
    return f"{model}: tensor {place.tensor!r}"


def check_folder(place: Place, model: Path, allowed: Sequence[str]) -> None:
    """Refuse a tensor whose data is in a file that the model may not name.

    Raises:
        UsageError: naming the tensor.
    """
    location = place.location
    if not location or "\0" in location or location == MEMORY:
        problem = "its data is in a file without a name, or with two"
        raise UsageError(problem, BROKEN, subject=subject_of(place, model))
    folders = [os.path.realpath(folder) for folder in allowed]
    if not os.path.isabs(location) and ".." not in Path(location).parts:
        folders.append(os.path.realpath(model.parent))
    real = os.path.realpath(model.parent / location)
    if not any(os.path.commonpath([folder, real]) == folder for folder in folders):
        problem = f"its data is in {location!r}, outside the model's folder"
        hint = f"move the file there; or, if you trust the model, {FLAG} {os.path.dirname(real)}"
        raise UsageError(problem, hint, subject=subject_of(place, model))


def check_size(place: Place, model: Path, sizes: dict[str, int]) -> None:
    """Refuse a tensor whose data is not all there; `sizes` keeps those of files seen before.

    Raises:
        UsageError: naming the tensor.
    """
    path = str(model.parent / place.location)
    if path not in sizes:
        try:
            with open_input(path) as file:
                sizes[path] = os.fstat(file.fileno()).st_size
        except UsageError as error:
            problem, hint = f"its weights file {path}: {error.problem}", "keep it beside the model"
            raise UsageError(problem, hint, subject=subject_of(place, model)) from None
    if sizes[path] < place.offset + place.length:
        problem = f"its weights file {path} is cut short"
        raise UsageError(problem, BROKEN, subject=subject_of(place, model))
