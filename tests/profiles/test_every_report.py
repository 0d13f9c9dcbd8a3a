"""The same profile says the same in every style."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from lar.profiles.export import chrome_trace_of, tensorboard_trace_of
from lar.profiles.times import Kind
from lar.profiles.trace_file import decode_profile, encode_profile
from lar.records.profile import Execution, Profile, Span
from lar.reports.styles import STYLES
from tests.profiles.figures import (
    Shares,
    Told,
    diff_figures,
    kernel_totals,
    megengine_figures,
    ncu_figures,
    operators_figures,
    paddle_figures,
    shares_of,
    table_of,
    tensorboard_figures,
    torch_figures,
)
from tests.profiles.layers import profile_of_layers

# TensorBoard rounds each row to microseconds, the page to six digits.
RELATIVE, ROUNDED_NS = 1e-5, 3000


def in_one_thread(profile: Profile) -> Profile:
    """A profile of an engine that tells of no dispatch and no wait."""
    executions = (
        Execution(each.operator, each.step, 1, each.start_ns, each.end_ns, warmup=each.warmup)
        for each in profile.executions
    )
    return replace(profile, executions=tuple(executions))


def on_device(profile: Profile, *, told: bool) -> Profile:
    """A profile of a device, with two kernels of each operator with a gap between if it tells of
    them, but a copy for those that change a layout."""
    facts = msgspec.structs.replace(profile.facts, device="cuda0", peak=None)
    work = [span for each in profile.executions for span in device_spans(profile, each) if told]
    return replace(profile, facts=facts, spans=(*profile.spans, *work))


def device_spans(profile: Profile, execution: Execution) -> list[Span]:
    """Two kernels with a gap between, or a copy."""
    third = execution.duration_ns // 3
    is_copy = profile.operators[execution.operator].type == "RelayoutFormat"
    return [
        Span(
            category="memcpy" if is_copy else "kernel",
            name="[CUDA memcpy DtoD]" if is_copy else "kernel",
            start_ns=start,
            end_ns=start + third,
            thread=execution.thread,
            step=execution.step,
            warmup=execution.warmup,
            operator=execution.operator,
            device="cuda0",
            stream=7,
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


HOST_PROFILES = {
    "worker": profile_of_layers(),
    "one thread": in_one_thread(profile_of_layers()),
    "one iteration": of_one_iteration(),
}
DEVICE_PROFILES = {
    "kernels told": on_device(profile_of_layers(), told=True),
    "no kernels": on_device(profile_of_layers(), told=False),
}
PROFILES = HOST_PROFILES | DEVICE_PROFILES
on_hosts = pytest.mark.parametrize("profile", HOST_PROFILES.values(), ids=HOST_PROFILES)
on_devices = pytest.mark.parametrize("profile", DEVICE_PROFILES.values(), ids=DEVICE_PROFILES)
on_all = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


def times_by_type(profile: Profile, time_ns: Callable[[Execution], int]) -> dict[str, int]:
    times: dict[str, int] = {}
    for each in profile.timed_executions:
        type = profile.operators[each.operator].type
        times[type] = times.get(type, 0) + time_ns(each)
    return times


def check_times(told: Told, expected: dict[str, int]) -> None:
    assert {type: row.time_ns for type, row in told.items()} == pytest.approx(
        expected, rel=RELATIVE, abs=ROUNDED_NS
    )


@on_hosts
def test_the_host_is_busy_as_long_in_every_style(profile: Profile) -> None:
    host = times_by_type(profile, profile.host_ns)
    for told in (
        paddle_figures(profile, "CPU"),
        torch_figures(profile, "CPU"),
        tensorboard_figures(profile, "host_self"),
        diff_figures(profile, "Host"),
    ):
        check_times(told, host)


@on_hosts
def test_megengines_device_time_is_that_of_the_executions(profile: Profile) -> None:
    whole = times_by_type(profile, lambda each: each.duration_ns)
    check_times(megengine_figures(profile, "device"), whole)
    if profile.executions[0].dispatch_ns is not None:
        dispatch = times_by_type(profile, lambda each: each.dispatch_ns or 0)
        check_times(megengine_figures(profile, "host"), dispatch)


@on_hosts
def test_computing_takes_as_long_in_every_style(profile: Profile) -> None:
    compute = times_by_type(profile, lambda each: each.compute_ns)
    check_times(ncu_figures(profile), compute)
    check_times(operators_figures(profile), compute)


@on_devices
def test_the_device_is_busy_as_long_in_every_style(profile: Profile) -> None:
    told = tensorboard_figures(profile, "device_self")
    expected = {type: round(row.time_ns) for type, row in told.items()}
    assert all(expected.values())
    check_times(paddle_figures(profile, "GPU"), expected)
    check_times(torch_figures(profile, "CUDA"), expected)
    check_times(diff_figures(profile, "Device"), expected)


@on_all
def test_kernels_are_as_many_and_take_as_long_in_every_style(profile: Profile) -> None:
    totals = kernel_totals(profile)
    first = totals["paddle"]
    assert first.calls
    assert {style: each.calls for style, each in totals.items()} == dict.fromkeys(
        totals, first.calls
    )
    times = {style: each.time_ns for style, each in totals.items()}
    assert times == pytest.approx(
        dict.fromkeys(totals, first.time_ns), rel=RELATIVE, abs=ROUNDED_NS
    )


@on_all
def test_operators_are_called_as_often_in_every_style(profile: Profile) -> None:
    side = ("GPU", "CUDA", "device_self") if profile.on_device else ("CPU", "CPU", "host_self")
    calls = times_by_type(profile, lambda each: 1)
    for told in (
        megengine_figures(profile, "device"),
        paddle_figures(profile, side[0]),
        torch_figures(profile, side[1]),
        tensorboard_figures(profile, side[2]),
        diff_figures(profile, "Host"),
    ):
        assert {type: row.calls for type, row in told.items()} == calls


@on_all
def test_operations_are_as_many_in_every_style(profile: Profile) -> None:
    flops: dict[str, float | None] = {}
    for each in profile.timed_executions:
        operator = profile.operators[each.operator]
        own = flops.setdefault(operator.type, 0)
        known = own is not None and operator.flops is not None
        flops[operator.type] = (own or 0) + (operator.flops or 0) if known else None
    side = ("GPU", "CUDA") if profile.on_device else ("CPU", "CPU")
    styles = [
        paddle_figures(profile, side[0]),
        torch_figures(profile, side[1]),
        megengine_figures(profile, "device"),
    ]
    # In no time there is no rate, and whose of two kernels the operations are is not told.
    if profile not in (HOST_PROFILES["one iteration"], DEVICE_PROFILES["kernels told"]):
        styles.append(ncu_figures(profile))
    for told in styles:
        for type, row in told.items():
            assert row.flops == (None if flops[type] is None else pytest.approx(flops[type]))


@on_hosts
def test_shares_agree_where_styles_have_the_same_time(profile: Profile) -> None:
    """Of the types of operators and of their algorithms, by the time that each style names."""
    kinds: dict[Kind, dict[str, list[Shares]]] = {}
    for style, shares in shares_of(profile).items():
        kind = "compute" if style == "paddle kernels" else STYLES[style.split()[0]].time
        assert kind is not None
        by_what = kinds.setdefault(kind, {})
        by_what.setdefault("kernels" if "kernels" in style else "types", []).append(shares)
    assert {
        kind: {what: len(them) for what, them in each.items()} for kind, each in kinds.items()
    } == {
        "dispatch + compute": {"types": 2},
        "compute": {"types": 1, "kernels": 3},
        "wall": {"types": 1},
    }
    for kind, each in kinds.items():
        types: dict[str, int] = {}
        times_ns = {
            "compute": [each.compute_ns for each in profile.timed_executions],
            "dispatch + compute": profile.host_times_ns,
            "wall": [each.duration_ns for each in profile.timed_executions],
        }[kind]
        for execution, ns in zip(profile.timed_executions, times_ns, strict=True):
            type = profile.operators[execution.operator].type
            types[type] = types.get(type, 0) + ns
        whole = sum(types.values())
        expected = {type: 100 * ns / whole for type, ns in types.items()}
        for shares in each["types"]:
            assert shares == pytest.approx(expected, rel=RELATIVE)
        first, *others = each.get("kernels", [{}])
        for shares in others:
            assert {name: round(share, 1) for name, share in shares.items()} == {
                name: round(share, 1) for name, share in first.items()
            }


def test_iterations_are_numbered_from_0_in_every_style() -> None:
    """As a run prints them: those of the warm-up do not count."""
    profile = decode_profile(encode_profile(profile_of_layers(2, 3, warmup=2)), "p.json")
    assert [step.number for step in profile.timed_steps()] == [0, 1, 2]
    assert {each.step for each in profile.timed_executions} == {0, 1, 2}
    assert [row["Step"] for row in table_of(profile, "paddle", "log", view=["log"])] == [0, 1, 2]
    assert [row["Step"] for row in table_of(profile, "tensorboard", "steps")] == ["0", "1", "2"]
    for trace in (chrome_trace_of(profile), tensorboard_trace_of(profile)):
        names = [event["name"] for event in trace["traceEvents"]]
        assert [name for name in names if name.startswith("ProfilerStep")] == [
            *("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"),
        ]
