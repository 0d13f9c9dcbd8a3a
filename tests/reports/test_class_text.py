"""The lines about the classes of a data set's items."""

from __future__ import annotations

import pytest

from lar.records.dataset import ItemClasses
from lar.records.run import RunResult, RunSpec
from lar.reports.run_text import format_accuracy, format_classes


def spec_of(names: tuple[str, ...] = (), items: int = 0) -> RunSpec:
    return RunSpec(
        model="m",
        engine="fake",
        driver="script",
        class_names=names,
        item_names=tuple(map(str, range(items))),
    )


def item_of(*classes: int, label: int | None = None) -> ItemClasses:
    scores = tuple(0.5 / (place + 1) for place in range(len(classes)))
    return ItemClasses(number=0, name="a.png", classes=classes, scores=scores, label=label)


@pytest.mark.parametrize(
    ("item", "names", "line"),
    [
        (item_of(2, 0, 1), (), "a.png: top-1 2 (0.5), top-5 2 0 1"),
        (item_of(2, 0, label=0), (), "a.png: top-1 2 (0.5), top-5 2 0, is 0"),
        (item_of(1), ("cat", "dog"), "a.png: top-1 1 dog (0.5), top-5 1"),
        (item_of(2), ("cat", "dog"), "a.png: top-1 2 (0.5), top-5 2"),  # without a name
        (item_of(0), ("cat",), "a.png: top-1 0 cat (0.5), top-5 0"),
    ],
)
def test_an_item_has_its_best_classes(item: ItemClasses, names: tuple[str, ...], line: str) -> None:
    assert format_classes(item, spec_of(names)) == line


def test_an_item_without_classes_has_a_line_too() -> None:
    assert format_classes(item_of(), spec_of()).startswith("a.png: the first output ")


def accuracy_of(*items: ItemClasses, names: tuple[str, ...] = (), count: int = 0) -> list[str]:
    spec = spec_of(names, count or len(items))
    return format_accuracy(
        RunResult(spec=spec, status="ok", phase="iterations", lar_version="", items=items)
    )


def test_the_accuracy_counts_the_items_with_a_label() -> None:
    items = (item_of(1, 2, label=1), item_of(1, 2, label=2), item_of(1, label=3), item_of(label=1))
    assert accuracy_of(*items) == ["accuracy: top-1 25.00% (1 of 4), top-5 50.00% (2 of 4)"]
    (line,) = accuracy_of(*items[:1], count=3)
    assert line == (
        "accuracy: top-1 100.00% (1 of 1), top-5 100.00% (1 of 1)"
        "; 2 items are not counted, as they are not done"
    )


def test_without_labels_there_is_no_accuracy() -> None:
    assert accuracy_of(item_of(1)) == []
    (note,) = accuracy_of(item_of(1), names=("cat", "dog"))
    assert note.startswith("note: --labels: its 2 lines are ")
