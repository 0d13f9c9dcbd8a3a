"""What computes: kernels on a device; where none are told of, operators by their algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lar.records.profile import Profile, ProfiledOperator

Extent = tuple[int, int, int]


class KernelRun(NamedTuple):
    """One run of a kernel; `operator` counts in `Profile.operators`, None where that is unknown."""

    name: str
    start_ns: int
    end_ns: int
    operator: int | None
    grid: Extent | None = None
    block: Extent | None = None


def kernel_runs(profile: Profile) -> Iterator[KernelRun]:
    """Yield the kernels of timed iterations.

    An engine that tells of none has one for each execution of an operator: its computation.
    """
    spans = profile.spans_of("kernel")
    for span in spans:
        yield KernelRun(span.name, span.start_ns, span.end_ns, span.operator, span.grid, span.block)
    if spans:
        return
    names = [kernel_name_of(operator) for operator in profile.operators]
    for execution in profile.executions:
        if not execution.warmup:
            begin = execution.start_ns + (execution.wait_ns or 0)
            yield KernelRun(names[execution.operator], begin, execution.end_ns, execution.operator)


def kernel_name_of(operator: ProfiledOperator) -> str:
    """Return the algorithm, where it is not known the provider and the operator's type."""
    if operator.algorithm:
        return operator.algorithm
    return f"{operator.provider}::{operator.type}" if operator.provider else operator.type
