"""The roofline of work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.roofline import (
    Piece,
    computes_in_float32,
    describe_measurement,
    host_peak_of,
    ridge_of,
    work_of,
)
from lar.profiles.rows import savings_of
from lar.records.profile import Peak, Profile, ProfileFacts, TensorFact
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.tables import each_row

PEAK = Peak(100e9, 10e9, 2)
figures = st.none() | st.integers(0, 10**12)
pieces = st.builds(Piece, st.integers(0, 10**9), figures, figures)


def test_work_is_told_in_parts_of_the_peak() -> None:
    work = work_of([Piece(1_000_000, 50_000_000, 1_000_000), Piece(1_000_000, 0, 1_000_000)])
    assert work.flops_per_second == 25e9
    assert work.bytes_per_second == 1e9
    assert work.compute_percent(PEAK) == pytest.approx(25)
    assert work.memory_percent(PEAK) == pytest.approx(10)
    assert work.intensity == 25
    assert work.bound(PEAK) == "far"
    assert ridge_of(PEAK) == 10


def test_what_is_not_known_is_none() -> None:
    for unknown in (work_of([Piece(10, None, None)]), work_of([])):
        assert unknown.flops_per_second is unknown.memory_percent(PEAK) is unknown.intensity is None
    assert work_of([Piece(10, 5, 5)]).compute_percent(None) is None
    assert work_of([Piece(0, 5, 5)]).flops_per_second is None


def test_figures_of_a_part_say_of_how_much() -> None:
    work = work_of([Piece(30, 60, 10), Piece(10, None, 10)])
    assert (work.flops, work.flops_share, work.bytes_share) == (60, 0.75, 1)
    assert work.flops_per_second == 60e9 / 40
    assert work.intensity == 3  # at the least: of 60 operations or more
    assert work_of([Piece(30, 60, None), Piece(10, 1, 10)]).intensity is None
    parts = [[Piece(30, 60, 10), Piece(0, None, 10)], [Piece(0, 60, 10), Piece(0, None, 10)], []]
    assert [work_of(each).flops_share for each in parts] == [0.9999, 0.0, 0.0]


@each_row("profiles/roofline/bounds of 1000 ns")
def test_work_is_bound_by_a_roof_only_near_it(
    flops: int | None, size_bytes: int | None, is_float32: bool, bound: str | None
) -> None:
    flops, size_bytes = (each and 10 * each for each in (flops, size_bytes))
    work = work_of([Piece(10_000, flops, size_bytes, is_float32)])
    assert work.bound(PEAK) == bound
    assert work.bound(None) is None


def test_each_bound_has_its_share_of_the_time() -> None:
    """Of several operators the sum was near a roof, though most of the time is far from it."""
    slow, quick = Piece(9000, 1000, 10_000, operator=1), Piece(1000, 1000, 7000, operator=2)
    work = work_of([slow, quick])
    assert work.bounds(PEAK) == {"far": 0.9, "memory": 0.1}
    assert next(iter(work.bounds(PEAK))) == "far"
    assert work_of([slow, Piece(9500, None, 100)]).bounds(PEAK) == {
        **{None: pytest.approx(9500 / 18_500), "far": pytest.approx(9000 / 18_500)}
    }
    assert work_of([]).bounds(PEAK) == {None: 0}


def test_a_percentage_above_100_is_withheld_of_calls_too_short_for_the_clock() -> None:
    for ns, size, percent, bound in ((500, 5025, None, None), (2000, 100_000, 500, "cache")):
        work = work_of([Piece(ns, 10, size)])
        assert work.memory_percent(PEAK) == percent
        assert work.bound(PEAK) == bound
    assert work_of([Piece(500, 10, 5000)]).memory_percent(PEAK) == 100


@each_row("profiles/roofline/explained")
def test_what_no_cache_or_algorithm_explains_is_withheld(
    flops: int, size_bytes: int, percents: list[float | None], bound: str | None
) -> None:
    work = work_of([Piece(10_000, flops, size_bytes)])
    assert [work.compute_percent(PEAK), work.memory_percent(PEAK)] == pytest.approx(percents)
    assert work.bound(PEAK) == bound


def test_rates_are_those_of_the_median_call() -> None:
    calm = [Piece(1000, 50_000, 100, operator=3) for _ in range(9)]
    disturbed = work_of([*calm, Piece(10**6, 50_000, 100, operator=3)])
    assert disturbed.compute_percent(PEAK) == 50
    assert disturbed.time_ns == 10_000


def test_operations_of_another_type_are_not_compared_with_those_of_float32() -> None:
    quantised = work_of([Piece(1000, 150_000, 1000, is_float32=False)])
    assert quantised.flops_per_second == 150e9
    assert quantised.memory_percent(PEAK) == pytest.approx(10)
    assert quantised.compute_percent(PEAK) is quantised.saving_ns(PEAK) is None
    # Without operations the type says nothing.
    assert work_of([Piece(1000, 0, 1000, is_float32=False)]).saving_ns(PEAK) == 900


@each_row("profiles/roofline/of float32")
def test_the_peak_is_one_for_operators_of_float32(
    inputs: list[str], outputs: list[str], is_float32: bool
) -> None:
    def facts(texts: list[str]) -> tuple[TensorFact, ...]:
        parts = [text.split() for text in texts]
        return tuple(TensorFact((1, int(axis)), dtype) for dtype, axis in parts)

    operator = operator_of("a", "A", inputs=facts(inputs), outputs=facts(outputs))
    assert computes_in_float32(operator) == is_float32


@each_row("profiles/roofline/savings")
def test_the_saving_is_the_time_beyond_the_roof(
    flops: int | None, size_bytes: int | None, saving: int | None, why: str
) -> None:
    work = work_of([Piece(1000, flops, size_bytes)])
    assert work.saving_ns(PEAK) == saving, why
    assert work.saving_ns(None) is None


def test_a_group_saves_what_its_operators_save() -> None:
    first = [Piece(ns, 50_000, 0, operator=0) for ns in (1000, 1100, 9000)]
    second = [Piece(ns, 50_000, 0, operator=1) for ns in (2000, 2000, 2000)]
    third = [Piece(5000, None, 1000, operator=2)]
    savings = [work_of(pieces).saving_ns(PEAK) for pieces in (first, second, third)]
    assert savings == [1800, 4500, None]
    assert work_of([*first, *second, *third]).saving_ns(PEAK) == 6300


def test_savings_are_of_one_iteration() -> None:
    profile = profile_of_times(
        {"conv": "Conv", "view": "Reshape", "other": "A"},
        [{"conv": 900, "view": 1, "other": 9}] + [{"conv": 40, "view": 1, "other": 9}] * 3,
        step_us=1000,
        warmup=1,
    )
    operators = (
        operator_of("conv", "Conv", flops=10**6, size_bytes=1000),
        operator_of("view", "Reshape", flops=0, size_bytes=0),
        operator_of("other", "A"),
    )
    profile = replace(profile, operators=operators, facts=ProfileFacts(peak=PEAK))
    assert savings_of(profile) == {0: 30_000}
    assert savings_of(replace(profile, facts=ProfileFacts())) == {}


def test_the_measurement_of_a_peak_is_described_as_far_as_it_is_known() -> None:
    assert describe_measurement(PEAK) == ""
    measured = Peak(1e9, 1e9, 1, "x", spread=0.031, measured_at="2026-11-22T10:00:00", rounds=9)
    assert describe_measurement(measured) == (
        "best of 9 rounds, their median 3.1% lower, last on 2026-11-22"
    )


@given(st.lists(pieces, min_size=1))
def test_no_figure_is_invented(parts: list[Piece]) -> None:
    work = work_of(parts)
    assert 0 <= work.flops_share <= 1
    assert (work.flops_share == 1) == all(part.flops is not None for part in parts)
    assert (work.flops is None) == all(part.flops is None for part in parts)
    if (intensity := work.intensity) is not None and intensity > 0:
        rate = work.bytes_per_second
        assert rate is None or work.flops_per_second == pytest.approx(intensity * rate)


def test_the_peak_of_a_cpu_says_nothing_of_a_device() -> None:
    facts = ProfileFacts(peak=PEAK)
    assert host_peak_of(Profile(facts=facts)) is PEAK
    assert host_peak_of(Profile(facts=ProfileFacts(peak=PEAK, device="cuda:0"))) is None
    assert host_peak_of(Profile()) is None
    peaks = [ProfileFacts(peak=Peak(*each, 1)) for each in ((0, 1), (1, 0), (1, 1))]
    assert [host_peak_of(Profile(facts=it)) for it in peaks] == [None, None, Peak(1, 1, 1)]
