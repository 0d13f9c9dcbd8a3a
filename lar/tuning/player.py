"""Plays the rounds of a search: a few candidates compute in turns, each in a fresh process.

A round is plain data, so that another machine can play it. Each process gives a `RunResult`, as a
single run does. A process whose outputs differ from the plain run's has failed.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from lar import __version__
from lar.engines.listener import Listener
from lar.errors import LarError
from lar.measurement.differences import join_turns
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.rows import join_samples
from lar.measurement.summary import summarize
from lar.records.bench import OutputDifference, Turn
from lar.records.comparison import Tolerance
from lar.records.run import (
    Failure,
    MachineFacts,
    NumericError,
    RunContext,
    RunResult,
    RunSpec,
    Samples,
)
from lar.running.isolation import new_result
from lar.running.rounds import FIRST_CYCLE, Member, Rounds, compare_members, places_in_memory
from lar.running.steps import make_run

# A candidate gets no more turns if its first iterations take this many times as long as the
# baseline's. Such a slow candidate would use up the time of all others.
SLOWEST = 5.0
# A round that other work disturbs may last up to this many times as long as planned.
MOST_STRETCH = 1.5
HINT = "with --tolerance E, outputs with an error of at most E count as right"
OTHER_DATA = "it is not fed with the plain run's data; give both the same `--input`"

Show = Callable[[str], None]
"""Shows the user what the search is doing."""

Keep = Callable[[int, RunResult], None]
"""Keeps the result of an ended process; the number is the candidate's place in the round."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A candidate of a round, with the spec of its run.

    `seconds` is the known time of an iteration, 0 if unknown. If the inputs of the candidate's
    model and of the baseline's model have different names, `like_baseline` has items of `--input`
    that give the candidate the baseline's data.
    """

    spec: RunSpec
    seconds: float = 0.0
    like_baseline: tuple[str, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)


@dataclass(frozen=True, kw_only=True)
class RoundOrder:
    """A round to play, in which the baseline comes first.

    `seconds` is how long the round measures. A process that is not ready within `left_seconds` is
    ended.
    """

    number: int
    seconds: float
    left_seconds: float
    entrants: tuple[Entrant, ...]
    seed: int = 0
    names: dict[str, str] = field(default_factory=dict)


class Player(Protocol):
    """Plays rounds, on this machine or on other machines."""

    def play(self, order: RoundOrder, show: Show, keep: Keep) -> None:
        """Play a round, and keep the result of each process as soon as the process has ended."""

    def search(self, spec: RunSpec, listener: Listener) -> RunResult:
        """Let an engine search for algorithms, and fill the cache that the spec names."""


class LocalPlayer:
    """Plays rounds on this machine, and keeps temporary files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read = functools.cache(read_model_file)

    def search(self, spec: RunSpec, listener: Listener) -> RunResult:
        """Let an engine search for algorithms, and fill the cache that the spec names."""
        return make_run(spec, RunContext(), listener)

    def play(self, order: RoundOrder, show: Show, keep: Keep) -> None:
        """Play a round with as many of its candidates as fit into memory."""
        place = self.folder / f"round-{order.number}"
        place.mkdir()
        machine, began = read_machine(), time.monotonic()
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with contextlib.ExitStack() as stack:
            members = [self.member_of(each, order, stack) for each in enumerate(order.entrants)]
            members = members[: places_in_memory(members)]

            def keep_result(member: Member) -> None:
                entrant = order.entrants[member.number]
                result = result_of(member, members[0], entrant, machine)
                seconds = time.monotonic() - began
                keep(member.number, replace(result, started_at=started, wall_seconds=seconds))

            for member in members:
                if member.result is not None:
                    keep_result(member)
            rounds = Rounds(
                folder=str(place),
                began=began,
                deadline=began + order.left_seconds,
                ready_by=began + order.left_seconds,
                order=random.Random(order.seed + order.number),
                show=lambda: show("measuring"),
                least_seconds=order.seconds,
                most_seconds=MOST_STRETCH * order.seconds,
                least_cycles=1,
                slowest=SLOWEST,
                on_ended=keep_result,
            )
            rounds.play(order.number, members)

    def member_of(
        self, numbered: tuple[int, Entrant], order: RoundOrder, stack: contextlib.ExitStack
    ) -> Member:
        """Return a candidate as the member of a round."""
        number, entrant = numbered
        member = Member(number=number, spec=entrant.spec, seconds=entrant.seconds)
        try:
            member.prepare(order.names, self.read, stack)
        except LarError as error:
            member.result = replace(new_result(entrant.spec), failure=Failure.of(error))
        member.feed(entrant.like_baseline)
        return member


def result_of(
    member: Member, baseline: Member, entrant: Entrant, machine: MachineFacts
) -> RunResult:
    """Return the result of a candidate's process, with the samples of its turns."""
    assert member.result is not None
    made = replace(
        member.result,
        spec=entrant.spec,
        lar_version=__version__,
        machine=machine,
        model=member.context.model,
        samples=samples_of(member.turns),
    )
    made = replace(made, summary=summarize(made))
    if member is baseline or made.status != "ok":
        return made
    return judge_numbers(made, compare_members(member, baseline, entrant.tolerance))


def samples_of(turns: list[Turn]) -> Samples:
    """Return the samples of all turns of a process, grouped by copy of the model.

    The first turn only finds out the candidate's speed, and is left out if there are more turns.
    """
    turns = [turn for turn in turns if turn.cycle != FIRST_CYCLE] or turns
    if not turns:
        return Samples()
    copies = sorted({copy for turn in turns for copy in turn.samples.runner}) or [0]
    parts = [
        join_turns(replace(turn, samples=turn.samples.of_runner(copy)) for turn in turns)
        for copy in copies
    ]
    return join_samples(parts)


def judge_numbers(result: RunResult, found: OutputDifference | None) -> RunResult:
    """Return a process's result, with the error of its outputs relative to the plain run's outputs.

    The result becomes a failure if the outputs differ from the plain run's outputs, or cannot be
    compared with the plain run's outputs.
    """
    if found is None:
        if not result.outputs:
            return result
        return replace(result, status="failed", failure=wrong_numbers(OTHER_DATA))
    error = NumericError(output=found.output, absolute=None, relative=found.max_error)
    result = replace(result, numeric_errors=(error,))
    if found.agreement != "different":
        return result
    size = "NaN or infinities" if found.max_error is None else f"off by {found.max_error:.1e}"
    said = f"{found.output} {found.reason or size}".strip()
    return replace(result, status="failed", failure=wrong_numbers(said))


def wrong_numbers(said: str) -> Failure:
    return Failure(problem=f"its outputs are not the plain run's: {said}", hint=HINT)
