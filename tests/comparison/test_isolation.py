"""Operators that are run alone on the other side's values, on dumps made by hand."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.compare import compare_dumps
from lar.dumps.dump import Dump, DumpedTensor
from lar.engines import operator_kinds_of
from lar.errors import LarError
from lar.records.comparison import Comparison
from lar.reports.compare_csv import format_csv
from lar.reports.compare_text import format_comparison

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.comparison.handmade import Step, dump_of

Array = npt.NDArray[Any]
Functions = Mapping[str, Callable[..., Array]]

START = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)


class Played:
    """The operators of a model as functions of what they take."""

    def __init__(
        self, functions: Functions, interrupt_at: str = "", missing: Collection[str] = ()
    ) -> None:
        self.functions = functions
        self.missing = missing
        self.interrupt_at = interrupt_at
        self.fed: dict[str, dict[str, Array]] = {}

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        return {each.key for each in tensors if each.name in self.missing}

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        if output.name == self.interrupt_at:
            raise KeyboardInterrupt
        if output.name not in self.functions:
            raise LarError("it cannot be cut out")
        self.fed[output.name] = dict(values)
        return self.functions[output.name](*values.values())


# Of a chain: what each operator should do.
RIGHT: Functions = {
    "a": np.tanh,
    "b": lambda x: x * np.float32(2),
    "c": np.sin,
    "d": lambda x: x + np.float32(1),
}


def chain(functions: Functions) -> Dump:
    """The dump of a chain of operators."""
    steps = [Step("data", "Input", (), START)]
    for name in RIGHT:
        array = functions[name](steps[-1].array)
        steps.append(Step(name, f"Kind{name}", (steps[-1].name,), array))
    return dump_of(*steps)


def isolate(actual: Dump, expected: Dump, operators: Played) -> Comparison:
    return compare_dumps(actual, expected, kinds_of=operator_kinds_of, operators=operators)


TWO_FAULTS: Functions = {
    **RIGHT,
    "a": lambda x: np.tanh(x) * np.float32(1.01),
    "c": lambda x: np.sin(x) + np.float32(0.02),
}


def culprits(comparison: Comparison) -> list[str]:
    return [operator.output for each in comparison.culprits for operator in each.actual]


def test_two_faults_one_behind_the_other_are_both_named() -> None:
    actual, expected = chain(TWO_FAULTS), chain(RIGHT)
    assert culprits(compare_dumps(actual, expected, kinds_of=operator_kinds_of)) == ["a"]
    found = isolate(actual, expected, Played(TWO_FAULTS))
    assert culprits(found) == ["a", "c"]
    singles = {each.actual.name: each.single for each in found.tensors}
    assert singles["data"] is None
    assert {name: single and single.identical for name, single in singles.items()} == {
        "data": None,
        "a": False,
        "b": True,
        "c": False,
        "d": True,
    }
    entire = {each.actual.name: each.figures for each in found.tensors}
    assert singles["c"]
    assert entire["c"]
    assert singles["c"].relative_l2 != entire["c"].relative_l2
    assert not found.interrupted


def test_the_text_has_both_errors() -> None:
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), Played(TWO_FAULTS))
    lines = format_comparison(found)
    header = next(line for line in lines if "single" in line)
    assert "entire" in header
    assert "rel l2" not in header
    behind = next(line for line in lines if line.startswith("b "))
    assert "equal" in behind  # what it is off by is not its own


def test_the_csv_has_columns_of_single_errors() -> None:
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), Played(TWO_FAULTS))
    rows = {row["actual"]: row for row in csv.DictReader(io.StringIO(format_csv(found)))}
    assert [rows[name]["single_mismatches"] == "0" for name in "abd"] == [False, True, True]
    assert float(rows["c"]["single_relative_l2"]) != float(rows["c"]["relative_l2"])
    plain = compare_dumps(chain(RIGHT), chain(RIGHT), kinds_of=operator_kinds_of)
    assert "single" not in format_csv(plain)


def test_what_cannot_be_cut_out_is_listed_with_the_reason() -> None:
    left_out = {name: each for name, each in TWO_FAULTS.items() if name != "c"}
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), Played(left_out))
    assert culprits(found) == ["a"]
    lines = format_comparison(found)
    place = lines.index("not run alone: 1 of A")
    assert lines[place + 1] == "  c: it cannot be cut out"


def test_an_interrupted_one_has_what_is_known() -> None:
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), Played(TWO_FAULTS, interrupt_at="d"))
    assert found.interrupted
    assert culprits(found) == ["a", "c"]
    assert "interrupted: 3 of 4 operators were run alone" in found.notes


def test_a_side_without_operators_is_named() -> None:
    found = isolate(dump_of(), chain(RIGHT), Played(TWO_FAULTS))
    assert any(note.startswith("no operator was run alone") for note in found.notes)


def test_operators_that_the_other_side_fused_are_run_together() -> None:
    actual, fused = chain(TWO_FAULTS), chain(RIGHT)
    steps = [
        Step("data", "Input", (), START),
        Step("b", "Kindb", ("data",), fused.read("b")),
        Step("d", "Kindd", ("b",), fused.read("d")),
    ]
    together = {
        "b": lambda x: TWO_FAULTS["b"](TWO_FAULTS["a"](x)),
        "d": lambda x: TWO_FAULTS["d"](TWO_FAULTS["c"](x)),
    }
    operators = Played(together)
    found = isolate(actual, dump_of(*steps), operators)
    assert {name: [*values] for name, values in operators.fed.items()} == {
        "b": ["data"],
        "d": ["b"],
    }
    assert len(found.culprits) == 2


def test_a_sum_without_its_bias_stands_for_none_with_it() -> None:
    """A adds the bias behind the sum, together with the activation, B before it."""
    bias = np.array([0.1, -0.2, 0.3], np.float32).reshape(1, 3, 1, 1)

    def last(total: Array) -> Array:
        return np.asarray(np.maximum(total + bias, 0))

    right, wrong = np.tanh(START), np.tanh(START) * np.float32(2)
    actual = dump_of(
        Step("data", "Input", (), START),
        Step("bias", "constant", (), bias),
        Step("a", "Tanh", ("data",), wrong),
        Step("ADD(1)", "Elemwise", ("a", "data"), wrong + START, parameters={"mode": "ADD"}),
        Step(
            "last",
            "Elemwise",
            ("bias", "ADD(1)"),
            last(wrong + START),
            parameters={"mode": "FUSE_ADD_RELU"},
        ),
    )
    expected = dump_of(
        Step("data", "Input", (), START),
        Step("bias", "constant", (), bias),
        Step("a", "Tanh", ("data",), right),
        Step("biased", "Add", ("a", "bias"), right + bias),
        Step("sum", "Add", ("biased", "data"), right + bias + START),
        Step("last", "Relu", ("sum",), last(right + START)),
    )
    operators = Played(
        {
            "a": lambda x: np.tanh(x) * np.float32(2),
            "ADD(1)": lambda x, y: x + y,
            "last": lambda *values: last(sum(values[1:], values[0])),
        }
    )
    found = isolate(actual, expected, operators)
    assert culprits(found) == ["a"]
    assert {*operators.fed["last"]} == {"a", "data"}
    assert [each.expected.name for each in found.tensors if each.apart_by_bias] == ["sum"]


def test_an_engine_that_computes_another_thing_alone_accuses_nobody() -> None:
    otherwise = {**TWO_FAULTS, "d": lambda x: TWO_FAULTS["d"](x) * np.float32(1.5)}
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), Played(otherwise))
    assert culprits(found) == ["a", "c"]
    (last,) = (each for each in found.tensors if each.actual.name == "d")
    assert last.single is None
    assert last.single_problem == "the engine does not compute it alone as it did in the run"


def test_what_the_engine_fuses_is_run_together() -> None:
    together = {**TWO_FAULTS, "c": lambda x: TWO_FAULTS["c"](TWO_FAULTS["b"](x))}
    operators = Played(together, missing=["b"])
    found = isolate(chain(TWO_FAULTS), chain(RIGHT), operators)
    assert [*operators.fed["c"]] == ["a"]
    assert culprits(found) == ["a", "c"]
    (within,) = (each for each in found.tensors if each.actual.name == "b")
    assert within.single_problem == "lies within what the engine fuses"


def test_what_has_no_twin_before_it_is_not_run() -> None:
    steps = [Step("data", "Input", (), START), Step("more", "Input", (), START * 3)]
    last = Step("e", "Kinde", ("data", "more"), START * 2)
    found = isolate(dump_of(*steps, last), dump_of(steps[0], last), Played({"e": np.add}))
    (tensor,) = (each for each in found.tensors if each.actual.name == "e")
    assert tensor.single is None
    assert tensor.single_problem == "more: what it is computed from has no twin in B"


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [("nchw4", "float32"), ("", "float16"), ("", "float64"), ("nchw44", "float32")],
)
def test_values_are_stored_as_the_side_that_is_run_stores_them(layout: str, dtype: str) -> None:
    def stored(array: Array) -> Array:
        array = array.astype(dtype)
        if not layout:
            return array
        padded = np.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0)))  # three channels, then nothing
        return np.ascontiguousarray(padded.reshape(2, 1, 4, 4, 4).transpose(0, 1, 3, 4, 2))

    plain = START, np.tanh(START)
    expected = dump_of(Step("data", "Input", (), plain[0]), Step("a", "Kinda", ("data",), plain[1]))
    actual = dump_of(
        Step("data", "Input", (), stored(plain[0]), layout),
        Step("a", "Kinda", ("data",), stored(plain[1]), layout),
    )
    operators = Played({"a": np.tanh})
    isolate(actual, expected, operators)
    (fed,) = operators.fed["a"].values()
    assert fed.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(fed, stored(plain[0]))
