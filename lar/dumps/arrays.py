"""Dumps of plain arrays: a folder of `.npy`, a `.npz`, one `.npy`, arrays in Python.

They have names and values, but no operators: another framework or a chip's tools wrote them.

Source of the format: numpy.lib.format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lar.dumps.dump import Dump, DumpedTensor, DumpIndex
from lar.errors import DumpError, first_line
from lar.files.input_file import open_input

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Loaded = TypeVar("Loaded")

SUFFIX = ".npy"
ONE_ARRAY = "array"  # the name of an array that has none
HINT = "save arrays of numbers, with numpy.save or numpy.savez"


def dump_of_arrays(arrays: Mapping[str, object], source: str = "arrays") -> Dump:
    """Return a dump of arrays in memory, by their names.

    Raises:
        DumpError: there is no array, or one is not an array of numbers.
    """
    import numpy as np

    held: dict[str, Array] = {}
    for name, value in arrays.items():
        where = f"{source}: {name}"
        held[str(name)] = numbers_of(load(partial(np.asarray, value), where), where)
    return dump_of(source, held, held.__getitem__)


def open_files(path: Path) -> Dump:
    """Open a `.npy` file, or those of a folder; a name is that of its file, without `.npy`.

    Raises:
        DumpError: one is damaged, or not an array of numbers.
    """
    import numpy as np

    places = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    files = {place.name.removesuffix(SUFFIX): place for place in places}

    def read(name: str, mode: Literal["r"] | None = None) -> Array:
        place = files[name]
        with open_input(place, error=DumpError):  # where it cannot be read, this says why
            return numbers_of(load(partial(np.load, place, mode), str(place)), str(place))

    return dump_of(str(path), files, read, partial(read, mode="r"))


def open_archive(path: Path) -> Dump:
    """Open a `.npz` archive; each array is read when it is asked for.

    Raises:
        DumpError: it is damaged, or holds something else than arrays of numbers.
    """
    import numpy as np

    with open_input(path, error=DumpError) as file:
        names = load(lambda: [it for it in np.load(file).files if it[-1:] != "/"], str(path))

    def read(name: str) -> Array:
        with open_input(path, error=DumpError) as file:
            where = f"{path}: {name}"
            return numbers_of(load(lambda: np.load(file)[name], where), where)

    return dump_of(str(path), names, read)


def dump_of(
    source: str,
    names: Iterable[str],
    read: Callable[[str], Array],
    read_head: Callable[[str], Array] | None = None,
) -> Dump:
    """Return a dump of the arrays of some names; `read_head` gives one of which no more is needed
    than its type and shape.

    Raises:
        DumpError: there is none, or one cannot be read.
    """
    tensors = []
    for name in names:
        array = (read_head or read)(name)
        tensors.append(DumpedTensor(key=name, name=name, dtype=array.dtype.name, shape=array.shape))
    if not tensors:
        raise DumpError("holds no arrays", HINT, subject=source)
    index = DumpIndex(tensors=tuple(tensors), operators=())
    return Dump(source, index, lambda tensor: read(tensor.key))


def load(function: Callable[[], Loaded], where: str) -> Loaded:
    """Return what NumPy loads.

    Raises:
        DumpError: it cannot.
    """
    try:
        return function()
    except MemoryError:
        raise
    except Exception as error:  # whatever NumPy's parsers raise, or the owner of a value
        raise DumpError(f"cannot be read: {first_line(error)}", HINT, subject=where) from None


def numbers_of(array: object, where: str) -> Array:
    """Return an array in this machine's order of bytes.

    Raises:
        DumpError: it is none, or one of texts, records or Python objects.
    """
    import numpy as np

    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        what = f"elements of dtype {array.dtype}" if isinstance(array, np.ndarray) else "no array"
        raise DumpError(f"holds {what}", HINT, subject=where)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
