"""What each style says of the same things: calls, times, operations of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lar.records.profile import Profile
from lar.reports.model import AnyTable
from lar.reports.styles import STYLES


class Figures(NamedTuple):
    """By operator type, over all timed iterations; None where a style does not tell."""

    calls: float
    time_ns: float
    flops: float | None = None


Told = Mapping[str, Figures]


def table_of(profile: Profile, style: str, name: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a style's table by column."""
    baseline = [profile] * (STYLES[style].profiles[0] - 1)
    report = STYLES[style].build(profile, options, *baseline)
    found: AnyTable = next(table for table in report.tables if table.name == name)
    return [dict(zip(found.headings, row, strict=True)) for row in found.records]


def megengine_figures(profile: Profile, place: str) -> Told:
    rows = table_of(
        *(profile, "megengine", place),
        aggregate_by="type",
        aggregate="sum",
        top=999,
        show_host=True,
    )
    steps = len(profile.timed_steps())
    return {
        row["type"]: Figures(
            row["count"] * steps,
            row["time_seconds"] * 1e9 * steps,
            row["computation_flo"] and row["computation_flo"] * steps,
        )
        for row in rows
    }


def paddle_figures(profile: Profile, where: str) -> Told:
    return {
        row["Name"]: Figures(row["Calls"], row[f"{where} Total (ns)"], row["FLOPs"])
        for row in table_of(profile, "paddle", "operator", time_unit="ns")
        if row["Level"] == 0
    }


def torch_figures(profile: Profile, where: str) -> Told:
    return {
        row["Name"]: Figures(row["# of Calls"], row[f"{where} total (ns)"], row["Total FLOPs"])
        for row in table_of(profile, "torch", "key_averages", time_unit="ns")
        if row["Kind"] == "operator"
    }


def tensorboard_figures(profile: Profile, where: str) -> Told:
    """On a CPU an operator's dispatch has a row of its own."""
    rows = {row["name"]: row for row in table_of(profile, "tensorboard", "operators")}
    key = f"{where}_duration_us"
    return {
        name: Figures(row["calls"], 1000 * (row[key] + rows.get(f"{name} dispatch", {key: 0})[key]))
        for name, row in rows.items()
        if not name.endswith(" dispatch")
    }


def diff_figures(profile: Profile, where: str) -> Told:
    """Return the sums of what it says of each iteration alone: of several it has the median."""
    told: dict[str, Figures] = {}
    for step in profile.timed_steps():
        own = tuple(each for each in profile.executions if each.step == step.number)
        alone = replace(profile, steps=(step,), executions=own)
        for row in table_of(alone, "diff", "operators", group_by="type", time_unit="ns"):
            before = told.get(row["Operator"], Figures(0, 0))
            told[row["Operator"]] = Figures(
                before.calls + row["Baseline Calls"],
                before.time_ns + row[f"Baseline {where} Duration (ns)"],
            )
    told.pop("Total", None)
    return told


def ncu_figures(profile: Profile) -> Told:
    """Return calls, or those of kernels, and the time in which they computed."""
    side, steps = "gpu" if profile.on_device else "cpu", len(profile.timed_steps())
    told: dict[str, dict[str, float]] = {}
    for row in table_of(
        profile, "ncu", "metrics", group_by="type", time_unit="ns", view=["metrics"]
    ):
        told.setdefault(row["Kernel Name"], {})[row["Metric Name"]] = row["Metric Value"]
    figures = {}
    for name, metrics in told.items():
        rate = metrics[f"{side}__flops.sum.per_second"]
        # A rate is that of the median call.
        typical_ns = metrics[f"{side}__time_duration.per_iteration"] * steps
        figures[name] = Figures(
            metrics[f"{side}__launch_count"],
            metrics[f"{side}__time_duration.sum"],
            None if rate is None else rate * typical_ns,
        )
    return figures


def operators_figures(profile: Profile) -> Told:
    return {
        row["type"]: Figures(row["calls"], row["calls"] * row["mean (ns)"])
        for row in table_of(profile, "operators", "types", group_by="type", time_unit="ns")
    }


# In percent, by an operator's type or the name of an algorithm.
Shares = Mapping[str, float]


def shares_of(profile: Profile) -> dict[str, Shares]:
    """Return what each style says of the shares of operators, by the style and what the shares are
    of: types, or `kernels`."""

    def column(style: str, table: str, name: str, share: str, **options: Any) -> Shares:
        rows = table_of(profile, style, table, **options)
        return {row[name]: row[share] for row in rows if row[share] is not None}

    def ncu(group_by: str) -> Shares:
        rows = table_of(profile, "ncu", "roofline", group_by=group_by)
        whole = sum(row["Total (us)"] for row in rows)
        return {row["Name"]: 100 * row["Total (us)"] / whole for row in rows}

    types = {"aggregate_by": "type", "aggregate": "sum", "top": 999}
    operators = table_of(profile, "paddle", "operator")
    return {
        "megengine": column("megengine", "device", "type", "time_percent", **types),
        "paddle": {row["Name"]: row["CPU Ratio (%)"] for row in operators if row["Level"] == 0},
        "torch": column("torch", "key_averages", "Name", "Self CPU %"),
        "ncu": ncu("type"),
        "paddle kernels": column("paddle", "kernel", "Name", "CPU Ratio (%)"),
        "nsys kernels": column("nsys", "computation", "Name", "Time(%)"),
        "ncu kernels": ncu("kernel"),
    }


def kernel_totals(profile: Profile) -> dict[str, Figures]:
    """Return by style the sum of all kernels, or of what stands in their place."""
    where = "GPU" if profile.on_device else "CPU"
    ways: dict[str, Callable[[], list[tuple[float, float]]]] = {
        "paddle": lambda: [
            (row["Calls"], row[f"{where} Total (ns)"])
            for row in table_of(profile, "paddle", "kernel", time_unit="ns")
        ],
        "nsys": lambda: [
            (row["Instances"], row["Total Time (ns)"])
            for row in table_of(profile, "nsys", "computation")
        ],
        "operators": lambda: [
            (row["calls"], row["calls"] * row["mean (ns)"])
            for row in table_of(profile, "operators", "kernels", group_by="kernel", time_unit="ns")
        ],
        "ncu": lambda: [(row.calls, row.time_ns) for row in ncu_figures(profile).values()],
    }
    if profile.on_device:
        ways["tensorboard"] = lambda: [
            (row["Calls"], row["Total Duration (us)"] * 1000)
            for row in table_of(profile, "tensorboard", "kernels")
        ]
    return {
        style: Figures(sum(calls for calls, _ in rows), sum(time for _, time in rows))
        for style, rows in ((style, way()) for style, way in ways.items())
    }
