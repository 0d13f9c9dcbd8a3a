"""Statistics in the style of NVIDIA Nsight Systems.

Without --view they are the sections of `nsys profile --stats`, with it the reports of `nsys stats`
that it names. They cover the whole process except the warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.errors import UsageError
from lar.records.profile import Profile
from lar.reports.report import Report
from lar.reports.styles.nsys.reports import build_reports
from lar.reports.styles.nsys.sections import build_sections


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Make the sections, or the reports that --view names.

    Raises:
        UsageError: --time-unit is given without --view: the sections are in nanoseconds.
    """
    sort, top, pattern = (options.get(key) for key in ("sort", "top", "filter"))
    unit, views = options.get("time_unit"), options.get("view")
    if unit and not views:
        raise UsageError(
            "the sections are in nanoseconds",
            "name a report: --view cuda_api_sum --time-unit us",
            flag=f"--time-unit {unit}",
        )
    if views:
        body, tables = build_reports(profile, views, sort, top, pattern, unit or "ns")
    else:
        body, tables = build_sections(profile, sort, top, pattern)
    return Report(style="nsys", body=tuple(body), tables=tuple(tables))
