"""A profile of which the plugin would have made tests/data/tensorboard_views.jsonl.

Those are one run's answers, of the tables four operators and four kernels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lar.records.profile import DeviceFacts, Execution, Profile, Span
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of

TEXT = (Path(__file__).parents[2] / "data" / "tensorboard_views.jsonl").read_text()
LINES = TEXT.splitlines()
OVERVIEW, OPERATOR_PIE, OPERATOR_TABLE, KERNEL_TABLE, KERNEL_PIE = LINES
DEVICE = DeviceFacts(0, "mlu", "MLU370", 24 << 30, 3, 0)


def spread(total: int, count: int) -> list[int]:
    """That many whole numbers that sum to a total, the larger ones first."""
    share, rest = divmod(total, count)
    return [share + (index < rest) for index in range(count)]


def profile_of_overview() -> Profile:
    """One step with those buckets one after the other; who computed does not matter."""
    children = json.loads(OVERVIEW)["performance"][0]["children"]
    at, ends = 0, {}
    for child in children:
        ends[child["name"]] = (at, at + child["value"])
        at += child["value"]
    dispatch = ends["CPU Exec"]
    return profile_of(
        [operator_of("conv", "aten::conv2d")],
        [step_of(0, 0, at)],
        [execution_of(0, *dispatch, dispatch=dispatch)],
        [
            span_of("kernel", "kernel", *ends["Kernel"], device="mlu0"),
            span_of("memcpy", "copy", *ends["Memcpy"], device="mlu0"),
            span_of("runtime", "launch", *ends["Runtime"]),
        ],
        device="mlu0",
        facts={"engine": "torch"},
        devices=(DEVICE,),
    )


def profile_of_operators() -> Profile:
    """The operators as often and long as in the table: a call of the runtime takes what is
    neither its own time nor that of the operator within, a kernel its device's time."""
    rows: dict[str, dict[str, Any]] = {
        row["name"]: row for row in json.loads(OPERATOR_TABLE)["data"]
    }
    operators = [operator_of(name, name) for name in rows]
    numbers = {name: number for number, name in enumerate(rows)}
    executions: list[Execution] = []
    spans: list[Span] = []
    step = 0

    def add(name: str, start: int, index: int, inner: int) -> int:
        """Add a call that begins there and of which another takes a part; return its end."""
        row = rows[name]
        total, own, kernel = (
            spread(row[f"{key}_duration"], row["calls"])[index]
            for key in ("host_total", "host_self", "device_self")
        )
        end = start + total
        dispatch = (start, end)
        executions.append(execution_of(numbers[name], start, end, step=step, dispatch=dispatch))
        given: dict[str, Any] = {"step": step, "operator": numbers[name]}
        if calls := total - own - inner:
            spans.append(span_of("runtime", "launch", end - calls, end, **given))
        if kernel:
            spans.append(span_of("kernel", name, end, end + kernel, device="mlu0", **given))
        return end

    at = 0
    for name, row in rows.items():
        if name == "aten::convolution":
            continue
        for index in range(row["calls"]):
            # Each call is in a step of its own, which is how a call of the runtime finds it.
            step += 1
            start = at
            inner = 0
            if name == "aten::conv2d":
                inner = add("aten::convolution", start, index, 0) - start
            at = add(name, start, index, inner) + 1000
    return profile_of(
        operators, [step_of(0, 0, at)], executions, spans, device="mlu0", devices=(DEVICE,)
    )


def profile_of_kernels() -> Profile:
    """The kernels as often and long as in the table: one the longest, one the shortest."""
    spans, at = [], 0
    for name, _, calls, total, _, longest, shortest in json.loads(KERNEL_TABLE)["data"]["rows"]:
        durations = [longest, shortest, *spread(total - longest - shortest, calls - 2)]
        for duration in durations:
            spans.append(span_of("kernel", name, at, at + duration, device="mlu0"))
            at += duration
    return profile_of([], [step_of(0, 0, at)], [], spans, device="mlu0", devices=(DEVICE,))
