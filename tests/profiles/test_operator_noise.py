"""Which operators of two runs are called slower or faster."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from lar.profiles.operator_noise import (
    RunNoise,
    factors_of,
    judge_pairs,
    judge_runs,
    noise_of,
    ratio_of,
)

OPERATORS, ITERATIONS, ALPHA = 60, 40, 0.05 / 60
Run = list[list[float]]


def run_of(
    draw: random.Random, *, machine: float = 1.0, slower: Sequence[int] = (), bursts: float = 0.05
) -> Run:
    """Times of operators by iteration: of a process that differs from others in all operators by
    its machine, in each by some per cent, and from one iteration to the next."""
    own = [draw.gauss(1, 0.008) for _ in range(OPERATORS)]
    factors = [
        draw.gauss(1, 0.05) * (3 if draw.random() < bursts else 1) for _ in range(ITERATIONS)
    ]
    return [
        [
            (20_000 + 3_000 * place)
            * (1.1 if place in slower else 1)
            * machine
            * own[place]
            * factor
            * draw.gauss(1, 0.03)
            for factor in factors
        ]
        for place in range(OPERATORS)
    ]


def called(one: Run, two: Run, *, same_command: bool = True) -> list[int]:
    return called_in([(one, two)], same_command=same_command)


def called_in(runs: Sequence[tuple[Run, Run]], *, same_command: bool = True) -> list[int]:
    """The operators that are called different, from pairs of runs."""
    operators = [[(one[place], two[place]) for one, two in runs] for place in range(OPERATORS)]
    counts = [(ITERATIONS, ITERATIONS)] * len(runs)
    noise = noise_of(operators, counts, same_command=same_command)
    return [
        place
        for place, pairs in enumerate(operators)
        if noise.difference_of(pairs, ALPHA).exceeds_noise
    ]


def test_runs_of_one_command_differ_in_no_operator() -> None:
    draw = random.Random(1)
    wrong = sum(
        bool(called(run_of(draw), run_of(draw, machine=draw.choice((0.7, 1.0, 2.0)))))
        for _ in range(10)
    )
    assert wrong <= 1


def test_one_slower_operator_is_the_only_one_that_is_named() -> None:
    draw = random.Random(2)
    found = [called(run_of(draw), run_of(draw, machine=1.3, slower=[17])) for _ in range(8)]
    assert found.count([17]) >= 7


def test_a_run_that_is_slower_as_a_whole_has_a_factor_and_no_slower_operator() -> None:
    draw = random.Random(3)
    one, two = run_of(draw), run_of(draw, machine=2.0)
    operators = [[pair] for pair in zip(one, two, strict=True)]
    noise = noise_of(operators, [(ITERATIONS, ITERATIONS)], same_command=True)
    assert noise.common == pytest.approx(0.693, abs=0.03)
    assert not called(one, two)


def test_another_command_may_change_any_operator() -> None:
    draw = random.Random(4)
    one = run_of(draw)
    half = [[time / 2 for time in times] for times in run_of(draw)]
    assert called(one, half, same_command=False) == [*range(OPERATORS)]
    assert called(one, run_of(draw, machine=1.15), same_command=False) == []


def test_iterations_of_one_process_say_little_of_another() -> None:
    steady = [1e6 + 1000 * (place % 3) for place in range(100)]
    slower = [time * 1.1 for time in steady]
    twice = [time * 2 for time in steady]
    assert judge_runs([(steady, slower)], 0.05).exceeds_noise is False
    assert judge_runs([(steady, twice)], 0.05).exceeds_noise is True


def test_medians_within_what_chance_may_give_are_not_called_different() -> None:
    """Half of the iterations of one run waited for a CPU, and few of the other's."""
    waiting = [1.12, 8.21, 1.61, 1.71, 9.24, 1.81, 10.32, 1.81, 10.5, 1.82]
    waiting += [10.58, 1.94, 10.97, 1.95, 13.59, 1.96, 2.43, 13.9, 3.38, 22.11]
    calm = [1.74, 1.79, 3.36, 1.8, 1.88, 1.92, 9.34, 1.93, 1.95, 1.96]
    calm += [1.97, 3.54, 2.02, 2.03, 2.04, 10.43, 2.05, 2.09, 2.11, 2.12]
    found = judge_runs([([it * 1e6 for it in waiting], [it * 1e6 for it in calm])], 0.05)
    assert found.error is not None
    assert abs(found.delta) < found.error
    assert found.exceeds_noise is False


@pytest.mark.parametrize("times", [[5000.0] * 4, [0.0] * 50])
def test_what_is_too_short_or_too_few_is_not_judged(times: list[float]) -> None:
    noise = RunNoise((0.0,), (([0.0] * len(times), [0.0] * len(times)),))
    found = noise.difference_of([(times, times)], 0.05)
    assert (found.error, found.exceeds_noise) == (None, None)


def test_factors_are_what_operators_share_in_an_iteration() -> None:
    factors = factors_of([[100e3, 200e3, 100e3], [50e3, 100e3, 50e3], [70e3, 140e3, 700e3]])
    assert [round(each, 2) for each in factors] == [0.0, 0.69, 0.0]


def test_what_operators_scatter_by_within_runs_and_between_them_goes_together() -> None:
    draw = random.Random(5)
    scatters = [draw.choice((0.05, 0.2)) for _ in range(400)]
    values = [draw.gauss(0, 0.5 * scatter) for scatter in scatters]
    assert ratio_of(values, scatters) == pytest.approx(0.5, rel=0.15)
    assert ratio_of([0.0] * 400, scatters) < 1e-6


def test_pairs_of_runs_find_less_and_need_suppose_nothing() -> None:
    draw = random.Random(6)

    def pairs(count: int, slower: Sequence[int], factor: float) -> list[tuple[Run, Run]]:
        return [
            (run_of(draw), run_of(draw, machine=factor * draw.gauss(1, 0.05), slower=slower))
            for _ in range(count)
        ]

    assert called_in(pairs(5, [17], 1.3)) == [17]
    assert called_in(pairs(5, [], 1.0)) == []
    assert called_in(pairs(5, [], 0.6), same_command=False) == [*range(OPERATORS)]
    assert called_in(pairs(5, [], 1.0), same_command=False) == []


def test_an_iteration_is_judged_by_pairs_of_processes() -> None:
    draw = random.Random(7)
    steady = [[1e6 * draw.gauss(1, 0.03)] * 30 for _ in range(16)]
    slower = [[1.3 * time for time in times] for times in steady[8:]]
    assert judge_runs([*zip(steady[:8], steady[8:], strict=True)], 0.05).exceeds_noise is False
    assert judge_runs([*zip(steady[:8], slower, strict=True)], 0.05).exceeds_noise is True


def test_what_differs_does_so_by_more_than_the_noise_to_its_side() -> None:
    draw = random.Random(0)
    fast = [100.0 * draw.uniform(0.8, 1.25) for _ in range(6)]
    slow = [1000.0 * draw.uniform(0.8, 1.25) for _ in range(6)]
    for one, two in ((slow, fast), (fast, slow)):
        found = judge_pairs([*zip(one, two, strict=True)], 0.05)
        assert found.exceeds_noise
        assert found.error is not None
        assert found.error < abs(found.delta)


def test_what_is_supposed_to_differ_by_a_tenth_shows_large_differences_alone() -> None:
    """As the manual has it, for 60 operators: +68 % and -40 %."""
    noise = RunNoise((0.0,), (([0.0] * 9, [0.0] * 9),))
    for factor, exceeds in ((1.6, False), (1.75, True), (0.63, False), (0.57, True)):
        times = ([100_000.0] * 9, [100_000.0 * factor] * 9)
        assert noise.difference_of([times], 0.05 / 60).exceeds_noise is exceeds
