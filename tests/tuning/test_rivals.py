"""Algorithms that compete for an operator: which are timed, what is decided of them, who is at
fault."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from lar.engines.engine import CachedAlgorithm, CachedOperator
from lar.records.run import Failure
from lar.tuning.rivals import (
    Contest,
    Rival,
    describe_contest,
    find_faulty,
    judge,
    lanes_of,
    make_contests,
)


def operator(key: str, **algorithms: float) -> CachedOperator:
    """An operator whose algorithms took so many microseconds in the search, the choice first."""
    timed = (CachedAlgorithm(name, each * 1e-6) for name, each in algorithms.items())
    return CachedOperator(key, key, "{1}", tuple(timed))


def names(contest: Contest) -> list[str]:
    return [rival.name for rival in contest.rivals]


def test_the_operators_that_make_most_of_the_time_are_timed() -> None:
    operators = [
        operator("small", A=1, B=1.5),
        operator("large", A=10, B=11, C=19, D=25),
        operator("only", A=5),
        operator("elsewhere", A=1, B=1),
        operator("tiny", A=1, B=1),
    ]
    shares = {"small": 0.3, "large": 0.5, "only": 0.16, "tiny": 0.04}
    contests = make_contests(operators, shares)
    assert [each.operator.key for each in contests] == ["large", "small"]
    # One that was far slower in the search is not worth a process.
    assert [names(each) for each in contests] == [["B", "C"], ["B"]]


def test_a_choice_by_hand_competes_with_faster_ones() -> None:
    [contest] = make_contests([operator("k", A=50, B=30, C=40, D=101)], {"k": 1.0})
    assert names(contest) == ["B", "C"]


def test_a_process_has_rivals_of_many_operators() -> None:
    operators = [operator("a", A=1, B=1.1, C=1.2, D=1.3), operator("b", A=1, B=1.1)]
    contests = make_contests(operators, {"a": 0.5, "b": 0.5})
    lanes = lanes_of(contests, 2)
    assert [{key: it.name for key, it in lane.items()} for lane in lanes] == [
        {"a": "B", "b": "B"},
        {"a": "C"},
    ]
    contests[0].rivals[0].is_decided = True
    assert [{key: it.name for key, it in lane.items()} for lane in lanes_of(contests, 2)] == [
        {"a": "C", "b": "B"},
        {"a": "D"},
    ]


def test_operators_that_are_not_told_apart_change_alone() -> None:
    operators = [operator("a", A=1, B=1.1, C=1.2), operator("b", A=1, B=1.1)]
    contests = make_contests(operators, {"b": 1.0}, indistinct=["a"])
    lanes = lanes_of(contests, 4)
    assert [{key: it.name for key, it in lane.items()} for lane in lanes] == [
        {"b": "B"},
        {"a": "B"},
        {"a": "C"},
    ]


def timed(ratios: Mapping[str, float], processes: int, *, share: float = 1.0) -> Contest:
    """A contest whose rivals were timed, with a noise of 1 %."""
    noise = random.Random(1)
    rivals = [Rival(name, 1e-5) for name in ratios]
    contest = Contest(operator("k", A=10, **dict.fromkeys(ratios, 10.0)), share, rivals)
    for process in range(processes):
        for rival in contest.undecided:
            rival.log_ratios.append([math.log(ratios[rival.name]) + noise.gauss(0, 0.01)])
        judge(contest, final=process == processes - 1)
    return contest


def test_the_fastest_of_the_faster_ones_wins() -> None:
    contest = timed({"B": 0.9, "C": 0.8, "D": 1.1, "E": 1.0}, 10)
    assert contest.winner is not None
    assert contest.winner.name == "C"
    record = describe_contest(contest, "C")
    verdicts = {each.name: each.verdict for each in record.tried}
    assert verdicts == {
        "B": "faster",
        "C": "faster",
        "D": "not faster",
        "E": "no difference shown",
    }
    assert record.gain == pytest.approx(0.2, abs=0.02)
    assert (record.before, record.after) == ("A", "C")


def test_the_choice_stays_where_nothing_is_shown() -> None:
    contest = timed({"B": 1.0}, 12)
    assert contest.winner is None
    assert describe_contest(contest, "A").gain == 0


def test_what_is_much_slower_is_soon_out() -> None:
    contest = timed({"B": 1.7, "C": 1.25, "D": 0.95}, 10)
    assert [len(rival.log_ratios) for rival in contest.rivals][:2] == [1, 2]
    verdicts = [each.verdict for each in describe_contest(contest, "A").tried]
    assert verdicts[:2] == ["much slower", "much slower"]


def test_what_cannot_save_much_is_not_measured_for_long() -> None:
    contest = timed({"B": 1.0}, 12, share=0.01)
    assert contest.rivals[0].is_decided
    assert len(contest.rivals[0].log_ratios) < 8


def test_one_that_failed_does_not_win() -> None:
    contest = timed({"B": 0.8}, 6)
    contest.rivals[0].failure = Failure("crashed")
    assert contest.winner is None


CHOICES = dict.fromkeys("abcdefgh", "X")


@pytest.mark.parametrize("guilty", [{"a"}, {"h"}, {"c", "d"}, {"a", "e", "h"}])
def test_those_at_fault_are_found(guilty: set[str]) -> None:
    tried = []

    def run(choices: Mapping[str, str]) -> Failure | None:
        tried.append(choices)
        found = guilty & choices.keys()
        return Failure(f"{min(found)} crashes") if found else None

    found = find_faulty(CHOICES, Failure("crashed"), run)
    assert found.keys() == guilty
    assert all(each.problem == f"{key} crashes" for key, each in found.items())
    assert len(tried) <= 2 * 3 * len(guilty)


def test_those_that_fail_only_together_lose_a_half() -> None:
    def run(choices: Mapping[str, str]) -> Failure | None:
        return Failure("wrong") if {"a", "h"} <= choices.keys() else None

    assert find_faulty(CHOICES, Failure("wrong"), run).keys() == set("efgh")
