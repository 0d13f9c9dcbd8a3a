"""One operator altered in ten networks: that operator is named, whatever it is compared with."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable

import pytest
from bench_numbers import is_named, names_it
from number_cases import Case, Side, faulty_cases
from number_dumps import dump_of, make_dumps
from planted_faults import BLOCKED, FAULTS, IN_BLOCKS, NETWORKS, PLAIN, cast_half, remove

from lar.dumps import Dump
from lar.dumps.index import open_dump
from tests.comparison.known_engines import compare_dumps

# One pair of forms for each fault, another for the next one: `bench_numbers` takes them all.
BY_FAULT = itertools.groupby(
    (case for case in faulty_cases() if case.group == "fault"), lambda case: case.actual.fault
)
PAIRS = [[*cases] for _, cases in BY_FAULT]
FAULTY = [pairs[number % len(pairs)] for number, pairs in enumerate(PAIRS)]
CLEAN = [
    Case("clean", "", Side(name, form=one), Side(name, form=other))
    for name in NETWORKS
    if name != "int8_cnn"
    for one, other in (*(BLOCKED if name in IN_BLOCKS else PLAIN), ("basic", "all"))
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Side], Dump]:
    """Return the dump of a side; all are made once, by other processes, for whichever of the tests'
    processes has a part of these tests."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "planted"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_dumps(folder, (*FAULTY, *CLEAN))
    return lambda side: open_dump(dump_of(folder, side))


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_the_culprit_is_the_altered_operator(planted: Callable[[Side], Dump], case: Case) -> None:
    altered, clean = planted(case.actual), planted(case.expected)
    comparison = compare_dumps(altered, clean)
    if comparison.same:  # it is averaged out before it reaches an output
        assert any(note.startswith("inside, ") for note in comparison.notes)
        comparison = compare_dumps(altered, clean, only="common")
    assert comparison.finding == "fault"
    (culprit,) = comparison.culprits
    assert names_it(culprit, case.faults[0])
    ((operator, change),) = FAULTS[case.actual.fault].changes
    if case.actual.form == case.expected.form == "basic" and change not in (remove, cast_half):
        # Nothing is fused there, and one side has no operator more: nothing else may be blamed.
        assert all(is_named(each, operator) for each in (*culprit.actual, *culprit.expected))
    assert all(tensor.passed for tensor in culprit.inputs)
    assert not culprit.output.passed


@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_unaltered_networks_are_the_same(planted: Callable[[Side], Dump], case: Case) -> None:
    comparison = compare_dumps(planted(case.actual), planted(case.expected))
    assert comparison.culprits == ()
    assert comparison.finding == "same"
    # Everything has a twin, or lies within what the other side computes as a whole, or is the
    # second output of an operator that has one there.
    left = [each.tensor.name for each in comparison.unmatched if not each.fused]
    assert [name for name in left if ":o" not in name] == []
