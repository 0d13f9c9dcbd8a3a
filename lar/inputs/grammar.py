"""The grammar of `--input`: the name of the input in each item, and the kind of its value.

    text  = item *(";" item)
    item  = [name ":"] value
    value = path                       a file or a folder
          | path "," dtype "," shape   a .bin file: file.bin,float32,1x3x224x224
          | numbers                    [1.5,2,3] or 1.5,2,3
          | "{" [axis *("," axis)] "}" a shape, whose data is generated.

The name of a model's input may itself hold a colon (`input:0`). A text that is the path of an
existing file or folder is taken as the path, even if it has a colon, semicolon or bracket. A text
that consists only of numbers is taken as numbers, even if a file has this name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from lar.errors import UsageError
from lar.files.input_file import CHECK_PATH, check_input
from lar.inputs import Loaded, input_error
from lar.options.paths import find_path, split_items
from lar.records.record import ShortRecord

# Suffixes of files: of all images, which have one reader, and of raw bytes, which have another.
IMAGES = (".ppm", ".pgm", ".jpg", ".jpeg", ".png", ".bmp", ".webp")
RAW = (".bin", ".raw")
# Suffixes of the files that a folder of items may hold.
SUFFIXES = (".npy", *IMAGES, ".json", ".pb", ".npz", *RAW)

_NUMBER_CHARACTERS = frozenset("0123456789[],.+-eE \t\n")
_RAW_FORM = re.compile(r"(.+\.(?i:bin|raw)),(\w+),(\d{1,18}(?:x\d{1,18})*)")
_RAW_COMMA = re.compile(r"\.(bin|raw),", re.IGNORECASE)
_SHAPE = re.compile(r"\{\s*(\d{1,18}(\s*,\s*\d{1,18})*)?\s*\}")
NO_FORM = "has no dtype and shape after the comma"
RAW_HINT = "spell dtype and shape as in file.bin,float32,1x3x224x224"
FORMS = "give a file, a folder, numbers such as [1.5,2,3], or a shape such as {1,3,224,224}"


class RawForm(ShortRecord):
    """The dtype and shape that follow the path of a file of raw bytes."""

    dtype: str
    shape: tuple[int, ...]


class PathItem(ShortRecord):
    """An item of `--input` that names a file or folder to read.

    `name` is the name of the input, or empty if the text gives no name.
    """

    name: str
    path: str
    form: RawForm | None = None


class NumbersItem(ShortRecord):
    """An item of `--input` with numbers that are written in the text itself."""

    name: str
    text: str


class ShapeItem(ShortRecord):
    """An item of `--input` that gives the shape of generated data.

    `text` is the text in which the user wrote the shape.
    """

    name: str
    shape: tuple[int, ...]
    text: str = ""


Item = PathItem | NumbersItem | ShapeItem | Loaded
"""An item. A `Loaded` is an array that is loaded already; the grammar makes none."""


def items_of(texts: Sequence[str | Item], names: Sequence[str] = ()) -> tuple[Item, ...]:
    """Split the texts of all `--input` flags into items.

    `names` are the names of the model's inputs.

    A value that is already an item is returned unchanged.

    Raises:
        UsageError: a text is empty, or an item does not follow the grammar.
    """
    items: list[Item] = []
    for text in texts:
        if not isinstance(text, str):
            items.append(text)
            continue
        if not (parts := split_items(text)):
            raise UsageError("the text is empty", FORMS, flag="--input")
        items += [item_of(part, names) for part in parts]
    return tuple(items)


def check_texts(texts: Sequence[str], flag: str = "--input") -> None:
    """Refuse texts that are wrong for every model, before an engine is loaded.

    Raises:
        UsageError: the dtype and shape of raw bytes are misspelled, or a path leads to a pipe or a
            device.
    """
    for part in split_items(*texts):
        place = find_path(part)
        if place and not os.path.isdir(path := part[place].strip()):
            check_input(path, flag)
        elif not place and _RAW_COMMA.search(part) and not _RAW_FORM.fullmatch(part):
            raise input_error(part, NO_FORM, RAW_HINT, flag=flag)


def check_file(part: str) -> None:
    """Refuse a file that is missing, before an engine is loaded.

    An item with several colons is not checked: its path depends on the names of the inputs.

    Raises:
        UsageError: the file is missing.
    """
    path = place_of(part)[1]
    path = found[1] if (found := _RAW_FORM.fullmatch(path)) else path
    if path.lower().endswith(SUFFIXES) and part.count(":") < 2 and not os.path.exists(path):
        raise input_error(path, "no such file", CHECK_PATH)


def place_of(text: str, names: Sequence[str] = ()) -> tuple[str, str]:
    """Split an item into the name of an input and the value; the name may be empty.

    `names` are the names of the model's inputs.
    """
    end = max([len(name) for name in names if text.startswith(f"{name}:")], default=text.find(":"))
    if end < 0 or text.startswith(("[", "{")) or _is_numbers(text) or os.path.exists(text):
        return "", text
    return text[:end].strip(), text[end + 1 :].strip()


def item_of(text: str, names: Sequence[str] = ()) -> Item:
    """Parse one item.

    Raises:
        UsageError: the name or the value is empty, or a shape or the form of raw bytes is
            misspelled.
    """
    name, value = place_of(text, names)
    if not name and value != text:
        raise input_error(text, "has no name before the colon", "write NAME:VALUE")
    if not value:
        raise input_error(text, "has no value after the name", FORMS)
    is_there = os.path.exists(value)
    if _is_numbers(value) or (value.startswith("[") and not is_there):
        return NumbersItem(name, value)
    if is_there:
        return PathItem(name, value)
    if value.startswith("{"):
        if not _SHAPE.fullmatch(value):
            raise input_error(value, "is not a shape", "write it as {1,3,224,224}")
        return ShapeItem(name, tuple(map(int, re.findall(r"\d+", value))), value)
    if match := _RAW_FORM.fullmatch(value):
        path, dtype, axes = match.groups()
        return PathItem(name, path, RawForm(dtype, tuple(map(int, axes.split("x")))))
    if _RAW_COMMA.search(value):
        raise input_error(value, NO_FORM, RAW_HINT)
    return PathItem(name, value)


def _is_numbers(value: str) -> bool:
    return _NUMBER_CHARACTERS.issuperset(value) and any(map(str.isdigit, value))
