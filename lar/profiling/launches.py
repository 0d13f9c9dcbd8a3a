"""What was launched, and the ranges of the user: one record for each execution or kernel."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from lar.profiling.kernels import Extent, kernel_name_of
from lar.profiling.profile import Execution, Profile, Span
from lar.profiling.roofline import Piece


class Launch(NamedTuple):
    """One execution of an operator or, on a device that tells them, of a kernel.

    `place` counts in `Profile.operators`, which may bear one name several times, or none.
    `kernel` is the algorithm, or the provider and the type, where no kernel is told. `starts` is
    when it began on which threads, the one where it ran first; `ranges` are the user's ranges
    around it.
    """

    place: int | None
    operator: str
    type: str
    kernel: str
    is_kernel: bool
    piece: Piece
    starts: tuple[tuple[int, int], ...]
    grid: Extent | None = None
    block: Extent | None = None
    stream: int | None = None
    device: str | None = None
    ranges: tuple[str, ...] = ()


def launches_of(profile: Profile) -> list[Launch]:
    """Return the kernels of the timed iterations, or the executions where no kernels are told."""
    kernels = profile.spans_of("kernel") if profile.on_device else ()
    if not kernels:
        return [launch_of(profile, execution) for execution in profile.timed_executions()]
    counts = Counter((kernel.operator, kernel.step) for kernel in kernels)
    return [
        launch_of_kernel(profile, kernel, counts[kernel.operator, kernel.step] == 1)
        for kernel in kernels
    ]


def launch_of(profile: Profile, execution: Execution) -> Launch:
    operator = profile.operators[execution.operator]
    starts = [(execution.thread, execution.start_ns)]
    if execution.dispatch_start_ns is not None and execution.dispatch_thread is not None:
        starts.append((execution.dispatch_thread, execution.dispatch_start_ns))
    return Launch(
        place=execution.operator,
        operator=operator.name,
        type=operator.type,
        kernel=kernel_name_of(operator),
        is_kernel=False,
        piece=Piece(execution.compute_ns, operator.flops, operator.size_bytes),
        starts=tuple(starts),
    )


def launch_of_kernel(profile: Profile, kernel: Span, alone: bool) -> Launch:
    """Return the launch of a kernel; which of an operator's kernels computes how much is known
    only if it is `alone`."""
    operator = None if kernel.operator is None else profile.operators[kernel.operator]
    flops, size_bytes = (
        (operator.flops, operator.size_bytes) if operator and alone else (None, None)
    )
    return Launch(
        place=kernel.operator,
        operator=operator.name if operator else "",
        type=operator.type if operator else "",
        kernel=kernel.name,
        is_kernel=True,
        piece=Piece(kernel.duration_ns, flops, size_bytes),
        starts=((kernel.thread, kernel.start_ns),),
        grid=kernel.grid,
        block=kernel.block,
        stream=kernel.stream,
        device=kernel.device,
    )


def ranges_of(profile: Profile) -> dict[str, list[Span]]:
    """Return the user's ranges by name, without those of the warm-up."""
    ranges: dict[str, list[Span]] = {}
    for span in profile.spans:
        if span.category == "user_annotation" and not span.warmup:
            ranges.setdefault(span.name, []).append(span)
    return ranges
