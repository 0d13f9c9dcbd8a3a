"""The summaries of Paddle's profiler.

They show devices, kinds of events, phases of the iteration, operators with their parts, kernels,
copies, named ranges, and the rate of the iterations. On a CPU the columns of the GPU are 0.00, as
Paddle prints them then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.errors import UsageError
from lar.records.profile import Profile
from lar.reports.model import AnyTable
from lar.reports.report import Report
from lar.reports.styles.paddle import operators, overview
from lar.reports.styles.paddle.overview import TimedRun

# In the order printed.
SECTIONS: Mapping[str, Callable[[TimedRun], Sequence[str | AnyTable]]] = {
    "device": overview.device_section,
    "overview": overview.overview_section,
    "model": overview.model_section,
    "operator": operators.operator_section,
    "kernel": operators.kernel_section,
    "memory": operators.copy_section,
    "userdefined": operators.range_section,
    "log": overview.log_section,
    "perf": overview.perf_section,
}
# A line for each iteration would hide the rest, so it is printed only on request.
ON_REQUEST = "log"


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the summaries of the timed iterations.

    Raises:
        UsageError: no iteration was timed, or the profile has none of the asked data.
    """
    if not any(step.duration_ns for step in profile.timed_steps()):
        raise UsageError(
            "--style paddle: the profile has no timed iteration", "make it with --iter 1 or more"
        )
    asked, run = options.get("view", ()), TimedRun(profile, options)
    body = [
        part
        for view, make in SECTIONS.items()
        if (view in asked if asked else view != ON_REQUEST)
        for part in make(run)
    ]
    if not body:
        views = ", ".join(f"--view {view}" for view in asked)
        raise UsageError("the profile has nothing of it", "leave --view out", flag=views)
    tables = (part for part in body if not isinstance(part, str) and part.rows)
    return Report(style="paddle", body=tuple(body), tables=tuple(tables))
