"""What profiling cost, and operators' times on the scale of a plain iteration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec
import pytest

from lar.profiles.breakdown import breakdown_of
from lar.profiles.costs import describe_cost, extra_share, fit_to_plain
from lar.profiles.trace_file import write_profile
from lar.records.profile import Cost, Profile, StepNoise
from tests.conftest import RunLar
from tests.known import known
from tests.profiles.synthetic import executions_by_operator, profile_of_times, with_facts

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


@pytest.mark.parametrize("plain_us", [4.0, 9.0, 14.0, 20.0])
def test_one_factor_scales_operators_that_do_not_fit(plain_us: float) -> None:
    recorded = profile_with(28.0, plain_us)
    profile = fit_to_plain(recorded)
    scale = plain_us / 22
    assert medians_us(profile) == pytest.approx([12 * scale, 3 * scale, 7 * scale], abs=0.002)
    assert profile.steps == recorded.steps
    assert f"scaled by {scale:.3f}" in describe_cost(profile)
    assert fit_to_plain(profile) is profile
    for step in breakdown_of(profile):
        assert step.buckets_ns["Profiling"] == pytest.approx(28_000 - 1000 * plain_us, abs=10)
        assert sum(step.buckets_ns.values()) == step.total_ns


def test_what_lies_within_an_operator_still_does() -> None:
    profile = profile_with(28.0, 10.0)
    loop = msgspec.structs.replace(profile.executions[0], end_ns=profile.executions[2].end_ns)
    around = replace(profile, executions=(loop, *profile.executions[1:3]))
    outer, *inner = fit_to_plain(around).executions
    assert all(outer.start_ns <= each.start_ns <= each.end_ns <= outer.end_ns for each in inner)


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
    assert describe_cost(profile).startswith("Other work disturbed the runs, so that the cost of ")


STYLES = ("megengine", "paddle", "torch", "nsys", "ncu")


@pytest.mark.parametrize("style", STYLES)
def test_every_style_says_so_in_the_same_words(style: str, tmp_path: Path, run_lar: RunLar) -> None:
    path = tmp_path / "p.json"
    recorded = profile_with(28.0, 11.0)
    write_profile(recorded, path)
    said = run_lar("report", str(path), "--style", style).stdout
    assert said.endswith(describe_cost(fit_to_plain(recorded)) + "\n")
