"""The summaries of Paddle's profiler: devices, kinds of events, phases of the iteration,
operators with their parts, kernels, copies, named ranges, and the rate of the iterations.

A CPU is the host: on one the columns of the GPU are 0.00, as Paddle prints them then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lar.errors import UsageError
from lar.records.profile import Profile
from lar.reports.report import Report
from lar.reports.styles.paddle.calls import copy_section, kernel_section, range_section
from lar.reports.styles.paddle.layout import Section
from lar.reports.styles.paddle.memory import memory_section
from lar.reports.styles.paddle.operators import operator_section
from lar.reports.styles.paddle.overview import device_section, model_section, overview_section
from lar.reports.styles.paddle.perf import log_section, perf_section
from lar.reports.styles.paddle.run import Settings, TimedRun

# In the order printed.
SECTIONS: tuple[tuple[str, Callable[[TimedRun, Settings], list[Section]]], ...] = (
    ("device", device_section),
    ("overview", overview_section),
    ("model", model_section),
    ("operator", operator_section),
    ("kernel", kernel_section),
    ("memory", copy_section),
    ("userdefined", range_section),
    ("memory", memory_section),
    ("log", log_section),
    ("perf", perf_section),
)
TYPICAL = "typical"  # as a sort key, of the device or, on a CPU, of the host
# A line for each iteration would bury the rest: only where it is asked for.
ON_REQUEST = "log"


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the summaries of the timed iterations.

    Raises:
        UsageError: none was timed, or the profile has nothing of what is asked for.
    """
    run, settings = TimedRun(profile), settings_of(profile, options)
    if not run.step_ns:
        raise UsageError(
            "--style paddle: the profile has no timed iteration", "make it with --iter 1 or more"
        )
    sections = [
        section
        for view, make in SECTIONS
        if (view in settings.views if settings.views else view != ON_REQUEST)
        for section in make(run, settings)
    ]
    if not sections:
        asked = ", ".join(f"--view {view}" for view in settings.views)
        raise UsageError("the profile has nothing of it", "leave --view out", flag=asked)
    return Report(
        style="paddle",
        body=tuple(part for each in sections for part in each.body or (each.table,)),
        tables=tuple(section.table for section in sections),
    )


def settings_of(profile: Profile, options: Mapping[str, Any]) -> Settings:
    """Return the settings from the options; by default operators are ranked by the device's time,
    or by the host's if the run had no device: by the median of the calls times their number."""
    where = "gpu" if profile.on_device else "cpu"
    sort = options.get("sort") or TYPICAL
    return Settings(
        unit=options.get("time_unit") or "ms",
        sort=sort.replace(TYPICAL, f"{where}_typical") if sort.lstrip("+-") == TYPICAL else sort,
        group_by=options.get("group_by") or "type",
        filter=options.get("filter"),
        top=options.get("top"),
        views=tuple(options.get("view") or ()),
    )
