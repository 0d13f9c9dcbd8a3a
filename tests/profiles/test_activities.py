"""What a device did, and whose it was."""

from __future__ import annotations

from lar.profiles.activities import device_activities_of
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import HOST, STREAM, execution_of, profile_of, span_of, step_of

OPERATORS = (operator_of("loop", "Loop"), operator_of("conv", "Conv", algorithm="winograd"))
STEPS = (step_of(0, 0, 100),)


def test_where_no_kernels_are_reported_the_computation_of_an_operator_is_one() -> None:
    executed = execution_of(1, 20, 50, thread=STREAM, wait=4, dispatch=(5, 10))
    profile = profile_of(OPERATORS, STEPS, [executed], device="cuda:1")
    (kernel,) = device_activities_of(profile)
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
