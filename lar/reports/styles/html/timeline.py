"""The timelines of iterations: what every thread did, in rows of bars that do not overlap."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from lar.errors import UsageError
from lar.profiles.disturbance import disturbed_steps
from lar.profiles.totals import group_by
from lar.records.profile import Execution, Profile, Span, Step
from lar.reports.styles.html.series import numbers_of

# A browser draws so many without a delay; of more the shortest are left out.
MOST_BARS = 6000
# A page with so many is small enough to be sent around; then it has only some of the iterations.
MOST_BARS_OF_PAGE = 100_000
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

ALL_KINDS = ("operator", "wait", "dispatch", *KINDS.values())


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


def timelines_of(profile: Profile, wanted: int | None = None) -> dict[str, Any] | None:
    """Return the bars of timed iterations: of all of them if they are not too many for a page, else
    of the median, the slowest, the quickest and some between. None if none took any time.

    `iterations` has them in order as `{"number", "total_ns", "unit_ns", "left_out", "disturbed",
    "bars"}`; `bars` are `pack_numbers` of what, the time since the start of the bar before, and the
    duration, in units, where `whats` has `[lane, row, name, kind]`, all as places in the lists of
    those. `landmarks` names some of the iterations; `chosen` is the one that is `wanted`.

    Raises:
        UsageError: the profile has no such iteration.
    """
    asked = None if wanted is None else step_with(profile, wanted)
    steps = [step for step in profile.timed_steps() if step.duration_ns > 0]
    if not steps:
        return None
    landmarks = {
        "median": median_step_of(steps),
        "slowest": max(steps, key=lambda step: step.duration_ns),
        "quickest": min(steps, key=lambda step: step.duration_ns),
    }
    if asked is not None:
        landmarks["chosen"] = asked
    chosen = choose_steps(profile, steps, landmarks.values())
    executions = group_by(profile.executions, lambda execution: execution.step)
    spans = spans_within(profile, chosen)
    disturbed, numbers = disturbed_steps(profile), numbers_of(profile)
    places = Places()
    iterations = [
        iteration_of(
            profile,
            numbers[step.number],
            step,
            executions.get(step.number, ()),
            spans.get(step.number, ()),
            places,
            disturbed.get(step.number, ()),
        )
        for step in chosen
    ]
    return {
        "iterations": iterations,
        "landmarks": {name: numbers[step.number] for name, step in landmarks.items()},
        "timed": len(steps),
        "names": list(places.names),
        "kinds": [kind for kind in ALL_KINDS if kind in places.kinds],
        "lanes": list(places.lanes),
        "whats": [
            [places.lanes[lane], row, places.names[name], places.kind(kind)]
            for lane, row, name, kind in places.whats
        ],
    }


class Places:
    """The names, kinds and lanes of bars, each with its place in a list."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.lanes: dict[str, int] = {}
        self.kinds: set[str] = set()
        self.whats: dict[tuple[str, int, str, str], int] = {}

    def add(self, row: int, bar: Bar) -> int:
        """Return the new place of what a bar in this row shows."""
        self.names.setdefault(bar.name, len(self.names))
        self.lanes.setdefault(bar.lane, len(self.lanes))
        self.kinds.add(bar.kind)
        return self.whats.setdefault((bar.lane, row, bar.name, bar.kind), len(self.whats))

    def kind(self, kind: str) -> int:
        return [each for each in ALL_KINDS if each in self.kinds].index(kind)


def step_with(profile: Profile, number: int) -> Step:
    """Return the step of an iteration that the user asks for.

    Raises:
        UsageError: there is none with this number, or it took no time.
    """
    steps = profile.timed_steps()
    if number >= len(steps) or steps[number].duration_ns <= 0:
        hint = f"say 0 to {len(steps) - 1}" if steps else "it has no timed iterations"
        raise UsageError("the profile has no such iteration", hint, flag=f"--iteration {number}")
    return steps[number]


def choose_steps(profile: Profile, steps: Sequence[Step], landmarks: Iterable[Step]) -> list[Step]:
    """Return the steps that the page has room for: the landmarks, then others at even distances."""
    counts: Counter[int] = Counter()
    for each in profile.executions:
        counts[each.step] += 1 + bool(each.wait_ns) + (each.dispatch_start_ns is not None)
    most = max(counts[step.number] for step in steps) + len(profile.spans) // len(profile.steps)
    room = max(1, MOST_BARS_OF_PAGE // max(1, min(most, MOST_BARS)))
    if room >= len(steps):
        return list(steps)
    distance = -(-len(steps) // room)
    numbers = {step.number for step in (*landmarks, *steps[::distance])}
    return [step for step in steps if step.number in numbers]


def iteration_of(
    profile: Profile,
    number: int,
    step: Step,
    executions: Sequence[Execution],
    spans: Sequence[Span],
    places: Places,
    causes: Sequence[str],
) -> dict[str, Any]:
    """Return the timeline of one step."""
    bars = bars_of(profile, step, executions, spans)
    left_out = len(bars) - MOST_BARS
    if left_out > 0:
        bars = sorted(bars, key=lambda bar: bar.start_ns - bar.end_ns)[:MOST_BARS]
    lanes = group_by(bars, lambda bar: bar.lane)
    placed = [each for lane in lanes.values() for each in place_bars(lane)[0]]
    # Nobody sees a hundredth of a microsecond in a millisecond, and short numbers keep it small.
    unit_ns = 10 if step.duration_ns >= 1_000_000 else 1
    numbers: list[int] = []
    last = 0
    for row, bar in sorted(placed, key=lambda each: each[1].start_ns):
        start = (bar.start_ns - step.start_ns) // unit_ns
        length = (bar.end_ns - bar.start_ns) // unit_ns
        what = places.whats.get((bar.lane, row, bar.name, bar.kind))
        if what is None:
            what = places.add(row, bar)
        numbers += (what, start - last, length)
        last = start
    return {
        "number": number,
        "total_ns": step.duration_ns,
        "unit_ns": unit_ns,
        "left_out": max(0, left_out),
        "disturbed": ", ".join(causes),
        "bars": pack_numbers(numbers),
    }


def pack_numbers(numbers: Iterable[int]) -> str:
    """Return whole numbers, none below 0, as text: seven bits a byte, the lowest first, with the
    eighth set where more of the number follow; in base64."""
    packed = bytearray()
    for number in numbers:
        while number > 127:
            packed.append(number & 127 | 128)
            number >>= 7
        packed.append(number)
    return base64.b64encode(packed).decode()


def spans_within(profile: Profile, steps: Sequence[Step]) -> dict[int, list[Span]]:
    """Return the spans of each step; one that is of no step is of all in which some of it lies, as
    a range of the user is that goes on after the step of its begin."""
    found: dict[int, list[Span]] = {step.number: [] for step in steps}
    ordered = sorted(steps, key=lambda step: step.start_ns)
    ends = [*accumulate((step.end_ns for step in ordered), max)]
    for span in profile.spans:
        if span.step is not None and span.category != "user_annotation":
            if span.step in found:
                found[span.step].append(span)
            continue
        for step in ordered[bisect_right(ends, span.start_ns) :]:
            if step.start_ns >= span.end_ns:
                break
            if span.start_ns < step.end_ns:
                found[step.number].append(span)
    return found


def bars_of(
    profile: Profile, step: Step, executions: Iterable[Execution], spans: Iterable[Span]
) -> list[Bar]:
    """Return what began or ended within a step, cut at its ends."""
    begin, end = step.start_ns, step.end_ns
    names = [operator.name for operator in profile.operators]
    lanes: dict[int, str] = {}
    found = []
    for each in executions:
        name, computed = names[each.operator], each.start_ns + (each.wait_ns or 0)
        if (lane := lanes.get(each.thread)) is None:
            lane = lanes[each.thread] = lane_of(profile, each.thread)
        if each.wait_ns:
            found.append(Bar(lane, each.start_ns, computed, name, "wait"))
        found.append(Bar(lane, computed, each.end_ns, name, "operator"))
        if each.dispatch_start_ns is not None and each.dispatch_end_ns is not None:
            host = lane_of(profile, each.dispatch_thread or 0)
            # One thread that does both shows the operator alone.
            if host != lane:
                dispatch = each.dispatch_start_ns, each.dispatch_end_ns
                found.append(Bar(host, *dispatch, name, "dispatch"))
    found += [
        Bar(lane_of_span(profile, it), *it.interval, it.name, KINDS[it.category]) for it in spans
    ]
    return [
        bar
        if bar.start_ns >= begin and bar.end_ns <= end
        else bar._replace(start_ns=max(bar.start_ns, begin), end_ns=min(bar.end_ns, end))
        for bar in found
        if bar.start_ns < bar.end_ns and bar.start_ns < end and bar.end_ns > begin
    ]


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
        for row, end in enumerate(ends):
            if end <= bar.start_ns:
                ends[row] = bar.end_ns
                break
        else:
            row = len(ends)
            ends.append(bar.end_ns)
        placed.append((row, bar))
    return placed, len(ends)
