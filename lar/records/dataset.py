"""The records of a data set's items. Part of `lar.records.run`: frozen, plain data."""

from __future__ import annotations

from collections.abc import Sequence

from lar.records.record import Record


class Item(Record):
    """An item of a data set: files by input name; without files, the slice of the stack that
    `--input` names, by the item's number. `label` is the item's class."""

    number: int
    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    label: int | None = None


class ItemClasses(Record):
    """The classes that the first output gives an item: the five highest scores, best first.

    `label` is what the item is, None where unknown.
    """

    number: int
    name: str
    classes: tuple[int, ...]
    scores: tuple[float, ...]
    label: int | None = None


class Accuracy(Record):
    """How many of the labelled items have their class first, and among the first five."""

    count: int
    first: int
    five: int


def accuracy_of(items: Sequence[ItemClasses]) -> Accuracy | None:
    """Return the accuracy of items; None without any that is labelled."""
    labelled = [item for item in items if item.label is not None]
    if not labelled:
        return None
    return Accuracy(
        count=len(labelled),
        first=sum(item.classes[:1] == (item.label,) for item in labelled),
        five=sum(item.label in item.classes for item in labelled),
    )
