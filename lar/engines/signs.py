"""What a profile shows that speaks for a choice of an engine's dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from lar.records.profile import Profile, ProfiledOperator

# What a choice makes faster: operators, by other kernels, or by more or fewer threads; or what
# passes between operators. Choices of one way save the same time, those of two ways add up.
Way = Literal["kernels", "threads", "handing over"]


class Sign(NamedTuple):
    """What speaks for a choice, by its name in `Engine.dimensions`.

    `saves` is the part of the time that it is expected to save. It decides what is tried first
    and nothing else. `figure` is what the profile shows, for a person.
    """

    choice: str
    way: Way
    saves: float
    figure: str


class Clue(NamedTuple):
    """Operators whose time speaks for a choice: `saves` is the part of it that the choice has saved
    where it was measured, `what` is their name."""

    choice: str
    way: Way
    saves: float
    what: str
    accepts: Callable[[ProfiledOperator], bool]


def read_clues(clues: Iterable[Clue], profile: Profile) -> Iterator[Sign]:
    """Yield the sign of each clue, with the part of the time that its operators take."""
    for clue in clues:
        share = share_of(profile, clue.accepts)
        figure = f"{clue.what} take {share:.0%} of the operators' time"
        yield Sign(clue.choice, clue.way, clue.saves * share, figure)


def share_of(
    profile: Profile, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0
) -> float:
    """Return the part of the operators' time that some of them take, without those that take less
    than `least_ns` each."""
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(
        row.share
        for row in known_operators(profile)
        if (row.times.median_ns or 0) >= least_ns and accepts(profile.operators[row.operators[0]])
    )


def computing_ns_of(profile: Profile) -> float:
    """Return how long the operators of an iteration compute, all together."""
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(row.iteration_ns for row in known_operators(profile))
