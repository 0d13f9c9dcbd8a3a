"""The classes of an item, by the first output of its run, which is taken for scores."""

from __future__ import annotations

from typing import Any

from lar.records.dataset import Item, ItemClasses

MOST_CLASSES = 5  # told of an item


def classes_of(item: Item, output: Any) -> ItemClasses:
    """Return the record of an item's classes, by the first output of its run."""
    classes, scores = find_classes(output)
    return ItemClasses(
        number=item.number, name=item.name, classes=classes, scores=scores, label=item.label
    )


def find_classes(output: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the classes of the highest scores and these, best first; of equal scores the lower
    class first. Scores that are not finite are left out. Of a batch, the first item
    counts."""
    import numpy as np

    if isinstance(output, str) or output.size < 2:
        return (), ()
    scores = (output[0] if output.ndim > 1 else output).reshape(-1)
    best = np.argsort(-scores.astype(np.float64), kind="stable")
    best = best[np.isfinite(scores[best])][:MOST_CLASSES]
    return tuple(map(int, best)), tuple(float(scores[index]) for index in best)
