"""Which run of several a dump is of."""

from __future__ import annotations

import pytest

from lar.dumps.delivery import name_of_run
from lar.records.run import Case, RunSpec


def spec_of(items: tuple[str, ...] = (), cases: tuple[str, ...] = ()) -> RunSpec:
    return RunSpec(
        model="m",
        engine="fake",
        driver="script",
        iterations=2,
        warmup_iterations=1,
        item_names=items,
        cases=tuple(Case(name=name) for name in cases),
    )


@pytest.mark.parametrize(
    ("number", "name"), [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (9, "c")]
)
def test_a_run_is_of_the_item_or_testcase_whose_iteration_it_is(number: int, name: str) -> None:
    assert name_of_run(spec_of(items=("a", "b", "c")), number) == name
    assert name_of_run(spec_of(cases=("a", "b", "c")), number) == name


def test_runs_that_are_all_alike_have_no_name() -> None:
    for spec in (spec_of(), spec_of(items=("a",)), spec_of(cases=("a",))):
        assert name_of_run(spec, 3) == ""
