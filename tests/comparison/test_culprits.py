"""Which operator is to blame, and the proof, by operators run alone: on dumps made by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.culprits import converted
from lar.dumps import Dump, DumpedTensor
from lar.errors import LarError
from lar.records.comparison import Comparison, Culprit
from lar.reports.comparison_report import report_comparison
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.known import known
from tests.reports.csv_rows import csv_rows
from tests.tables import each_row

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng(0)


def noise(shape: tuple[int, ...], size: float) -> Array:
    return (size * RANDOM.standard_normal(shape)).astype(np.float32)


def chain(errors: list[float], start: Array) -> list[Step]:
    """A chain of operators whose outputs are a little further off each time."""
    steps = [Step("data", "Input", (), start)]
    for number, error in enumerate(errors):
        array = start * (1 + noise(start.shape, error))
        steps.append(Step(f"t{number}", "Tanh", (steps[-1].name,), array.astype(np.float32)))
    return steps


def outputs(culprits: tuple[Culprit, ...]) -> list[str]:
    return [it.output for culprit in culprits for it in culprit.expected]


def compare(actual: list[Step], expected: list[Step]) -> Comparison:
    return compare_dumps(dump_of(*actual), dump_of(*expected))


START = RANDOM.standard_normal((4, 50)).astype(np.float32)


def test_rounding_that_grows_is_no_fault() -> None:
    growing = [3e-8 * 1.7**step for step in range(24)]
    assert growing[-1] > 1e-3
    found = compare(chain(growing, START), chain([0.0] * 24, START))
    assert found.finding == "rounding"
    assert found.culprits == ()
    assert not found.notes


def test_a_fault_that_hides_within_the_tolerance_is_found_where_it_began() -> None:
    # The half-precision cast itself is within the tolerance, what comes of it is not.
    found = compare(chain([1e-7, 3e-5, 9e-5, 3e-4], START), chain([0.0] * 4, START))
    assert outputs(found.culprits) == ["t1"]


def test_a_dump_of_a_few_tensors_without_those_between_is_compared() -> None:
    def net(error: float) -> Dump:
        whole = dump_of(*chain([0.0, error, error], START))
        kept = replace(
            whole.index, tensors=whole.index.tensors[2:], operators=whole.index.operators[2:]
        )
        return Dump("a few", kept, lambda tensor: whole.read(tensor.key))

    found = compare_dumps(net(0.0), net(0.0))
    assert (found.finding, len(found.tensors)) == ("same", 2)
    assert not any(tensor.constant for tensor in found.tensors)
    assert outputs(compare_dumps(net(0.1), net(0.0)).culprits) == ["t1"]


def test_a_damaged_graph_with_a_cycle_ends() -> None:
    steps = [
        Step("a", "Add", ("data", "b"), START),
        Step("b", "Tanh", ("a",), START),
        Step("data", "Input", (), START),
    ]
    assert compare(steps, steps).finding == "nothing"  # it has no output
    ended = [Step("c", "Exp", ("a",), START), *steps]
    assert compare(ended, ended).finding == "same"


Functions = Mapping[str, Callable[..., Array]]

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)


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
        self.fed.setdefault(output.name, dict(values))
        return self.functions[output.name](*values.values())


# Of a chain: what each operator should do.
RIGHT: Functions = {
    "a": np.tanh,
    "b": lambda x: x * np.float32(2),
    "c": np.sin,
    "d": lambda x: x + np.float32(1),
}
TWO_FAULTS: Functions = {
    **RIGHT,
    "a": lambda x: np.tanh(x) * np.float32(1.01),
    "c": lambda x: np.sin(x) + np.float32(0.02),
}


def chain_of(functions: Functions) -> Dump:
    """The dump of a chain of operators."""
    steps = [Step("data", "Input", (), IMAGES)]
    for name in RIGHT:
        array = functions[name](steps[-1].array)
        steps.append(Step(name, f"Kind{name}", (steps[-1].name,), array))
    return dump_of(*steps)


def isolate(
    actual: Dump, expected: Dump, operators: Played, other: Played | None = None
) -> Comparison:
    sides = operators, other or Played(RIGHT)
    return compare_dumps(actual, expected, operators_of=sides.__getitem__, isolate=True)


def prove(operators: Played | str, other: Played | str) -> Comparison:
    """Compare a chain with two faults with the right one; culprits are proven by these sides."""
    sides = operators, other
    return compare_dumps(chain_of(TWO_FAULTS), chain_of(RIGHT), operators_of=sides.__getitem__)


def culprits(comparison: Comparison) -> list[str]:
    return [operator.output for each in comparison.culprits for operator in each.actual]


def test_a_culprit_is_proven_by_running_it_alone_on_both_sides() -> None:
    ours, theirs = Played(TWO_FAULTS), Played(RIGHT)
    (culprit,) = prove(ours, theirs).culprits
    assert [it.output for it in culprit.actual] == ["a"]
    assert (culprit.proven, culprit.doubt) == (True, "")
    assert known(culprit.alone).relative_l2 == pytest.approx(0.01, rel=0.01)
    assert [*ours.fed] == [*theirs.fed] == ["a"]  # behind a proven one nothing is run


OTHERWISE = "run alone, the engine of {} gives another result than in the run"
NOT_GIVEN = "the engine of side A cannot run this operator alone"


@pytest.mark.parametrize(
    ("operators", "other", "doubt"),
    [
        ("its model is gone", Played(RIGHT), "its model is gone"),
        (Played(TWO_FAULTS), "its model is gone", "its model is gone"),
        (Played({}), Played(RIGHT), "it cannot be cut out"),
        (Played(TWO_FAULTS), Played({}), "B: it cannot be cut out"),
        (Played(TWO_FAULTS), Played(TWO_FAULTS), OTHERWISE.format("B")),
        (Played({**RIGHT, "a": lambda x: x}), Played(RIGHT), OTHERWISE.format("A")),
        (Played(TWO_FAULTS, missing=["a"]), Played(RIGHT), NOT_GIVEN),
        (Played({"a": np.max}), Played(RIGHT), "run alone, the operator returns shape ()"),
    ],
)
def test_what_is_not_proven_is_a_suspect(
    operators: Played | str, other: Played | str, doubt: str
) -> None:
    found = prove(operators, other)
    assert (found.finding, culprits(found)[0]) == ("fault", "a")
    assert not found.culprits[0].proven
    assert found.culprits[0].doubt == doubt


def test_an_operator_that_is_right_alone_is_innocent() -> None:
    """The runs gave other values there, and nothing on either side makes them again."""
    found = prove(Played(RIGHT), Played(RIGHT))
    assert not found.same
    assert found.culprits == ()


def test_two_faults_one_behind_the_other_are_both_named() -> None:
    found = isolate(chain_of(TWO_FAULTS), chain_of(RIGHT), Played(TWO_FAULTS))
    assert culprits(found) == ["a", "c"]
    assert all(each.proven for each in found.culprits)
    singles = {each.actual.name: each.single for each in found.tensors}
    assert {name: single and single.identical for name, single in singles.items()} == {
        "data": None,
        "a": False,
        "b": True,
        "c": False,
        "d": True,
    }
    entire = {each.actual.name: each.figures for each in found.tensors}
    assert known(singles["c"]).relative_l2 != known(entire["c"]).relative_l2
    assert not found.interrupted
    rows = {row["actual_name"]: row for row in csv_rows(report_comparison(found))}
    errors = [float(rows[name]["single_relative_l2"]) for name in "abd"]
    assert [error > 1e-3 for error in errors] == [True, False, False]
    plain = compare_dumps(chain_of(RIGHT), chain_of(RIGHT))
    assert "single_relative_l2" not in csv_rows(report_comparison(plain))[0]


def test_what_cannot_be_cut_out_is_listed_with_the_reason() -> None:
    left_out = {name: each for name, each in TWO_FAULTS.items() if name != "c"}
    found = isolate(chain_of(TWO_FAULTS), chain_of(RIGHT), Played(left_out))
    assert culprits(found) == ["a"]
    assert "not run alone: c: it cannot be cut out" in report_comparison(found).text.splitlines()


def test_what_an_interrupt_leaves_unproven_is_a_suspect() -> None:
    played = Played(TWO_FAULTS, interrupt_at="a")
    found = compare_dumps(chain_of(TWO_FAULTS), chain_of(RIGHT), operators_of=lambda side: played)
    assert found.interrupted
    assert culprits(found) == ["a"]
    assert [each.doubt for each in found.culprits] == ["interrupted before it was run alone"]


def test_operators_that_the_other_side_fused_are_run_together() -> None:
    actual, fused = chain_of(TWO_FAULTS), chain_of(RIGHT)
    steps = [
        Step("data", "Input", (), IMAGES),
        Step("b", "Kindb", ("data",), fused.read("b")),
        Step("d", "Kindd", ("b",), fused.read("d")),
    ]
    operators, other = (
        Played(
            {
                "b": lambda x, each=each: each["b"](each["a"](x)),
                "d": lambda x, each=each: each["d"](each["c"](x)),
            }
        )
        for each in (TWO_FAULTS, RIGHT)
    )
    found = isolate(actual, dump_of(*steps), operators, other)
    assert {name: [*values] for name, values in operators.fed.items()} == {
        "b": ["data"],
        "d": ["b"],
    }
    assert len(found.culprits) == 2


def test_a_difference_that_becomes_small_is_no_less_a_fault() -> None:
    right: Functions = {**RIGHT, "b": lambda x: x * np.float32(0.1) + np.float32(1)}
    wrong = {**right, "a": TWO_FAULTS["a"], "d": lambda x: x + np.float32(1.5)}
    found = isolate(chain_of(wrong), chain_of(right), Played(wrong), Played(right))
    assert culprits(found) == ["a", "d"]


def test_an_engine_that_computes_another_thing_alone_proves_nothing() -> None:
    otherwise = {**TWO_FAULTS, "d": lambda x: TWO_FAULTS["d"](x) * np.float32(1.5)}
    found = isolate(chain_of(TWO_FAULTS), chain_of(RIGHT), Played(otherwise))
    assert [it.output.actual.name for it in found.culprits if it.proven] == ["a", "c"]


def test_what_the_engine_fuses_is_run_together() -> None:
    together = {**TWO_FAULTS, "c": lambda x: TWO_FAULTS["c"](TWO_FAULTS["b"](x))}
    operators = Played(together, missing=["b"])
    found = isolate(chain_of(TWO_FAULTS), chain_of(RIGHT), operators)
    assert [*operators.fed["c"]] == ["a"]
    assert culprits(found) == ["a", "c"]
    (within,) = (each for each in found.tensors if each.actual.name == "b")
    assert within.single_problem == NOT_GIVEN


def test_what_has_no_twin_before_it_is_not_run() -> None:
    steps = [Step("data", "Input", (), IMAGES), Step("more", "Input", (), IMAGES * 3)]
    last = Step("e", "Kinde", ("data", "more"), IMAGES * 2)
    found = isolate(dump_of(*steps, last), dump_of(steps[0], last), Played({"e": np.add}))
    (tensor,) = (each for each in found.tensors if each.actual.name == "e")
    assert tensor.single is None
    assert tensor.single_problem == "more: the other side has no matching tensor"


@each_row("comparison/cases/stored values")
def test_values_are_stored_as_the_side_that_is_run_stores_them(layout: str, dtype: str) -> None:
    def stored(array: Array) -> Array:
        array = array.astype(dtype)
        if not layout:
            return array
        padded = np.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0)))  # three channels, then nothing
        return np.ascontiguousarray(padded.reshape(2, 1, 4, 4, 4).transpose(0, 1, 3, 4, 2))

    plain = IMAGES, np.tanh(IMAGES)
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


@pytest.mark.parametrize("dtype", ["QuantizedS8", "BFloat16", "QuantizedS4", "unknown"])
def test_numbers_of_a_type_without_integers_or_scales_are_not_fed(dtype: str) -> None:
    tensor = DumpedTensor(key="x", name="x", dtype=dtype, shape=(2,))
    with pytest.raises(LarError, match=f"x: lar cannot feed numbers of the type {dtype}$"):
        converted(np.ones(2), tensor, None)


def off_by(errors: Sequence[float], types: str, dtype: str) -> tuple[Dump, Played]:
    """A chain of tensors that are off by factors, and its operators, which compute them alone, but
    for those of the type `Gone`."""
    steps, before = [Step("data", "Input", (), IMAGES.astype(dtype))], 1.0
    played: dict[str, Callable[..., Array]] = {}
    for error, kind in zip(errors, types.split(), strict=True):
        name = f"t{len(steps) - 1}"
        array = (IMAGES * np.float32(1 + error)).astype(dtype)
        steps.append(Step(name, kind, (steps[-1].name,), array))
        ratio, before = np.float32((1 + error) / before), 1 + error
        if kind != "Gone":
            played[name] = lambda x, ratio=ratio: (x.astype(np.float32) * ratio).astype(x.dtype)
    return dump_of(*steps), Played(played)


@each_row("comparison/chains/errors")
def test_where_errors_of_a_chain_begin(
    errors: list[float], types: str, dtype: str, wanted: dict[str, Any], found: list[Any]
) -> None:
    """The finding, each culprit and whether it is proven, and how many notes there are."""
    sides = [off_by(each, types, dtype) for each in (errors, [0.0] * len(errors))]
    (actual, expected), players = zip(*sides, strict=True)
    compared = compare_dumps(actual, expected, operators_of=players.__getitem__, **wanted)
    blamed = [[each.expected[0].output, each.proven] for each in compared.culprits]
    assert [compared.finding, blamed, len(compared.notes)] == found
