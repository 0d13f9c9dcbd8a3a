"""The figures of results side by side, as texts."""

from __future__ import annotations

from lar.records.summary import Interval
from lar.reports.results_report import format_ms
from lar.reports.verdicts import format_interval


def test_what_is_not_known_has_no_figure() -> None:
    assert (format_ms(0.0123456), format_ms(None)) == ("12.346", "N/A")
    assert format_interval(Interval(low=0.001, high=0.002), 1e3) == "1.000 to 2.000"
    assert format_interval(None) == ""
