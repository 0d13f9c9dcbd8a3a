"""Plays the trials of a search: measures candidates in turns, or has one fill its cache.

A trial is ordered as plain data, so that another machine can play it.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from lar.errors import LarError
from lar.measurement.listener import Listener
from lar.measurement.machine import read_machine
from lar.measurement.objectives import kept_for
from lar.records.bench import OutputDifference
from lar.records.choices import Objective
from lar.records.comparison import Tolerance
from lar.records.facts import ModelFile
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.records.tuning import Candidate, Trial, TrialKind, TrialRow
from lar.running.rounds import Member, Rounds, compare_members, places_in_memory
from lar.running.side_runs import MakeOn
from lar.running.steps import make_run

# A candidate whose first iterations take so many times as long as the baseline's makes no others.
SLOWEST = 3.0
# How far a search has come is kept so often.
KEEPING_SECONDS = 5.0
# A round goes on for so many times as long as it should where others disturb it.
MOST_STRETCH = 1.5
# Each trial has room for the numbers of so many processes of a candidate.
ROUNDS_PER_TRIAL = 1000

Show = Callable[[str, float], None]
"""Shows what is being done, and how many seconds that has taken."""

Keep = Callable[[int, TrialRow, float], None]
"""Keeps the row of a candidate whose process has ended, by its place in the trial, with the seconds
since the trial began: the trial may be cut short. The row of a search that goes on is kept now and
then, as that of one that was interrupted."""


# Who cannot be checked is not trusted.
NOT_COMPARED = OutputDifference(
    agreement="different",
    reason="not compared: it is not fed with the plain run's data; give both the same `--input`",
)


class CutShort(Exception):
    """A trial will not come to its end: what was kept is all that there is of it, and is worth to
    be recorded."""


def keep_nothing(place: int, row: TrialRow, seconds: float) -> None:
    """Keep nothing of a trial but its end."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A candidate of a trial with the spec that it is run by; None where it is refused.

    `like_baseline` are items of `--input` with the baseline's data, where it is fed otherwise.
    """

    candidate: Candidate
    name: str
    spec: RunSpec | None
    failure: Failure | None = None
    cache: str = ""
    like_baseline: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """A trial that is to be played.

    `seconds` is how long to measure, all candidates together; for a search the time limit. Outputs
    are right whose error is at most `tolerance`, by default that of their types. A trial of which
    nobody knows how long it takes has `most_seconds`: entrants that they are too short for are left
    out.
    """

    number: int
    kind: TrialKind
    seconds: float
    entrants: tuple[Entrant, ...]
    most_seconds: float | None = None
    began: float = 0.0
    seed: int = 0
    tolerance: float | None = None
    objective: Objective = "latency"
    names: dict[str, str] = field(default_factory=dict)


class Player(Protocol):
    """Whoever plays trials: this machine, or others."""

    @property
    def make_on(self) -> MakeOn | None:
        """What makes a run where the trials are played; None for this machine."""

    def play(self, order: TrialOrder, show: Show, keep: Keep = keep_nothing) -> Trial:
        """Play a trial. A search writes its cache where its spec names it.

        Raises:
            CutShort: the machine that played it is lost.
        """


class LocalPlayer:
    """Plays trials on this machine; the files that it needs are in a folder."""

    make_on: MakeOn | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models: dict[str, ModelFile] = {}

    def play(self, order: TrialOrder, show: Show, keep: Keep = keep_nothing) -> Trial:
        """Play a trial."""
        began = time.monotonic()
        is_search = order.kind == "search"
        rows = (self.search if is_search else self.measure)(order, show, keep)
        return Trial(
            number=order.number,
            kind=order.kind,
            rows=tuple(rows),
            began=order.began,
            seconds=time.monotonic() - began,
            machine=read_machine(),
        )

    def search(self, order: TrialOrder, show: Show, keep: Keep) -> Iterator[TrialRow]:
        """Have a candidate fill its cache; a search that is cut short keeps what it has found."""
        for entrant in order.entrants:
            if entrant.spec is None:
                yield refused(entrant)
                continue
            spec = replace(
                entrant.spec, warmup_iterations=1, iterations=0, timeout_seconds=order.seconds
            )
            began = time.monotonic()
            context = RunContext(began=began, names=dict(order.names))
            row = TrialRow(candidate=entrant.candidate, status="interrupted", cache=entrant.cache)
            keep_row = partial(keep, 0, row)
            result = make_run(spec, context, SearchListener(entrant.name, show, keep_row))
            if result.status == "interrupted":
                keep_row(time.monotonic() - began)
                raise KeyboardInterrupt
            yield replace(row_of(entrant, result), seconds=time.monotonic() - began)

    def measure(self, order: TrialOrder, show: Show, keep: Keep) -> Iterator[TrialRow]:
        """Measure candidates in turns, as many at once as memory has room for. In the first trial
        nothing else is started before the plain run has worked."""
        began = time.monotonic()
        members: list[Member] = []
        rows: dict[int, TrialRow] = {}

        def keep_row(member: Member) -> None:
            place, first = member.number, members[0]
            row = measured_row(member, order.entrants[place], first, order.tolerance)
            rows[place] = row
            keep(place, row, time.monotonic() - began)

        place = self.folder / str(order.number)
        place.mkdir()
        rounds = Rounds(
            str(place),
            began=began - order.began,
            deadline=math.inf,  # a process that hangs shall not take the time of the others
            order=random.Random(order.seed * ROUNDS_PER_TRIAL + order.number),
            show=lambda: show("measuring", time.monotonic() - began),
            least_seconds=order.seconds,
            most_seconds=MOST_STRETCH * order.seconds,
            slowest=SLOWEST,
            keep=partial(kept_for, order.objective),
            on_ended=keep_row,
            first_alone=order.number == 0,
            most_start_seconds=math.inf
            if order.most_seconds is None
            else order.most_seconds - order.seconds,
        )
        with contextlib.ExitStack() as stack:
            members += [self.member_of(each, order, stack) for each in enumerate(order.entrants)]
            first, others = members[0], members[1:]
            size = max(1, places_in_memory(members) - 1)
            chunks = [others[at : at + size] for at in range(0, len(others), size)] or [[]]
            for count, chunk in enumerate(chunks):
                if count and time.monotonic() - began > rounds.most_start_seconds:
                    break
                number = order.number * ROUNDS_PER_TRIAL + count
                part = 1 / len(chunks)
                rounds.least_seconds = part * order.seconds
                rounds.most_seconds = part * MOST_STRETCH * order.seconds
                rounds.play(number, [first, *chunk])
            for member, entrant in zip(members, order.entrants, strict=True):
                if member.result is None and (first.failed or entrant.spec is not None):
                    continue  # it was not started
                row = rows.get(member.number)
                yield row or measured_row(member, entrant, first, order.tolerance)

    def member_of(
        self, numbered: tuple[int, Entrant], order: TrialOrder, stack: contextlib.ExitStack
    ) -> Member:
        """Return what is measured of a candidate."""
        number, entrant = numbered
        member = Member(number=number)
        if entrant.spec is not None:
            try:
                member.prepare(entrant.spec, order.names, self.models, stack)
                member.feed(entrant.like_baseline)
            except LarError as error:
                member.spec = None
                member.result = RunResult(
                    spec=entrant.spec, status="failed", phase="start", failure=Failure.of(error)
                )
        return member


class SearchListener(Listener):
    """Shows how far the search of an engine is, and keeps it."""

    def __init__(self, name: str, show: Show, keep: Callable[[float], None]) -> None:
        self.name = name
        self._show = show
        self._keep = keep
        self._due = KEEPING_SECONDS

    def on_progress(self, text: str, elapsed: float) -> None:
        if text:
            self._show(f"{self.name}: {text}", elapsed)
        if elapsed >= self._due:
            self._due = elapsed + KEEPING_SECONDS
            self._keep(elapsed)


def refused(entrant: Entrant) -> TrialRow:
    """Return the row of a candidate that cannot be run."""
    return TrialRow(candidate=entrant.candidate, status="refused", failure=entrant.failure)


def row_of(entrant: Entrant, result: RunResult) -> TrialRow:
    """Return the row of a candidate with a run's result."""
    return TrialRow(
        candidate=entrant.candidate,
        status=result.status,
        failure=result.failure,
        engine=result.engine,
        fed=result.fed,
        outputs=result.outputs,
        load_seconds=result.load_seconds,
        peak_memory_bytes=result.peak_memory_bytes,
        cache=entrant.cache,
        warnings=result.warnings,
    )


def measured_row(
    member: Member, entrant: Entrant, baseline: Member, tolerance: float | None
) -> TrialRow:
    """Return the row of a candidate that was measured beside the baseline."""
    if entrant.spec is None or member.result is None:
        return refused(entrant)
    row = row_of(entrant, member.result)
    difference: OutputDifference | None = None
    if member is not baseline and row.status == "ok":
        difference = compare_members(member, baseline, Tolerance(max_error=tolerance))
        if difference is None and row.outputs:
            difference = NOT_COMPARED
    return replace(
        row,
        turns=tuple(member.turns),
        output_difference=difference,
        seconds=member.result.wall_seconds,
    )


def caches_filled(order: TrialOrder, places: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files of the caches that a search has written, by name."""
    names = {entrant.cache for entrant in order.entrants if order.kind == "search"}
    return {name: path for name, path in places.items() if name in names and path.is_file()}


def mark_cut_search(trial: Trial, filled: Collection[str]) -> Trial:
    """Return the trial of a search that was ended with what is there of its cache: its name only
    where something had been found, and a warning."""
    (row,) = trial.rows
    if row.status != "timed_out":
        return trial
    if row.cache not in filled:
        return replace(trial, rows=(replace(row, cache=""),))
    warning = (
        f"{' + '.join(row.candidate.choices)}: its search was ended after {row.seconds:.0f} s: "
        "what it had found until then is used"
    )
    return replace(trial, rows=(replace(row, warnings=(*row.warnings, warning)),))


def names_of_candidates(entrants: Sequence[Entrant]) -> str:
    """Return what a line of progress calls the candidates of a trial."""
    return ", ".join(entrant.name for entrant in entrants[1:] or entrants)
