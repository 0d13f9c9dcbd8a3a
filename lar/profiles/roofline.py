"""The roofline of Williams, Waterman and Patterson (2009): how near to the peak work comes.

Work cannot go faster than the lesser of two roofs: the peak of operations, and what the peak of
bytes feeds: min(peak flop/s, peak byte/s x flop/byte). The two meet at the ridge. Memory is the
limit below the ridge's intensity, computation above.

Three rules keep it honest:

- The peak of operations is that of float32. The roof of other types is not known, so work in them
  is not compared with any.
- Work that moves nothing, such as a view, a constant or a passed pointer, has no bandwidth.
- A roof limits work only near it. Far from both roofs, the kernel does not fit its shapes or its
  layout, or it waits: for threads, for instructions, for the call itself.

Data in caches may be read faster than main memory, but is compared with main memory's peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from lar.errors import count_of
from lar.profiles.times import keep_with_profile
from lar.records.profile import Peak, Profile, ProfiledOperator, TensorFact

Bound = Literal["compute", "memory", "cache", "far"]

# From this part of a roof on, the roof is the limit. Nsight Compute speaks of latency below the
# same figure.
NEAR_PERCENT = 60.0

# Engines record whole microseconds: the rate of a shorter call may be anything.
SHORTEST_NS = 2000

# Neither an algorithm with fewer operations nor the fastest cache explains more of a peak than
# this: a higher figure comes from a time that is too short.
MOST_COMPUTE_PERCENT, MOST_MEMORY_PERCENT = 500.0, 1000.0

# Types that are used for indices and sizes beside the values of a computation.
INDEX_TYPES = frozenset({"bool", "int32", "int64"})


class Piece(NamedTuple):
    """A part of some work; unknown figures are None.

    `operator` counts in `Profile.operators`. Without `is_float32`, the operations are of another
    type.
    """

    duration_ns: int
    flops: int | None
    size_bytes: int | None
    is_float32: bool = True
    operator: int | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations, bytes and their time, summed over the `calls` of one or more operators.

    `parts` has the work of each operator if there are several. `flops` and `size_bytes` only count
    what is known, None if nothing is. The shares say for how much of the time they are known; below
    1, each figure made of them is a lower bound. `time_ns` is without disturbances: the median of
    each operator times its calls.
    """

    calls: int
    time_ns: float
    flops: int | None = None
    size_bytes: int | None = None
    is_float32: bool = True
    flops_share: float = 0.0
    bytes_share: float = 0.0
    parts: tuple[Work, ...] = ()

    @property
    def flops_per_second(self) -> float | None:
        return None if self.flops is None else quotient(self.flops * 1e9, self.time_ns)

    @property
    def bytes_per_second(self) -> float | None:
        """The bandwidth, None if it is unknown or if nothing is moved."""
        return quotient(self.size_bytes * 1e9, self.time_ns) if self.size_bytes else None

    @property
    def intensity(self) -> float | None:
        """The operations for each byte, None if the bytes are not all known.

        It is a lower bound if some operations are not known.
        """
        if self.flops is None or self.size_bytes is None or self.bytes_share < 1:
            return None
        return quotient(self.flops, self.size_bytes)

    def compute_percent(self, peak: Peak | None) -> float | None:
        """Return the rate of operations in percent of the float32 peak, None for other types."""
        if peak is None or not self.is_float32:
            return None
        return self.percent(self.flops_per_second, peak.flops_per_second, MOST_COMPUTE_PERCENT)

    def memory_percent(self, peak: Peak | None) -> float | None:
        """Return the bandwidth in percent of main memory's peak, None if it is unknown."""
        if peak is None:
            return None
        return self.percent(self.bytes_per_second, peak.bytes_per_second, MOST_MEMORY_PERCENT)

    def percent(self, rate: float | None, roof: float, most: float) -> float | None:
        """Return a rate in percent of a peak, None if it is too high to be true.

        Then the time of the calls is wrong, or they are too short for the engine's clock.
        """
        limit = 100 if self.time_ns < SHORTEST_NS * self.calls else most
        percent = None if rate is None else 100 * rate / roof
        return None if percent is None or percent > limit else percent

    def bounds(self, peak: Peak | None) -> dict[Bound | None, float]:
        """Return the part of the time that each bound limits, the largest first."""
        times: dict[Bound | None, float] = {}
        for part in self.parts or (self,):
            bound = part.bound(peak)
            times[bound] = times.get(bound, 0.0) + part.time_ns
        order = sorted(times, key=lambda it: -times[it])
        return {it: times[it] / self.time_ns if self.time_ns else 0.0 for it in order}

    def bound(self, peak: Peak | None) -> Bound | None:
        """Return what limits the work of one operator.

        `compute` and `memory` are near that roof, `cache` moves more than main memory can, and
        `far` is far from both. It is None if a roof or some of the work is not known, or if the
        time cannot be right.
        """
        computing, moving = self.compute_percent(peak), self.memory_percent(peak)
        is_wrong = (self.is_float32 and self.flops and computing is None) or (
            self.size_bytes and moving is None
        )
        if peak is None or is_wrong:
            return None
        if computing is not None and computing >= max(NEAR_PERCENT, min(moving or 0, 100)):
            return "compute"
        if moving is not None and moving >= NEAR_PERCENT:
            return "memory" if moving <= 100 else "cache"
        is_known = self.is_float32 and self.flops is not None and self.size_bytes is not None
        return "far" if is_known and (self.flops or self.size_bytes) else None

    def saving_ns(self, peak: Peak | None) -> float | None:
        """Return the time that work would save at its roof, in nanoseconds.

        That is time x (1 - achieved / roof), with the roof of its intensity. It is a lower bound if
        some of the work is not known, None if no part is known.
        """
        if self.parts:
            known = [ns for it in self.parts if (ns := it.saving_ns(peak)) is not None]
            return sum(known) if known else None
        if peak is None or self.flops is None or self.size_bytes is None:
            return None
        if not (self.flops or self.size_bytes) or (self.flops and not self.is_float32):
            return None
        computing = self.flops / peak.flops_per_second
        return max(
            0.0, self.time_ns - 1e9 * max(computing, self.size_bytes / peak.bytes_per_second)
        )


def work_of(pieces: Iterable[Piece]) -> Work:
    """Sum up pieces of one operator or of several."""
    durations: dict[tuple[int | None, int | None, bool, int | None], list[int]] = {}
    for piece in pieces:
        durations.setdefault(piece[1:], []).append(piece.duration_ns)
    parts = tuple(part_of(Piece(0, *alike), own) for alike, own in durations.items())
    if len(parts) == 1:
        return parts[0]
    return Work(
        calls=sum(part.calls for part in parts),
        time_ns=sum(part.time_ns for part in parts),
        flops=sum_of_known([part.flops for part in parts]),
        size_bytes=sum_of_known([part.size_bytes for part in parts]),
        is_float32=all(part.is_float32 for part in parts if part.flops),
        flops_share=share_of_known([(part.flops, part.time_ns) for part in parts]),
        bytes_share=share_of_known([(part.size_bytes, part.time_ns) for part in parts]),
        parts=parts,
    )


def part_of(piece: Piece, durations_ns: Sequence[int]) -> Work:
    """Return the work of an operator's calls with these durations, each as much as `piece`."""
    calls = len(durations_ns)
    return Work(
        calls=calls,
        time_ns=calls * median(durations_ns),
        flops=None if piece.flops is None else calls * piece.flops,
        size_bytes=None if piece.size_bytes is None else calls * piece.size_bytes,
        is_float32=piece.is_float32 or not piece.flops,
        flops_share=float(piece.flops is not None),
        bytes_share=float(piece.size_bytes is not None),
    )


def sum_of_known(amounts: Sequence[int | None]) -> int | None:
    """Return the sum of the known amounts, None if no amount is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def share_of_known(amounts: Sequence[tuple[int | None, float]]) -> float:
    """Return the part of the time whose amounts are known; exactly 1 only if all are."""
    known = [ns for amount, ns in amounts if amount is not None]
    if len(known) == len(amounts):
        return 1.0 if amounts else 0.0
    # Parts with unknown amounts may have taken no time, and must still show.
    whole_ns = sum(ns for _, ns in amounts)
    return min(sum(known) / whole_ns if whole_ns else 0.0, 0.9999)


def piece_of(profile: Profile, place: int, duration_ns: int) -> Piece:
    """Return the work of one execution that takes `duration_ns`, of the operator at `place`."""
    return Piece(duration_ns, *amounts_of(profile)[place], place)


@keep_with_profile
def amounts_of(profile: Profile) -> Sequence[tuple[int | None, int | None, bool]]:
    """Return for each operator its operations, its bytes, and whether it computes in float32.

    What is not known is None.
    """
    return [(it.flops, it.size_bytes, computes_in_float32(it)) for it in profile.operators]


def computes_in_float32(operator: ProfiledOperator) -> bool:
    """Return whether the float32 peak is the roof for this operator.

    The types of its inputs decide; without inputs, those of its outputs. Single values, such as the
    scale and zero point of quantised tensors, do not count, and neither do indices beside other
    types.
    """
    facts = operator.inputs or operator.outputs
    every = {fact.dtype for fact in facts}
    if every == {"float32"}:
        return True
    types = {fact.dtype for fact in facts if not is_single(fact)} or every
    return (types - INDEX_TYPES or types) <= {"float32", ""}


def is_single(fact: TensorFact) -> bool:
    return all(axis == 1 for axis in fact.shape)


def host_peak_of(profile: Profile) -> Peak | None:
    """Return the peak of the processor that ran the operators, None for a device (not measured)."""
    peak = profile.facts.peak
    if profile.on_device or peak is None:
        return None
    return peak if peak.flops_per_second > 0 and peak.bytes_per_second > 0 else None


def ridge_of(peak: Peak) -> float:
    """Return the intensity in flop/byte from which on computation is the limit."""
    return peak.flops_per_second / peak.bytes_per_second


def describe_measurement(peak: Peak) -> str:
    """Return how a peak was measured, as far as known.

    An example is `best of 9 rounds, their median 3.1% lower, last on 2026-11-22`.
    """
    parts = (
        f"best of {count_of(peak.rounds, 'round')}" if peak.rounds is not None else "",
        f"their median {100 * peak.spread:.1f}% lower" if peak.spread is not None else "",
        f"last on {peak.measured_at[:10]}" if peak.measured_at else "",
    )
    return ", ".join(filter(None, parts))


def quotient(value: float, by: float) -> float | None:
    return value / by if by else None
