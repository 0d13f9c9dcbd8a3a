"""The figures of results side by side, as texts."""

from __future__ import annotations

import pytest

from lar.records.summary import Interval
from lar.reports.results_report import format_change, format_interval, format_ms


@pytest.mark.parametrize(
    ("change", "text"),
    [(None, "N/A"), (0.01234, "1.23%"), (9.99, "999%"), (10, "over 1000%")],
)
def test_a_change_beyond_ten_times_has_no_figure(change: float | None, text: str) -> None:
    assert format_change(change) == text


def test_what_is_not_known_has_no_figure() -> None:
    assert (format_ms(0.0123456), format_ms(None)) == ("12.346", "N/A")
    assert format_interval(Interval(low=0.001, high=0.002), 1e3, 1) == "1.0 to 2.0"
    assert format_interval(None, 1e3, 1) == "N/A"
