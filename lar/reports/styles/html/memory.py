"""The memory of the page: its curves over time, and the tensors that are held at a peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from lar.profiles.intervals import merge_intervals, total_of
from lar.records.profile import Allocation, MemoryChunk, Profile, ProfiledOperator
from lar.reports.model import Column
from lar.reports.pages.tables import PageTable, page_table, rounded
from lar.reports.styles.html.series import bins_of

MOST_SAMPLES = 1000
MIB = 2**20

ALLOCATED, PLANNED = "Memory allocated", "Static memory plan"


class Held(NamedTuple):
    """A tensor that is held at a peak, and the operators that write it and read it last."""

    name: str
    size_bytes: int
    writer: str | None
    reader: str | None
    share: float


class Peak(NamedTuple):
    """The moment when most is held: where it is on the axis of its curve, MiB, and what is held."""

    at: float
    total_mib: float
    tensors: tuple[Held, ...]


PEAK_COLUMNS: tuple[Column[Held], ...] = (
    Column("tensor", lambda held: held.name, rank=0),
    Column("size", lambda held: held.size_bytes / MIB, unit="MiB", digits=3, rank=0),
    Column("share", lambda held: held.share, unit="%", digits=1, rank=1),
    Column("written by", lambda held: held.writer, rank=2),
    Column("last read by", lambda held: held.reader, rank=3),
)


def memory_curves(profile: Profile) -> list[dict[str, Any]]:
    """Return the curves of memory and CPU time that are known, each as `{"title", "x", "y", "step",
    "points", "folded", "peak"}`.

    `step` says that a value holds until the next; what was before `folded`, the warm-up, is for a
    stripe of its own, None where nothing was; `peak` is `{"at", "total"}` or None.
    """
    curves = [
        curve_of(ALLOCATED, "time, s", "MiB", allocated_of(profile), step=True),
        curve_of(PLANNED, "operator", "MiB", planned_of(profile), step=True),
    ]
    for name, title, unit, scale in (
        ("rss", "Resident memory of the process", "MiB", MIB),
        ("cpu", "CPU time of the process", "% of a core", 1),
    ):
        samples = [
            (sample.at_ns / 1e9, sample.value / scale)
            for sample in profile.counters
            if sample.name == name
        ]
        curves.append(curve_of(title, "time, s", unit, samples))
    peaks = peaks_of(profile)
    timed = profile.timed_steps()
    for curve in curves:
        if peak := peaks.get(curve["title"]):
            curve["peak"] = {"at": rounded(peak.at), "total": rounded(peak.total_mib)}
        if timed and curve["title"] != PLANNED:
            first = timed[0].start_ns / 1e9
            if any(at < first for at, _ in curve["points"]):
                curve["folded"] = first
    return [curve for curve in curves if curve["points"]]


def curve_of(
    title: str, x: str, y: str, samples: Sequence[tuple[float, float]], step: bool = False
) -> dict[str, Any]:
    """Return a curve; of too many samples, the greatest of each bin."""
    points = []
    for part in bins_of(len(samples), MOST_SAMPLES):
        greatest = max(samples[part.start : part.stop], key=lambda sample: sample[1])
        points.append([exact(greatest[0]), rounded(greatest[1])])
    return {
        **{"title": title, "x": x, "y": y, "step": step, "points": points},
        **{"folded": None, "peak": None},
    }


def exact(at: float) -> float:
    """Return a time with the digits of microseconds: iterations are short, runs are long."""
    return float(f"{at:.6f}")


def allocated_of(profile: Profile) -> list[tuple[float, float]]:
    """Return how much is allocated, in MiB above what was before the first that is known."""
    events = sorted(profile.allocations, key=lambda each: each.at_ns)
    sums = accumulate(each.size_bytes for each in events)
    return [(each.at_ns / 1e9, size / MIB) for each, size in zip(events, sums, strict=True)]


def planned_of(profile: Profile) -> list[tuple[float, float]]:
    """Return how much of the static plan each operator finds in use, in MiB.

    Chunks may share memory, as those of an operator that works in place: it counts once.
    """
    chunks = [
        (first, last + 1, (it.address, it.address + it.size_bytes))
        for it in profile.memory_plan.chunks
        if (first := it.first_operator) is not None and (last := it.last_operator) is not None
    ]
    places = sorted({place for first, after, _ in chunks for place in (first, after)})
    return [
        (
            float(place),
            total_of(merge_intervals(own for first, after, own in chunks if first <= place < after))
            / MIB,
        )
        for place in places
    ]


def peaks_of(profile: Profile) -> dict[str, Peak]:
    """Return the peaks whose tensors are known, by the titles of their curves."""
    found = {ALLOCATED: allocated_peak(profile), PLANNED: planned_peak(profile)}
    return {title: peak for title, peak in found.items() if peak is not None}


class Taken(NamedTuple):
    """A piece of memory that is held, and the name of the tensor in it, empty if not known."""

    allocation: Allocation
    tensor: str


def allocated_peak(profile: Profile) -> Peak | None:
    """Return when the timed iterations held most.

    What is given back is what was taken at the same address. Of an engine that reports none, it is
    a tensor of the same size that the operator reads.
    """
    timed = set(map(id, profile.timed_allocations()))
    owners = owners_of(profile)
    counts: Counter[tuple[int, int | None]] = Counter()
    held: list[Taken] = []
    most: tuple[int, int, tuple[Taken, ...]] | None = None
    total = 0
    for each in sorted(profile.allocations, key=lambda each: each.at_ns):
        total += each.size_bytes
        if each.size_bytes > 0:
            place = counts[each.at_ns, each.operator]
            counts[each.at_ns, each.operator] += 1
            name = owners.get((each.address, each.operator)) or written_name(profile, each, place)
            held.append(Taken(each, name))
            if id(each) in timed and (most is None or total > most[0]):
                most = (total, each.at_ns, tuple(held))
        elif (taken := taken_by(profile, held, each)) is not None:
            held.remove(taken)
    if most is None:
        return None
    total, at_ns, left = most
    tensors = [
        held_of(profile, shown_name(profile, it), it.allocation.size_bytes, it.allocation.operator)
        for it in left
    ]
    return Peak(at_ns / 1e9, total / MIB, ordered(tensors))


def written_name(profile: Profile, taken: Allocation, place: int) -> str:
    """Return the name of the tensor for which an operator takes memory, its `place`-th."""
    operator = operator_at(profile, taken.operator)
    names = operator.writes if operator else ()
    return names[place] if place < len(names) else ""


def shown_name(profile: Profile, taken: Taken) -> str:
    """Return a tensor's name in the model where it has one, else the engine's."""
    operator = operator_at(profile, taken.allocation.operator)
    return operator.names.get(taken.tensor, taken.tensor) if operator else taken.tensor


def taken_by(profile: Profile, held: Sequence[Taken], given_back: Allocation) -> Taken | None:
    """Return what was taken of what is given back now."""
    found = [
        each
        for each in held
        if each.allocation.size_bytes == -given_back.size_bytes
        and each.allocation.address == given_back.address
        and each.allocation.device == given_back.device
    ]
    operator = operator_at(profile, given_back.operator)
    used = {*operator.reads, *operator.writes} if operator else set()
    return next((each for each in found if each.tensor in used), found[0] if found else None)


def planned_peak(profile: Profile) -> Peak | None:
    """Return the operator at which most of the plan is in use."""
    places = planned_of(profile)
    if not places:
        return None
    at, most = max(places, key=lambda place: place[1])
    tensors = [
        held_of(profile, it.owner, it.size_bytes, it.first_operator, it.last_operator)
        for it in profile.memory_plan.chunks
        if is_held(it, at)
    ]
    return Peak(at, most, ordered(tensors))


def is_held(chunk: MemoryChunk, place: float) -> bool:
    first, last = chunk.first_operator, chunk.last_operator
    return first is not None and last is not None and first <= place <= last


def owners_of(profile: Profile) -> dict[tuple[int | None, int | None], str]:
    """Return the names of the plan's tensors, by address and by the operator that writes them."""
    return {
        (chunk.address, chunk.first_operator): chunk.owner for chunk in profile.memory_plan.chunks
    }


def held_of(
    profile: Profile, name: str, size_bytes: int, writer: int | None, reader: int | None = None
) -> Held:
    """Return a tensor; without a name it is called by the operator that writes it."""
    by, read = operator_at(profile, writer), operator_at(profile, reader)
    return Held(
        name or (f"output of {by.name}" if by else "not known"),
        size_bytes,
        by.name if by else None,
        read.name if read else None,
        0.0,
    )


def operator_at(profile: Profile, place: int | None) -> ProfiledOperator | None:
    if place is None or not 0 <= place < len(profile.operators):
        return None
    return profile.operators[place]


def ordered(tensors: Sequence[Held]) -> tuple[Held, ...]:
    """Return tensors with their shares of the sum of all, the largest first."""
    total = sum(each.size_bytes for each in tensors) or 1
    found = [each._replace(share=100 * each.size_bytes / total) for each in tensors]
    return tuple(sorted(found, key=lambda each: -each.size_bytes))


def peak_tables(profile: Profile, top: int) -> dict[str, PageTable]:
    """Return the tensors held at each peak, by the titles of their curves."""
    return {
        title: page_table(f"peak of {title}", PEAK_COLUMNS, peak.tensors, top, "size")
        for title, peak in peaks_of(profile).items()
    }
