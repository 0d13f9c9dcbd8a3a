"""Plays searches for the fastest settings on machines that are computed, and prints what they find.

    python tools/simulate_search.py --machines 200

A machine has true times for all combinations of its choices; the search sees processes that differ
from them by 1 %. Some choices help, hurt or do nothing, some depend on each other, some crash,
hang, are refused or give wrong numbers.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lar.records.bench import OutputDifference, Turn
from lar.records.choices import Choice, Dimension
from lar.records.run import Failure, Samples
from lar.records.tuning import BASELINE, Candidate, ModelSpace, Trial, TrialRow, TuneRequest
from lar.tuning.ranking import rank_candidates
from lar.tuning.search import Ended, Step, next_step

NOISE = 0.01  # of processes
DISTURBED = 0.0  # the part of processes that something else slows down
DISTURBANCE = 0.2  # the mean of the logarithms by how much
CYCLE_NOISE = 0.02  # of turns
CYCLES = 3
START_SECONDS = 0.4  # of a process
ITERATIONS = 3  # of a process in a cycle, and before the first one
SEARCH_SECONDS = 50.0
HANG_SECONDS = 5.0

Keys = frozenset[tuple[int, str]]


@dataclass
class Machine:
    """The truth of a space: what each candidate takes, and which do not work.

    `effects` are logarithms: of a choice, or of two together. `failures` has choices, or two
    together, with what becomes of candidates that have them; `forbidden` those that the rules
    refuse.
    """

    spaces: tuple[ModelSpace, ...]
    seconds: float = 0.01
    effects: dict[Keys, float] = field(default_factory=dict)
    own_deviation: float = 0.0
    failures: dict[Keys, str] = field(default_factory=dict)
    forbidden: set[Keys] = field(default_factory=set)
    seed: int = 0

    def truth(self, candidate: Candidate) -> float:
        """Return the logarithm of its time over that of the plain run of the first model."""
        keys = keys_of(candidate)
        found = math.fsum(it for each, it in self.effects.items() if each <= keys)
        if candidate.choices:
            found += random.Random(f"{self.seed} {candidate}").gauss(0, self.own_deviation)
        return found

    def fate(self, candidate: Candidate) -> str:
        """Return what becomes of it."""
        keys = keys_of(candidate)
        return next((fate for each, fate in self.failures.items() if each <= keys), "ok")

    def is_valid(self, candidate: Candidate) -> bool:
        """Return whether the rules allow it."""
        keys = keys_of(candidate)
        return not any(each <= keys for each in self.forbidden)

    def candidates(self) -> Iterator[Candidate]:
        """Yield all that are allowed."""
        for model, space in enumerate(self.spaces):
            names = [("", *(it.name for it in each.choices)) for each in space.dimensions]
            for chosen in itertools.product(*names):
                candidate = Candidate(model=model, choices=tuple(filter(None, chosen)))
                if self.is_valid(candidate):
                    yield candidate

    @cached_property
    def best(self) -> float:
        """The time of the fastest that works, as a logarithm."""
        return min(self.truth(each) for each in self.candidates() if self.fate(each) == "ok")

    @cached_property
    def exhaustive_seconds(self) -> float:
        """The time that it takes to measure each candidate in five processes."""
        return 5 * math.fsum(
            START_SECONDS + (CYCLES + 1) * ITERATIONS * self.seconds * math.exp(self.truth(each))
            for each in self.candidates()
            if self.fate(each) == "ok"
        )

    def play(self, step: Step, number: int, began: float) -> Trial:
        """Measure what a step asks for."""
        draw = random.Random(f"{self.seed} {number}")
        rows, seconds = [], 0.0
        if step.kind == "search":
            (candidate,) = step.candidates
            is_done = step.seconds >= SEARCH_SECONDS
            rows.append(TrialRow(candidate=candidate, status="ok" if is_done else "timed_out"))
            seconds = min(SEARCH_SECONDS, step.seconds)
        else:
            states = [draw.gauss(0, CYCLE_NOISE) for _ in range(CYCLES)]
            for candidate in step.candidates:
                row, own = self.measure(candidate, number, states, draw)
                rows.append(row)
                seconds += own
        return Trial(number=number, kind=step.kind, rows=tuple(rows), began=began, seconds=seconds)

    def measure(
        self, candidate: Candidate, number: int, states: Sequence[float], draw: random.Random
    ) -> tuple[TrialRow, float]:
        """Return a candidate's row, and how long it takes. All have the state of the machine in a
        cycle in common."""
        fate = self.fate(candidate)
        if fate == "crashed":
            row = TrialRow(candidate=candidate, status="crashed", failure=Failure(problem=fate))
            return row, START_SECONDS
        if fate == "timed_out":
            row = TrialRow(candidate=candidate, status="timed_out", failure=Failure(problem=fate))
            return row, HANG_SECONDS
        process = self.truth(candidate) + draw.gauss(0, NOISE)
        if draw.random() < DISTURBED:
            process += draw.expovariate(1 / DISTURBANCE)
        times = [
            self.seconds * math.exp(process + state + draw.gauss(0, CYCLE_NOISE))
            for state in states
        ]
        turns = tuple(
            Turn(round=number, cycle=cycle, began=0.0, samples=Samples(end_to_end=(seconds,)))
            for cycle, seconds in enumerate(times)
        )
        known = OutputDifference(agreement="different" if fate == "wrong" else "equal")
        row = TrialRow(
            candidate=candidate,
            turns=turns,
            output_difference=None if candidate == BASELINE else known,
        )
        return row, START_SECONDS + ITERATIONS * (1 + 1 / CYCLES) * math.fsum(times)


def keys_of(candidate: Candidate) -> Keys:
    """Return its choices, and its model."""
    return frozenset((candidate.model, name) for name in ("", *candidate.choices))


@dataclass
class Session:
    """A search that was played to its end."""

    request: TuneRequest
    trials: list[Trial]
    ending: str
    seconds: float

    @cached_property
    def winner(self) -> Candidate:
        """Who won."""
        return rank_candidates(self.request, self.trials)[0].candidate


def play_session(
    machine: Machine,
    budget_seconds: float,
    on_step: Callable[[Sequence[Trial], float, Step | Ended], None] = lambda *_: None,
    *,
    extent: str = "quick",
) -> Session:
    """Play a search on a machine until it ends."""
    request = TuneRequest(spaces=machine.spaces, budget_seconds=budget_seconds, extent=extent)
    trials: list[Trial] = []
    seconds = 0.0
    while True:
        found = next_step(request, trials, machine.is_valid, budget_seconds - seconds)
        on_step(trials, budget_seconds - seconds, found)
        if isinstance(found, Ended):
            return Session(request, trials, found.ending, seconds)
        trials.append(machine.play(found, len(trials) + 1, seconds))
        seconds += trials[-1].seconds


def draw_machine(
    seed: int,
    *,
    models: int = 1,
    with_search: bool = False,
    dimensions: tuple[int, int] = (5, 7),
    helpful: bool = True,
) -> Machine:
    """Draw a machine with choices that help, hurt, do nothing, depend on each other or fail.

    Without `helpful` ones nothing is faster than the plain run.
    """
    draw = random.Random(seed)
    spaces = []
    effects: dict[Keys, float] = {}
    failures: dict[Keys, str] = {}
    forbidden: set[Keys] = set()
    for model in range(models):
        drawn = draw_dimensions(draw, draw.randint(*dimensions), with_search=with_search)
        spaces.append(ModelSpace(model=f"m{model}", engine=f"e{model}", dimensions=drawn))
        names = [(model, choice.name) for each in drawn for choice in each.choices]
        for name in names:
            effect = draw_effect(draw)
            effects[frozenset((name,))] = effect if helpful else abs(effect)
            if draw.random() < 0.12:
                failures[frozenset((name,))] = draw.choice(["crashed", "timed_out", "wrong"])
        for one, other in itertools.combinations(names, 2):
            both, kind = frozenset((one, other)), draw.random()
            if kind < 0.25:
                effect = draw.gauss(0, 0.12)
                effects[both] = effect if helpful else abs(effect)
            elif kind < 0.29:
                failures[both] = draw.choice(["crashed", "wrong"])
            elif kind < 0.32:
                forbidden.add(both)
        if model:
            effects[frozenset(((model, ""),))] = draw.gauss(0, 0.7) if helpful else 0.02
    own_deviation = 0.01 if helpful else 0.0
    seconds = draw.choice([1e-4, 1e-3, 0.01, 0.1])
    return Machine(tuple(spaces), seconds, effects, own_deviation, failures, forbidden, seed)


def draw_dimensions(draw: random.Random, count: int, *, with_search: bool) -> tuple[Dimension, ...]:
    """Draw dimensions with their choices; the last needs a search that depends on the first."""
    dimensions = [
        Dimension(
            name=f"d{number}",
            choices=tuple(Choice(name=f"{number}{it}") for it in "abcd"[: draw.randint(1, 4)]),
        )
        for number in range(count)
    ]
    if with_search:
        searched = Choice(
            name="fast-run",
            search={"fast_run": True},
            cache="fast_run_cache",
            cache_depends=(dimensions[0].name,),
        )
        dimensions.append(Dimension(name="algorithms", choices=(searched,)))
    return tuple(dimensions)


def draw_effect(draw: random.Random) -> float:
    """Draw what a choice does: a third helps, a third hurts, a third does hardly anything."""
    return draw.choice([-abs(draw.gauss(0, 0.35)), abs(draw.gauss(0, 0.4)), draw.gauss(0, 0.01)])


def main() -> None:
    """Print how far the winners are from the best, and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first machine's number")
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--searches", action="store_true", help="a choice needs a search of 50 s")
    parser.add_argument("--hopeless", action="store_true", help="nothing beats the plain run")
    parser.add_argument("--part", type=float, default=0.25, help="of the exhaustive time")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    near = slower = 0
    losses, parts = [], []
    began = time.process_time()
    for seed in range(options.first, options.first + options.machines):
        machine = draw_machine(
            seed,
            models=options.models,
            with_search=options.searches,
            helpful=not options.hopeless,
        )
        session = play_session(machine, options.part * machine.exhaustive_seconds)
        truth = machine.truth(session.winner)
        losses.append(math.expm1(truth - machine.best))
        parts.append(session.seconds / machine.exhaustive_seconds)
        near += losses[-1] <= 0.05
        slower += truth > 0
        if options.verbose:
            kinds = "".join(trial.kind[1] for trial in session.trials)
            print(
                f"{seed:4} {session.ending:8} {parts[-1]:.3f} of"
                f" {machine.exhaustive_seconds:6.0f} s, gain {math.exp(-truth):.2f} of"
                f" {math.exp(-machine.best):.2f} {'far' if losses[-1] > 0.05 else '   '} {kinds}"
            )
    print(f"{near} of {options.machines} winners are within 5 % of the best candidate")
    print(f"{slower} are slower than the plain run")
    print(f"on average {100 * sum(losses) / len(losses):.1f} % slower than the best candidate")
    print(f"after {100 * sum(parts) / len(parts):.1f} % of the exhaustive time")
    print(f"{(time.process_time() - began) / options.machines:.3f} s of CPU time each")


if __name__ == "__main__":
    main()
