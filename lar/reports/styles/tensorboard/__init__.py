"""The views of the PyTorch profiler's TensorBoard plugin, as the JSON that it sends its page.

The text has a line for each of overview, operator_pie, operator_table, kernel_table and
kernel_pie, as the plugin's answers are when they are kept; other views only when they are asked
for. As JSON the views are one object, by their names. A view of which nothing is known is null.
With a baseline there is the view `diff` too, the only one that the baseline is part of, and its
line is the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lar.engines import recommendations_for
from lar.errors import UsageError
from lar.profiles.activities import DeviceActivity
from lar.profiles.breakdown import breakdown_of
from lar.profiles.export import chrome_trace_of
from lar.profiles.operator_filter import operators_matching
from lar.profiles.run_differences import check_timed
from lar.records.profile import Profile
from lar.reports.model import AnyTable, Cell, table_of_values
from lar.reports.report import Report
from lar.reports.styles.tensorboard.diff import Side, diff_view_of, notes_of
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

LINES = ("overview", "operator_pie", "operator_table", "kernel_table", "kernel_pie")
VIEWS = (*LINES, "stack", "trace", "memory", "module", "recommendations", "diff")


def build(profile: Profile, options: Mapping[str, Any], baseline: Profile | None = None) -> Report:
    """Make the views of a profile, and its diff from a baseline.

    Raises:
        UsageError: nothing was timed, the sort key needs a device and the run had none, or the
        diff is asked for without a baseline.
    """
    if baseline is not None:
        check_timed(baseline, profile)
    if not breakdown_of(profile).steps:
        raise UsageError("the profile has no timed iterations", "make it with --iter 1 or more")
    asked = options.get("view")
    names = [view for view in VIEWS if view in (asked or VIEWS)]
    if baseline is None and asked and "diff" in asked:
        raise UsageError("--view diff: compares two profiles", "give its baseline before it")
    side = side_of(profile, options)
    views = views_of(side, options, [name for name in names if name != "diff"])
    if baseline is not None and "diff" in names:
        views["diff"] = diff_view_of(
            side_of(baseline, options), side, options.get("sort"), options.get("top")
        )
    printed = (*LINES, "diff")
    lines = [json.dumps(view) for name, view in views.items() if asked or name in printed]
    return Report(
        style="tensorboard",
        body=tuple(lines),
        tables=tables_of(views),
        document=views,
        is_for_programs=True,
    )


def views_of(
    side: Side, options: Mapping[str, Any], names: list[str]
) -> dict[str, dict[str, Any] | list[Any] | None]:
    """Return views by name."""
    profile, _, totals, accepts = side
    top = options.get("top")
    kernels = kernel_totals_of(profile, kernel_filter(options.get("filter"), accepts))[:top]
    makers: dict[str, Callable[[], Any]] = {
        "overview": lambda: overview_of(profile),
        "operator_pie": lambda: pies_of(totals, top),
        "operator_table": lambda: operator_table_of(profile, totals, options.get("sort"), top),
        "kernel_table": lambda: kernel_table_of(profile, kernels),
        "kernel_pie": lambda: kernel_pie_of(kernels),
        "stack": lambda: None,  # call stacks are not recorded
        "trace": lambda: chrome_trace_of(profile),
        "memory": lambda: memory_of(profile, accepts),
        "module": lambda: modules_of(profile, accepts),
        "recommendations": lambda: [asdict(each) for each in recommendations_for(profile)] or None,
    }
    return {name: makers[name]() for name in names}


def side_of(profile: Profile, options: Mapping[str, Any]) -> Side:
    """Return a run with the sums of those of its operators that are meant."""
    accepts = operator_filter(profile, options.get("filter"))
    work = host_work_of(profile)
    totals = operator_totals_of(profile, work, options.get("group_by") or "type", accepts)
    return Side(profile, work, totals, accepts)


def operator_filter(profile: Profile, pattern: str | None) -> Callable[[int], bool]:
    """Return a test of whether an operator, by its number, has a name or type that matches."""
    if pattern is None:
        return lambda operator: True
    return operators_matching(profile, pattern).__contains__


def kernel_filter(
    pattern: str | None, accepts: Callable[[int], bool]
) -> Callable[[DeviceActivity], bool]:
    """Return a test that accepts kernels of the accepted operators, and those whose name
    matches."""
    if pattern is None:
        return lambda kernel: True
    return lambda kernel: (
        (kernel.operator is not None and accepts(kernel.operator))
        or bool(re.search(pattern, kernel.name))
    )


def tables_of(views: Mapping[str, Any]) -> tuple[AnyTable, ...]:
    """Return the views that are tables; times are in microseconds, as the views' are."""
    tables: list[AnyTable] = []
    if overview := views.get("overview"):
        tables.append(steps_table_of(overview))
    if table := views.get("operator_table"):
        keys = [key for key in (table["data"] or [{"name": ""}])[0] if not key.startswith("has_")]
        rows = ([row[key] for key in keys] for row in table["data"])
        headings = [key + "_us" if key.endswith("duration") else key for key in keys]
        tables.append(table_of_values("operators", "Operators", headings, rows))
    if table := views.get("kernel_table"):
        tables.append(table_of_view("kernels", "Kernels", **table["data"]))
    if found := views.get("recommendations"):
        tables.append(
            table_of_values(
                "recommendations",
                "Recommendations",
                ("Rule", "Share (%)", "Limit (%)", "Recommendation"),
                (
                    (each["rule"], round(each["share"] * 100, 2), each["limit"] * 100, each["text"])
                    for each in found
                ),
            )
        )
    if modules := views.get("module"):
        tables.append(modules_table_of(modules))
    if memory := views.get("memory"):
        columns = memory["statistics"]["columns"]
        for device, rows in memory["statistics"]["rows"].items():
            name = f"memory {device}"
            tables.append(table_of_view(name, f"Memory {device}", columns, rows))
    if diff := views.get("diff"):
        tables.append(table_of_view("diff", "Diff", **diff["table"], notes=notes_of(diff)))
    return tuple(tables)


def table_of_view(
    name: str,
    title: str,
    columns: Sequence[Mapping[str, Any]],
    rows: Iterable[Sequence[Cell]],
    notes: Iterable[str] = (),
) -> AnyTable:
    """Return the table of a view that has columns and rows."""
    return table_of_values(name, title, [column["name"] for column in columns], rows, notes)


def steps_table_of(overview: Mapping[str, Any]) -> AnyTable:
    """Return the steps without the tooltips."""
    columns = overview["steps"]["columns"]
    shown = [index for index, column in enumerate(columns) if "name" in column]
    names = [columns[index]["name"] for index in shown]
    rows = ([row[index] for index in shown] for row in overview["steps"]["rows"])
    headings = [names[0], *(f"{name} (us)" for name in names[1:])]
    return table_of_values("steps", "Steps", headings, rows)


def modules_table_of(modules: Mapping[str, Any]) -> AnyTable:
    """Return the tree of modules with its depth as spaces before the names."""
    keys = [column["key"] for column in modules["columns"]]
    rows: list[tuple[Cell, ...]] = []

    def add(parts: list[dict[str, Any]], depth: int) -> None:
        for part in parts:
            rows.append(("  " * depth + part["name"], *(part[key] for key in keys[1:])))
            add(part["children"], depth + 1)

    add(modules["data"], 0)
    names = [column["name"] for column in modules["columns"]]
    headings = [name + (" (us)" if name.endswith("Time") else "") for name in names]
    return table_of_values("modules", "Modules", headings, rows)
