"""The records of a data set's items. Part of `lar.records.run`: frozen, plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item of a data set: the files that feed the inputs named, or where there are none, the
    slice of that number of the stack that `--input` names. `label` is the class it is of."""

    number: int
    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    label: int | None = None


@dataclass(frozen=True, kw_only=True)
class ItemClasses:
    """What the first output says of an item: the five classes of the highest scores, best first.

    `label` is what the item is, None where unknown.
    """

    number: int
    name: str
    classes: tuple[int, ...]
    scores: tuple[float, ...]
    label: int | None = None
