"""The timeline of one iteration: what every thread did, in rows of bars that do not overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lar.records.profile import Profile, Span, Step

# A browser draws so many without a delay; more than that, and the shortest are left out.
MOST_BARS = 6000
# In the order of the legend, after those of operators.
KINDS = {
    "phase": "phase",
    "runtime": "engine call",
    "user_annotation": "range",
    "relayout": "relayout",
    "memcpy": "copy",
    "memset": "memset",
    "kernel": "kernel",
    "osrt": "system call",
}


OPERATOR_KINDS = ("operator", "wait", "dispatch")


class Bar(NamedTuple):
    """An activity of a thread; the outermost kind comes first where two begin at once."""

    lane: str
    start_ns: int
    end_ns: int
    name: str
    kind: str


def median_step_of(steps: Sequence[Step]) -> Step:
    """Return the step of the median duration, of the two in the middle the shorter."""
    return sorted(steps, key=lambda step: step.duration_ns)[(len(steps) - 1) // 2]


def timeline_of(profile: Profile) -> dict[str, Any] | None:
    """Return the bars of the median step, by lane; None if the step took no time at all.

    A lane is `{"name": ..., "rows": N, "bars": [[row, start, duration, name, kind], ...]}` with
    times in nanoseconds after the step's start, and names and kinds as places in the lists.
    """
    steps = profile.timed_steps()
    if not steps:
        return None
    step = median_step_of(steps)
    if step.duration_ns <= 0:
        return None
    found = sorted(bars_of(profile, step), key=lambda bar: bar.start_ns - bar.end_ns)
    bars = found[:MOST_BARS]
    names = {name: place for place, name in enumerate(dict.fromkeys(bar.name for bar in bars))}
    used = {bar.kind for bar in bars}
    ordered = [kind for kind in (*OPERATOR_KINDS, *KINDS.values()) if kind in used]
    kinds = {kind: place for place, kind in enumerate(ordered)}
    lanes = []
    for lane in sorted({bar.lane for bar in bars}, key=lambda lane: first_start(bars, lane)):
        placed, rows = place_bars(bar for bar in bars if bar.lane == lane)
        drawn = [
            [
                *(row, bar.start_ns - step.start_ns, bar.end_ns - bar.start_ns),
                *(names[bar.name], kinds[bar.kind]),
            ]
            for row, bar in placed
        ]
        lanes.append({"name": lane, "rows": rows, "bars": drawn})
    return {
        "step": step.number,
        "total_ns": step.duration_ns,
        "names": list(names),
        "kinds": list(kinds),
        "lanes": lanes,
        "left_out": len(found) - len(bars),
    }


def first_start(bars: Iterable[Bar], lane: str) -> int:
    return min(bar.start_ns for bar in bars if bar.lane == lane)


def bars_of(profile: Profile, step: Step) -> list[Bar]:
    """Return what began or ended within a step, cut at its ends."""
    found = []
    for execution in profile.executions:
        if execution.step != step.number:
            continue
        name = profile.operators[execution.operator].name
        lane = lane_of(profile, execution.thread)
        if execution.wait_ns:
            found.append(Bar(lane, execution.start_ns, execution.computation[0], name, "wait"))
        found.append(Bar(lane, *execution.computation, name, "operator"))
        if (dispatch := execution.dispatch) is not None:
            host = lane_of(profile, execution.dispatch_thread or 0)
            # One thread that does both shows the operator alone.
            if host != lane:
                found.append(Bar(host, *dispatch, name, "dispatch"))
    found += [
        Bar(lane_of_span(profile, it), *it.interval, it.name, KINDS[it.category])
        for it in profile.spans
    ]
    cut = (
        bar._replace(start_ns=max(bar.start_ns, step.start_ns), end_ns=min(bar.end_ns, step.end_ns))
        for bar in found
    )
    return [bar for bar in cut if bar.start_ns < bar.end_ns]


def lane_of(profile: Profile, thread: int) -> str:
    return profile.threads.get(thread) or f"thread {thread}"


def lane_of_span(profile: Profile, span: Span) -> str:
    """Return the lane of a span: its stream if it ran on a device, else its thread."""
    if span.device is None or span.stream is None or not profile.on_device:
        return lane_of(profile, span.thread)
    return f"device {span.device}, stream {span.stream}"


def place_bars(bars: Iterable[Bar]) -> tuple[list[tuple[int, Bar]], int]:
    """Return bars with the row of each, so that none overlaps another, and the number of rows; what
    lies within another bar comes below it."""
    ends: list[int] = []
    placed = []
    for bar in sorted(bars, key=lambda bar: (bar.start_ns, -bar.end_ns)):
        row = next((row for row, end in enumerate(ends) if end <= bar.start_ns), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = bar.end_ns
        placed.append((row, bar))
    return placed, len(ends)
