"""What profiling cost, and operators' times on the scale of a plain iteration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lar.profiles.breakdown import breakdown_of
from lar.profiles.costs import describe_cost, extra_share, fit_to_plain
from lar.profiles.trace_file import write_profile
from lar.records.profile import Correction, Cost, Execution, Profile, Span, StepNoise
from tests.conftest import RunLar
from tests.known import known
from tests.profiles.synthetic import (
    executions_by_operator,
    operator_of,
    profile_of_times,
    with_facts,
)
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of

TYPES = {"conv": "Conv", "relu": "Relu", "fc": "Gemm"}
RECORDED = {"conv": 12, "relu": 3, "fc": 7}


def profile_with(profiled_us: float, plain_us: float) -> Profile:
    profile = profile_of_times(TYPES, [RECORDED] * 4, step_us=28, warmup=1)
    return with_facts(profile, cost=Cost(profiled_us * 1e-6, plain_us * 1e-6, 3, 3))


def medians_us(profile: Profile) -> list[float]:
    groups = executions_by_operator(profile)
    return [median(each.duration_ns for each in groups[place]) / 1e3 for place in sorted(groups)]


def test_a_low_cost_changes_nothing() -> None:
    profile = profile_with(20.5, 20.0)
    assert extra_share(profile) == pytest.approx(0.025)
    assert fit_to_plain(profile) is profile
    assert describe_cost(profile) == (
        "Profiling adds 2.5%: an iteration took 20.5 us with it. Times of operators are as "
        "recorded."
    )


def test_a_run_that_was_faster_with_the_profiler_shows_no_cost() -> None:
    assert describe_cost(profile_with(20.0, 21.0)) == "Profiling had no measurable cost."
    assert "an iteration took 1.000 ms with it" in describe_cost(profile_with(1000.0, 999.0))


def test_without_a_plain_run_nothing_is_known() -> None:
    profile = profile_of_times(TYPES, [RECORDED], step_us=28)
    assert (extra_share(profile), fit_to_plain(profile)) == (None, profile)
    assert describe_cost(profile) == ""


def test_a_cost_that_fits_beside_the_operators_lies_outside_of_them() -> None:
    profile = fit_to_plain(profile_with(28.0, 24.0))
    assert medians_us(profile) == [12.0, 3.0, 7.0]
    assert describe_cost(profile) == (
        "Profiling adds 16.7%: an iteration took 28.0 us with it. It lies outside of operators, "
        "whose times are as recorded."
    )
    (first, *_) = breakdown_of(profile)
    assert first.buckets_ns["Profiling"] == 4000
    assert sum(first.buckets_ns.values()) == first.total_ns == 28_000


def test_what_belongs_to_operators_is_scaled_from_the_begin_of_the_iteration() -> None:
    """It takes 40 us without the profiler, of which copies take 20 us and the operator the rest."""
    copies = [span_of("phase", "input_copy", 100, 120), span_of("phase", "output_copy", 190, 210)]
    copies += [span_of("phase", "forward", 110, 180), span_of("user_annotation", "my", 130, 150)]

    def profile_at(spans: list[Span], *executions: Execution, **facts: Any) -> Profile:
        steps = [step_of(-1, 0, 50, True), step_of(0, 100, 200)]
        cost = {"cost": Cost(100e-6, 40e-6, 1, 1), **facts}
        operators = [operator_of("conv", "Conv")]
        return profile_of(operators, steps, executions, [*copies, *spans], facts=cost)

    recorded = profile_at(
        [
            span_of("relayout", "of conv", 130, 150, operator=0),
            span_of("user_annotation", "by", 130, 170, style="operators"),
        ],
        execution_of(0, 10, 20, step=-1, warmup=True),
        execution_of(0, 130, 170, wait=20, dispatch=(105, 112)),
    )
    found = fit_to_plain(recorded)
    assert found == replace(
        profile_at(
            [
                span_of("relayout", "of conv", 120, 130, operator=0),
                span_of("user_annotation", "by", 120, 140, style="operators"),
            ],
            execution_of(0, 5, 10, step=-1, warmup=True),
            execution_of(0, 120, 140, wait=10, dispatch=(105, 111)),
        ),
        correction=Correction(0.5, 60_000),
    )
    assert "Times of operators are scaled by 0.500, so" in describe_cost(found)
    assert breakdown_of(found)[0].buckets_ns["Profiling"] == 50_000  # all there is
    assert fit_to_plain(found) is found
    device = with_facts(recorded, device="cuda0")
    assert fit_to_plain(device) == replace(device, correction=Correction(1.0, 60_000))
    short = profile_at([], *recorded.executions, cost=Cost(8.0, 19e-6, 1, 1))
    assert known(fit_to_plain(short).correction).scale == 0
    for own in ((), [execution_of(0, 130, 130)]):
        instant = profile_at([], *own, cost=Cost(8.0, 4.0, 1, 1))
        assert fit_to_plain(instant) == replace(instant, correction=Correction(1.0, 4 * 10**9))


def test_disturbed_iterations_do_not_shorten_operators() -> None:
    """Those of two of three iterations wait for a CPU."""
    times = [RECORDED, {"conv": 9000, "relu": 3, "fc": 7}, {"conv": 9000, "relu": 3, "fc": 7}]
    made = profile_of_times(TYPES, times, step_us=10_000)
    noise = tuple(StepNoise(n, 0, ("queue delay",) * (n > 0)) for n in range(3))
    cost = Cost(9e-3, 9e-3, 3, 3, 28e-6, 20e-6)
    correction = fit_to_plain(with_facts(made, cost=cost, noise=noise)).correction
    assert known(correction).scale == pytest.approx(20 / 22)


def test_disturbed_runs_say_nothing_of_the_cost() -> None:
    cost = Cost(28e-6, 20e-6, 3, 3, disturbed=True)
    profile = with_facts(profile_with(28.0, 20.0), cost=cost)
    assert fit_to_plain(profile) is profile
    assert describe_cost(profile) == (
        "Other work disturbed the runs, so that the cost of profiling is not known: an iteration "
        "took 28.0 us with it."
    )


STYLES = ("megengine", "paddle", "torch", "nsys", "ncu")


@pytest.mark.parametrize("style", STYLES)
def test_every_style_says_so_in_the_same_words(style: str, tmp_path: Path, run_lar: RunLar) -> None:
    path = tmp_path / "p.json"
    recorded = profile_with(28.0, 11.0)
    write_profile(recorded, path)
    said = run_lar("report", str(path), "--style", style).stdout
    assert said.endswith(describe_cost(fit_to_plain(recorded)) + "\n")
