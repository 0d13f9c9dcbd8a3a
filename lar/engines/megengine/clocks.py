"""Converts the times of MegEngine's clocks to lar's clock.

MegEngine has a clock for the host and a clock for the device, and does not report at what moment
each clock is zero. But every event that MegEngine reports for an iteration happened between the
begin and the end of this iteration on lar's clock. The begin and the end of an iteration give a
lower and an upper bound of the offset between MegEngine's clock and lar's clock. Several iterations
together give tighter bounds of the offset, unless MegEngine resets its clock between these
iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lar.engines.driver import HOST_THREAD
from lar.records.profile import Alignment, Execution, Interval, Step

RESOLUTION_NS = 1000  # the engine's times are microseconds


class Iteration(NamedTuple):
    """The times of an iteration, in nanoseconds.

    On lar's clock, the dispatch began at `forward_ns` and returned at `dispatched_ns`, and the wait
    ended at `waited_ns`. The executions have the times of the engine's clocks.
    """

    number: int
    forward_ns: int
    dispatched_ns: int
    waited_ns: int
    executions: Sequence[Execution]


class Fit(NamedTuple):
    """A clock's offset, valid from iteration `first` on, and the largest error of the offset."""

    first: int
    offset_ns: int
    error_ns: int


def fit_offsets(windows: Iterable[Interval | None]) -> list[Fit]:
    """Return the offsets of a clock in order of time: one at first, and one more after each reset.

    A window is the range in which the offset between MegEngine's clock and lar's clock lies,
    according to one iteration. If two windows are further apart than the clock's resolution,
    MegEngine reset its clock between the two iterations. An iteration without a window is skipped.
    """
    groups: list[tuple[int, Interval]] = []
    for number, window in ((number, it) for number, it in enumerate(windows) if it is not None):
        low, high = window
        if groups:
            first, known = groups[-1]
            low, high = max(known[0], low), min(known[1], high)
            if low - high <= RESOLUTION_NS:
                groups[-1] = first, (low, high)
                continue
        groups.append((number, window))
    return [
        Fit(first, (low + high) // 2, abs(high - low) // 2 + RESOLUTION_NS)
        for first, (low, high) in groups
    ]


def fit_clocks(iterations: Sequence[Iteration]) -> tuple[list[Fit], list[Fit]]:
    """Return the offsets of the host's clock (dispatches) and the device's clock (executions)."""
    hosts = fit_offsets(map(host_window, iterations))
    devices = fit_offsets(
        device_window(each, fit_at(hosts, number)) for number, each in enumerate(iterations)
    )
    return hosts, devices


def fit_at(fits: Sequence[Fit], number: int) -> Fit | None:
    """Return the offset of a clock in an iteration, None if the offset is unknown."""
    return next((fit for fit in reversed(fits) if fit.first <= number), None)


def alignments_of(
    domain: str, fits: Sequence[Fit], iterations: Sequence[Iteration]
) -> list[Alignment]:
    """Return the alignments of a clock for a profile, one for each offset in `fits`.

    The first alignment has the name of the clock's domain. The names of later alignments also
    contain the first iteration for which the alignment is valid.
    """
    titles = [Step(iterations[fit.first].number, 0, 0).title for fit in fits]
    names = [domain, *(f"{domain} from {title}" for title in titles[1:])]
    pairs = zip(names, fits, strict=False)  # without a fit one name is too many
    return [Alignment(name, fit.offset_ns, fit.error_ns) for name, fit in pairs]


def dispatch_of(execution: Execution) -> Interval | None:
    """Return the interval in which an execution was dispatched, None if the interval is unknown.

    The result is also None for an execution in the host's thread, since no other thread dispatches
    such an execution.
    """
    return None if execution.thread == HOST_THREAD else execution.dispatch


def device_window(iteration: Iteration, host: Fit | None) -> Interval | None:
    """Return the bounds of the device clock's offset that result from an iteration.

    The result is None if the iteration has no executions. If the offset of the host clock is known,
    the lower bound is tighter, since no execution begins before its dispatch.
    """
    times = [each.interval for each in iteration.executions]
    window = window_of(iteration.forward_ns, iteration.waited_ns, times)
    if window is None or host is None:
        return window
    dispatched_before = (
        each.dispatch_start_ns + host.offset_ns - host.error_ns - each.start_ns
        for each in iteration.executions
        if each.dispatch_start_ns is not None
    )
    return max((window[0], *dispatched_before)), window[1]


def host_window(iteration: Iteration) -> Interval | None:
    """Return the bounds that an iteration sets for the offset of the host's clock.

    The result is None if the iteration has no dispatches.
    """
    times = [*filter(None, map(dispatch_of, iteration.executions))]
    return window_of(iteration.forward_ns, iteration.dispatched_ns, times)


def window_of(begin_ns: int, end_ns: int, times: Sequence[Interval]) -> Interval | None:
    """Return a lower and an upper bound of the offset between MegEngine's clock and lar's clock.

    The `times` are on MegEngine's clock. On lar's clock, they lie between `begin_ns` and `end_ns`.

    The lower bound is `begin_ns` minus the first of the `times`. The upper bound is `end_ns` minus
    the last of the `times`.
    """
    if not times:
        return None
    starts, ends = zip(*times, strict=True)
    return begin_ns - min(starts), end_ns - max(ends)


def place_executions(
    iterations: Iterable[Iteration], hosts: Sequence[Fit], devices: Sequence[Fit]
) -> Iterator[Execution]:
    """Yield the executions of the iterations, with times converted to lar's clock.

    The converted times are limited to the start and the end of the iteration.
    """
    for number, iteration in enumerate(iterations):
        host, device = fit_at(hosts, number), fit_at(devices, number)
        if device is None:
            continue
        for each in iteration.executions:
            start, end = moved(each.interval, device, iteration.forward_ns, iteration.waited_ns)
            begin = done = thread = None
            if host and (dispatch := dispatch_of(each)):
                thread = each.dispatch_thread
                begin, done = moved(dispatch, host, iteration.forward_ns, iteration.dispatched_ns)
            yield replace(
                each,
                start_ns=start,
                end_ns=end,
                wait_ns=None if each.wait_ns is None else min(each.wait_ns, end - start),
                dispatch_start_ns=begin,
                dispatch_end_ns=done,
                dispatch_thread=thread,
            )


def moved(times: Interval, fit: Fit, low: int, high: int) -> Interval:
    """Return times converted to lar's clock and limited to the range from `low` to `high`.

    If `low` is greater than `high`, only the limit `high` is used.
    """
    start = min(max(times[0] + fit.offset_ns, low), high)
    return start, min(max(times[1] + fit.offset_ns, start), high)
