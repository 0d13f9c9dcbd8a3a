"""The roofline of Williams, Waterman and Patterson (2009): how near to the peak work comes.

Work of so many operations on so many bytes can go no faster than the lesser of the peak of
operations and what the peak of bytes feeds: min(peak flop/s, peak byte/s x flop/byte). The two
meet at the ridge: below its intensity memory binds, above it computation.

Four things keep it honest:

- The peak of operations is one of float32. Work in another type has a roof that is not known, and
  is compared with none.
- What moves nothing, as a view, a constant or a pointer that is handed on, has no bandwidth.
- Work is bound by a roof only near it. Far below both, it waits for something else: the latency
  of memory and instructions, threads that have nothing to do, or the call itself.
- A time without what profiling cost is an estimate. One of few steps of the clock has no rate.

What lies in the caches may be read faster than the main memory, whose peak it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from lar.errors import count_of
from lar.profiles.times import LEAST_ESTIMATE_NS, self_times_of
from lar.profiles.totals import group_by
from lar.records.profile import Peak, Profile, ProfiledOperator, TensorFact, keep_with_profile

Bound = Literal["compute", "memory", "cache", "latency"]

# The part of a roof from which on it is what binds: where Nsight Compute begins to speak of
# latency is below the same figure.
NEAR_PERCENT = 60.0

# Engines record whole microseconds: of a shorter call the rate may be anything.
SHORTEST_NS = 2000

# More of a peak than an algorithm with fewer operations, or the fastest cache, can explain: what is
# above it has a time that is too short, as estimated where profiling cost most of an iteration.
MOST_COMPUTE_PERCENT, MOST_MEMORY_PERCENT = 500.0, 1000.0

# Types of values that say where and how much, beside those that are computed with.
INDEX_TYPES = frozenset({"bool", "int32", "int64"})


class Piece(NamedTuple):
    """A part of some work; unknown figures are None.

    `operator` counts in `Profile.operators`. Without `is_float32` its operations are of another
    type; `is_estimate` says that its time is one without what profiling cost.
    """

    duration_ns: int
    flops: int | None
    size_bytes: int | None
    is_float32: bool = True
    operator: int | None = None
    is_estimate: bool = False


class Part(NamedTuple):
    """The pieces of one operator: how many, and the median of their durations."""

    calls: int
    median_ns: float
    flops: int | None
    size_bytes: int | None
    is_float32: bool
    is_estimate: bool = False

    @property
    def is_too_short(self) -> bool:
        """True if its time is mostly what the clock leaves out of an estimate."""
        return self.is_estimate and self.median_ns < LEAST_ESTIMATE_NS

    @property
    def has_roof(self) -> bool:
        """True if it computes or moves something: a view has no roof to reach."""
        return self.flops != 0 or self.size_bytes != 0

    def least_ns(self, peak: Peak) -> float | None:
        """Return how long one call takes at its roof; None if that is not known."""
        if self.flops is None or self.size_bytes is None or not self.has_roof:
            return None
        if self.flops and not self.is_float32:
            return None
        computing = self.flops / peak.flops_per_second
        return 1e9 * max(computing, self.size_bytes / peak.bytes_per_second)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations, bytes and the time that both took, summed over `calls`.

    `flops` and `size_bytes` are of those pieces alone whose figures are known, None where no
    piece has them; the shares say of how much of the pieces' time that is. Below 1 each figure
    made of them is a lower bound. `parts` has the same by operator.

    `typical_ns` is the time without disturbances, the median of each operator times its calls:
    rates are by it.
    """

    calls: int
    total_ns: int
    typical_ns: float
    flops: int | None = None
    size_bytes: int | None = None
    flops_share: float = 0.0
    bytes_share: float = 0.0
    parts: tuple[Part, ...] = ()

    @property
    def average_ns(self) -> float:
        return self.total_ns / self.calls

    @property
    def typical_call_ns(self) -> float:
        """The median of one call; of several operators the mean of their medians."""
        return self.typical_ns / self.calls if self.calls else 0.0

    @property
    def is_too_short(self) -> bool:
        """True if a call takes so little, as estimated, that it has no rate."""
        is_estimate = any(part.is_estimate for part in self.parts)
        return is_estimate and self.typical_call_ns < LEAST_ESTIMATE_NS

    @property
    def flops_per_second(self) -> float | None:
        if self.flops is None or self.is_too_short:
            return None
        return quotient(self.flops * 1e9, self.typical_ns)

    @property
    def bytes_per_second(self) -> float | None:
        """The bandwidth; None also for what moves nothing."""
        if not self.size_bytes or self.is_too_short:
            return None
        return quotient(self.size_bytes * 1e9, self.typical_ns)

    @property
    def is_float32(self) -> bool:
        """True if all operations that are known are of float32."""
        return all(part.is_float32 for part in self.parts if part.flops)

    @property
    def intensity(self) -> float | None:
        """The operations for each byte, a lower bound if the operations of some pieces are not
        known; None if some bytes are not known, since it might then be less or more."""
        if self.flops is None or self.size_bytes is None or self.bytes_share < 1:
            return None
        return quotient(self.flops, self.size_bytes)

    def compute_percent(self, peak: Peak | None) -> float | None:
        """Return the rate of operations in percent of the peak, which is one of float32: None for
        operations of another type."""
        if peak is None or not self.is_float32:
            return None
        percent = percent_of(self.flops_per_second, peak.flops_per_second)
        return self.believed(percent, MOST_COMPUTE_PERCENT)

    def memory_percent(self, peak: Peak | None) -> float | None:
        """Return the bandwidth in percent of the peak of the main memory."""
        if peak is None:
            return None
        percent = percent_of(self.bytes_per_second, peak.bytes_per_second)
        return self.believed(percent, MOST_MEMORY_PERCENT)

    def believed(self, percent: float | None, most: float) -> float | None:
        """Return a percentage of a peak, None where it is above it because the time of the calls
        cannot be right, or they are too short for the engine's clock."""
        limit = 100 if self.typical_call_ns < SHORTEST_NS else most
        return None if percent is not None and percent > limit else percent

    def has_wrong_time(self, peak: Peak) -> bool:
        """Return whether a percentage is withheld because the time cannot be right."""
        without_computing = self.is_float32 and self.compute_percent(peak) is None
        without_moving = self.memory_percent(peak) is None
        return bool((self.flops and without_computing) or (self.size_bytes and without_moving))

    def bound(self, peak: Peak | None) -> Bound | None:
        """Return what limits this work: computing or memory, if it is near that roof.

        `cache` is for work that moves more than the main memory can, and `latency` for work that
        is far from all roofs. None if a roof, or some of the work, is not known.
        """
        computing, moving = self.compute_percent(peak), self.memory_percent(peak)
        if peak is None or self.has_wrong_time(peak):
            return None
        # Where some of the work is not known, these are lower bounds.
        if computing is not None and computing >= max(NEAR_PERCENT, min(moving or 0, 100)):
            return "compute"
        if moving is not None and moving >= NEAR_PERCENT:
            return "memory" if moving <= 100 else "cache"
        if not self.is_float32 or not any(it.has_roof for it in self.parts):
            return None
        # What is not known may be at its roof all the time.
        most_computing = (computing or 0) + 100 * (1 - self.flops_share)
        most_moving = (moving or 0) + 100 * (1 - self.bytes_share)
        return "latency" if max(most_computing, most_moving) < NEAR_PERCENT else None


def saving_ns(work: Work, peak: Peak | None) -> int | None:
    """Return the time that work would save at its roof: time x (1 - achieved / roof), where the
    roof is that of its intensity.

    The time of each operator is its median times its calls, so that a single disturbance counts
    for nothing. Of work that is known in part it is a lower bound; None if of none.
    """
    savings = [] if peak is None else [saving_of(part, peak) for part in work.parts]
    known = [saving for saving in savings if saving is not None]
    return round(sum(known)) if known else None


def saving_of(part: Part, peak: Peak) -> float | None:
    least_ns = None if part.is_too_short else part.least_ns(peak)
    return None if least_ns is None else part.calls * max(0.0, part.median_ns - least_ns)


def saving_is_part(work: Work, peak: Peak | None) -> bool:
    """Return whether `saving_ns` is that of some operators alone: others might save more."""
    parts = [part for part in work.parts if part.has_roof]
    known = [peak is not None and saving_of(part, peak) is not None for part in parts]
    return any(known) and not all(known)


@keep_with_profile
def savings_of(profile: Profile) -> Mapping[int, float]:
    """Return how many nanoseconds of an iteration each operator would save at its roof, by its
    place in `Profile.operators`; without those of which that is not known."""
    peak, steps = host_peak_of(profile), len(profile.timed_steps())
    if peak is None or not steps:
        return {}
    savings, times = {}, zip(profile.timed_executions, self_times_of(profile), strict=True)
    for place, own in group_by(times, lambda it: it[0].operator).items():
        part = part_of(piece_of(profile, place, 0), [ns for _, ns in own])
        if (saving := saving_of(part, peak)) is not None:
            savings[place] = round(saving) / steps
    return savings


def piece_of(profile: Profile, place: int, duration_ns: int) -> Piece:
    """Return the work of one execution, which computes so long, of the operator at `place` in a
    profile."""
    return Piece(duration_ns, *amounts_of(profile)[place], place, profile.has_estimates)


@keep_with_profile
def amounts_of(profile: Profile) -> Sequence[tuple[int | None, int | None, bool]]:
    """Return of each operator how many operations it computes and bytes it moves, as far as that is
    known, and whether the peak of float32 operations is one for it."""
    return [(it.flops, it.size_bytes, computes_in_float32(it)) for it in profile.operators]


def moves_nothing(operator: ProfiledOperator) -> bool:
    """Return whether an operator neither reads nor writes tensors: a view of its input, a
    constant, a pointer that is handed on."""
    return operator.size_bytes == 0


def computes_in_float32(operator: ProfiledOperator) -> bool:
    """Return whether the peak of float32 operations is one for this operator.

    Its inputs count, but for single values, as the scale and zero point of quantised tensors, and
    indices beside others; an operator without inputs has the type of what it gives.
    """
    facts = operator.inputs or operator.outputs
    every = {fact.dtype for fact in facts}
    if every == {"float32"}:
        return True
    types = {fact.dtype for fact in facts if not is_single(fact)} or every
    return (types - INDEX_TYPES or types) <= {"float32", ""}


def is_single(fact: TensorFact) -> bool:
    return all(axis == 1 for axis in fact.shape)


def work_of(pieces: Iterable[Piece], calls: int | None = None, total_ns: int | None = None) -> Work:
    """Sum up pieces; `calls` and `total_ns` where they are not those of the pieces."""
    durations: dict[tuple[int | None, int | None, bool, int | None, bool], list[int]] = {}
    for piece in pieces:
        alike = piece[1:]
        own = durations.get(alike)
        if own is None:
            own = durations[alike] = []
        own.append(piece.duration_ns)
    parts = [part_of(Piece(0, *alike), own) for alike, own in durations.items()]
    times_ns = [sum(own) for own in durations.values()]
    flops = [None if part.flops is None else part.flops * part.calls for part in parts]
    moved = [None if part.size_bytes is None else part.size_bytes * part.calls for part in parts]
    typical_ns = sum(part.calls * part.median_ns for part in parts)
    return Work(
        calls=sum(part.calls for part in parts) if calls is None else calls,
        total_ns=sum(times_ns) if total_ns is None else total_ns,
        typical_ns=typical_ns if total_ns is None else total_ns,
        flops=sum_of_known(flops),
        size_bytes=sum_of_known(moved),
        flops_share=share_of_known(flops, times_ns),
        bytes_share=share_of_known(moved, times_ns),
        parts=tuple(parts),
    )


def part_of(piece: Piece, durations_ns: list[int]) -> Part:
    """Return the pieces of one operator that took so long; each is as much work as `piece`."""
    middle_ns = median(durations_ns)
    amounts = piece.flops, piece.size_bytes, piece.is_float32
    return Part(len(durations_ns), middle_ns, *amounts, piece.is_estimate)


def sum_of_known(amounts: Sequence[int | None]) -> int | None:
    """Return the sum without those that are not known, None if none is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def share_of_known(amounts: Sequence[int | None], times_ns: Sequence[int]) -> float:
    """Return the part of the time that goes to what has a known amount: 1 if all have, whatever
    they took."""
    known_ns = [ns for amount, ns in zip(amounts, times_ns, strict=True) if amount is not None]
    if len(known_ns) == len(amounts):
        return 1.0 if amounts else 0.0
    # Those not known may have taken no time at all, and are not known all the same.
    share = sum(known_ns) / sum(times_ns) if sum(times_ns) else 0.0
    return min(share, 0.9999)


def host_peak_of(profile: Profile) -> Peak | None:
    """Return the peak of where operators ran: that of a device has not been measured."""
    peak = profile.facts.peak
    if profile.on_device or peak is None:
        return None
    return peak if peak.flops_per_second > 0 and peak.bytes_per_second > 0 else None


def ridge_of(peak: Peak) -> float:
    """Return the intensity in flop/byte from which on computation binds."""
    return peak.flops_per_second / peak.bytes_per_second


def describe_measurement(peak: Peak) -> str:
    """Return how a peak was measured, as far as that is known: `best of 9 rounds, their median
    3.1% lower, last on 2026-11-22`."""
    parts = []
    if peak.rounds is not None:
        parts.append(f"best of {count_of(peak.rounds, 'round')}")
    if peak.spread is not None:
        parts.append(f"their median {100 * peak.spread:.1f}% lower")
    if peak.measured_at:
        parts.append(f"last on {peak.measured_at[:10]}")
    return ", ".join(parts)


def quotient(value: float, by: float) -> float | None:
    return value / by if by else None


def percent_of(value: float | None, whole: float | None) -> float | None:
    return None if value is None or whole is None else 100 * value / whole
