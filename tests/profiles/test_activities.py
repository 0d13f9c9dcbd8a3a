"""What a device did, and whose it was."""

from __future__ import annotations

from typing import Any

from lar.profiles.activities import (
    calls_by_part,
    device_activities_of,
    device_number,
    device_times_of,
    device_title,
    is_of_device,
    streams_of,
)
from lar.profiles.rows import rows_of
from lar.records.profile import Category
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import (
    HOST,
    STREAM,
    execution_of,
    profile_of,
    span_of,
    step_of,
)
from tests.tables import each_row

OPERATORS = (operator_of("loop", "Loop"), operator_of("conv", "Conv", algorithm="winograd"))
STEPS = (step_of(0, 0, 100),)


def test_where_no_kernels_are_reported_the_computation_of_an_operator_is_one() -> None:
    executed = execution_of(1, 20, 50, thread=STREAM, wait=4, dispatch=(5, 10))
    (kernel,) = device_activities_of(profile_of(OPERATORS, STEPS, [executed], device="cuda:1"))
    assert (kernel.span.name, kernel.span.duration_ns) == ("winograd", 26_000)
    assert (kernel.execution, kernel.starts) == (0, ((STREAM, 24_000), (HOST, 5000)))


def test_kernels_stand_for_the_operators_that_they_belong_to() -> None:
    spans = [
        span_of("kernel", "gemm", 20, 30, operator=1, device="cuda0", stream=3),
        span_of("memcpy", "HtoD", 0, 5, device="cuda0", size_bytes=64),
        span_of("memcpy", "HtoH", 0, 5),
        span_of("kernel", "before", 0, 1, step=None),
    ]
    profile = profile_of(OPERATORS, STEPS, [execution_of(1, 10, 50)], spans, device="cuda0")
    found = [(it.span.name, it.execution) for it in device_activities_of(profile)]
    assert found == [("gemm", 0), ("HtoD", None)]


@each_row("profiles/devices/calls of the system")
def test_calls_of_the_system_are_of_a_part_of_the_run(
    part: str, start: float, fields: dict[str, Any]
) -> None:
    phases = (("load", 0, 10), ("prepare", 20, 30), ("warmup", 30, 50))
    spans = [span_of("phase", *each, step=None) for each in phases]
    call = span_of("osrt", "read", start, start + 1, **{"step": None, **fields})
    spans += [span_of("phase", "forward", 60, 70), call]
    assert calls_by_part(profile_of([], STEPS, [], spans)) == {part: [call]}


OPERATORS_DEVICES = (operator_of("conv", "Convolution"), operator_of("copy", "Copy"))


@each_row("profiles/devices/names")
def test_what_a_device_is_called(device: str, title: str, number: int) -> None:
    assert (device_title(device), device_number(device)) == (title, number)


@each_row("profiles/devices/work of devices")
def test_what_a_device_did(category: Category, device: str | None, expected: bool) -> None:
    """A copy is the host's where nothing says otherwise."""
    span = span_of(category, "x", 0, 1, device=device)
    assert is_of_device(profile_of([], device="cuda0"), span) is expected
    assert not is_of_device(profile_of([]), span)


def test_streams_are_threads_where_nothing_is_dispatched() -> None:
    executions = [execution_of(0, 5, 9, thread=STREAM, dispatch=(0, 1), dispatch_thread=HOST)]
    assert streams_of(profile_of(OPERATORS_DEVICES, (), executions, device="cuda0")) == {STREAM}
    assert streams_of(profile_of(OPERATORS_DEVICES, (), executions)) == frozenset()


def test_what_the_host_runs_beside_a_device_is_an_operator_too() -> None:
    profile = profile_of(
        [operator_of("conv", "Conv"), operator_of("shape", "Shape"), operator_of("copy", "Copy")],
        [step_of(0, 0, 100)],
        [
            execution_of(0, 20, 30, thread=STREAM, dispatch=(10, 15)),
            execution_of(1, 40, 60),
            execution_of(2, 70, 75, thread=STREAM),
        ],
        [
            span_of("kernel", "fast", 20, 30, thread=STREAM, operator=0, device="cuda:0"),
            span_of("memcpy", "copy", 70, 75, thread=STREAM, operator=2, device="cuda:0"),
        ],
        device="cuda:0",
    )
    times = {(row.name, row.kernel): row.iteration_ns for row in rows_of(profile)}
    assert times == {("shape", "Shape"): 20_000, ("conv", "fast"): 10_000}


def test_an_execution_takes_the_time_of_its_kernels_and_copies_without_the_gaps() -> None:
    executions = [
        execution_of(0, 0, 40, thread=STREAM, warmup=True),
        execution_of(0, 100, 140, step=1, thread=STREAM, dispatch=(90, 95)),
        execution_of(0, 150, 190, step=1, thread=STREAM, dispatch=(96, 99)),
        execution_of(1, 190, 200, step=1, thread=STREAM),
    ]
    work = [
        span_of("kernel", "a", 100, 110, step=1, operator=0),
        span_of("kernel", "b", 130, 140, step=1, operator=0),
        span_of("kernel", "a", 150, 155, step=1, operator=0),
        span_of("memcpy", "c", 190, 198, step=1, operator=1, device="cuda0"),
        span_of("memcpy", "on the host", 190, 198, step=1, operator=1),
    ]
    steps = (step_of(0, 0, 50, warmup=True), step_of(1, 90, 210))
    told = profile_of(OPERATORS_DEVICES, steps, executions, work, device="cuda0")
    assert device_times_of(told) == [20_000, 5_000, 8_000]
    untold = profile_of(OPERATORS_DEVICES, steps, executions, device="cuda0")
    assert device_times_of(untold) == [40_000, 40_000, 10_000]
    assert device_times_of(profile_of(OPERATORS_DEVICES, steps, executions)) == [0, 0, 0]
