"""The record of algorithms that were timed again: what was tried and what is faster."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from lar.records.bench import OutputDifference
from lar.records.facts import EngineFacts, MachineFacts, ModelFile
from lar.records.run import Failure, record_to_json
from lar.records.summary import Difference

# History of the format (`AlgorithmsResult.format`):
#   lar.algorithms/1  first version
ALGORITHMS_FORMAT = "lar.algorithms/1"

AlgorithmsEnding = Literal["settled", "budget", "interrupted", "failed"]
"""Why timing ended: every algorithm is shown to be faster or slower or makes no difference that
matters, the time is spent, the user ended it, or the model does not run with the cache."""


@dataclass(frozen=True, kw_only=True)
class TriedAlgorithm:
    """An algorithm that was timed beside the one that the cache chooses.

    Attributes:
        search_seconds: its time in the search, the median if there were several.
        seconds: the median of its times in this model, None where it was not timed.
        difference: of its times against those of the choice; None with fewer than two processes.
        verdict: what was found: faster, slower, much slower, not faster, no difference shown, too
            few processes, not timed, or out.
        failure: why it is out: it crashes, hangs or gives wrong numbers, or the engine does not
            take it.
        processes: in which it was timed.
    """

    name: str
    search_seconds: float
    seconds: float | None = None
    difference: Difference | None = None
    verdict: str = ""
    failure: Failure | None = None
    processes: int = 0


@dataclass(frozen=True, kw_only=True)
class TimedOperator:
    """An operator whose algorithms were timed again.

    Attributes:
        share: its part of the time of all operators, with the old choice, 0.2 for 20 %.
        before: the algorithm that the cache has chosen, and `after` that of the better cache.
        seconds: the median time of the old choice in one iteration, of all places where it runs.
    """

    name: str
    shapes: str
    share: float
    before: str
    after: str
    search_seconds: float
    seconds: float | None = None
    tried: tuple[TriedAlgorithm, ...] = ()

    @property
    def difference(self) -> Difference | None:
        """The difference of the new choice against the old one; None where it stays."""
        return next((each.difference for each in self.tried if each.name == self.after), None)

    @property
    def gain(self) -> float:
        """The part of the time of all operators that the new choice saves, as it was timed."""
        return self.share * (1 - self.difference.ratio) if self.difference else 0.0


@dataclass(frozen=True, kw_only=True)
class AlgorithmsResult:
    """What timing the algorithms of caches again has found.

    Attributes:
        caches: the files that it began with.
        output: the file of the better cache; `written` says whether it was written, and `reason`
            why not. What was `searched` meanwhile is in it in any case, with the old choices.
        operators: those that matter, the one with the largest share first.
        left_out: the operators of the cache that make too little of the time, do not run in this
            model or have no other algorithm.
        whole: the difference of the whole model with the new choices against that with the old
            ones, in turns; None where it was not measured.
        output_difference: of the outputs with the new choices against those of the run without a
            cache.
        output_exists: whether there is such a file, written now or before.
        rounds: how often processes were started anew.
    """

    model: ModelFile | None
    caches: tuple[str, ...]
    output: str
    ending: AlgorithmsEnding
    operators: tuple[TimedOperator, ...] = ()
    left_out: int = 0
    whole: Difference | None = None
    seconds_before: float | None = None
    seconds_after: float | None = None
    output_difference: OutputDifference | None = None
    written: bool = False
    output_exists: bool = True
    searched: bool = False
    reason: str = ""
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    engine: EngineFacts | None = None
    machine: MachineFacts | None = None
    options: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    budget_seconds: float = 0.0
    wall_seconds: float = 0.0
    started_at: str = ""
    lar_version: str = ""
    format: str = ALGORITHMS_FORMAT

    @property
    def changed(self) -> tuple[TimedOperator, ...]:
        """The operators with another choice."""
        return tuple(each for each in self.operators if each.after != each.before)

    @property
    def gain(self) -> float:
        """The part of the time of all operators that the new choices save, as they were timed."""
        return math.fsum(each.gain for each in self.changed)

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """The least and the largest gain of all new choices, where each is in its interval; None
        where one has none."""
        low = high = 0.0
        for each in self.changed:
            interval = each.difference.interval if each.difference else None
            if interval is None:
                return None
            low += each.share * (1 - interval.high)
            high += each.share * (1 - interval.low)
        return low, high

    def to_json(self) -> str:
        """Encode it as JSON."""
        return record_to_json(self).decode()
