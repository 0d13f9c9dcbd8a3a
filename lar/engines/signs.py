"""Signs in a profile, which lead lar to choices of settings.

A sign is a fact in a profile which suggests that a certain choice of settings saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from lar.profiles.rows import known_operators
from lar.records.profile import Profile, ProfiledOperator

# How a choice saves time: by other kernels, by more or fewer threads, or between operators.
# Choices of one way save the same time; the savings of two ways add up.
Way = Literal["kernels", "threads", "handing over"]


class Sign(NamedTuple):
    """A fact in a profile which suggests that a choice of settings saves time.

    `choice` is the name of the choice in `Engine.dimensions`. `saves` is the expected saving of
    time, divided by the time of an iteration. The saving only decides which choice is tried first.
    `figure` is the fact in words, for a person.
    """

    choice: str
    way: Way
    saves: float
    figure: str


class Clue(NamedTuple):
    """A group of operators for which a choice of settings saves time.

    `saves` is the measured saving of time, divided by the time of the group's operators. `what`
    names the operators in words, and `accepts` returns whether an operator belongs to the group.
    """

    choice: str
    way: Way
    saves: float
    what: str
    accepts: Callable[[ProfiledOperator], bool]


def read_clues(clues: Iterable[Clue], profile: Profile) -> Iterator[Sign]:
    """Yield a sign for each clue: how much time the clue's choice of settings would save.

    The saving is computed from the time that the clue's operators take in a profile.
    """
    for clue in clues:
        share = share_of(profile, clue.accepts)
        figure = f"{clue.what} take {share:.0%} of the operators' time"
        yield Sign(clue.choice, clue.way, clue.saves * share, figure)


def share_of(
    profile: Profile, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0
) -> float:
    """Return the share that the accepted operators have in the time of all operators.

    Accepted operators with a median time below `least_ns` are left out.
    """
    return sum(
        row.share
        for row in known_operators(profile)
        if (row.times.median_ns or 0) >= least_ns and accepts(profile.operators[row.operators[0]])
    )


def computing_ns_of(profile: Profile) -> float:
    """Return the sum of the computing times of all operators in an iteration."""
    return sum(row.iteration_ns for row in known_operators(profile))
