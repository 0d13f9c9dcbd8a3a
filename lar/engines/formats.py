"""The formats of model files; several engines may read one format.

A file's format is detected by its first bytes. If the bytes show no format, the suffix of the
file's name is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from lar.errors import UsageError
from lar.options.suggestions import nearest_spelling

if TYPE_CHECKING:
    from pathlib import Path

# The hint of an error about a damaged model file.
BROKEN = "copy or export the model again"

# The number of bytes at the beginning of a file that are enough to recognise its format.
HEAD_SIZE = 64


class Format(NamedTuple):
    """A format of model files: the name for messages, the suffixes, and a test of the first bytes.

    The argument of `begins` has the first HEAD_SIZE bytes of a file, or all bytes of a smaller
    file. `begins` returns whether a file that begins with these bytes must be of this format. For a
    format whose files have no typical first bytes, such as plain text, `begins` returns False.
    """

    name: str
    suffixes: tuple[str, ...]
    begins: Callable[[bytes], bool]


def begins_like_megengine(head: bytes) -> bool:
    """Return whether a file with these first bytes is a MegEngine model.

    A file with testcases begins with `mgbtest0`, a packed file with `packed_model`. A newer file is
    FlatBuffers: after a size and an offset of 4 bytes each, the file has the identifier `mgv2`. An
    older file begins with `MGBC` or `MGBS`.
    """
    marks = (b"mgbtest0", b"MGBC", b"MGBS", b"packed_model")
    return head.startswith(marks) or head[8:12] == b"mgv2"


def begins_like_onnx(head: bytes) -> bool:
    """Return whether a file with these first bytes is an ONNX model.

    An ONNX model is protobuf, and its first field, `ir_version`, is a small number.
    """
    return not begins_like_ort(head) and len(head) > 2 and head[0] == 0x08 and 1 <= head[1] <= 32


def begins_like_ort(head: bytes) -> bool:
    """Return whether the first bytes are FlatBuffers with the identifier `ORTM`."""
    return head[4:8] == b"ORTM"


def begins_like_openvino(head: bytes) -> bool:
    """Return whether a file with these first bytes is an OpenVINO model.

    An OpenVINO model is XML with the root element `net`.
    """
    return head.startswith(b"<?xml") and b"<net" in head


def begins_like_mnn(head: bytes) -> bool:
    """Return whether a file with these first bytes is an MNN model.

    An MNN model is FlatBuffers without an identifier. The first number in the file is the offset of
    the root table. The offsets of the model's fields are right before the root table. An MNN model
    has at most 12 fields.
    """
    if len(head) < 12:
        return False
    root = int.from_bytes(head[:4], "little")
    sizes = {place: int.from_bytes(head[place : place + 2], "little") for place in (4, 6)}
    return any(place + size == root and 4 <= size <= 28 for place, size in sizes.items())


MEGENGINE = Format("MegEngine", (".mge", ".mgb", ".mdl", ".lite"), begins_like_megengine)
ONNX = Format("ONNX", (".onnx",), begins_like_onnx)
ORT = Format("ORT", (".ort",), begins_like_ort)
OPENVINO = Format("OpenVINO", (".xml",), begins_like_openvino)
MNN = Format("MNN", (".mnn",), begins_like_mnn)

FORMATS = (MEGENGINE, ONNX, ORT, OPENVINO, MNN)


def format_in(head: bytes, formats: Iterable[Format] = FORMATS) -> Format | None:
    """Return the format that the first bytes of a file show, None if they show no format."""
    return next((each for each in formats if each.begins(head)), None)


def format_named(path: Path, formats: Iterable[Format] = FORMATS) -> Format | None:
    """Return the format to which a file's suffix belongs, or None if the suffix is unknown."""
    return next((each for each in formats if path.suffix.lower() in each.suffixes), None)


def is_onnx(path: Path) -> bool:
    """Return whether a model file is in the ONNX format and not in the engine's own format.

    Raises:
        UsageError: the file cannot be read.
    """
    return (format_in(read_head(path)) or format_named(path)) == ONNX


def require_format(path: Path, formats: Iterable[Format], engine: str) -> None:
    """Raise an error if the first bytes of a model file show a format that the engine cannot read.

    Raises:
        UsageError: the engine cannot read the format, or the file itself cannot be read.
    """
    found = format_in(read_head(path))
    if found is not None and found not in formats:
        problem = f"a model in the {found.name} format, which {engine} does not read"
        raise UsageError(problem, f"rename it to {found.suffixes[0]}", subject=path)


def read_head(model: Path) -> bytes:
    """Read the first bytes of a model file.

    Raises:
        UsageError: the file is missing, a folder, unreadable or empty.
    """
    from lar.files.input_file import open_input  # the help opens no model

    try:
        with open_input(model, what="model file") as file:
            head = file.read(HEAD_SIZE)
    except UsageError as error:
        hint = hint_at_models(model) or error.hint
        raise UsageError(error.problem, hint, subject=error.subject) from None
    if not head:
        raise UsageError("the model file is empty", BROKEN, subject=model)
    return head


def hint_at_models(model: Path) -> str:
    """Return a hint for a wrong path of a model, or an empty text if no existing name is similar.

    If the path is a folder, the hint names the model files in the folder. If the file is missing,
    the hint names the file with the most similar name.
    """
    if os.path.isdir(model):
        names = ", ".join(sorted(models_in(model))[:5])
        return f"give a model in it: {names}" if names else "give a model file"
    if os.path.lexists(model):
        return ""
    near = nearest_spelling(model.name, models_in(model.parent))
    return f"did you mean {model.with_name(near)}?" if near else ""


def models_in(folder: Path, formats: Collection[Format] = FORMATS) -> list[str]:
    """Return the names of the model files in a folder."""
    try:
        files = [path for path in folder.iterdir() if path.is_file()]
        return [path.name for path in files if format_named(path, formats)]
    except OSError:
        return []
