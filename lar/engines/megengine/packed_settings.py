"""The settings in a packed model, as JSON: what lite 1.13 reads of them (`--pack-info-json`).

packed_settings.txt has the fields of each object: a star is behind the kind of those that are
lists, a question mark behind those that may be missing. An unknown field is a slip for one of
these. `Options` are some of the fields of lite's options.
Read from MegEngine 1.13: lite/src/parse_info/default_parse.h.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec

from lar.errors import UsageError
from lar.files.input_file import read_input

KINDS: dict[str, Any] = {
    "whole": Annotated[int, msgspec.Meta(ge=0, lt=2**31)],
    "version": Annotated[str, msgspec.Meta(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")],
    **{"flag": bool, "text": str, "any": Any},
}


def kind_named(name: str) -> Any:
    """Return a kind of values, or one of words."""
    words: Any = Literal
    return words[tuple(name.split("|"))] if "|" in name else KINDS[name]


def add_kinds(text: str) -> None:
    """Add the kinds of objects."""
    for line in text.strip().replace("\n  ", " ").splitlines():
        name, _, fields = line.partition(": ")
        found: list[Any] = []
        for key, kind in map(str.split, fields.split(", ")):
            of_one = kind_named(kind.rstrip("*?"))
            missing = [None] if kind.endswith("?") else []
            found.append((key, GenericAlias(list, of_one) if "*" in kind else of_one, *missing))
        KINDS[name] = msgspec.defstruct(name, found, forbid_unknown_fields=True)


add_kinds(Path(__file__).with_suffix(".txt").read_text())
OPTIONS: tuple[str, ...] = KINDS["Options"].__struct_fields__


def read_info_file(path: str) -> bytes:
    """Read a JSON file of settings that lite takes as it is.

    Raises:
        UsageError: it is not.
    """
    data = read_input(path, "--pack-info-json")
    try:
        check_info(data)
    except ValueError as error:
        hint = "correct the file"
        raise UsageError(str(error), hint, flag="--pack-info-json", subject=path) from None
    return data


def check_info(data: bytes) -> dict[str, Any]:
    """Check settings and return them.

    Raises:
        ValueError: this is not JSON in UTF-8, or not what lite reads.
    """
    try:
        settings = msgspec.json.decode(data, type=KINDS["Settings"])
        info: dict[str, Any] = json.loads(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"lite does not read it: {error}") from None
    if not settings.valid:
        raise ValueError("says that it is not valid, so lite would leave it unread")
    if settings.has_compression:
        raise ValueError("says that the model is compressed, which it is not")
    return info
