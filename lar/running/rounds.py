"""Rounds of measuring: each starts a process for each member, and has them compute in turns; and
whether their outputs are the same."""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from lar.errors import LarError
from lar.measurement.differences import centre_of_turn, iterations_in_turn, kept_of
from lar.measurement.machine import read_memory
from lar.measurement.rows import samples_since
from lar.measurement.statistics import percentile_of
from lar.records.bench import Agreement, OutputDifference, Turn
from lar.records.comparison import Tolerance
from lar.records.run import (
    FedInput,
    ModelFile,
    OutputSummary,
    RunContext,
    RunResult,
    RunSpec,
    Samples,
    format_shape,
)
from lar.running.api import file_of, inputs_like
from lar.running.isolation import TurnWorker
from lar.running.steps import unpack_cases

SHORTEST_SECONDS = 1e-7

FIRST_CYCLE = -1  # of the iterations by which a member's speed is learned
# A member that seems too slow gets more looks within so many seconds: if threads of a process meet
# on one CPU, its first iterations may take milliseconds.
SECONDS_OF_LOOKS = 0.2
MOST_CYCLES = 100
WANTED_CALM = 8

# The rows that a process has room for, more than it makes in all its turns.
ROOM = 1 << 14
# Workers that are alive at once, where memory allows it.
MOST_ALIVE = 8
MEMORY_SHARE = 0.7
WORKER_BYTES = 200 << 20  # and three times the model file, until a result says more
DEFAULT_TOLERANCE = Tolerance()  # of the types
# The source of data that another model's inputs have in common with the baseline's.
AS_BASELINE = "generated as for the baseline"


class TurnTaker(TurnWorker):
    """A worker that is loaded and warmed up, and then computes only in its turns."""

    def __init__(self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext) -> None:
        super().__init__(stack, replace(spec, iterations=ROOM), context)

    @property
    def is_ready(self) -> bool:
        """Whether it is warmed up and waits for its turn, or has ended."""
        return self.ended or self.result.phase == "iterations"

    @property
    def is_loaded(self) -> bool:
        """Whether it warms up, or has done so, or has ended."""
        return self.is_ready or self.result.phase == "warmup"

    def take_turn(self, untimed: int, timed: int) -> Samples | None:
        """Have it make a turn, alone, and return the samples of the timed iterations; None if it
        has ended meanwhile."""
        firsts = [rows.count + untimed for rows in self.tables]
        self.take(untimed + timed)
        return None if self.ended else samples_since(self.tables, firsts)


def await_all(takers: Sequence[TurnTaker], ready_by: float = math.inf) -> None:
    """Wait until each is warmed up and waits for its turn, or has ended, or until a time on the
    monotonic clock.

    They load beside each other and warm up one after the other: threads that wait for each other
    at the end of each kernel take a hundred times as long where another process computes.
    """
    loading = takers
    while loading and time.monotonic() < ready_by:
        for taker in loading:
            taker.attend()
            if taker.is_loaded:
                taker.pause()
        loading = [taker for taker in loading if not taker.is_loaded]
    for taker in takers:
        if not taker.is_ready:
            taker.go_on()
            while not taker.is_ready and time.monotonic() < ready_by:
                taker.attend()
            taker.pause()


ReadModel = Callable[[Path], ModelFile]
"""Reads a model file, each once."""


@dataclass(eq=False)
class Member:
    """One of those that are measured, and what is known of it so far."""

    number: int
    spec: RunSpec | None  # None if it cannot be run
    context: RunContext = field(default_factory=RunContext)
    result: RunResult | None = None  # of its first process, or of the one that failed
    seconds: float = 0.0  # of an iteration that nothing disturbs
    turns: list[Turn] = field(default_factory=list)
    outputs: str = ""  # the folder of its outputs

    def prepare(
        self, names: Mapping[str, str], read: ReadModel, stack: contextlib.ExitStack
    ) -> None:
        """Read what its rounds have in common: the model, and testcases in it, which stay unpacked
        until the stack is closed.

        Raises:
            LarError: they cannot be read.
        """
        if self.spec is not None:
            context = RunContext(model=read(Path(self.spec.model)), names=dict(names))
            self.spec, self.context = stack.enter_context(unpack_cases(self.spec, context))

    def feed(self, inputs: Sequence[str]) -> None:
        """Feed it with files that have the baseline's data, if there are any."""
        if inputs and self.spec is not None:
            self.spec = replace(self.spec, inputs=tuple(inputs))
            files = {text.partition(":")[2]: AS_BASELINE for text in inputs}  # data:/tmp/0.npy
            self.context = replace(self.context, names={**self.context.names, **files})

    @property
    def failed(self) -> bool:
        """Whether it cannot be measured any more."""
        return self.spec is None or (self.result is not None and self.result.status != "ok")

    @property
    def shape(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What it is fed with: those of another shape are not compared."""
        return tuple((each.dtype, each.shape) for each in self.result.fed) if self.result else ()


@dataclass(kw_only=True)
class Rounds:
    """Plays rounds, each with fresh processes.

    A round measures about as long as its processes took to start, between `least_seconds` and
    `most_seconds`. Nothing new begins after the deadline.

    Attributes:
        folder: for the files of the processes.
        began, deadline, ready_by: times on the monotonic clock. A process that is not ready by then
            is ended, and all are if it is that of the first member.
        least_cycles: how many turns each member makes; but one whose first iterations take
            `slowest` times as long as those of the first member makes none.
        on_ended: is called with each member whose process in a round has ended, with the first one
            before others that have ended well.
        number: of the round that is played.
        takers: the processes that are alive, by their members.
    """

    folder: str
    began: float
    deadline: float
    order: random.Random
    show: Callable[[], None] = lambda: None
    least_seconds: float = 1.0
    most_seconds: float = 5.0
    least_cycles: int = 3
    slowest: float = math.inf
    ready_by: float = math.inf
    on_ended: Callable[[Member], None] = lambda member: None
    number: int = 0
    takers: dict[Member, TurnTaker] = field(default_factory=dict)

    def is_late(self) -> bool:
        """Return whether the time is spent."""
        return time.monotonic() >= self.deadline

    def play(self, number: int, members: Sequence[Member]) -> None:
        """Start a process for each member, have them compute in turns, and end them."""
        self.number = number
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            try:
                started = self.start(members, stack)
                able = self.leave_out_slow(members[0], started)
                self.play_turns(able, time.monotonic() - began)
            except KeyboardInterrupt:
                self.settle()
                for member, taker in self.takers.items():
                    member.result = member.result or replace(taker.result, status="interrupted")
                raise
            for member in started:
                if member in self.takers:
                    self.end(member)

    def start(self, members: Sequence[Member], stack: contextlib.ExitStack) -> list[Member]:
        """Start processes, and wait until they are ready; return their members, the first before
        others."""
        for member in self.order.sample(members, len(members)):
            if member.spec is None or member.failed:
                continue
            place = os.path.join(self.folder, f"{member.number}-{self.number}")
            os.mkdir(place)
            # Only its first process, or one that fails, comes to its end and writes outputs.
            member.outputs = os.path.join(self.folder, f"outputs-{member.number}")
            context = replace(member.context, work_folder=place, outputs_folder=member.outputs)
            context = replace(context, began=time.monotonic())
            self.takers[member] = TurnTaker(stack, member.spec, context)
        await_all([*self.takers.values()], self.ready_by)
        late = [member for member, taker in self.takers.items() if not taker.is_ready]
        for member in [*self.takers] if members[0] in late else late:
            self.takers.pop(member).worker.end()
        self.settle()
        return [member for member in members if member in self.takers]

    def settle(self) -> None:
        """End the members whose processes have ended by themselves."""
        for member, taker in [*self.takers.items()]:
            if taker.ended:
                self.end(member)

    def end(self, member: Member) -> None:
        """End the process of a member, and keep what became of it."""
        taker = self.takers.pop(member)
        if member.result is None or taker.ended:
            ended = taker.finish()
            # Its first process may have ended well, and this one not.
            known = replace(member.result or ended, phase=ended.phase, failure=ended.failure)
            member.result = replace(known, status=ended.status)
        else:
            taker.worker.end()
        self.on_ended(member)

    def leave_out_slow(self, first: Member, members: list[Member]) -> list[Member]:
        """Have members whose speed is not known make a few iterations; return all but those that
        are too slow: their fastest iterations are their turn."""
        new = [member for member in members if not member.seconds]
        looks = {it: turn for it in new if (turn := self.take(it, FIRST_CYCLE, 1, 2))}
        if first not in looks:
            return members
        limit = self.slowest * first.seconds
        for member in looks:
            last = time.monotonic() + SECONDS_OF_LOOKS - 2 * member.seconds
            while member.seconds > limit and time.monotonic() < last:
                seconds, turn = member.seconds, self.take(member, FIRST_CYCLE, 1, 2)
                if turn and member.seconds < seconds:
                    looks[member] = turn
        slow = {member for member in looks if member.seconds > limit}
        for member in {first, *slow} if slow else ():
            member.turns.append(looks[member])
        return [member for member in members if member not in slow]

    def take(self, member: Member, cycle: int, untimed: int, timed: int) -> Turn | None:
        """Have a worker make a turn, and learn from it how long an undisturbed iteration takes;
        return it, None if the worker has ended."""
        began = time.monotonic() - self.began
        samples = self.takers[member].take_turn(untimed, timed)
        if samples is None:
            return None
        found = max(percentile_of(sorted(samples.end_to_end), 25), SHORTEST_SECONDS)
        member.seconds = min(member.seconds or found, found)
        return Turn(round=self.number, cycle=cycle, began=began, samples=kept_of(samples))

    def play_turns(self, members: Sequence[Member], start_seconds: float) -> None:
        """Have workers compute one after the other, in an order that is drawn anew each time."""
        seconds = min(max(start_seconds, self.least_seconds), self.most_seconds)
        began, computed = time.monotonic(), 0.0
        for cycle in range(MOST_CYCLES):
            self.settle()
            able = [member for member in members if member in self.takers]
            if not able or len(able) < min(2, len(members)):
                return
            self.show()
            if cycle and self.is_late():
                return
            # By the engine's clock, too: that of a script runs faster than the wall's.
            spent = max(time.monotonic() - began, computed)
            # Where others compute, undisturbed turns are rare; new processes take longer.
            is_long = spent >= self.most_seconds
            is_enough = cycle >= self.least_cycles and spent >= seconds
            if is_enough and (is_long or self.has_calm_turns(members)):
                return
            # As many of each: the first iterations after a break are not like those after them.
            untimed, timed = iterations_in_turn(max(member.seconds for member in able))
            for member in self.order.sample(able, len(able)):
                if turn := self.take(member, cycle, untimed, timed):
                    member.turns.append(turn)
                    computed += sum(turn.samples.end_to_end) * (1 + untimed / timed)

    def has_calm_turns(self, members: Iterable[Member]) -> bool:
        """Return whether enough turns of the round had iterations that nothing disturbed."""
        for member in members:
            turns = [turn for turn in member.turns if turn.round == self.number]
            calm = sum(centre_of_turn(turn, is_calm=True) is not None for turn in turns)
            if calm < min(WANTED_CALM, len(turns)):
                return False
        return True


def inputs_as_for(base: RunSpec | None, spec: RunSpec, folder: Path) -> tuple[str, ...]:
    """Write files with the data that is generated for the baseline, if another model would get
    other data because its inputs have other names; return their items."""
    if base is None or base.model == spec.model:
        return ()
    is_generated = not any(each.inputs or each.cases for each in (base, spec))
    if is_generated and (base.fill, base.seed) == (spec.fill, spec.seed):
        with contextlib.suppress(LarError):  # it takes other inputs, or cannot be read
            return inputs_like(base, spec, folder)
    return ()


def compare_members(
    member: Member, base: Member, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> OutputDifference | None:
    """Compare the outputs of a member with the baseline's, by default with the tolerance of their
    types; None if they had other data, or one has no outputs.

    They are paired by their names, or by their places if the names differ. A folder holds them in
    their order, as `summarize_outputs` of the worker writes them; it is read only if the hashes
    differ.
    """
    if member.result is None or base.result is None:
        return None
    fed, its = member.result.fed, base.result.fed
    actual, expected = member.result.outputs, base.result.outputs
    is_alike = len(fed) == len(its) and all(map(is_same_data, fed, its))
    if not (is_alike and actual and expected):
        return None
    if len(actual) != len(expected):
        reason = f"{len(actual)} outputs instead of {len(expected)}"
        return OutputDifference(agreement="different", reason=reason)
    places = {each.name: place for place, each in enumerate(actual)}
    is_named = places.keys() == {each.name for each in expected}
    found = []
    for place, each in enumerate(expected):
        mine = places[each.name] if is_named else place
        files = file_of(member.outputs, mine), file_of(base.outputs, place)
        found.append(compare_pair(actual[mine], each, files, tolerance))
    return max(found, key=severity_of)


def severity_of(found: OutputDifference) -> tuple[int, float]:
    """Return the key that sorts the differences of outputs, the worst last."""
    error = math.inf if found.max_error is None else found.max_error
    return get_args(Agreement).index(found.agreement), error


def is_same_data(mine: FedInput, its: FedInput) -> bool:
    """Return whether two inputs hold the same: files may have integers of any width, which are
    generated for each width anew."""
    are_integers = "int" in mine.dtype and "int" in its.dtype and not mine.generated
    if mine.shape != its.shape or (mine.dtype != its.dtype and not are_integers):
        return False
    if mine.source == AS_BASELINE:
        return its.generated
    # What is generated depends on the input's name.
    return mine.source == its.source and (mine.name == its.name or not mine.generated)


def places_in_memory(members: Sequence[Member]) -> int:
    """Return how many workers of these members may be alive at once, two at least."""
    needs = []
    for member in members:
        held = member.result.peak_memory_bytes if member.result else None
        size = member.context.model.size_bytes if member.context.model else 0
        needs.append(held or WORKER_BYTES + 3 * size)
    available = read_memory("MemAvailable") or math.inf  # None if the system does not say
    return max(2, int(min(MOST_ALIVE, MEMORY_SHARE * available / max(needs, default=WORKER_BYTES))))


def compare_pair(
    actual: OutputSummary, expected: OutputSummary, files: tuple[Path, Path], tolerance: Tolerance
) -> OutputDifference:
    """Compare one output of two runs."""
    found = OutputDifference(agreement="different", output=expected.name)
    same = [(each.dtype, each.shape, each.sha256) for each in (actual, expected)]
    if same[0] == same[1] and expected.sha256:
        return replace(found, agreement="equal", max_error=0.0)
    reason = ""
    if actual.shape != expected.shape:
        reason = f"shape {format_shape(actual.shape)} instead of {format_shape(expected.shape)}"
    elif not all(file.is_file() for file in files):
        reason = f"{expected.dtype} is no array of numbers"
    elif "string" in (actual.dtype, expected.dtype):
        reason = "other texts"
    if reason:
        return replace(found, reason=reason)
    import numpy as np  # most variants give the same bits

    from lar.comparison.metrics import bounds_of, measure

    bounds = bounds_of(tolerance, actual.dtype, expected.dtype)
    figures = measure(np.load(files[0]), np.load(files[1]), bounds)
    agreement: Agreement = "different" if figures.mismatches else "within the tolerance"
    error = None if figures.nonfinite_mismatches else figures.max_error
    return replace(found, agreement=agreement, max_error=error)
