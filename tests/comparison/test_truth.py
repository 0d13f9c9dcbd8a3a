"""The truth as a third side of dumps that are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.cli.main import main
from lar.comparison.compare import judge_by_truth, odd_of
from lar.dumps import Dump
from lar.dumps.binary import write_tensor
from lar.records.comparison import Comparison, ComparisonOfSides, read_comparison_of_sides
from lar.reports.comparison_report import describe_truth
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.known import known
from tests.refusals import refused
from tests.reports.golden_files import check_golden
from tests.tables import each_row

Array = np.ndarray[Any, np.dtype[Any]]
DATA = np.random.RandomState(0).randn(1, 4, 6, 6)
WRONG = np.where(np.arange(DATA.size).reshape(DATA.shape) % 7, 1.0, 1.5)


def network(prefix: str, *, middle: Array | float = 1.0, names: str = "abc") -> Dump:
    """A dump of three operators in a row, the second one off by a factor."""
    one = DATA * 2 + 1
    two = np.tanh(one) * middle
    three = np.maximum(two, 0.1)
    wide = np.float64 if prefix == "truth" else np.float32
    return dump_of(
        Step("data", "Input", (), DATA.astype(wide)),
        Step(names[0], "Mul", ("data",), one.astype(wide)),
        Step(names[1], "Tanh", (names[0],), two.astype(wide)),
        Step(names[2], "Relu", (names[1],), three.astype(wide)),
        prefix=prefix,
    )


def judge(actual: Dump, expected: Dump, nearest: int = 1) -> Comparison:
    found = compare_dumps(actual, expected)
    truth = network("truth")
    against = [compare_dumps(side, truth) for side in (actual, expected)]
    return judge_by_truth(found, against, truth, nearest=nearest)


@pytest.mark.parametrize("nearest", [0, 1])
@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (1.0, 1.0, "A rounds as it must, B rounds as it must"),
        (WRONG, 1.0, "A is off in Tanh b, B rounds as it must"),
        (1.0, WRONG, "A rounds as it must, B is off in Tanh b"),
        # The truth is what is in doubt there.
        (WRONG, WRONG, "A cannot be judged, B cannot be judged"),
    ],
)
def test_the_side_that_is_off_is_named(
    actual: Any, expected: Any, words: str, nearest: int
) -> None:
    sides = network("one", middle=actual), network("other", middle=expected)
    found = judge(*sides, nearest=nearest)
    assert describe_truth(known(found.truth)) == words
    assert found.same == (actual is expected)
    doubt = "the truth of Tanh is in doubt: the engines agree against it"
    assert (doubt in found.notes) == (actual is expected is WRONG)


def test_a_side_has_the_twin_in_the_truth_that_its_twin_has() -> None:
    """A calls two tensors by the names that the truth gives to others."""
    found = judge(network("one", names="bax"), network("other", names="pqr"))
    twins = dict(zip("pqr", "abc", strict=True))
    assert len(found.tensors) == 4
    for tensor in found.tensors:
        truth = known(tensor.truth)
        name = tensor.expected.name
        assert truth.tensor.name == twins.get(name, name)
        for errors in (truth.actual, truth.expected):
            assert known(known(errors).relative_l2) < 1e-6


def write_dump(place: Path, *values: float) -> str:
    """Write tensors t0, t1, ... of a value each."""
    place.mkdir()
    for number, value in enumerate(values):
        write_tensor(place / f"{number:06x}", np.full((2, 3), value, np.float32), f"t{number}")
    return str(place)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Dumps of which A and B agree, C is another at t1 and t2, D at t2."""
    place = tmp_path_factory.mktemp("sides")
    values = {"a": (1, 2, 3), "b": (1, 2, 3), "c": (1, 2.5, 3.5), "d": (1, 2, 9)}
    return [write_dump(place / name, *each) for name, each in values.items()]


@each_row("comparison/cases/odd ones")
def test_the_odd_ones_are_those_outside_the_largest_group(
    groups: list[list[int]], odd: list[int]
) -> None:
    assert odd_of(groups) == tuple(odd)


@each_row("comparison/cases/odd sides")
def test_the_odd_one_out_is_named_for_each_tensor(
    folders: list[str], order: str, groups: list[list[list[int]]], odd: list[list[int]]
) -> None:
    found = lar.compare(*(folders["abcd".index(letter)] for letter in order))
    assert isinstance(found, ComparisonOfSides)
    assert not found.same
    assert [[[*each] for each in it.groups] for it in found.tensors] == groups
    assert [[*it.odd] for it in found.tensors] == odd
    assert lar.compare(*folders[:3], max_error=1.0).same


def test_what_is_wrong_with_a_side_is_said_by_its_letter() -> None:
    x = np.linspace(-2, 2, 24).astype(np.float32)
    right = dump_of(Step("x", "Input", (), x), Step("y", "Tanh", ("x",), np.tanh(x)))
    wrong = dump_of(Step("x", "Input", (), x), Step("y", "Tanh", ("x",), np.tanh(x) * 2))
    found = lar.compare(right, right, wrong)
    assert isinstance(found, ComparisonOfSides)
    assert [each.kind for it in found.comparisons for each in it.culprits] == [
        "scale: C is 2 times A"
    ]


def test_the_command_line_takes_more_sides_and_prints_the_golden_file(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = {suffix: tmp_path / f"out.{suffix}" for suffix in ("html", "json", "csv", "md")}
    words = [word for path in reports.values() for word in ("--report", str(path))]
    assert main(["compare", *folders[:3], *words]) == 1
    printed = capsys.readouterr().out.replace(str(Path(folders[0]).parent), "FOLDER")
    check_golden("sides.txt", printed)
    assert read_comparison_of_sides(reports["json"].read_text()) == lar.compare(*folders[:3])
    rows = reports["csv"].read_text().splitlines()
    assert rows[0] == "tensor,type,error_B,error_C,odd one out"
    assert rows[2] == "t1,,0.0,0.25,C"
    assert "| t1 |  | equal | 0.25 | C |" in reports["md"].read_text()
    assert json.dumps("C")[1:-1] in reports["html"].read_text()
    assert main(["compare", folders[0], folders[1], folders[0]]) == 0
    last = "result: the same within the tolerance (3 outputs, 3 computed tensors)\n"
    assert capsys.readouterr().out.endswith(last)
    assert main(["compare", *folders[:3], "--isolate"]) == 2
    assert "--isolate" in capsys.readouterr().err


def test_there_is_a_letter_for_each_side(folders: list[str]) -> None:
    refused("27 sides", lar.compare, folders[0], folders[1], folders[2], *folders[:1] * 24)
