"""Limits of data sets, labels and classes, from both sides of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lar.datasets import items as items_module
from lar.datasets.classes import class_of, find_classes, read_labels
from lar.datasets.items import items_in
from lar.errors import UsageError


def test_the_largest_class() -> None:
    assert class_of("999999999", "f") == 10**9 - 1
    assert class_of("0", "f") == 0
    for text in ("1000000000", "-1"):
        with pytest.raises(UsageError, match=f"f: {text} is not a class"):
            class_of(text, "f")


def test_a_folder_of_as_many_items_as_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_module, "MOST_ITEMS", 2)
    for name in ("a.npy", "b.npy"):
        (tmp_path / name).write_bytes(b"")
    found = items_in([str(tmp_path)])
    assert found is not None
    assert len(found) == 2
    (tmp_path / "c.npy").write_bytes(b"")
    with pytest.raises(UsageError, match="holds 3 items, at most 2"):
        items_in([str(tmp_path)])


def test_a_stack_has_two_items_or_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items_module, "MOST_ITEMS", 3)
    path = str(tmp_path / "a.npz")
    for count, is_stack in ((0, False), (1, False), (2, True), (3, True), (4, False)):
        np.savez(path, a=np.zeros((count, 2)), b=np.zeros(count))
        found = items_in([path])
        assert (found is not None) is is_stack
        assert found is None or [name for name, _ in found] == list(map(str, range(count)))


def test_stacks_of_other_lengths_are_one_run(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.npz"), str(tmp_path / "b.npz")
    np.savez(first, a=np.zeros((2, 2)))
    np.savez(second, b=np.zeros((2, 3)))
    found = items_in([first, second])
    assert found is not None
    assert len(found) == 2
    np.savez(second, b=np.zeros((3, 3)))
    assert items_in([first, second]) is None


def test_classes_are_of_two_scores_or_more() -> None:
    assert find_classes(np.array([3.0])) == ((), ())
    assert find_classes(np.array([[3.0]])) == ((), ())
    assert find_classes(np.array([3.0, 4.0])) == ((1, 0), (4.0, 3.0))
    assert find_classes(np.array([5.0, 4, 3, 2, 1])) == ((0, 1, 2, 3, 4), (5.0, 4, 3, 2, 1))
    assert find_classes(np.array([5.0, 4, 3, 2, 1, 0]))[0] == (0, 1, 2, 3, 4)
    assert find_classes(np.array([1.0, 1.0]))[0] == (0, 1)


def test_a_number_a_line_for_each_item(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text("1\n\n2\n")
    assert read_labels(str(path), ["a", "b"]).truths == (1, 2)
    for items in (["a"], ["a", "b", "c"]):
        with pytest.raises(UsageError, match=f"2 items, there are {len(items)}"):
            read_labels(str(path), items)
