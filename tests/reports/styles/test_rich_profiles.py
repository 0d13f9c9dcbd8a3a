"""Every byte of reports of two profiles that hold nearly all that a profile may hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from lar.engines.operator_times import read_profile
from lar.profiles.costs import fit_to_plain
from lar.records.profile import Profile
from lar.reports.formats import format_csv
from lar.reports.styles import STYLES
from lar.reports.text import Screen
from tests.reports.golden_files import check_golden, describe_columns
from tests.tables import each_row


@cache
def profile_named(name: str) -> Profile:
    return fit_to_plain(read_profile(str(Path(__file__).with_name(f"rich_{name}.json"))))


@each_row("reports/styles/reports/reports of rich profiles")
def test_no_byte_of_a_rich_report_changes(
    name: str, profile: str, style: str, options: dict[str, Any], widths: list[int | None]
) -> None:
    first, *others = map(profile_named, profile.split())
    report = STYLES[style].build(first, options, *others)
    texts = [report.text_for(Screen(width)) for width in widths]
    parts = (*texts, "\n".join(describe_columns(report)), format_csv(report))
    check_golden(f"rich_{name}.txt", "\n\n".join(parts))
