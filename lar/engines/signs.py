"""What a profile shows that speaks for a choice of an engine's dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from lar.profiles.iteration import TypicalIteration
    from lar.records.profile import ProfiledOperator

Way = Literal["kernels", "threads", "handing over"]
"""What a choice makes faster: operators, by other kernels, or by more or fewer threads; or what
passes between operators. Choices of one way save the same time, those of two ways add up."""


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


def read_clues(clues: Iterable[Clue], iteration: TypicalIteration) -> Iterator[Sign]:
    """Yield the sign of each clue, with the part of the time that its operators take."""
    for clue in clues:
        share = iteration.share(clue.accepts)
        figure = f"{clue.what} take {share:.0%} of the operators' time"
        yield Sign(clue.choice, clue.way, clue.saves * share, figure)
