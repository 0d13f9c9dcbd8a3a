"""Brings the times of MegEngine's clocks to that of lar.

Its host and its device have clocks of their own, whose zeros it does not say. But what it has
done in an iteration lay between that iteration's begin and end, which bounds the offset from both
sides; iterations with the same zero bound it together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lar.engines.driver import HOST_THREAD
from lar.records.profile import Alignment, Execution, Step

RESOLUTION_NS = 1000  # the engine's times are microseconds


class Iteration(NamedTuple):
    """The times that the engine reported for an iteration, in nanoseconds.

    The dispatch began at `forward_ns` and returned at `dispatched_ns`, and the wait ended at
    `waited_ns`, on lar's clock; the executions have the times of the engine's.
    """

    number: int
    forward_ns: int
    dispatched_ns: int
    waited_ns: int
    executions: Sequence[Execution]

    @property
    def title(self) -> str:
        return Step(self.number, 0, 0, self.number < 0).title


class Window(NamedTuple):
    """The bounds of a clock's offset in nanoseconds, as one iteration gives them.

    They are its begin minus the first time that the engine reports, and its end minus the last one.
    """

    low_ns: int
    high_ns: int


class Fit(NamedTuple):
    """The offset of a clock from an iteration on, and how far it can be wrong."""

    first: int
    offset_ns: int
    error_ns: int


def fit_offsets(windows: Iterable[Window | None]) -> list[Fit]:
    """Return the offsets of a clock, one for each zero that it has had, in the order of time.

    The zero has changed where the bounds exclude each other by more than the resolution. An
    iteration without a window is not used.
    """
    groups: list[tuple[int, Window]] = []
    for number, window in enumerate(windows):
        if window is None:
            continue
        if groups:
            first, known = groups[-1]
            common = Window(max(known.low_ns, window.low_ns), min(known.high_ns, window.high_ns))
            if common.low_ns - common.high_ns <= RESOLUTION_NS:
                groups[-1] = first, common
                continue
        groups.append((number, window))
    return [
        Fit(first, (low + high) // 2, abs(high - low) // 2 + RESOLUTION_NS)
        for first, (low, high) in groups
    ]


def fit_clocks(iterations: Sequence[Iteration]) -> tuple[list[Fit], list[Fit]]:
    """Return the offsets of the clock of dispatches and of that of executions."""
    hosts = fit_offsets(host_window(each) for each in iterations)
    devices = fit_offsets(
        device_window(each, fit_at(hosts, number)) for number, each in enumerate(iterations)
    )
    return hosts, devices


def fit_at(fits: Sequence[Fit], number: int) -> Fit | None:
    """Return the offset in an iteration, None where nothing is known of the clock."""
    return next((fit for fit in reversed(fits) if fit.first <= number), None)


def alignments_of(
    domain: str, fits: Sequence[Fit], iterations: Sequence[Iteration]
) -> list[Alignment]:
    """Return the alignments of a clock in a profile; each zero but the first has its iteration."""
    names = (f"{domain} from {iterations[fit.first].title}" for fit in fits[1:])
    return [
        Alignment(name, fit.offset_ns, fit.error_ns)
        for name, fit in zip((domain, *names), fits, strict=False)
    ]


def dispatch_of(execution: Execution) -> tuple[int, int] | None:
    """Return when an execution was dispatched, None if that is not known or it is its own
    dispatch: it ran in the thread that dispatches."""
    begin, done = execution.dispatch_start_ns, execution.dispatch_end_ns
    if execution.thread == HOST_THREAD or begin is None or done is None:
        return None
    return begin, done


def device_window(iteration: Iteration, host: Fit | None) -> Window | None:
    """Return the bounds of the clock of executions that an iteration gives; if the clock of
    dispatches is known, no execution begins before its dispatch."""
    times = [(each.start_ns, each.end_ns) for each in iteration.executions]
    window = window_of(iteration.forward_ns, iteration.waited_ns, times)
    if window is None or host is None:
        return window
    dispatched_before = (
        each.dispatch_start_ns + host.offset_ns - host.error_ns - each.start_ns
        for each in iteration.executions
        if each.dispatch_start_ns is not None
    )
    return window._replace(low_ns=max(window.low_ns, *dispatched_before))


def host_window(iteration: Iteration) -> Window | None:
    """Return the bounds of the clock of dispatches that an iteration gives, None if they are
    the executions themselves."""
    times = [*filter(None, map(dispatch_of, iteration.executions))]
    return window_of(iteration.forward_ns, iteration.dispatched_ns, times)


def window_of(begin_ns: int, end_ns: int, times: Sequence[tuple[int, int]]) -> Window | None:
    if not times:
        return None
    return Window(
        begin_ns - min(start for start, _ in times), end_ns - max(end for _, end in times)
    )


def place_executions(
    iterations: Iterable[Iteration], hosts: Sequence[Fit], devices: Sequence[Fit]
) -> Iterator[Execution]:
    """Yield the executions on lar's clock, each within its iteration."""
    for number, iteration in enumerate(iterations):
        host, device = fit_at(hosts, number), fit_at(devices, number)
        if device is None:
            continue
        low, high = iteration.forward_ns, iteration.waited_ns
        for each in iteration.executions:
            start = clip(each.start_ns + device.offset_ns, low, high)
            end = clip(each.end_ns + device.offset_ns, start, high)
            begin = done = thread = None
            if host is not None and (dispatch := dispatch_of(each)):
                dispatched, thread = iteration.dispatched_ns, each.dispatch_thread
                begin = clip(dispatch[0] + host.offset_ns, low, dispatched)
                done = clip(dispatch[1] + host.offset_ns, begin, dispatched)
            yield replace(
                each,
                start_ns=start,
                end_ns=end,
                wait_ns=None if each.wait_ns is None else min(each.wait_ns, end - start),
                dispatch_start_ns=begin,
                dispatch_end_ns=done,
                dispatch_thread=thread,
            )


def clip(value: int, low: int, high: int) -> int:
    """Return the nearest value within bounds; `high` counts where they cross."""
    return min(max(value, low), high)
