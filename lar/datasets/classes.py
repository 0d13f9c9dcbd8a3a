"""The classes of a data set's items: the top five of a run, and the true class from `--labels`.

The first output of a run has the scores of the classes.

A file of labels may have one line for each item, with the item and its class: `cat.jpg 281` or
`cat.jpg,281`. In the file of labels, the item cat.jpg may be written with its folder, as in
`val/cat.jpg 281`, or without its suffix, as in `cat 281`. If each line has only a class, such as
`281`, the lines are in the order of the items.

A file of labels may also have a line for each class, and not for each item: the first line has the
name of class 0. The line of a class may end with the number of the class, as in `tench 0`.

With `--resume`, the result also has the classes of the items that an earlier run has done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lar.datasets.items import read_lines
from lar.errors import UsageError
from lar.options.table import BIN_OUT_DUMP
from lar.records.run import Item, ItemClasses, RunResult, RunSpec

MOST_REPORTED = 5  # the most classes of an item
NUMBER = re.compile(r"[-+]?\d+")
PAIR = re.compile(rf"(.+?)[\s,;]+({NUMBER.pattern})")
MOST_CLASSES = 10**9


def classes_of(item: Item, output: Any) -> ItemClasses:
    """Return the record of an item's classes, from the first output of its run."""
    classes, scores = find_classes(output)
    return ItemClasses(
        number=item.number, name=item.name, classes=classes, scores=scores, label=item.label
    )


def find_classes(output: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the classes with the highest scores, and the scores, best first.

    If scores are equal, the lower class comes first. Scores that are not finite are left out. If
    the output is a batch, only the first item of the batch is used.
    """
    import numpy as np

    if isinstance(output, str) or output.size < 2:
        return (), ()
    scores = (output[0] if output.ndim > 1 else output).reshape(-1)
    best = np.argsort(-scores.astype(np.float64), kind="stable")
    best = best[np.isfinite(scores[best])][:MOST_REPORTED]
    return tuple(best.tolist()), tuple(scores[best].astype(np.float64).tolist())


def wrong_labels(path: str, problem: str, hint: str) -> UsageError:
    return UsageError(problem, hint, flag="--labels", subject=path)


class Labels(NamedTuple):
    """The class of each item, and the names of the classes; either may be empty."""

    truths: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


def read_labels(path: str | None, items: Sequence[str]) -> Labels:
    """Read the labels of a data set's items from a file; without a path, return empty labels.

    Raises:
        UsageError: the file cannot be read, or its lines do not fit the items.
    """
    if path is None:
        return Labels()
    lines = [line for line in read_lines(path, "--labels", each="number") if line]
    if not lines:
        raise wrong_labels(path, "is empty", "write one class on each line")
    pairs = [(match[1], match[2]) for line in lines if (match := PAIR.fullmatch(line))]
    if all(NUMBER.fullmatch(line) for line in lines):
        if len(lines) != len(items):
            problem = f"has the classes of {len(lines)} items, but the data set has {len(items)}"
            hint = "write one number on each line, in the order of the items, or ITEM NUMBER"
            raise wrong_labels(path, problem, hint)
        return Labels(truths=tuple(class_of(line, path) for line in lines))
    labels = match_names(pairs, items)
    counted = [label for _, label in pairs] == [str(number) for number in range(len(lines))]
    if not labels and (len(pairs) < len(lines) or counted):
        return Labels(names=tuple(lines))
    missing = [item for item in items if item not in labels]
    if missing:
        hint = f"{len(missing)} of {len(items)} items are not in it"
        raise wrong_labels(path, f"has no class of {missing[0]}", hint)
    return Labels(truths=tuple(class_of(labels[item], path) for item in items))


def match_names(pairs: Sequence[tuple[str, str]], items: Sequence[str]) -> dict[str, str]:
    """Return the label of each item by name, from pairs of names and labels.

    A name may be a path, or lack its suffix, as long as each name fits only one item.
    """
    for shorten in (str, os.path.basename):
        labelled = {shorten(name): label for name, label in pairs}
        is_clear = shorten is str or len(labelled) == len(pairs)
        for called in (str, lambda name: os.path.splitext(name)[0]):
            known = {called(item): item for item in items}
            found = {known[name]: label for name, label in labelled.items() if name in known}
            if found and is_clear and len(known) == len(items):
                return found
    return {}


def class_of(text: str, path: str) -> int:
    """Return the number of a class from the text of a label.

    Raises:
        UsageError: the label is negative, or too large.
    """
    number = int(text) if len(text) < 10 else MOST_CLASSES
    if not 0 <= number < MOST_CLASSES:
        raise wrong_labels(path, f"{text} is not a class", "classes are numbers, counted from 0")
    return number


def add_earlier_classes(spec: RunSpec, result: RunResult) -> RunResult:
    """Return the result of a resumed run, with the classes of the items that were done earlier.

    The classes come from the dumped outputs, which exist even if the earlier run failed. The scores
    of the classes are in the dump of the model's first output, or in the only dumped tensor.
    """
    # Imported here: few runs are resumed.
    from lar.dumps.binary import read_tensor
    from lar.dumps.delivery import outputs_in

    place = Path(str(spec.settings[BIN_OUT_DUMP.key]))
    if not place.exists():  # no run has dumped an output
        return result
    runs = outputs_in(place)
    found = {item.number: item for item in result.items}
    first = result.outputs[0].name if result.outputs else ""
    for item in spec.items:
        last = runs[spec.warmup_iterations + (item.number + 1) * spec.iterations - 1]
        named = [each for each in last if each.meaning and each.meaning.variable.name == first]
        for header in named[:1] or (last if len(last) == 1 else ()):
            if item.number not in found:
                found[item.number] = classes_of(item, read_tensor(header.path)[1].values)
    return replace(result, items=tuple(found[number] for number in sorted(found)))
