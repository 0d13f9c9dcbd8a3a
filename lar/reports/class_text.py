"""The printed lines of a data set's classes: each item's top-1 and top-5, and how often they are
right."""

from __future__ import annotations

from lar.records.dataset import ItemClasses
from lar.records.run import RunResult, RunSpec


def format_classes(item: ItemClasses, spec: RunSpec) -> str:
    """Return the line of an item."""
    if not item.classes:
        return f"{item.name}: the first output has no classes"
    best, others = item.classes[0], " ".join(map(str, item.classes))
    name = f" {spec.class_names[best]}" if best < len(spec.class_names) else ""
    right = "" if item.label is None else f", is {item.label}"
    return f"{item.name}: top-1 {best}{name} ({item.scores[0]:.4g}), top-5 {others}{right}"


def format_accuracy(result: RunResult) -> list[str]:
    """Return how many items have their class first, and among the first five.

    Without any labelled item, say that the labels were read as names of classes.
    """
    labelled = [item for item in result.items if item.label is not None]
    if not labelled:
        names = len(result.spec.class_names)
        return [f"note: --labels: its {names} lines are the names of classes"] if names else []
    first = sum(item.classes[:1] == (item.label,) for item in labelled)
    five = sum(item.label in item.classes for item in labelled)
    left = len(result.spec.item_names) - len(labelled)
    return [
        f"accuracy: top-1 {first / len(labelled):.2%} ({first} of {len(labelled)}), "
        f"top-5 {five / len(labelled):.2%} ({five} of {len(labelled)})"
        + (f"; {left} items are not counted, as they are not done" if left else "")
    ]
