"""`--labels FILE`: the classes of a data set's items, or the names of the classes.

item name or number per line     `cat.jpg 281`, `cat.jpg,281` or `281`: what each item is;
                                 `val/cat.jpg 281` is for the item cat.jpg, too
name per line                    the names of the classes, from class 0
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from lar.errors import UsageError


class Labels(NamedTuple):
    """The class of each item, and the names of the classes; either may be empty."""

    truths: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


def read_labels(path: str | None, items: Sequence[str]) -> Labels:
    """Read a file of labels for the items of a data set; no file tells nothing.

    Raises:
        UsageError: it cannot be read, or its lines do not fit the items.
    """
    if path is None:
        return Labels()
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "").lower() or "it is not UTF-8 text"
        raise UsageError(f"--labels: {path}: cannot be read: {reason}") from None
    if not lines:
        raise UsageError(f"--labels: {path}: is empty", "give a class a line")
    if all(re.fullmatch(r"\d{1,9}", line) for line in lines):
        if len(lines) != len(items):
            raise UsageError(
                f"--labels: {path}: tells the classes of {len(lines)} items, there are "
                f"{len(items)}",
                "give a number a line, in the order of the items, or ITEM NUMBER",
            )
        return Labels(truths=tuple(map(int, lines)))
    pairs = [re.fullmatch(r"(.+?)[\s,;]+(\d{1,9})", line) for line in lines]
    told = {pair[1]: int(pair[2]) for pair in pairs if pair}
    if not set(items) & told.keys():
        by_file = {os.path.basename(name): label for name, label in told.items()}
        told = by_file if len(by_file) == len(told) else told
    if set(items) & told.keys():
        missing = [item for item in items if item not in told]
        if missing:
            raise UsageError(
                f"--labels: {path}: tells no class of {missing[0]}",
                f"{len(missing)} of {len(items)} items are not in it",
            )
        return Labels(truths=tuple(told[item] for item in items))
    return Labels(names=tuple(lines))
