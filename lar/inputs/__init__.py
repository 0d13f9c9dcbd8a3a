"""Inputs: from the texts of `--input` to the arrays that a model is fed with.

The module `grammar` splits the texts into items. `readers` reads the data that an item names:
files, or numbers written in the item itself. `images` reads image files, and applies the settings
size, channels, mean and layout. `model_inputs` finds the model's input for an array, and checks
whether the array fits. `dtypes` converts arrays, and generates data. `feed` returns the arrays of
all inputs.

Three things are defined in `lar.inputs` itself, because several modules use them: the class of an
array that a reader has loaded, the error for an item of `--input`, and the names of the files in
ONNX's test data folders. `lar.inputs` does not import NumPy or dataclasses, which are slow to
import.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lar.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


Array: TypeAlias = "NDArray[Any]"

BROKEN = "copy or save the file again"
LESS = "feed less at once, or take a machine with more memory"
NAME_IT = "put NAME: before it"

# The files in ONNX's folder `test_data_set_N`.
INPUT = r"input_(\d{1,9})\.pb"
OUTPUT = r"output_(\d{1,9})\.pb"


class Loaded(NamedTuple):
    """One array as read from its source, before lar finds the model's input for the array.

    `kind` says whether the source fixes dtype and shape of the array. An array of the `kind`
    "tensor" has its own dtype and shape. Numbers of the `kind` "text" get the dtype of the model's
    input. Bytes of the `kind` "raw" (uint8, one axis) get the dtype and shape of the model's input.
    `channels` is the channel order of an image of shape (1,H,W,C), empty for any other array.
    `name` is the array's name in the source. If `name_binds` is true, the model must have an input
    with the name `name`. If `name_binds` is false, the array may also feed the input at its
    `position`, or the model's only input. `note` is a comment that the file contains for people.
    """

    array: Array
    source: str
    kind: Literal["tensor", "text", "raw"] = "tensor"
    channels: Literal["bgr", "rgb", "gray", ""] = ""
    name: str = ""
    name_binds: bool = False
    position: int | None = None
    note: str = ""


def input_error(
    where: str, problem: str, hint: str = BROKEN, *, flag: str = "--input"
) -> UsageError:
    """Return the error for an item of a flag; the default hint is for a file with wrong content."""
    return UsageError(problem, hint, flag=flag, subject=where)


class UnnamedInput(UsageError):
    """The error for an item that does not say which input of the model it feeds.

    The hint of this error begins with NAME_IT. If the array comes from Python code, where NAME_IT
    does not help, lar replaces NAME_IT by other words.
    """


def numbered(folder: str, pattern: str) -> list[tuple[int, str]]:
    """Return the numbers and paths of a folder's entries whose names match, ordered by number."""
    found = ((re.fullmatch(pattern, name), name) for name in os.listdir(folder))
    return sorted((int(match[1]), os.path.join(folder, name)) for match, name in found if match)


def check_memory(byte_count: int, where: str) -> None:
    """Refuse arrays that are larger than the machine's memory, before anything is allocated.

    Raises:
        UsageError: the machine has less memory than `byte_count`.
    """
    if byte_count > memory_bytes():
        raise input_error(where, f"needs {byte_count} bytes, more than this machine's memory", LESS)


@cache  # it is called for each item of a data set
def memory_bytes() -> int:
    """Return the size of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
