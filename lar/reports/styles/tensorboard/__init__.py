"""The views of the PyTorch profiler's TensorBoard plugin, as the JSON that it sends its page.

The text has a line for each of overview, operator_pie, operator_table, kernel_table and
kernel_pie, as the plugin's answers are when they are kept; other views only when they are asked
for. As JSON the views are one object, by their names. A view without any known value is null.
With a baseline there is the view `diff` too, the only one that the baseline is part of, and its
line is the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from lar.engines import operator_kinds_of_both
from lar.engines.advice import suggestions_of
from lar.errors import UsageError
from lar.profiles.activities import DeviceActivity
from lar.profiles.breakdown import steps_of
from lar.profiles.export import chrome_trace_of, export_chrome
from lar.profiles.operator_filter import operators_matching
from lar.profiles.run_differences import check_timed, with_joined_names
from lar.records.profile import Profile
from lar.reports.report import LateJson, Report
from lar.reports.styles.tensorboard.diff import Side, diff_view_of
from lar.reports.styles.tensorboard.memory import memory_of
from lar.reports.styles.tensorboard.modules import modules_of
from lar.reports.styles.tensorboard.operators import (
    host_work_of,
    kernel_pie_of,
    kernel_table_of,
    kernel_totals_of,
    operator_table_of,
    operator_totals_of,
    pies_of,
)
from lar.reports.styles.tensorboard.overview import overview_of
from lar.reports.styles.tensorboard.views import View

LINES = ("overview", "operator_pie", "operator_table", "kernel_table", "kernel_pie")
# Those that are tables in CSV, in their order there.
TABLES = (
    *("overview", "operator_table", "kernel_table", "module", "memory"),
    "diff",
)
VIEWS = (*LINES, "stack", "trace", "memory", "module", "diff")


def build(profile: Profile, options: Mapping[str, Any], baseline: Profile | None = None) -> Report:
    """Make the views of a profile, and its diff from a baseline.

    Raises:
        UsageError: nothing was timed, the sort key needs a device and the run had none, or the
        diff is asked for without a baseline.
    """
    if baseline is not None:
        check_timed(baseline, profile)
    if not steps_of(profile):
        raise UsageError("the profile has no timed iterations", "make it with --iter 1 or more")
    asked = options.get("view")
    names = [view for view in VIEWS if view in (asked or VIEWS)]
    if baseline is None and asked and "diff" in asked:
        raise UsageError("--view diff: compares two profiles", "give its baseline before it")
    side = side_of(profile, options)
    views = views_of(side, options, [name for name in names if name != "diff"])
    if baseline is not None and "diff" in names:
        kinds = operator_kinds_of_both(baseline, profile)
        joined = with_joined_names(baseline, profile, kinds)
        first, second = (side_of(each, options) for each in joined)
        views["diff"] = diff_view_of(first, second, options.get("sort"), options.get("top"))
    answers = {name: view.answer for name, view in views.items()}
    printed = VIEWS if asked else (*LINES, "diff")
    return Report(
        style="tensorboard",
        body=tuple(
            json.dumps(view, default=printed_trace)
            for name, view in answers.items()
            if name in printed
        ),
        tables=tuple(it for name in TABLES if name in views for it in views[name].tables),
        document=answers,
        is_for_programs=True,
    )


def printed_trace(part: LateJson) -> dict[str, Any]:
    return chrome_trace_of(part.profile)


def views_of(side: Side, options: Mapping[str, Any], names: list[str]) -> dict[str, View]:
    """Return views by name."""
    profile, totals, accepts = side
    top = options.get("top")
    kernels = kernel_totals_of(profile, kernel_filter(options.get("filter"), accepts))[:top]
    makers: dict[str, Callable[[], View]] = {
        "overview": lambda: overview_of(
            profile, [f"{each.why}: {each.flags}" for each in suggestions_of(profile)]
        ),
        "operator_pie": lambda: View(pies_of(totals, top)),
        "operator_table": lambda: operator_table_of(profile, totals, options.get("sort"), top),
        "kernel_table": lambda: kernel_table_of(profile, kernels),
        "kernel_pie": lambda: View(kernel_pie_of(kernels)),
        "stack": lambda: View(None),  # call stacks are not recorded
        "trace": lambda: View(LateJson(export_chrome, profile)),
        "memory": lambda: memory_of(profile, accepts),
        "module": lambda: modules_of(profile, accepts),
    }
    return {name: makers[name]() for name in names}


def side_of(profile: Profile, options: Mapping[str, Any]) -> Side:
    """Return a run with the sums of the operators that the options choose."""
    accepts = operator_filter(profile, options.get("filter"))
    group_by, work = options.get("group_by") or "type", host_work_of(profile)
    return Side(profile, operator_totals_of(profile, work, group_by, accepts), accepts)


def operator_filter(profile: Profile, pattern: str | None) -> Callable[[int], bool]:
    """Return a test of whether an operator, by its number, has a name or type that matches."""
    if pattern is None:
        return lambda operator: True
    return operators_matching(profile, pattern).__contains__


def kernel_filter(
    pattern: str | None, accepts: Callable[[int], bool]
) -> Callable[[DeviceActivity], bool]:
    """Return a test that accepts kernels of the accepted operators, and those with a matching
    name."""
    if pattern is None:
        return lambda kernel: True
    return lambda kernel: (
        (kernel.operator is not None and accepts(kernel.operator))
        or bool(re.search(pattern, kernel.name))
    )
