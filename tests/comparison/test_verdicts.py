"""What a comparison ends with: which pairs are the same, and what the verdict rests on."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lar
from lar.cli.main import main
from lar.dumps import Dump
from lar.records.comparison import Comparison
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.dumps.blocked_tensors import to_blocked

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


DATA = draw(2, 8)


def test_only_is_a_flag_and_a_keyword(tmp_path: Path) -> None:
    from lar.dumps.binary import write_tensor

    for name, value in (("a", 1.0), ("b", 2.0)):
        (tmp_path / name).mkdir()
        write_tensor(tmp_path / name / "000001", np.full(3, value, np.float32), "x")
    sides = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["compare", *sides, "--only", "outputs"]) == 1
    assert main(["compare", *sides, "--only", "inputs"]) == 2
    assert lar.compare(*sides, only="outputs").only == "outputs"


def test_a_part_of_a_dump_is_compared_with_the_whole() -> None:
    weight = draw(8)
    whole = dump_of(
        Step("data", "Input", (), DATA),
        Step("weight", "constant", (), weight),
        Step("x", "Mul", ("data", "weight"), DATA * weight),
    )
    kept = tuple(it for it in whole.index.tensors if it.name == "weight")
    part = Dump("part", replace(whole.index, tensors=kept), lambda tensor: whole.read(tensor.key))
    for sides in ((part, whole), (whole, part)):
        found = compare_dumps(*sides)
        assert found.finding == "nothing"  # no computed tensor
        assert [(each.actual.name, each.passed) for each in found.tensors] == [("weight", True)]


@pytest.mark.parametrize(
    "pair",
    [
        f"{model}: {one} {other}"
        for model in ("digits_cnn", "int8")
        for one, other in itertools.permutations(("nchw", "nchw44", "nchw88"), 2)
    ],
)
def test_dumps_of_load_and_run_in_other_layouts_are_the_same(
    written_by_cpp: Path, pair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, layouts = pair.split(": ")
    sides = [str(written_by_cpp / f"{model}_{layout}") for layout in layouts.split()]
    assert main(["compare", *sides]) == 0
    assert "\nresult: the same within the tolerance (1 output, " in capsys.readouterr().out


def blocked(layout: str, channels: int, change: float = 0.0, padding: float = 0.0) -> Dump:
    """A layer in blocks, of which one element may be off and the padding may hold something."""
    plain = np.linspace(1, 2, channels * 144, dtype=np.float32).reshape(1, channels, 12, 12)
    plain[0, channels - 4, 2, 3] += np.float32(change)
    array = to_blocked(plain, layout)
    if padding:
        array[:, -1, ..., -1] = padding
    steps = [
        Step("data", "Input", (), DATA),
        Step("reorder_token_1", "Conv", ("data", "w"), array, layout),
    ]
    return dump_of(*steps)


@pytest.mark.parametrize(("layout", "channels"), [("nchw16c", 8), ("nchw88", 12), ("nchw44", 8)])
def test_tensors_blocked_alike_are_compared_in_plain_axes(layout: str, channels: int) -> None:
    found = compare_dumps(blocked(layout, channels, 0.5), blocked(layout, channels)).tensors[-1]
    assert found.actual.shape == found.expected.shape == (1, channels, 12, 12)
    assert found.figures
    assert found.figures.elements == channels * 144
    assert found.figures.worst
    assert found.figures.worst.index == (0, channels - 4, 2, 3)


def test_what_one_side_alone_has_in_the_padding_is_seen() -> None:
    found = compare_dumps(blocked("nchw16c", 8, padding=3.0), blocked("nchw16c", 8)).tensors[-1]
    assert found.actual.shape == (1, 16, 12, 12)
    assert not found.passed


@pytest.mark.parametrize("types", [*itertools.permutations(("float16", "float32", "float64"), 2)])
def test_the_order_of_sides_changes_nothing(types: tuple[str, str]) -> None:
    x = np.linspace(-3, 3, 4000)
    arrays = x.astype(types[0]), (x * (1 + 3e-5)).astype(types[1])
    one, other = both_ways(*arrays)
    assert one.finding == other.finding == "same"
    one, other = both_ways(arrays[0], arrays[1] * arrays[1].dtype.type(1.5))
    assert one.finding == other.finding == "fault"
    counts = [
        [each.figures.mismatches for each in found.tensors if each.figures]
        for found in (one, other)
    ]
    assert counts[0] == counts[1]


def both_ways(one: Array, other: Array) -> tuple[Comparison, Comparison]:
    """Compare the results of an operator, each as the expected one."""
    a, b = (
        dump_of(Step("data", "Input", (), DATA), Step("y", "Tanh", ("data",), array))
        for array in (one, other)
    )
    return compare_dumps(a, b), compare_dumps(b, a)
