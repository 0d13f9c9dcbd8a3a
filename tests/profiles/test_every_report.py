"""The same profile says the same in every style: calls, times and operations of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.engines.operator_times import decode_any
from lar.profiles.activities import device_times_of, launches_of
from lar.profiles.times import self_host_times_of, self_times_of
from lar.profiles.trace_file import encode_profile
from lar.records.profile import Execution, Profile, Span
from lar.reports.styles import STYLES
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import rows_in, span_of, with_facts
from tests.profiles.test_rows import profile_of_loop


def in_one_thread(profile: Profile) -> Profile:
    """A profile of an engine that reports neither dispatches nor waits."""
    executions = (
        Execution(each.operator, each.step, 1, each.start_ns, each.end_ns, warmup=each.warmup)
        for each in profile.executions
    )
    return replace(profile, executions=tuple(executions))


def on_device(profile: Profile, *, has_kernels: bool) -> Profile:
    """A profile of a device, with two kernels of each operator with a gap between if it reports
    them, but a copy for those that change a layout."""
    executions = profile.executions if has_kernels else ()
    work = [span for each in executions for span in device_spans(profile, each)]
    device = with_facts(profile, device="cuda0", peak=None)
    return replace(device, spans=(*profile.spans, *work))


def device_spans(profile: Profile, execution: Execution) -> list[Span]:
    third = execution.duration_ns // 3
    is_copy = profile.operators[execution.operator].type == "RelayoutFormat"
    return [
        span_of(
            *(("memcpy", "[CUDA memcpy DtoD]") if is_copy else ("kernel", "kernel")),
            start_ns=start,
            end_ns=start + third,
            thread=execution.thread,
            step=execution.step,
            warmup=execution.warmup,
            operator=execution.operator,
            device="cuda0",
        )
        for start in (execution.start_ns, execution.end_ns - third)[is_copy:]
    ]


def of_one_iteration() -> Profile:
    """A profile in which some operators take no time at all."""
    profile = profile_of_layers(3, 1, warmup=0)
    executions = (
        msgspec.structs.replace(each, end_ns=each.start_ns, wait_ns=0)
        if each.operator % 3
        else each
        for each in profile.executions
    )
    return replace(profile, executions=tuple(executions))


def dispatch_only(profile: Profile) -> Profile:
    """A profile of a device of whose times the engine says nothing."""
    facts = {"device": "cuda:0", "dispatch_only": True, "peak": None, "options": {"cuda": 0}}
    return with_facts(in_one_thread(profile), **facts)


PROFILES = {
    "worker": profile_of_layers(),
    "one thread": in_one_thread(profile_of_layers()),
    "one iteration": of_one_iteration(),
    "loop": profile_of_loop(),
    "kernels": on_device(profile_of_layers(), has_kernels=True),
    "no kernels": on_device(profile_of_layers(), has_kernels=False),
    # Of an engine that gives the mean of each operator alone.
    "means": with_facts(in_one_thread(profile_of_layers()), times="mean"),
    "dispatch only": dispatch_only(profile_of_layers()),
}


def table_of(profile: Profile, style: str, name: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a style's table by column."""
    tables = STYLES[style].build(profile, options).tables
    return rows_in(next(table for table in tables if table.name == name))


def paddle(profile: Profile, column: str) -> dict[str, Any]:
    """Return a figure of each type of operators as Paddle's table has it."""
    rows = table_of(profile, "paddle", "operator", time_unit="ns")
    return {row["Name"]: row[column] for row in rows if row["Level"] == 0}


def torch(profile: Profile, column: str) -> dict[str, Any]:
    rows = table_of(profile, "torch", "key_averages", time_unit="ns")
    return {row["Name"]: row[column] for row in rows if row["Kind"] == "operator"}


def by_type(profile: Profile, figures: Iterable[float]) -> dict[str, float]:
    """Sum up a figure of each of the timed executions."""
    sums: dict[str, float] = {}
    for execution, figure in zip(profile.timed_executions, figures, strict=True):
        type = profile.operators[execution.operator].type
        sums[type] = sums.get(type, 0) + figure
    return sums


def check_times(profile: Profile) -> None:
    host = by_type(profile, self_host_times_of(profile))
    assert paddle(profile, "CPU Total (ns)") == pytest.approx(host)
    assert torch(profile, "Self CPU (ns)") == pytest.approx(host)
    work = by_type(profile, device_times_of(profile))
    assert paddle(profile, "GPU Total (ns)") == pytest.approx(work)
    if profile.on_device:
        assert torch(profile, "Self CUDA (ns)") == pytest.approx(work)
    else:
        shares = {type: 100 * ns / sum(host.values()) for type, ns in host.items()}
        assert paddle(profile, "CPU Ratio (%)") == pytest.approx(shares)
        assert torch(profile, "Self CPU %") == pytest.approx(shares)


def check_work(profile: Profile) -> None:
    calls = by_type(profile, [1] * len(profile.timed_executions))
    flops: dict[str, float | None] = {}
    for each in profile.timed_executions:
        operator = profile.operators[each.operator]
        before = flops.get(operator.type, 0)
        is_known = before is not None and operator.flops is not None
        flops[operator.type] = (before or 0) + (operator.flops or 0) if is_known else None
    assert paddle(profile, "Calls") == torch(profile, "# of Calls") == calls
    assert paddle(profile, "FLOPs") == torch(profile, "Total FLOPs") == flops


def check_kernels(profile: Profile) -> None:
    ns = {"time_unit": "ns"}
    time = f"{'GPU' if profile.on_device else 'CPU'} Total (ns)"
    rows = table_of(profile, "paddle", "kernel", **ns)
    told = {row["Name"]: (row["Calls"], row[time]) for row in rows}
    others = {
        row["Name"]: (row["Instances"], row["Total Time (ns)"])
        for row in table_of(profile, "nsys", "computation")
    }
    assert told == others
    own = {launch.kernel: 0 for launch in launches_of(profile)}
    for launch in launches_of(profile):
        own[launch.kernel] += launch.piece.duration_ns
    assert {name: ns for name, (_, ns) in told.items()} == own
    if not profile.on_device:
        assert sum(own.values()) == sum(self_times_of(profile))
    kernels = table_of(profile, "operators", "kernels", group_by="kernel", top=999, **ns)
    assert {row["kernel"]: row["calls"] for row in kernels} == {
        name: calls for name, (calls, _) in told.items()
    }


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("check", [check_times, check_work, check_kernels])
def test_every_style_says_the_same(profile: Profile, check: Callable[[Profile], None]) -> None:
    check(profile)


def test_iterations_are_numbered_from_0_in_every_style() -> None:
    """As a run prints them: those of the warm-up do not count."""
    profile = decode_any(encode_profile(profile_of_layers(2, 3, warmup=2)), "p.json")
    assert [step.number for step in profile.timed_steps()] == [0, 1, 2]
    assert {each.step for each in profile.timed_executions} == {0, 1, 2}
    assert [row["step"] for row in table_of(profile, "paddle", "log", view=["log"])] == [0, 1, 2]
