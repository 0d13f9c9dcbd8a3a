"""Data sets: an `--input` that stands for many items; the model is run on each item.

`FOLDER` stands for the files in the folder that `--input` reads, in the order of their names. A
list, such as `list.txt`, has a path on each line, relative to the folder of the list. Empty lines
and lines that begin with # are skipped. A `.npz` file is a stack if the first axes of all its
arrays have one length, and this length, the number of items, is two or more. A `.npy` file is a
stack if `--labels` is given, or if the model takes one item at a time. If a model has several
inputs, as in `a:FOLDER;b:list` or `a:x.npz;b:y.npz`, each input has its own source, and all sources
have the same number of items.

This module does not use NumPy, so that the parent process can count the items before a run begins
without importing NumPy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lar.errors import UsageError, check_text, count_of
from lar.files.input_file import MOST_TEXT_BYTES, PathText, open_input, read_input
from lar.inputs import INPUT, input_error, numbered
from lar.inputs.grammar import SUFFIXES, check_file, check_texts, place_of
from lar.options.paths import split_items

if TYPE_CHECKING:
    from lar.records.run import TensorInfo

LISTS = (".txt", ".lst")
STACKS = (".npz", ".npy")
MOST_ITEMS = 1_000_000
NPY_SHAPE = re.compile(rb"\x93NUMPY.+?['\"]shape['\"]\s*:\s*\(([\d,\s]*)\)", re.DOTALL)

Files = tuple[tuple[str, str], ...]
"""For each input, its name (empty if the file gives the name) and its file."""


def items_in(texts: Sequence[str], *, with_arrays: bool = True) -> list[tuple[str, Files]] | None:
    """Return the name and files of each item.

    The result is None if the texts of `--input` do not describe a data set.

    The items of a stack have no files, since each item is a slice of the stack. If `with_arrays` is
    false, .npy files are not treated as stacks.

    Raises:
        UsageError: a text is wrong, a source is empty or broken, or the sources differ in length.
            If `with_arrays` is true, a damaged stack also raises UsageError.
    """
    check_texts(texts)
    parts = split_items(*texts)
    for part in parts:
        check_file(part)
    if has_arrays_alone(parts) and not with_arrays:
        return None
    if count := stack_in(parts):
        return [(str(number), ()) for number in range(count)]
    places = [place_of(part) for part in parts]
    columns = [files_of(path) for _, path in places]
    if not any(columns):
        for _, path in places if with_arrays else ():
            if path.lower().endswith(STACKS) and os.path.isfile(path) and not shapes_of(path):
                from lar.inputs.readers import read_path  # its error says what is wrong

                read_path(path)
        return None
    count = len(columns[0] or ())
    for part, files in zip(parts, columns, strict=True):
        if files is None:
            hint = "give a folder or a list for each input, or a stack for each"
            raise input_error(part, "feeds one run, and another item feeds many", hint)
        if len(files) != count:
            problem = f"{part} holds {count_of(len(files), 'item')}, {parts[0]} holds {count}"
            raise input_error("", problem, "give as many for each input")
    inputs, rows = [name for name, _ in places], zip(*filter(None, columns), strict=True)
    names = zip(names_of(columns[0] or ()), rows, strict=True)
    return [(name, tuple(zip(inputs, files, strict=True))) for name, files in names]


def files_of(path: str) -> list[str] | None:
    """Return the files of a folder or list, or None for any other path.

    Raises:
        UsageError: the folder or list has no files, or a file in a list is missing.
    """
    if os.path.isdir(path):
        if numbered(path, INPUT):
            return None  # ONNX's folder with the inputs of one run
        files = sorted(
            os.path.join(path, name)
            for name in os.listdir(path)
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        )
        for file in files:
            check_text(file, "--input", "the name is not UTF-8", "rename it")
        if not files:
            hint = f"it reads {', '.join(SUFFIXES)}"
            raise input_error(path, "is a folder that holds no file that lar reads", hint)
    elif path.lower().endswith(LISTS) and os.path.exists(path):
        files = read_list(path)
    else:
        return None
    if len(files) > MOST_ITEMS:
        raise input_error(path, f"holds {len(files)} items, at most {MOST_ITEMS}", "give fewer")
    return files


def read_list(path: str) -> list[str]:
    """Return the paths in a list, which are relative to the folder of the list.

    Raises:
        UsageError: the list cannot be read, is empty, or names a file that does not exist.
    """
    home = os.path.dirname(path)
    files = []
    for number, line in enumerate(read_lines(path, "--input", what="list"), start=1):
        if not line or line.startswith("#"):
            continue
        file = os.path.join(home, line)
        if not os.path.exists(file):
            problem = f"line {number}: {line}: no such file"
            raise input_error(path, problem, "write one path on each line, from the list's folder")
        files.append(file)
    if not files:
        raise input_error(path, "names no files", "write one path on each line")
    return files


def names_of(files: Sequence[str]) -> list[str]:
    """Return the names of items: their files' names, with folders if two names are equal."""
    names = [os.path.basename(file) for file in files]
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files])
    return [os.path.relpath(os.path.abspath(file), common) for file in files]


def stack_in(parts: Sequence[str]) -> int:
    """Return the number of items in a stack, or in each of several stacks; 0 for other data.

    The result is 0 for a stack of a single item, since this stack feeds only one run. The result is
    0 too if the arrays differ in length. The result is 0 for a file that is not in the format of
    its suffix; the error for this is raised later, when the file is read.
    """
    paths = [place_of(part)[1] for part in parts]
    if not all(path.lower().endswith(STACKS) and os.path.isfile(path) for path in paths):
        return 0
    found = [shapes_of(path) for path in paths]
    counts = {shape[0] if shape else 0 for shapes in found for shape in shapes.values()}
    count = counts.pop() if len(counts) == 1 and all(found) else 0
    return count if 1 < count <= MOST_ITEMS else 0


def read_lines(path: PathText, flag: str = "", what: str = "file", each: str = "item") -> list[str]:
    """Return the lines of a text file without the white space around them.

    Raises:
        UsageError: the file is refused by `read_input`, or is not UTF-8 text.
    """
    try:
        text = read_input(path, flag, what=what, limit=MOST_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        problem, hint = "is not UTF-8 text", f"give a text file with one {each} on each line"
        raise UsageError(problem, hint, flag=flag, subject=path) from None
    # Not `splitlines`: names may hold characters that Unicode counts as line ends.
    return [line.strip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def shapes_of(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays in a .npz or .npy, by name; empty for any other file.

    The array of a .npy has an empty name.
    """
    import zipfile  # slow to import, and few runs have a stack

    from lar.files.unpacking import check_zip

    try:
        with open_input(path) as file:
            if path.lower().endswith(".npy"):
                return {"": shape_in(file.read(4096))}
            with zipfile.ZipFile(file) as archive:
                check_zip(archive, os.fstat(file.fileno()).st_size, path)
                heads = {name: archive.open(name).read(4096) for name in archive.namelist()}
        return {name.removesuffix(".npy"): shape_in(head) for name, head in heads.items()}
    except Exception:
        # zipfile may raise any error for a damaged, encrypted or foreign archive. The code that
        # reads the arrays reports what is wrong.
        return {}


def is_one_run(texts: Sequence[str], infos: Sequence[TensorInfo]) -> bool:
    """Return whether a stack holds the inputs of one run, and not many items.

    A .npz holds the inputs of one run if its arrays have exactly the model's shapes, and all sizes
    in these shapes are fixed. Files with the suffix .npy hold the inputs of one run, unless each
    file has many items for an input that takes one item at a time.
    """
    given: dict[str, tuple[int, ...]] = {}
    parts = split_items(*texts)
    for part in parts:
        name, path = place_of(part)
        shapes = shapes_of(path)
        given |= {name: shapes.get(name, next(iter(shapes.values()), ()))} if name else shapes
    wanted = [info for info in infos if not info.optional]
    if len(given) == len(wanted) == 1:
        given = {wanted[0].name: next(iter(given.values()))}
    if has_arrays_alone(parts):
        return not all(is_stack_for(info, given.get(info.name, ())) for info in wanted)
    return given == {info.name: info.shape for info in wanted}


def has_arrays_alone(parts: Sequence[str]) -> bool:
    """Return whether all items of `--input` are .npy files, which usually feed one run."""
    return all(place_of(part)[1].lower().endswith(".npy") for part in parts)


def is_stack_for(info: TensorInfo, shape: tuple[int, ...]) -> bool:
    """Return whether an array has many items for an input that takes one item at a time."""
    if info.resizable or len(shape) != len(info.shape) or info.shape[:1] != (1,):
        return False
    return all(size in (None, own) for size, own in zip(info.shape[1:], shape[1:], strict=True))


def shape_in(head: bytes) -> tuple[int, ...]:
    """Return the shape in the header of an .npy file, as numpy.lib.format describes it.

    Raises:
        ValueError: the file does not begin with the header of an .npy file.
    """
    match = NPY_SHAPE.match(head)
    if match is None:
        raise ValueError("no npy header")
    return tuple(map(int, re.findall(rb"\d+", match[1])))
