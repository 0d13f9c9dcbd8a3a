"""The roofline of Williams, Waterman and Patterson (2009): how near to the peak work comes.

Work of so many operations on so many bytes can go no faster than the lesser of the peak of
operations and what the peak of bytes feeds: min(peak flop/s, peak byte/s x flop/byte). The two
meet at the ridge: below its intensity memory binds, above it computation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lar.records.profile import Peak, Profile

Bound = Literal["compute", "memory"]


class Piece(NamedTuple):
    """A part of some work; unknown figures are None."""

    duration_ns: int
    flops: int | None
    size_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations, bytes and the time that both took, summed over `calls`.

    `flops` and `size_bytes` are of those pieces alone whose figures are known, None where no
    piece has them; the shares say of how much of the pieces' time that is. Below 1 each figure
    made of them is a lower bound.
    """

    calls: int
    total_ns: int
    flops: int | None = None
    size_bytes: int | None = None
    flops_share: float = 0.0
    bytes_share: float = 0.0

    @property
    def average_ns(self) -> float:
        return self.total_ns / self.calls

    @property
    def flops_per_second(self) -> float | None:
        return None if self.flops is None else quotient(self.flops * 1e9, self.total_ns)

    @property
    def bytes_per_second(self) -> float | None:
        return None if self.size_bytes is None else quotient(self.size_bytes * 1e9, self.total_ns)

    @property
    def intensity(self) -> float | None:
        """The operations for each byte, a lower bound if the operations of some pieces are not
        known; None if some bytes are not known, since it might then be less or more."""
        if self.flops is None or self.size_bytes is None or self.bytes_share < 1:
            return None
        return quotient(self.flops, self.size_bytes)

    def compute_percent(self, peak: Peak | None) -> float | None:
        return percent_of(self.flops_per_second, peak.flops_per_second if peak else None)

    def memory_percent(self, peak: Peak | None) -> float | None:
        return percent_of(self.bytes_per_second, peak.bytes_per_second if peak else None)

    def bound(self, peak: Peak | None) -> Bound | None:
        """Return what limits this work, computing or memory; None if its intensity or the peak is
        not known."""
        if peak is None or self.intensity is None:
            return None
        if self.intensity >= ridge_of(peak):
            return "compute"
        return "memory" if self.flops_share == 1 else None


def work_of(pieces: Iterable[Piece], calls: int | None = None, total_ns: int | None = None) -> Work:
    """Sum up pieces; `calls` and `total_ns` where they are not those of the pieces."""
    listed = list(pieces)
    known_flops = [piece for piece in listed if piece.flops is not None]
    known_bytes = [piece for piece in listed if piece.size_bytes is not None]
    return Work(
        calls=len(listed) if calls is None else calls,
        total_ns=sum(piece.duration_ns for piece in listed) if total_ns is None else total_ns,
        flops=sum(piece.flops or 0 for piece in known_flops) if known_flops else None,
        size_bytes=sum(piece.size_bytes or 0 for piece in known_bytes) if known_bytes else None,
        flops_share=share_of(known_flops, listed),
        bytes_share=share_of(known_bytes, listed),
    )


def share_of(known: list[Piece], pieces: list[Piece]) -> float:
    """Return the part of the pieces' time that some take: 1 for all of them, whatever they took."""
    if len(known) == len(pieces):
        return 1.0 if pieces else 0.0
    total_ns = sum(piece.duration_ns for piece in pieces)
    # Those not known may have taken no time at all, and are not known all the same.
    share = sum(piece.duration_ns for piece in known) / total_ns if total_ns else 0.0
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


def quotient(value: float, by: float) -> float | None:
    return value / by if by else None


def percent_of(value: float | None, whole: float | None) -> float | None:
    return None if value is None or whole is None else 100 * value / whole
