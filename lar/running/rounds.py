"""Executes rounds of measuring, and compares the outputs of the measured programs (members).

Each round starts a process for each member. The processes compute in turns.
"""

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

from lar.errors import LarError, count_of
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

FIRST_CYCLE = -1  # the cycle number of the first turn, which finds out a member's speed
# A member that seems too slow gets more first turns within this time: if threads of a process share
# one CPU, its first iterations may take milliseconds.
SECONDS_OF_LOOKS = 0.2
MOST_CYCLES = 100
WANTED_CALM = 8

# The number of iterations that a process has room for: more than all its turns make.
ROOM = 1 << 14
# The most workers that are alive at once, if memory allows it.
MOST_ALIVE = 8
MEMORY_SHARE = 0.7
WORKER_BYTES = 200 << 20  # assumed memory, besides three times the model file, until it is measured
DEFAULT_TOLERANCE = Tolerance()  # the default tolerance of each type
# The source that is reported for inputs of another model that get the baseline's data.
AS_BASELINE = "generated as for the baseline"


class TurnTaker(TurnWorker):
    """A worker that is loaded and warmed up, and then computes only in its turns."""

    def __init__(self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext) -> None:
        super().__init__(stack, replace(spec, iterations=ROOM), context)

    @property
    def is_ready(self) -> bool:
        """Whether the worker is warmed up and waits for its turn, or has ended."""
        return self.ended or self.result.phase == "iterations"

    @property
    def is_loaded(self) -> bool:
        """Whether the worker has begun its warm-up, after loading the model, or has ended."""
        return self.is_ready or self.result.phase == "warmup"

    def take_turn(self, untimed: int, timed: int) -> Samples | None:
        """Let the worker compute for one turn, and return the samples of the timed iterations.

        Return None if the worker has ended meanwhile.
        """
        firsts = [rows.count + untimed for rows in self.tables]
        self.take(untimed + timed)
        return None if self.ended else samples_since(self.tables, firsts)


def await_all(takers: Sequence[TurnTaker], ready_by: float = math.inf) -> None:
    """Wait until each worker is warmed up or has ended, or until the time `ready_by` is reached.

    `ready_by` is a time on the monotonic clock. The workers load at the same time, but warm up one
    after the other. If two processes compute at the same time, threads that wait for each other at
    the end of each kernel take a hundred times as long.
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
"""Reads the facts about a model file; each file is read once."""


@dataclass(eq=False)
class Member:
    """A variant or candidate that is measured in rounds, with its results so far."""

    number: int
    spec: RunSpec | None  # None if the member cannot be run
    context: RunContext = field(default_factory=RunContext)
    result: RunResult | None = None  # of its first process, or of the process that failed
    seconds: float = 0.0  # the time of an undisturbed iteration
    turns: list[Turn] = field(default_factory=list)
    outputs: str = ""  # the folder of its outputs

    def prepare(
        self, names: Mapping[str, str], read: ReadModel, stack: contextlib.ExitStack
    ) -> None:
        """Read what all rounds of the member need: its model, and the testcases in the model file.

        Unpacked testcases stay on disk until `stack` is closed.

        Raises:
            LarError: the model or a testcase cannot be read.
        """
        if self.spec is not None:
            context = RunContext(model=read(Path(self.spec.model)), names=dict(names))
            self.spec, self.context = stack.enter_context(unpack_cases(self.spec, context))

    def feed(self, inputs: Sequence[str]) -> None:
        """Feed the member with the files in `inputs`, which have the baseline's data.

        If `inputs` is empty, the member keeps its own inputs.
        """
        if inputs and self.spec is not None:
            self.spec = replace(self.spec, inputs=tuple(inputs))
            files = {text.partition(":")[2]: AS_BASELINE for text in inputs}  # data:/tmp/0.npy
            self.context = replace(self.context, names={**self.context.names, **files})

    @property
    def failed(self) -> bool:
        """Whether the member cannot be measured any more."""
        return self.spec is None or (self.result is not None and self.result.status != "ok")

    @property
    def shape(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The types and shapes of the member's inputs.

        Two members are compared only if the types and shapes of their inputs are equal.
        """
        return tuple((each.dtype, each.shape) for each in self.result.fed) if self.result else ()


@dataclass(kw_only=True)
class Rounds:
    """Executes rounds of measuring; each round has fresh processes.

    A round measures for about as long as its processes took to start, but for at least
    `least_seconds` and at most `most_seconds`. No new cycle of turns begins after the deadline.

    Attributes:
        folder: the folder for files of the processes.
        began: the start of all rounds, on the monotonic clock.
        deadline: the end of all rounds, on the monotonic clock.
        ready_by: the time at which processes that are not ready are ended. If the first member's
            process is not ready at this time, all processes are ended.
        least_cycles: the smallest number of turns of each member.
        slowest: a member makes no turns if its first iterations take more than `slowest` times as
            long as the first iterations of the first member.
        on_ended: a function that is called with each member whose process in a round has ended. If
            several processes have ended without failure, `on_ended` is called with the first member
            before the other members.
        number: the number of the current round.
        takers: the process of each member, while this process is alive.
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
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.deadline

    def play(self, number: int, members: Sequence[Member]) -> None:
        """Start a process for each member, let the processes compute in turns, and end them."""
        self.number = number
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            try:
                started = self.start(members, stack)
                self.play_turns(self.leave_out_slow(members[0], started), time.monotonic() - began)
            except KeyboardInterrupt:
                self.settle()
                for member, taker in self.takers.items():
                    member.result = member.result or replace(taker.result, status="interrupted")
                raise
            for member in started:
                if member in self.takers:
                    self.end(member)

    def start(self, members: Sequence[Member], stack: contextlib.ExitStack) -> list[Member]:
        """Start the processes of members, wait until they are ready, and return these members.

        The first member of `members` is also the first in the result, if its process is ready.
        """
        for member in self.order.sample(members, len(members)):
            if member.spec is None or member.failed:
                continue
            place = os.path.join(self.folder, f"{member.number}-{self.number}")
            os.mkdir(place)
            # Only the member's first process, or a process that fails, finishes and writes outputs.
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
        """Call `end` for each member whose process has ended by itself."""
        for member, taker in [*self.takers.items()]:
            if taker.ended:
                self.end(member)

    def end(self, member: Member) -> None:
        """End the process of a member.

        Keep the result of the process if it is the member's first process, or if it has failed.
        """
        taker = self.takers.pop(member)
        if member.result is None or taker.ended:
            ended = taker.finish()
            # The member's first process may have ended well, and this process may have failed.
            known = replace(member.result or ended, phase=ended.phase, failure=ended.failure)
            member.result = replace(known, status=ended.status)
        else:
            taker.worker.end()
        self.on_ended(member)

    def leave_out_slow(self, first: Member, members: list[Member]) -> list[Member]:
        """Return the members that are not too slow to be measured.

        Members of unknown speed first make turns of a few iterations. If a member is too slow, only
        the fastest of these turns is kept.
        """
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
        """Let a member's worker compute for one turn; return the turn, or None if the worker ended.

        `member.seconds`, the time of an undisturbed iteration, is updated.
        """
        began = time.monotonic() - self.began
        samples = self.takers[member].take_turn(untimed, timed)
        if samples is None:
            return None
        found = max(percentile_of(sorted(samples.end_to_end), 25), 1e-7)
        member.seconds = min(member.seconds or found, found)
        return Turn(round=self.number, cycle=cycle, began=began, samples=kept_of(samples))

    def play_turns(self, members: Sequence[Member], start_seconds: float) -> None:
        """Let workers compute in turns; the order of the workers is random in each cycle."""
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
            # Times by the engine's clock count too: a scripted clock runs faster than real time.
            spent = max(time.monotonic() - began, computed)
            # Beside other work, undisturbed turns are rare, but new processes would take longer.
            is_enough = cycle >= self.least_cycles and spent >= seconds
            if is_enough and (spent >= self.most_seconds or self.has_calm_turns(members)):
                return
            # All members make equally many iterations: the first ones after a break are slower.
            untimed, timed = iterations_in_turn(max(member.seconds for member in able))
            for member in self.order.sample(able, len(able)):
                if turn := self.take(member, cycle, untimed, timed):
                    member.turns.append(turn)
                    computed += sum(turn.samples.end_to_end) * (1 + untimed / timed)

    def has_calm_turns(self, members: Iterable[Member]) -> bool:
        """Return whether enough turns of the round had undisturbed iterations."""
        for member in members:
            turns = [turn for turn in member.turns if turn.round == self.number]
            calm = sum(centre_of_turn(turn, is_calm=True) is not None for turn in turns)
            if calm < min(WANTED_CALM, len(turns)):
                return False
        return True


def inputs_as_for(base: RunSpec | None, spec: RunSpec, folder: Path) -> tuple[str, ...]:
    """Write the baseline's generated data to files; return `--input` items for another model.

    Generated data depends on the names of inputs: two models whose inputs have different names
    would get different data. No files are written if the user gives inputs, or if both models are
    the same file.
    """
    if base is None or base.model == spec.model:
        return ()
    is_generated = not any(each.inputs or each.cases for each in (base, spec))
    if is_generated and (base.fill, base.seed) == (spec.fill, spec.seed):
        with contextlib.suppress(LarError):  # the model takes other inputs, or cannot be read
            return inputs_like(base, spec, folder)
    return ()


def compare_members(
    member: Member, base: Member, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> OutputDifference | None:
    """Compare the outputs of a member and of the baseline, and return the worst difference.

    Return None if the member and the baseline had different inputs, or if one of the two has no
    outputs. Outputs are paired by their names, or by their order if the names differ. The worker
    has written the outputs to files (`summarize_outputs`). If the hashes of the outputs are equal,
    the files are not read.
    """
    if member.result is None or base.result is None:
        return None
    fed, its = member.result.fed, base.result.fed
    actual, expected = member.result.outputs, base.result.outputs
    if not (len(fed) == len(its) and all(map(is_same_data, fed, its)) and actual and expected):
        return None
    if len(actual) != len(expected):
        reason = f"{count_of(len(actual), 'output')} instead of {len(expected)}"
        return OutputDifference(agreement="different", reason=reason)
    places = {each.name: place for place, each in enumerate(actual)}
    found, is_named = [], places.keys() == {each.name for each in expected}
    for place, each in enumerate(expected):
        mine = places[each.name] if is_named else place
        files = file_of(member.outputs, mine), file_of(base.outputs, place)
        found.append(compare_pair(actual[mine], each, files, tolerance))
    return max(found, key=severity_of)


def severity_of(found: OutputDifference) -> tuple[int, float]:
    """Return the key that sorts differences of outputs, with the worst last."""
    error = math.inf if found.max_error is None else found.max_error
    return get_args(Agreement).index(found.agreement), error


def is_same_data(mine: FedInput, its: FedInput) -> bool:
    """Return whether two inputs hold the same data.

    Integers from files are the same data in any width, such as int32 and int64. Generated integers
    with different widths are different data.
    """
    are_integers = "int" in mine.dtype and "int" in its.dtype and not mine.generated
    if mine.shape != its.shape or (mine.dtype != its.dtype and not are_integers):
        return False
    if mine.source == AS_BASELINE:
        return its.generated
    # Generated data depends on the input's name.
    return mine.source == its.source and (mine.name == its.name or not mine.generated)


def places_in_memory(members: Sequence[Member]) -> int:
    """Return how many workers of these members fit into memory at once, but at least two."""
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
    """Compare the same output of two runs."""
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
    import numpy as np  # imported late: most variants give the same bits

    from lar.comparison.metrics import bounds_of, measure

    bounds = bounds_of(tolerance, actual.dtype, expected.dtype)
    figures = measure(np.load(files[0]), np.load(files[1]), bounds)
    agreement: Agreement = "different" if figures.mismatches else "within the tolerance"
    error = None if figures.nonfinite_mismatches else figures.max_error
    return replace(found, agreement=agreement, max_error=error)
