"""The roofline of work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.roofline import Piece, host_peak_of, ridge_of, work_of
from lar.records.profile import Peak, Profile, ProfileFacts

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
    assert work.bound(PEAK) == "compute"
    assert work_of([Piece(1, 9, 1)]).bound(PEAK) == "memory"
    assert ridge_of(PEAK) == 10


def test_what_is_not_known_is_none() -> None:
    for unknown in (work_of([Piece(10, None, None)]), work_of([])):
        assert unknown.flops_per_second is None
        assert unknown.memory_percent(PEAK) is None
        assert unknown.intensity is None
    known = work_of([Piece(10, 5, 5)])
    assert known.compute_percent(None) is None
    assert known.bound(None) is None
    assert work_of([Piece(0, 5, 5)]).flops_per_second is None


def test_figures_of_a_part_say_of_how_much() -> None:
    work = work_of([Piece(30, 60, 10), Piece(10, None, 10)])
    assert (work.flops, work.flops_share, work.bytes_share) == (60, 0.75, 1)
    assert work.flops_per_second == 60e9 / 40
    assert work.intensity == 3  # at the least: of 60 operations or more
    assert work_of([Piece(30, 60, None), Piece(10, 1, 10)]).intensity is None
    assert work_of([Piece(30, 60, 10), Piece(0, None, 10)]).flops_share < 1


def test_a_lower_bound_of_the_intensity_tells_of_computation_only() -> None:
    assert work_of([Piece(1, 100, 1), Piece(1, None, 1)]).bound(PEAK) == "compute"
    assert work_of([Piece(1, 10, 1), Piece(1, None, 1)]).bound(PEAK) is None


def test_a_wall_time_takes_the_place_of_the_sum() -> None:
    work = work_of([Piece(30, 60, 10)], calls=2, total_ns=100)
    assert (work.average_ns, work.flops_per_second) == (50, 0.6e9)


@given(st.lists(pieces, min_size=1))
def test_no_figure_is_invented(parts: list[Piece]) -> None:
    work = work_of(parts)
    assert work.total_ns == sum(part.duration_ns for part in parts)
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
    assert host_peak_of(replace(Profile(), facts=ProfileFacts(peak=Peak(0, 1, 1)))) is None
