"""The roofline model of Williams, Waterman and Patterson (2009): compares work with the peak.

Work can be no faster than the lower of two roofs. One roof is the peak rate of operations. The
second roof is the rate of operations that main memory can supply with data: the peak of main memory
(byte/s) times the intensity of the work (flop/byte). The intensity (flop/byte) at which both roofs
are equal is the ridge. Memory is the limit of work with a lower intensity, and computation is the
limit of work with a higher intensity.

The peak rate of operations holds for float32. The peak for other types is unknown, so operations in
other types are not compared with a roof.

Work that moves no bytes, such as a view, a constant or a passed pointer, has no bandwidth.

A roof limits only work that is near the roof. Work far from both roofs has another limit: the
kernel does not fit the shapes or the layout, or the time is spent on waiting for threads, on
loading instructions or on the call itself.

Data in caches can be read faster than data in main memory, but lar compares every bandwidth with
main memory's peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from lar.errors import count_of
from lar.profiles.times import group_by, keep_with_profile
from lar.records.profile import Peak, Profile, ProfiledOperator, TensorFact

Bound = Literal["compute", "memory", "cache", "far"]

# Work that reaches this part of a roof is limited by the roof. Nsight Compute uses the same figure:
# below it, it reports latency as the cause.
NEAR_PERCENT = 60.0

# The shortest call whose rate can be trusted, since engines record whole microseconds.
SHORTEST_NS = 2000

# The largest believable parts of a peak: an algorithm with fewer operations, or the fastest cache,
# may exceed 100 %. A higher figure comes from a wrong time.
MOST_COMPUTE_PERCENT, MOST_MEMORY_PERCENT = 500.0, 1000.0

# Types of indices and sizes, which operators read beside the values of a computation.
INDEX_TYPES = frozenset({"bool", "int32", "int64"})


class Piece(NamedTuple):
    """The duration, operations and bytes of one execution; unknown figures are None.

    `operator` is an index in `Profile.operators`. If `is_float32` is false, the operations are in
    another type.
    """

    duration_ns: int
    flops: int | None
    size_bytes: int | None
    is_float32: bool = True
    operator: int | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations, bytes and their time, summed over the `calls` of one or more operators.

    `parts` has the work of each operator if there are several operators. `flops` and `size_bytes`
    are sums of the known amounts, or None if no amount is known. `flops_share` and `bytes_share`
    are the parts of the time for which the amount is known, from 0 to 1. If `flops_share` or
    `bytes_share` is below 1, figures computed from `flops` or `size_bytes` are lower bounds.
    `time_ns` excludes disturbances: for each operator, the median time is multiplied by the number
    of calls, and the products are added.
    """

    calls: int
    time_ns: float
    flops: int | None
    size_bytes: int | None
    is_float32: bool
    flops_share: float
    bytes_share: float
    parts: tuple[Work, ...] = ()

    @property
    def flops_per_second(self) -> float | None:
        return None if self.flops is None else quotient(self.flops * 1e9, self.time_ns)

    @property
    def bytes_per_second(self) -> float | None:
        """The bandwidth, or None if it is unknown or no bytes are moved."""
        return quotient(self.size_bytes * 1e9, self.time_ns) if self.size_bytes else None

    @property
    def intensity(self) -> float | None:
        """The operations per byte, or None if the bytes of some calls are unknown.

        The figure is a lower bound if the operations of some calls are unknown.
        """
        if self.flops is None or self.size_bytes is None or self.bytes_share < 1:
            return None
        return quotient(self.flops, self.size_bytes)

    def compute_percent(self, peak: Peak | None) -> float | None:
        """Return the rate of operations in percent of the float32 peak, or None for other types."""
        if peak is None or not self.is_float32:
            return None
        return self.percent(self.flops_per_second, peak.flops_per_second, MOST_COMPUTE_PERCENT)

    def memory_percent(self, peak: Peak | None) -> float | None:
        """Return the bandwidth in percent of main memory's peak, or None if it is unknown."""
        if peak is None:
            return None
        return self.percent(self.bytes_per_second, peak.bytes_per_second, MOST_MEMORY_PERCENT)

    def percent(self, rate: float | None, roof: float, most: float) -> float | None:
        """Return a rate in percent of a peak, or None if it is unknown or too high to be true.

        A rate is too high if the time of the calls is wrong, or too short for the engine's clock.
        """
        limit = 100 if self.time_ns < SHORTEST_NS * self.calls else most
        percent = None if rate is None else 100 * rate / roof
        return None if percent is None or percent > limit else percent

    def bounds(self, peak: Peak | None) -> dict[Bound | None, float]:
        """Return which part of the time each bound limits; the largest part comes first."""
        times: dict[Bound | None, float] = {}
        for part in self.parts or (self,):
            bound = part.bound(peak)
            times[bound] = times.get(bound, 0.0) + part.time_ns
        order = sorted(times, key=lambda it: -times[it])
        return {it: times[it] / self.time_ns if self.time_ns else 0.0 for it in order}

    def bound(self, peak: Peak | None) -> Bound | None:
        """Return the bound that limits the work of one operator.

        `compute` and `memory` mean that the work is near the roof of this name. `cache` means that
        the work moves more bytes than main memory can supply. `far` means that the work is far from
        both roofs. Return None if a roof or some amount is unknown, or if the time cannot be right.
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
        """Return the time that the work would save if it reached its roof, in nanoseconds.

        The saving is time x (1 - achieved / roof), with the roof at the work's intensity. The
        figure is a lower bound if some amounts are unknown, and None if all amounts are unknown.
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
    """Return the work of all pieces, which may be of several operators."""
    parts = tuple(map(part_of, group_by(pieces, lambda piece: piece[1:]).values()))
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


def part_of(pieces: Sequence[Piece]) -> Work:
    """Return the work of all calls of an operator; the calls differ only in their durations."""
    piece, calls = pieces[0], len(pieces)
    return Work(
        calls=calls,
        time_ns=calls * median(it.duration_ns for it in pieces),
        flops=None if piece.flops is None else calls * piece.flops,
        size_bytes=None if piece.size_bytes is None else calls * piece.size_bytes,
        is_float32=piece.is_float32 or not piece.flops,
        flops_share=float(piece.flops is not None),
        bytes_share=float(piece.size_bytes is not None),
    )


def sum_of_known(amounts: Sequence[int | None]) -> int | None:
    """Return the sum of the known amounts, or None if no amount is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def share_of_known(amounts: Sequence[tuple[int | None, float]]) -> float:
    """Return the part of the whole time for which amounts are known, from 0 to 1.

    The result is 1 only if all amounts are known.
    """
    known = [ns for amount, ns in amounts if amount is not None]
    if len(known) == len(amounts):
        return 1.0 if amounts else 0.0
    # Unknown amounts may have taken no time, but the share must still be below 1.
    whole_ns = sum(ns for _, ns in amounts)
    return min(sum(known) / whole_ns if whole_ns else 0.0, 0.9999)


def piece_of(profile: Profile, place: int, duration_ns: int) -> Piece:
    """Return the `Piece` of one execution of the operator with the index `place`."""
    return Piece(duration_ns, *amounts_of(profile)[place], place)


@keep_with_profile
def amounts_of(profile: Profile) -> Sequence[tuple[int | None, int | None, bool]]:
    """Return for each operator its operations, its bytes, and whether it computes in float32.

    An unknown number of operations or bytes is None.
    """
    return [(it.flops, it.size_bytes, computes_in_float32(it)) for it in profile.operators]


def computes_in_float32(operator: ProfiledOperator) -> bool:
    """Return whether the float32 peak is the roof for this operator.

    The result depends on the data types of the operator's inputs or, without inputs, of its
    outputs. Tensors with a single value are ignored, such as the scale and zero point of quantised
    tensors. Inputs that hold indices are ignored if the operator also has inputs of other types.
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
    """Return the peak of the CPU that ran the operators, or None for a device or if unknown."""
    peak = profile.facts.peak
    if profile.on_device or peak is None:
        return None
    return peak if peak.flops_per_second > 0 and peak.bytes_per_second > 0 else None


def ridge_of(peak: Peak) -> float:
    """Return the intensity in flop/byte above which computation is the limit."""
    return peak.flops_per_second / peak.bytes_per_second


def describe_measurement(peak: Peak) -> str:
    """Describe how a peak was measured, as far as it is recorded.

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
