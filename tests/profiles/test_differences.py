"""What differs between two commands, and by how much the times of their operators differ."""

from __future__ import annotations

import math

import pytest

from lar.engines import operator_kinds_of_both
from lar.graphs.operator_twins import OperatorPair
from lar.profiles.differences import (
    ComparedTimes,
    compare_profiles,
    contrasts_of,
    grouped,
    log_ratios,
    without_common_words,
)
from lar.records.profile import Cost, Machine, ModelFacts, Profile, ProfileFacts
from tests.known import known
from tests.profiles.synthetic import operator_of, profile_of_times, with_facts
from tests.tables import each_row


@each_row("profiles/differences/log ratios")
def test_a_ratio_is_moved_towards_1_by_a_step(
    a: list[float], b: list[float], step: float, quotients: list[float]
) -> None:
    found = log_ratios(ComparedTimes("", "", (a, b)), step)
    assert found == pytest.approx([math.log(each) for each in quotients])


@each_row("profiles/differences/words")
def test_of_long_lists_of_words_those_that_differ_are_shown(
    one: str, other: str, shown: list[str]
) -> None:
    assert [*without_common_words(one, other)] == shown


@each_row("profiles/differences/titles")
def test_rows_have_the_title_of_the_operator_that_computes_most(
    by: str, titles: list[list[str]]
) -> None:
    operators = [
        operator_of("relu", "Relu", flops=None, size_bytes=9),
        operator_of("conv", "Conv", flops=1, size_bytes=None, module="net"),
        *(operator_of(name, "Add") for name in "abcd"),
    ]
    side = Profile(operators=tuple(operators))
    pairs = [OperatorPair((0, 1), (1,)), OperatorPair((2, 3, 4, 5)), OperatorPair((), (2, 3, 4))]
    assert [[*each[:2]] for each in grouped(pairs, (side, side), by)] == titles


@each_row("profiles/differences/facts")
def test_facts_that_differ_are_shown_in_order(facts: list[list[str]]) -> None:
    def profile_with(letter: str, number: int, **options: object) -> Profile:
        machine = Machine(processor=letter, cores=4, load=float(number))
        machine["variables"] = {"OMP_NUM_THREADS": str(number)}
        if number == 1:
            machine["architecture"] = "x86_64"
        facts = ProfileFacts(
            model=ModelFacts(f"{letter}.mge", f"{letter}123456789ab{letter}", "mge"),
            engine=letter,
            engine_version=f"{number}",
            driver=letter * 2,
            device=f"cuda{number}",
            lar_version=f"0.{number}",
            machine=machine,
            options={"iter": number, "profile": letter, "made_up": number, **options},
            batch=number,
            threads=number,
            iterations=number,
            warmup_iterations=number,
        )
        return Profile(facts=facts)

    one = profile_with("a", 1, fast_run=True, profile_memory=True)
    other = profile_with("b", 2, fast_run=False)
    assert [[*each] for each in contrasts_of(one, other)] == facts


def run_of(a: int, b: int, plain_us: float) -> Profile:
    made = profile_of_times({"a": "Conv", "b": "Relu"}, [{"a": a, "b": b}] * 3, step_us=500)
    return with_facts(made, lar_version="1", cost=Cost(500e-6, plain_us * 1e-6, 3, 3))


@each_row("profiles/differences/pairs")
def test_pairs_show_by_how_much_times_differ(
    figures: list[list[float]], times: list[list[float]]
) -> None:
    ones = [run_of(100 + n, 50, 300 + n) for n in range(4)]
    others = [run_of(130 + 2 * n, 50 + n % 2, 330 - n) for n in range(4)]
    pairs = [*zip(ones, others, strict=True)]
    found = compare_profiles(pairs, operator_kinds_of_both(*pairs[0]))
    for row, figures_of_row in zip((found.iteration, *found.operators), figures, strict=True):
        difference = known(row.difference)
        interval = known(difference.interval)
        ends = (difference.ratio, interval.low, interval.high, interval.confidence)
        own = (row.a_ns, row.b_ns, known(row.change_percent), *row.calls, *ends)
        assert own == pytest.approx(figures_of_row)
    assert ComparedTimes("", "", ([], [5])).change_ns == 5
    assert ComparedTimes("", "", ([5], [])).change_ns == -5
    for total in (found.total, found.shared):
        assert ([*total.times_ns], total.calls) == (times, (2, 2))
