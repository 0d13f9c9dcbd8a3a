"""Collects errors over the items of a data set: comparisons come one by one, and are not kept.

For each pair of tensors it keeps sums, one number an item, and the worst item's comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lar.comparison.compare import listed
from lar.comparison.metrics import finite
from lar.records.comparison import Comparison, Culprit, ErrorsOverItems, Figures, TensorComparison

Key = tuple[str, str]

SEVERITY = ("nothing", "same", "rounding", "different", "fault")


class Errors:
    """The errors of one pair of tensors, item by item."""

    def __init__(self) -> None:
        self.noise = self.signal = 0.0  # sums of squares over all items
        self.elements = self.items = 0
        self.worst: Figures | None = None
        self.worst_item = ""

    def add(self, item: str, figures: Figures | None) -> None:
        """Add the figures of an item, if it could be compared."""
        if figures is None:
            return
        if self.worst is None or snr_of(figures) < snr_of(self.worst):
            self.worst, self.worst_item = figures, item
        self.items += 1
        counted = figures.elements - max(sum(figures.nan_counts), sum(figures.infinity_counts))
        energy = (figures.scale or 0.0) ** 2 * counted
        self.signal += energy
        self.elements += counted
        if figures.relative_l2 is not None:
            self.noise += figures.relative_l2**2 * energy
        elif not figures.identical:  # the expected tensor is 0
            self.noise += (figures.max_absolute or 0.0) ** 2

    def sum_up(self, pair: TensorComparison) -> ErrorsOverItems | None:
        """Return the errors over all items, None without any."""
        if self.worst is None:
            return None
        snr = snr_of(self.worst)
        known = (it.quantization.scale for it in (pair.actual, pair.expected) if it.quantization)
        step = next((scale[0] for scale in known if len(scale) == 1), 0.0)
        rms = math.sqrt(self.noise / self.elements) if self.elements else 0.0
        return ErrorsOverItems(
            items=self.items,
            worst_item=self.worst_item if snr < math.inf else "",
            relative_l2=math.sqrt(self.noise / self.signal) if self.signal else None,
            worst_snr_db=finite(snr),
            rmse_over_scale=rms / step if step else None,
        )


class Pair:
    """What is kept of a pair of tensors: its worst comparison, and its errors."""

    def __init__(self, first: TensorComparison) -> None:
        self.worst, self.entire, self.single = first, Errors(), Errors()

    def add(self, item: str, found: TensorComparison) -> None:
        """Add the comparison of an item."""
        self.worst = max(self.worst, found, key=badness_of)
        self.entire.add(item, found.figures)
        self.single.add(item, found.single)

    def sum_up(self) -> TensorComparison:
        """Return the worst comparison with the errors over all items."""
        return replace(
            self.worst,
            single=self.single.worst,
            over_items=self.entire.sum_up(self.worst),
            single_over_items=self.single.sum_up(self.worst),
        )


class CollectedItems:
    """Collects the comparisons of the items of a data set."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.main: Comparison | None = None  # the first item with the worst finding
        self.pairs: dict[Key, Pair] = {}
        self.culprits: dict[Key, dict[str, Culprit]] = {}  # by item

    def add(self, item: str, found: Comparison) -> None:
        """Add the comparison of an item."""
        self.items.append(item)
        if found.culprits and all(culprit.is_coarse for culprit in found.culprits):
            found = replace(found, finding="same")  # other items may fill the range
        if self.main is None or severity_of(found) > severity_of(self.main):
            self.main = found
        for tensor in found.tensors:
            self.pairs.setdefault(key_of(tensor), Pair(tensor)).add(item, tensor)
        for culprit in found.culprits:
            self.culprits.setdefault(key_of(culprit.output), {})[item] = culprit

    def sum_up(self) -> Comparison:
        """Return one comparison of all items, with culprits of any item.

        Each pair is as in its worst item, with its errors over all items. A scale is too coarse
        only if it is so in each item.
        """
        assert self.main is not None
        found = [
            each
            for each in self.culprits.values()
            if len(each) == len(self.items) or not all(it.is_coarse for it in each.values())
        ]
        tensors = {key: pair.sum_up() for key, pair in self.pairs.items()}
        culprits = [max(each.values(), key=lambda it: badness_of(it.output)) for each in found]
        notes = [describe_items(it) for it in found if len(it) < len(self.items)]
        return replace(
            self.main,
            items=tuple(self.items),
            finding="fault" if culprits else self.main.finding,
            culprits=tuple(
                it.with_tensors(lambda pair: tensors.get(key_of(pair), pair)) for it in culprits
            ),
            tensors=tuple(tensors.values()),
            notes=(*self.main.notes, *notes),
        )


def describe_items(culprits: Mapping[str, Culprit]) -> str:
    """Return which items show a fault that is the same in each."""
    name = next(iter(culprits.values())).output.expected.name
    if len(culprits) == 1:
        return f"only item {next(iter(culprits))} shows the fault at {name}"
    return f"only {len(culprits)} items show the fault at {name}: {listed([*culprits])}"


def key_of(tensor: TensorComparison) -> Key:
    return tensor.actual.key, tensor.expected.key


def severity_of(found: Comparison) -> int:
    return SEVERITY.index(found.finding)


def badness_of(found: TensorComparison) -> tuple[bool, float]:
    """Return whether a pair differs, and by how much; a pair that cannot be compared is worst."""
    return not found.passed, math.inf if found.figures is None else -snr_of(found.figures)


def snr_of(figures: Figures) -> float:
    """Return the ratio of signal to noise in dB.

    It is infinite if the sides are equal, minus infinite if one has no numbers, or if the expected
    side is 0 and the other is not.
    """
    if figures.nonfinite_mismatches:
        return -math.inf
    if figures.snr_db is not None:
        return figures.snr_db
    return math.inf if figures.identical or not figures.max_absolute else -math.inf
