"""Launches, and the ranges of the user: one record for each execution or kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lar.profiles.activities import execution_of, places_of
from lar.profiles.devices import Extent, kernel_name_of
from lar.profiles.range_members import Begun, members_of_ranges, starts_of
from lar.profiles.roofline import Piece, piece_of
from lar.profiles.times import self_times_of
from lar.records.profile import Execution, Profile, Span


class Launch(NamedTuple):
    """One execution of an operator or, on a device that reports them, of a kernel.

    `place` counts in `Profile.operators`, which may bear one name several times, or none. `kernel`
    is the algorithm, or the provider and the type, if no kernel is known. `begun` has the thread
    and the time of its begin, `ranges` the user's ranges that it belongs to. `piece` lasts as long
    as it took itself, `total_ns` has what ran within it too.
    """

    place: int | None
    operator: str
    type: str
    kernel: str
    is_kernel: bool
    piece: Piece
    total_ns: int
    begun: Begun
    grid: Extent | None = None
    block: Extent | None = None
    stream: int | None = None
    device: str | None = None
    ranges: tuple[str, ...] = ()


def launches_of(profile: Profile) -> list[Launch]:
    """Return the kernels of the timed iterations and what the host executed beside them, or the
    executions if no kernels are known."""
    kernels = profile.spans_of("kernel") if profile.on_device else ()
    timed = enumerate(zip(profile.timed_executions, self_times_of(profile), strict=True))
    if not kernels:
        return [launch_of(profile, it, place, ns) for place, (it, ns) in timed]
    of_device = profile.spans_of("kernel", "memcpy", "memset")
    reported = {(span.operator, span.step) for span in of_device}
    counts = Counter((kernel.operator, kernel.step) for kernel in kernels)
    places = places_of(profile.timed_executions, on_device=True)
    launches = [
        launch_of_kernel(
            profile,
            kernel,
            alone=counts[kernel.operator, kernel.step] == 1,
            place=execution_of(kernel, places),
        )
        for kernel in kernels
    ]
    return launches + [
        launch_of(profile, it, place, ns)
        for place, (it, ns) in timed
        if it.dispatch is None and (it.operator, it.step) not in reported
    ]


def launch_of(profile: Profile, execution: Execution, place: int, self_ns: int) -> Launch:
    """Return the launch of an execution, which took so long itself; `place` is its position among
    the timed ones."""
    operator = profile.operators[execution.operator]
    return Launch(
        place=execution.operator,
        operator=operator.name,
        type=operator.type,
        kernel=kernel_name_of(operator),
        is_kernel=False,
        piece=piece_of(profile, execution.operator, self_ns),
        total_ns=execution.compute_ns,
        begun=Begun(place, starts_of(execution)),
    )


def launch_of_kernel(profile: Profile, kernel: Span, *, alone: bool, place: int | None) -> Launch:
    """Return the launch of a kernel, which is part of the timed execution at `place`; how much it
    computes is known only if it is its operator's only kernel (`alone`)."""
    operator = None if kernel.operator is None else profile.operators[kernel.operator]
    piece = Piece(kernel.duration_ns, None, None, operator=kernel.operator)
    if kernel.operator is not None and alone:
        piece = piece_of(profile, kernel.operator, kernel.duration_ns)
    return Launch(
        place=kernel.operator,
        operator=operator.name if operator else "",
        type=operator.type if operator else "",
        kernel=kernel.name,
        is_kernel=True,
        piece=piece,
        total_ns=kernel.duration_ns,
        begun=Begun(place, ((kernel.thread, kernel.start_ns),)),
        grid=kernel.grid,
        block=kernel.block,
        stream=kernel.stream,
        device=kernel.device,
    )


def put_in_ranges(profile: Profile, launches: Sequence[Launch]) -> list[Launch]:
    """Return launches with the names of the ranges that each belongs to, in one order for all."""
    members: dict[str, set[int]] = {}
    for span, places in members_of_ranges(profile, [launch.begun for launch in launches]):
        members.setdefault(span.name, set()).update(places)
    return [
        launch._replace(ranges=tuple(name for name in members if place in members[name]))
        for place, launch in enumerate(launches)
    ]
