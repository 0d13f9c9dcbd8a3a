"""The figures of operators that something disturbed: what they are, and what rows are ranked by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.records.profile import Profile, StepNoise
from lar.reports.styles import STYLES
from tests.profiles.synthetic import profile_of_times

WAITED_STEP = 4


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Ten iterations: the mean of Pooling is the higher, since one of its executions waited."""
    times = [{"conv": 500, "pool": 30} for _ in range(10)]
    times[WAITED_STEP] = {"conv": 500, "pool": 8030}
    times[9] = {"conv": 540, "pool": 30}
    made = profile_of_times({"conv": "Convolution", "pool": "Pooling"}, times, step_us=9000)
    noise = tuple(
        StepNoise(number, 8_000_000, ("queue delay",))
        if number == WAITED_STEP
        else StepNoise(number, 0)
        for number in range(10)
    )
    facts = msgspec.structs.replace(made.facts, noise=noise, lar_version="0.1.0")
    return Profile(**{**vars(made), "facts": facts})


def test_a_disturbed_execution_puts_no_operator_first_in_the_roofline(profile: Profile) -> None:
    def names(**options: Any) -> list[Any]:
        (table,) = STYLES["ncu"].build(profile, options).tables
        return [row[table.headings.index("Name")] for row in table.records]

    assert names() == ["conv", "pool"]
    assert names(sort="total") == ["pool", "conv"]


def test_text_marks_what_was_disturbed(profile: Profile) -> None:
    calm = replace(profile, facts=msgspec.structs.replace(profile.facts, noise=()))
    assert "disturbed" in STYLES["ncu"].build(profile, {}).text.lower()
    assert "disturbed" not in STYLES["ncu"].build(calm, {}).text.lower()


def test_the_metrics_have_all_figures(profile: Profile) -> None:
    (table,) = STYLES["ncu"].build(profile, {"view": ["metrics"], "filter": "pool"}).tables
    found = {row[-3]: row[-1] for row in table.records}
    names = ("median", "p90", "avg", "min", "max", "sum")
    figures = [found[f"cpu__time_duration.{name}"] for name in names]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert found["cpu__launch_count"] == 10
    assert found["cpu__launch_count.disturbed"] == 1
