"""The overview of the TensorBoard plugin: steps cut into buckets, the device, recommendations."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from lar.profiles.breakdown import KERNEL, Breakdown, StepBreakdown, breakdown_of
from lar.profiles.devices import device_number, device_title
from lar.records.profile import Profile
from lar.reports.model import Table
from lar.reports.styles.tensorboard.views import (
    View,
    ViewColumn,
    describe_columns,
    microseconds,
    rows_of,
    text_column,
)

HTML_CELL = {"type": "string", "role": "tooltip", "p": {"html": "true"}}


def overview_of(profile: Profile, found: Sequence[str]) -> View:
    """Return the overview with what to try; there must be timed steps."""
    breakdown = breakdown_of(profile)
    kind = device_title(profile.facts.device)
    columns = steps_columns(breakdown)
    described = (it if it["name"] else HTML_CELL for it in describe_columns(columns))
    overview: dict[str, Any] = {
        "steps": {"columns": [*described], "rows": rows_of(columns, breakdown.steps)},
        "performance": [average_step(breakdown)],
        "recommendations": "<ul>"
        + "".join(f"<li>{html.escape(text)}</li>" for text in found or ["N/A"])
        + "</ul>",
        "environments": [
            {"title": "Number of Worker(s)", "value": "1"},
            {"title": "Device Type", "value": kind},
        ],
    }
    if profile.on_device:
        overview[f"{kind.lower()}_metrics"] = device_metrics(profile, breakdown, kind)
    steps = Table(name="steps", title="Steps", columns=columns, rows=breakdown.steps)
    return View(overview, (steps,))


def percentage(part_ns: int, total_ns: int) -> float:
    return round(100 * part_ns / total_ns, 2) if total_ns else 0.0


def steps_columns(breakdown: Breakdown) -> tuple[ViewColumn[StepBreakdown], ...]:
    """Return the number of a step, then of each bucket the time and a tooltip."""

    def bucket_columns(bucket: str) -> tuple[ViewColumn[StepBreakdown], ...]:
        def tooltip(step: StepBreakdown) -> str:
            time_ns = step.buckets_ns[bucket]
            return (
                '<div class="visualization-tooltip" style="white-space: nowrap;">'
                f"Step {step.number}<br>Total: {microseconds(step.total_ns)}us<br>"
                f"<b>{bucket}: {microseconds(time_ns)}us</b><br>"
                f"Percentage: {percentage(time_ns, step.total_ns)}%</div>"
            )

        return (
            ViewColumn(bucket, lambda step: microseconds(step.buckets_ns[bucket]), unit="us"),
            text_column("", tooltip, in_records=False),
        )

    number: ViewColumn[StepBreakdown] = text_column("Step", lambda step: str(step.number))
    return (number, *(it for bucket in breakdown.buckets for it in bucket_columns(bucket)))


def average_step(breakdown: Breakdown) -> dict[str, Any]:
    """Return the average step in microseconds and its buckets' percentages."""

    def average(total_ns: int) -> int:
        return round(total_ns / len(breakdown.steps) / 1000)

    return {
        "name": "Average Step Time",
        "description": "",
        "value": average(breakdown.total_ns),
        "extra": 100,
        "children": [
            {
                "name": bucket,
                "description": "",
                "value": average(breakdown.bucket_ns(bucket)),
                "extra": percentage(breakdown.bucket_ns(bucket), breakdown.total_ns),
            }
            for bucket in breakdown.buckets
        ],
    }


def device_metrics(profile: Profile, breakdown: Breakdown, kind: str) -> dict[str, Any]:
    """Return the facts of the device, and how busy it was over the steps.

    It is not known which kernels used the tensor cores of a CUDA device, so that row is left out
    there; other devices have none.
    """
    number = device_number(profile.facts.device)
    rows = [{"title": f"{kind} {number}:", "value": ""}]
    facts = next((d for d in profile.devices if d.kind != "cpu" and d.id == number), None)
    if facts is not None:
        if facts.name:
            rows.append({"title": "Name", "value": facts.name})
        if facts.memory_bytes is not None:
            rows.append({"title": "Memory", "value": f"{round(facts.memory_bytes / 2**30, 2)} GB"})
        if facts.compute_major is not None and facts.compute_minor is not None:
            capability = f"{facts.compute_major}.{facts.compute_minor}"
            rows.append({"title": "Compute Capability", "value": capability})
    busy = percentage(breakdown.bucket_ns(KERNEL), breakdown.total_ns)
    rows.append({"title": f"{kind} Utilization", "value": f"{busy} %"})
    tooltip = (
        f"The {kind} usage metrics:\n\n{kind} Utilization:\n"
        f"{kind} busy time / All steps time. The higher, the better. {kind} busy time is the time "
        f"during which there is at least one {kind} kernel running on it. All steps time is the "
        "total time of all profiler steps(or called as iterations).\n"
    )
    if kind != "GPU":
        rows.append({"title": "Kernel Time using Tensor Cores", "value": "0.0 %"})
        tooltip += (
            f"\nKernel using Tensor Cores:\nTotal {kind} Time for Tensor Core kernels / Total "
            f"{kind} Time for all kernels.\nIt is always 0.0 On {kind} devices because {kind} does "
            "not using Tensor Cores.\n"
        )
    return {"title": f"{kind} Summary", "data": rows, "tooltip": tooltip}
