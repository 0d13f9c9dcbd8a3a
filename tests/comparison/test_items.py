"""Errors over the items of a data set: of the worst, and of all together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lar.comparison.compare import CollectedItems, Progress
from lar.records.comparison import Comparison, ErrorsOverItems, Tolerance, read_comparison
from lar.records.run import Quantization
from lar.reports.comparison_report import report_comparison
from lar.reports.formats import format_json
from lar.reports.text import Screen
from lar.running.compared_sides import compare_items
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.known import known
from tests.reports.csv_rows import csv_rows

ONES = np.ones(100, np.float32)
TWO = np.full(100, 2, np.float32)


def compare_item(noise: float, tolerance: float = 0.5) -> Comparison:
    """Compare one item: an input that agrees, and an output that is off by that share."""
    sides = [
        dump_of(Step("x", "Input", (), ONES), Step("y", "Relu", ("x",), TWO * (1 + off)))
        for off in (noise, 0.0)
    ]
    return compare_dumps(sides[0], sides[1], Tolerance(max_error=tolerance))


def collect(*noises: float, tolerance: float = 0.5) -> Comparison:
    return gather(*(compare_item(noise, tolerance) for noise in noises))


def gather(*found: Comparison) -> Comparison:
    collected = CollectedItems()
    for number, each in enumerate(found):
        collected.add(f"item{number}", each)
    return collected.sum_up()


def test_errors_are_collected_over_the_items() -> None:
    found = collect(0.01, 0.1, 0.001, 0.0)
    assert found.same
    assert found.items == ("item0", "item1", "item2", "item3")
    x, y = found.tensors
    assert x.over_items == ErrorsOverItems(items=4, relative_l2=0.0)
    errors: dict[str, Any] = {"items": 4, "worst_item": "item1", "rmse_over_scale": None}
    errors["relative_l2"] = pytest.approx(math.hypot(0.01, 0.1, 0.001) / 2, rel=1e-3)
    errors["worst_snr_db"] = pytest.approx(20, abs=0.01)
    assert vars(known(y.over_items)) == errors
    assert known(y.figures).relative_l2 == pytest.approx(0.1, rel=1e-3)


def test_an_item_that_differs_is_the_one_that_is_shown() -> None:
    found = collect(0.01, 0.4, 0.02, math.inf, tolerance=0.1)
    assert not found.same
    assert not found.tensors[1].passed
    assert known(found.tensors[1].figures).nonfinite_mismatches == 100
    (culprit,) = found.culprits
    assert culprit.output == found.tensors[1]
    assert culprit.inputs == found.tensors[:1]
    assert found.notes == ("only 2 items show the fault at y: item1, item3",)
    # The infinite errors are left out of the sums.
    assert known(found.tensors[1].over_items).items == 4
    assert known(found.tensors[1].over_items).relative_l2 == pytest.approx(
        math.hypot(0.01, 0.4, 0.02) / math.sqrt(3), rel=1e-3
    )
    for noises, notes in (
        ((0.0, 0.0, 0.4), ("only item item2 shows the fault at y",)),
        ((0.4, 0.4), ()),
    ):
        assert collect(*noises, tolerance=0.1).notes == notes


def test_the_worst_item_is_named_on_a_terminal_of_80_columns() -> None:
    lines = report_comparison(collect(0.01, 0.4, 0.02, tolerance=0.1)).lines_for(Screen(80))
    assert "worst item" in next(line for line in lines if line.startswith("tensor "))
    assert " item1 " in next(line for line in lines if line.startswith("y "))


def test_the_error_of_a_quantised_tensor_is_in_steps_of_its_scale() -> None:
    one = compare_item(0.1)
    x, y = one.tensors
    stepped = replace(y, actual=replace(y.actual, quantization=Quantization(scale=(0.8,))))
    found = gather(replace(one, tensors=(x, stepped)))
    assert known(found.tensors[1].over_items).rmse_over_scale == pytest.approx(0.25, rel=1e-3)
    lines = report_comparison(found).text.splitlines()
    head = next(line for line in lines if line.startswith("tensor "))
    assert head.endswith("RMSE/scale  error")
    assert "0.250" in next(line for line in lines if line.startswith("y "))


def test_a_scale_is_too_coarse_if_it_is_in_every_item() -> None:
    def compare_scaled(most: float) -> Comparison:
        numbers, scale = np.linspace(0, most, 100, dtype=np.float32), Quantization(scale=(0.01,))
        integers = np.rint(numbers / 0.01).astype(np.int8)
        x = Step("x", "Input", (), ONES)
        actual = dump_of(x, Step("y", "Conv", ("x",), integers, quantization=scale))
        return compare_dumps(actual, dump_of(x, Step("y", "Conv", ("x",), numbers)), only="common")

    coarse, fine = compare_scaled(0.1), compare_scaled(1)
    assert (coarse.finding, fine.finding) == ("fault", "same")
    for items in ((coarse, fine), (fine, coarse)):
        found = gather(*items)
        assert (found.finding, found.culprits, found.notes) == ("same", (), ())
    found = gather(coarse, coarse)
    kinds = ["scale: in A it is 13 times coarser than the values need"]
    assert (found.finding, [it.kind for it in found.culprits], found.notes) == ("fault", kinds, ())


def test_every_report_has_the_errors_over_items() -> None:
    found = collect(0.01, 0.1)
    assert read_comparison(format_json(report_comparison(found))) == found
    _, row = csv_rows(report_comparison(found))
    assert row["all_worst_item"] == "item1"
    assert float(row["all_worst_snr_db"]) == pytest.approx(20, abs=0.01)
    assert "single_relative_l2" not in row
    text = report_comparison(found).text
    assert "2 items of a data set" in text
    assert "SNR worst  worst item" in text
    assert "all_worst_item" not in csv_rows(report_comparison(compare_item(0.1)))[0]


def test_an_interrupt_ends_with_the_items_before() -> None:
    def compare_once(item: int, progress: Progress) -> Comparison:
        progress("running")
        if len(said) == interrupted_at:
            raise KeyboardInterrupt
        return compare_item(0.1)

    said: list[str] = []
    interrupted_at = 3
    found = compare_items("abcd", compare_once, said.append)
    assert found.interrupted
    assert found.items == ("a", "b")
    assert found.notes[-1] == "interrupted: 2 of 4 items were compared"
    assert said[-1] == "item 3 of 4: running"
    said.clear()
    interrupted_at = 1
    with pytest.raises(KeyboardInterrupt):
        compare_items("abcd", compare_once, said.append)
