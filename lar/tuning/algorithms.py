"""`lar tune --algorithms`: the algorithms in a cache are timed again, in the model itself.

A search times each algorithm once and alone. Here one process for each rank runs the model with
the second best, third best, ... algorithm of every operator at once, and the engine's own profile
says how long each operator took; the processes compute in turns beside one with the choices of the
cache, and are started anew each round. What is faster goes into the new cache. In the end the whole
model is measured with the old cache and the new one, as `lar bench` does it, and the new one is
written only if it is shown not to be slower, and gives the numbers of a run without a cache.

Where an iteration has ended the engine writes its profile, so that the next one begins with cold
caches of the processor. A small model, whose weights stay in them else, may so have other fastest
algorithms in the profile than in a plain run: the measurement of the whole finds that out.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar import __version__
from lar.engines import engine_named
from lar.engines.engine import CachedOperator, CacheFiles
from lar.errors import LarError, UsageError, error_of_write
from lar.files.work_folders import work_folder
from lar.measurement.differences import compare_pairs
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.statistics import percentile_of
from lar.options.table import FAST_RUN_ALGO_POLICY, PROFILE, SEARCHES, THREAD
from lar.profiles.trace_file import read_profile
from lar.records.algorithms import AlgorithmsEnding, AlgorithmsResult
from lar.records.bench import OutputDifference, Turn
from lar.records.run import Failure, RunContext, RunResult, RunSpec, Samples
from lar.records.summary import Difference
from lar.running.bench import run_bench
from lar.running.outputs import compare_outputs
from lar.running.rounds import Member, places_in_memory
from lar.running.steps import make_run, unpack_cases
from lar.running.turns import TurnTaker, await_all
from lar.running.variants import Variant, make_variants
from lar.tuning.rivals import (
    Contest,
    Rival,
    describe_contest,
    find_faulty,
    judge,
    lanes_of,
    make_contests,
    proofs_of,
)

if TYPE_CHECKING:
    from lar.records.profile import Profile

# What a search may take of the budget, and what is left for the old cache against the new one: time
# for so many rounds, within these shares.
SEARCH_SHARE = 0.3
CONFIRM_SHARES = (0.25, 0.5)
CONFIRM_ROUNDS = 5
CONFIRM_ROUND_SECONDS = 2.0
SLOWER_MARGIN = 0.01
TOO_SHORT = "the budget was too short to measure the whole model with them"
MOST_LANES = 4
# A round of turns, and what a profile may hold: operators are recorded in each iteration.
LEAST_ROUND_SECONDS = 1.5
MOST_ROUND_SECONDS = 5.0
MOST_CYCLES = 40
LEAST_CYCLES = 4
MOST_EXECUTIONS = 30_000
# Iterations in a turn, of models of a short time and of others: to write a profile takes longer
# than an iteration of a small model.
UNTIMED = 1
TIMED = 4
LEAST_TIMED = 2
SHORT_SECONDS = 0.02
# The part of an operator's executions in a process that counts, the shortest ones: an operator is
# so short that many are not interrupted, also where other work holds the CPUs half of the time.
# Their mean is finer than the engine's clock, which counts microseconds.
CALM_SHARE = 0.15
# An algorithm hangs that takes so many times as long as the first process, and at least so long.
PATIENCE = 10.0
LEAST_PATIENCE = 20.0
# Where the budget is short a process that hangs has such a part of it at most, and what is left of
# it; but so many seconds, and times as long as the first process took, else it may only be slow.
PATIENCE_SHARE = 0.125
LEAST_PROCESS_SECONDS = 3.0
LEAST_SLOWNESS = 2.0
# What a search may take where its share of the budget is shorter.
LEAST_SEARCH_SECONDS = 5.0

KEY = FAST_RUN_ALGO_POLICY.key
SEARCH_KEYS = frozenset(option.key for option in SEARCHES)
Choices = Mapping[str, str]
Report = Callable[["AlgorithmsProgress"], None]


@dataclass(frozen=True)
class AlgorithmsProgress:
    """How far it has come: what is being done, the rounds, the algorithms that are decided, of how
    many, the operators with a faster one, and the seconds that the budget leaves."""

    doing: str
    rounds: int
    decided: int
    rivals: int
    faster: int
    left_seconds: float


@dataclass
class Played:
    """What became of a process: `seconds` has those of each operator by key, and those of the whole
    iteration under the empty key."""

    result: RunResult
    outputs: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    profile: Profile | None = None
    executed: Mapping[str, Sequence[int]] = field(default_factory=dict)  # by the operator's key


@dataclass(frozen=True)
class TurnIterations:
    """The iterations of a turn: those that were not timed, and the samples of the others."""

    untimed: int
    samples: Samples


def tune_algorithms(
    model: str | Path,
    caches: Sequence[str | Path],
    *,
    output: str | Path = "",
    budget_seconds: float = 120.0,
    seed: int = 0,
    report: Report | None = None,
    **options: Any,
) -> AlgorithmsResult:
    """Time the algorithms in fast-run caches again, and write a better cache.

    Args:
        model: a model file; as a text it may have flags: "m.mge --enable-nchw44".
        caches: the files to begin with: several searches, of other days or machines too, have more
            algorithms to try.
        output: the file of the better cache, the first of `caches` if empty.
        budget_seconds: the time for all of it.
        options: the flags of `lar run` by key: those of the search. With `fast_run` or `full_run`
            the model is searched once more, for more algorithms to try; then no cache needs to
            exist.

    Returns:
        The result. An algorithm that crashes, hangs or gives wrong numbers is out and is one of its
        rows; after an interrupt nothing is written.

    Raises:
        UsageError: the model, a cache or an option cannot be used, or the engine has no algorithms
            to choose from.
    """
    began = time.monotonic()
    if not caches:
        raise UsageError("no cache is given", "make one with --fast-run", flag="--algorithms")
    paths = [os.fspath(each) for each in caches]
    place = os.fspath(output) or paths[0]
    check_writable(place)
    with work_folder() as folder:
        is_search = any(option.is_given(options) for option in SEARCHES)
        searched = os.path.join(folder, "searched.cache")
        missing = [path for path in paths if not os.path.exists(path)]
        if missing and not is_search:
            raise UsageError(
                "no such file", "--fast-run makes it", flag="--algorithms", subject=missing[0]
            )
        paths = [path for path in paths if path not in missing]
        variant, files = plan_timing(os.fspath(model), options, searched if is_search else paths[0])
        spec = variant.spec
        assert spec is not None  # else it was refused
        for path in {*paths, place} if os.path.exists(place) else paths:
            files.read_operators([path], spec.settings)  # a file of another kind is refused
        if is_search:
            search(spec, max(SEARCH_SHARE * budget_seconds, min(budget_seconds, LEAST_PATIENCE)))
            paths += [searched] if os.path.exists(searched) else []
        settings = {key: it for key, it in spec.settings.items() if key not in SEARCH_KEYS}
        operators = files.read_operators(paths, settings)
        if not operators:
            where = ", ".join(paths) or os.fspath(model)
            raise UsageError("has no operator whose algorithms were measured", subject=where)
        timing = Timing(
            replace(spec, settings=settings),
            files,
            paths,
            operators,
            folder=folder,
            began=began,
            budget_seconds=budget_seconds,
            order=random.Random(seed),
            report=report or (lambda progress: None),
            is_searched=is_search,
        )
        with contextlib.ExitStack() as stack:
            timing.run_to_end(stack, variant, place)
        timing.keep_searches(place)
        return timing.describe(place)


def plan_timing(model: str, options: Mapping[str, Any], cache: str) -> tuple[Variant, CacheFiles]:
    """Return what is run with a cache, and the kind of its caches.

    Raises:
        UsageError: it cannot be run so, or its engine keeps no algorithms.
    """
    if FAST_RUN_ALGO_POLICY.is_given(options):
        raise UsageError(
            "the cache of the runs comes from --algorithms",
            "leave it out",
            flag=FAST_RUN_ALGO_POLICY.flag,
        )
    [plain] = make_variants(
        [model], (), {key: it for key, it in options.items() if key not in SEARCH_KEYS}
    )
    assert plain.spec is not None  # else it was refused
    files = engine_named(plain.spec.engine).cache
    if files is None:
        title = engine_named(plain.spec.engine).title
        raise UsageError(
            f"{title} keeps no cache of algorithms", flag="--algorithms", subject=plain.spec.model
        )
    if plain.spec.runners > 1:
        raise UsageError(
            "operators are timed in one copy of the model", "leave it out", flag=THREAD.flag
        )
    files.read_operators([], plain.spec.settings)  # refuses what has no algorithms
    [variant] = make_variants([model], (), {**options, KEY: cache})
    return variant, files


def search(spec: RunSpec, seconds: float) -> None:
    """Search into the cache that the spec names, for so long.

    Raises:
        LarError: nothing was found.
        KeyboardInterrupt: the user ended it.
    """
    spec = replace(spec, warmup_iterations=1, iterations=0)
    if spec.timeout_seconds is None:
        spec = replace(spec, timeout_seconds=max(seconds, LEAST_SEARCH_SECONDS))
    result = make_run(spec, RunContext())
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.failure is not None and not os.path.exists(str(spec.settings[KEY])):
        raise result.failure.within("the search").to_error()


def check_writable(path: str) -> None:
    """Refuse a file that cannot be written, before time is spent on it.

    Raises:
        UsageError: it cannot.
    """
    where = path if os.path.exists(path) else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(where, os.W_OK):
        raise UsageError("cannot be written", "choose another file", subject=path)


class Timing:
    """The rounds in which algorithms are timed, and what comes of them."""

    def __init__(
        self,
        spec: RunSpec,
        files: CacheFiles,
        paths: Sequence[str],
        operators: Sequence[CachedOperator],
        *,
        folder: str,
        began: float,
        budget_seconds: float,
        order: random.Random,
        report: Report,
        is_searched: bool = False,
    ) -> None:
        """`began` is on the monotonic clock; `is_searched` says that what the caches hold is to be
        kept in any case."""
        self.spec = spec
        self.files = files
        self.paths = paths
        self.operators = operators
        self.folder = folder
        self.joined = os.path.join(folder, "joined.cache")
        files.write_choices(paths, {}, self.joined)
        self.order = order
        self.report = report
        self.budget_seconds = budget_seconds
        self.began = began
        self.is_searched = is_searched
        self.start_seconds = 0.0  # of a process
        self.started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.context = RunContext()
        self.contests: list[Contest] = []
        self.choices: dict[str, str] = {}  # those that differ from the cache's
        self.plain: Played | None = None
        self.first: RunResult | None = None
        self.rounds = 0
        self.processes = 0
        self.seconds = 0.0  # of an iteration
        self.operator_count = 1
        self.doing = "the cache's own choices"
        self.ending: AlgorithmsEnding = "failed"
        self.failure: Failure | None = None
        self.warnings: list[str] = []
        self.new_status = "ok"
        self.whole: Difference | None = None
        self.whole_seconds: tuple[float | None, float | None] = (None, None)
        self.output_difference: OutputDifference | None = None
        self.written = False
        self.reason = ""
        self.is_timing = False
        self.is_base_well = True

    def run_to_end(self, stack: contextlib.ExitStack, variant: Variant, output: str) -> None:
        """Run, and keep what was timed until an interrupt or an error, as where the disk gets full.

        Raises:
            LarError: before anything was timed.
        """
        try:
            self.run(stack, variant, output)
        except KeyboardInterrupt:
            self.ending, self.reason = "interrupted", "it was interrupted"
        except (LarError, OSError) as error:
            if not self.rounds:
                raise
            self.fail(error)

    def run(self, stack: contextlib.ExitStack, variant: Variant, output: str) -> None:
        """Time, choose, measure the whole, and write."""
        self.context = RunContext(model=read_model_file(Path(self.spec.model)))
        self.spec, self.context = stack.enter_context(unpack_cases(self.spec, self.context))
        if not self.look_first():
            self.reason = "the model does not run with the cache"
            return
        self.time_rivals()
        self.choose()
        if not self.choices:
            self.reason = self.reason or "no algorithm is shown to be faster"
            return
        if self.left_seconds <= 0:
            self.reason = TOO_SHORT
            return
        self.confirm(variant)
        if self.ending != "interrupted" and self.is_better():
            self.written = self.write_cache(self.choices, output)

    # Processes

    def start(
        self, stack: contextlib.ExitStack, choices: Choices | None, *, profiled: bool = True
    ) -> tuple[TurnTaker, str]:
        """Start a process with choices, or one without a cache; return it with its folder."""
        place = os.path.join(self.folder, str(self.processes))
        self.processes += 1
        os.mkdir(place)
        settings = {**self.spec.settings}
        written = {}
        names = dict(self.context.names)
        if choices is None:
            settings.pop(KEY, None)
        else:
            path = os.path.join(place, "given.cache")
            self.files.write_choices([self.joined], choices, path)
            settings[KEY], names[path] = path, ", ".join(self.paths)
        if profiled:
            settings[PROFILE.key] = written[PROFILE.key] = os.path.join(place, "profile.json")
        context = replace(
            self.context,
            began=time.monotonic(),
            work_folder=place,
            outputs_folder=os.path.join(place, "outputs"),
            written=written,
            names=names,
        )
        limit = self.patience if self.spec.timeout_seconds is None else self.spec.timeout_seconds
        limit = min(limit, self.most_seconds)
        spec = replace(self.spec, settings=settings, timeout_seconds=limit)
        return TurnTaker(stack, spec, context), place

    def finish(
        self, taker: TurnTaker, place: str, turns: Sequence[TurnIterations], *, profiled: bool
    ) -> Played:
        """End a process, and read how long its operators took."""
        played = Played(taker.finish(), os.path.join(place, "outputs"))
        if profiled and played.result.status == "ok":
            played.profile = read_profile(os.path.join(place, "profile.json"))
            played.executed = self.files.find_executed([self.joined], played.profile.operators)
            played.seconds = seconds_of(played.profile, played.executed, turns)
        for path in Path(place).glob("profile.json*"):
            path.unlink()  # large, and there will be many
        return played

    def play(self, lanes: Sequence[Choices], seconds: float = LEAST_ROUND_SECONDS) -> list[Played]:
        """Run a process for each lane, in turns, for so long, or as long as they took to start."""
        with contextlib.ExitStack() as stack:
            started = [self.start(stack, lane) for lane in lanes]
            takers = [taker for taker, _ in started]
            began = time.monotonic()
            await_all(takers)
            took = time.monotonic() - began
            self.start_seconds = took / len(lanes)
            seconds = min(max(seconds, took), MOST_ROUND_SECONDS)
            turns: list[list[TurnIterations]] = [[] for _ in lanes]
            room = MOST_EXECUTIONS // self.operator_count
            began = time.monotonic()
            for cycle in range(MOST_CYCLES):
                self.show()
                able = [place for place, taker in enumerate(takers) if taker.is_able]
                untimed, timed = UNTIMED, TIMED if self.seconds < SHORT_SECONDS else LEAST_TIMED
                room -= untimed + timed
                is_long = time.monotonic() - began > seconds and cycle >= LEAST_CYCLES
                if not able or 0 not in able or is_long or (room < 0 and cycle >= LEAST_CYCLES):
                    break
                for place in self.order.sample(able, len(able)):
                    samples = takers[place].take_turn(untimed, timed)
                    if samples is not None:
                        turns[place].append(TurnIterations(untimed, samples))
            return [
                self.finish(taker, place, own, profiled=True)
                for (taker, place), own in zip(started, turns, strict=True)
            ]

    def try_choices(self, choices: Choices | None) -> Played:
        """Run two iterations with choices, or without a cache."""
        with contextlib.ExitStack() as stack:
            taker, place = self.start(stack, choices, profiled=False)
            await_all([taker])
            if not taker.ended:
                taker.take_turn(1, 1)
            return self.finish(taker, place, (), profiled=False)

    def why_unfit(self, played: Played) -> Failure | None:
        """Return why a process with choices failed: it did not end well, or its outputs are not
        those of the run without a cache."""
        if played.result.status == "interrupted":
            raise KeyboardInterrupt
        if played.result.status != "ok":
            return played.result.failure or Failure(played.result.status)
        difference = self.compare(played)
        if difference is None or difference.agreement != "different":
            return None
        error = difference.reason or f"error {difference.max_error or float('nan'):.3g}"
        return Failure(f"gives another {difference.output or 'output'}: {error}")

    def compare(self, played: Played) -> OutputDifference | None:
        """Compare outputs with those of the run without a cache."""
        if self.plain is None:
            return None
        theirs = self.plain
        return compare_outputs(
            played.result.outputs, played.outputs, theirs.result.outputs, theirs.outputs
        )

    def fail_of(self, choices: Choices) -> Failure | None:
        """Return why the model fails with choices, None where it does not."""
        self.show()
        played = self.try_choices(choices)
        self.output_difference = self.compare(played)
        return self.why_unfit(played)

    @property
    def patience(self) -> float:
        """The seconds after which a process hangs."""
        if self.first is None:
            return max(LEAST_PATIENCE, self.budget_seconds)
        least = min(LEAST_PATIENCE, PATIENCE_SHARE * self.budget_seconds)
        return max(least, LEAST_PROCESS_SECONDS, PATIENCE * (self.first.wall_seconds or 0.0))

    @property
    def most_seconds(self) -> float:
        """The seconds that the budget has for a process, or that one may need."""
        if self.first is None:
            return self.patience
        known = self.first.wall_seconds or 0.0
        return max(self.left_seconds, LEAST_PROCESS_SECONDS, LEAST_SLOWNESS * known)

    @property
    def left_seconds(self) -> float:
        """What is left of the budget, for what is being done."""
        end = self.end_of_timing if self.is_timing else self.began + self.budget_seconds
        return end - time.monotonic()

    def is_late(self) -> bool:
        """Return whether there is no time left for what is being done."""
        return self.left_seconds <= 0

    # Rounds

    def look_first(self) -> bool:
        """Run without a cache for the numbers, and with its choices for what matters; return
        whether the model runs."""
        self.plain = self.try_choices(None)
        self.check_interrupt(self.plain)
        if self.plain.result.status != "ok":
            self.failure = self.plain.result.failure
            return False
        times = self.plain.result.samples.end_to_end
        self.seconds = min(times) if times else 0.0
        [played] = self.play([{}])
        self.check_interrupt(played)
        self.first = played.result
        if played.result.status != "ok" or played.profile is None:
            self.failure = played.result.failure
            return False
        if failure := self.why_unfit(played):
            self.warnings.append(
                f"with the cache's own choices the model {failure.problem}; others are compared "
                "with these"
            )
            self.plain = played
        self.operator_count = max(1, len(played.profile.operators))
        indistinct = [key for key, places in played.executed.items() if not places]
        shares = shares_of(played.profile, played.executed)
        self.contests = make_contests(self.operators, shares, indistinct)
        return True

    def check_interrupt(self, played: Played) -> None:
        if played.result.status == "interrupted":
            raise KeyboardInterrupt

    def time_rivals(self) -> None:
        """Make rounds, one at least, until all is decided or the time is spent."""
        self.doing, self.is_timing = "timing", True
        while True:
            lanes = lanes_of(self.contests, MOST_LANES)
            if not lanes:
                self.ending = "settled"
                return
            size = self.room_beside_first()
            for first in range(0, len(lanes), size):
                if self.rounds and self.is_late():
                    self.ending = "budget"
                    self.judge(final=True)
                    return
                self.play_lanes(lanes[first : first + size])
            self.judge()

    @property
    def end_of_timing(self) -> float:
        """When the rest of the budget is needed to measure the whole model."""
        rounds = CONFIRM_ROUNDS * (2 * self.start_seconds + CONFIRM_ROUND_SECONDS)
        least, most = (share * self.budget_seconds for share in CONFIRM_SHARES)
        return self.began + self.budget_seconds - min(max(least, rounds), most)

    def room_beside_first(self) -> int:
        """Return how many processes memory allows beside the one with the cache's choices."""
        members = [Member(0, model=self.context.model, result=self.first)]
        return min(MOST_LANES, places_in_memory(members) - 1)

    def play_lanes(self, lanes: Sequence[Mapping[str, Rival]]) -> None:
        """Play a round, and keep what it says of each rival."""
        base, *others = self.play(
            [{}, *({key: rival.name for key, rival in lane.items()} for lane in lanes)]
        )
        self.rounds += 1
        self.check_interrupt(base)
        if base.result.status != "ok":
            self.skip_round(base.result)
            return
        self.is_base_well = True
        for contest in self.contests:
            key = contest.operator.key if contest.is_apart else ""
            contest.seconds += [base.seconds[key]] if key in base.seconds else []
        for lane, played in zip(lanes, others, strict=True):
            failure = self.why_unfit(played)
            if failure is not None:
                self.leave_out(lane, failure)
                continue
            for contest in self.contests:
                if contest.operator.key in lane:
                    self.learn(contest, lane[contest.operator.key], base, played)

    def skip_round(self, base: RunResult) -> None:
        """Blame no algorithm for a round whose process with the cache's own choices failed.

        Raises:
            LarError: that of the round before failed too.
        """
        failure = base.failure or Failure(base.status)
        if not self.is_base_well:
            raise failure.within("the cache's own choices").to_error()
        self.is_base_well = False
        self.warnings.append(f"the cache's own choices have failed once: {failure.message}")

    def learn(self, contest: Contest, rival: Rival, base: Played, played: Played) -> None:
        """Keep a rival's times, unless the engine has taken another algorithm."""
        taken = self.taken_in(played, contest)
        if taken and rival.name not in taken:
            rival.failure = Failure(f"the engine takes {taken[0]} instead")
            rival.is_decided = True
            return
        key = contest.operator.key if contest.is_apart else ""
        if key in played.seconds and key in base.seconds:
            rival.seconds.append(played.seconds[key])
            rival.log_ratios.append([math.log(played.seconds[key] / base.seconds[key])])

    def taken_in(self, played: Played, contest: Contest) -> list[str]:
        """Return the algorithms that an operator has run with, as far as the engine says."""
        assert played.profile is not None
        places = played.executed.get(contest.operator.key, ())
        names = [played.profile.operators[place].algorithm for place in places]
        return [part for name in names if name for part in name.split(" or ")]

    def leave_out(self, lane: Mapping[str, Rival], failure: Failure) -> None:
        """Find out which rivals of a lane are at fault, and leave them out."""
        self.doing = "finding the algorithm at fault"
        names = {key: rival.name for key, rival in lane.items()}
        again = failure if self.is_late() else self.fail_of(names)
        if again is None:
            self.warnings.append(f"a process has failed once and then not again: {failure.message}")
        else:
            for key, own in find_faulty(names, again, self.fail_of, self.is_late).items():
                lane[key].failure, lane[key].is_decided = own, True
        self.doing = "timing"

    def judge(self, *, final: bool = False) -> None:
        for contest in self.contests:
            judge(contest, final=final)
        self.show()

    # The outcome

    def choose(self) -> None:
        """Choose for each operator, and leave out what fails together."""
        self.choices = {
            contest.operator.key: contest.winner.name for contest in self.contests if contest.winner
        }
        self.output_difference = None
        self.doing, self.is_timing = "trying the new choices together", False
        while self.choices and (failure := self.fail_of(self.choices)):
            if self.is_late():
                self.choices, self.reason = {}, TOO_SHORT
                return
            found = find_faulty(self.choices, failure, self.fail_of, self.is_late)
            for key, own in found.items():
                del self.choices[key]
                contest = next(each for each in self.contests if each.operator.key == key)
                if contest.winner:
                    contest.winner.failure = own

    def confirm(self, variant: Variant) -> None:
        """Measure the whole model with the old choices and the new ones, in turns."""
        self.doing = "the whole model, old cache against new"
        variants = []
        for name, choices in (("old choices", {}), ("new choices", self.choices)):
            place = os.path.join(self.folder, f"{name}.cache")
            self.files.write_choices([self.joined], choices, place)
            options = {**variant.options, KEY: place}
            settings = {**self.spec.settings, KEY: place}
            spec = replace(variant.spec or self.spec, settings=settings)
            if spec.timeout_seconds is None:
                spec = replace(spec, timeout_seconds=min(self.patience, self.most_seconds))
            variants.append(Variant(name, variant.model, options, spec=spec))
        bench = run_bench(
            variants,
            budget_seconds=self.left_seconds,
            seed=self.order.randrange(1 << 30),
            report=lambda progress: self.show(),
        )
        old, new = bench.variants
        self.new_status = new.status
        self.whole = judge_whole(old.turns, new.turns, new.difference)
        self.whole_seconds = (seconds_of_turns(old.turns), seconds_of_turns(new.turns))
        if bench.stopped == "interrupted":
            raise KeyboardInterrupt

    def keep_searches(self, output: str) -> None:
        """Write what a search has found, where there is nothing better."""
        is_open = not self.written and (self.failure is None or self.ending == "failed")
        if self.is_searched and is_open and self.first is not None:
            self.write_cache({}, output)

    def write_cache(self, choices: Choices, output: str) -> bool:
        """Write the cache and return whether that was possible: what was timed is shown also where
        the disk is full."""
        try:
            proofs = proofs_of(self.contests, choices)
            self.files.write_choices([self.joined], choices, output, proofs)
        except LarError as error:
            self.failure, self.reason = Failure.of(error), "it cannot be written"
            return False
        return True

    def fail(self, error: LarError | OSError) -> None:
        """End with what was timed until an error."""
        known = error if isinstance(error, LarError) else error_of_write(error)
        self.ending, self.failure = "failed", Failure.of(known)
        self.reason = "an error has ended it"
        self.judge(final=True)

    def is_better(self) -> bool:
        """Return whether the new cache is to be written, and keep the reason where it is not."""
        if self.new_status != "ok":
            self.reason = "the model did not end well with the new choices"
        elif self.whole is None:
            self.reason = TOO_SHORT
        elif self.whole.verdict == "slower":
            self.reason = "the whole model is slower with them"
        elif self.whole.verdict != "faster" and not excludes_slower(self.whole):
            self.reason = "the whole model may be slower with them, as far as it was measured"
        return not self.reason

    def show(self) -> None:
        """Report how far it has come."""
        rivals = [rival for contest in self.contests for rival in contest.rivals]
        end = self.began + self.budget_seconds
        self.report(
            AlgorithmsProgress(
                doing=self.doing,
                rounds=self.rounds,
                decided=sum(rival.is_decided for rival in rivals),
                rivals=len(rivals),
                faster=sum(contest.winner is not None for contest in self.contests),
                left_seconds=max(0.0, end - time.monotonic()),
            )
        )

    def describe(self, output: str) -> AlgorithmsResult:
        """Return the record of all that was found."""
        keys = {contest.operator.key for contest in self.contests}
        return AlgorithmsResult(
            model=self.context.model,
            caches=tuple(self.paths),
            output=output,
            ending=self.ending,
            operators=tuple(
                describe_contest(
                    contest,
                    contest.winner.name if contest.winner else contest.operator.algorithms[0].name,
                )
                for contest in self.contests
            ),
            left_out=sum(each.key not in keys for each in self.operators),
            whole=self.whole,
            seconds_before=self.whole_seconds[0],
            seconds_after=self.whole_seconds[1],
            output_difference=self.output_difference,
            written=self.written,
            output_exists=os.path.exists(output),
            searched=self.is_searched,
            reason=self.reason,
            failure=self.failure,
            warnings=tuple(self.warnings),
            engine=self.first.engine if self.first else None,
            machine=read_machine(),
            rounds=self.rounds,
            budget_seconds=self.budget_seconds,
            wall_seconds=time.monotonic() - self.began,
            started_at=self.started_at,
            lar_version=__version__,
        )


def seconds_of(
    profile: Profile, executed: Mapping[str, Sequence[int]], turns: Sequence[TurnIterations]
) -> dict[str, float]:
    """Return the seconds of each operator of a process, by key, and those of the whole iteration
    under the empty key, as they are where nothing disturbs them."""
    owners = {place: key for key, places in executed.items() for place in places}
    spent: dict[int, dict[str, float]] = {}
    for each in profile.executions:
        key = owners.get(each.operator)
        if key is not None:
            times = spent.setdefault(each.step, {})
            times[key] = times.get(key, 0.0) + each.compute_ns * 1e-9
    steps = [step.number for step in profile.steps if not step.warmup]
    columns: dict[str, list[float]] = {}
    for turn in turns:
        values = turn.samples.end_to_end
        own = steps[turn.untimed : turn.untimed + len(values)]
        steps = steps[turn.untimed + len(values) :]
        for step, whole in zip(own, values, strict=False):
            for key, seconds in {**spent.get(step, {}), "": whole}.items():
                columns.setdefault(key, []).append(seconds)
    found = {key: calm_mean(values) for key, values in columns.items()}
    return {key: seconds for key, seconds in found.items() if seconds > 0}


def calm_mean(values: Sequence[float]) -> float:
    """Return the mean of the shortest times, which nothing has disturbed."""
    kept = sorted(values)[: max(1, math.ceil(CALM_SHARE * len(values)))]
    return math.fsum(kept) / len(kept)


def judge_whole(
    old: Sequence[Turn], new: Sequence[Turn], difference: Difference | None
) -> Difference | None:
    """Return the difference of the whole model: the bench's, if it shows one; else the clearer of
    that and the one of the shortest times of each process, which may show one on a busy machine."""
    if difference is not None and difference.verdict != "no difference shown":
        return difference
    ours, theirs = calm_seconds(new), calm_seconds(old)
    ratios = [[math.log(ours[number] / theirs[number])] for number in ours if number in theirs]
    found = compare_pairs(ratios, comparisons=2)
    return min((it for it in (found, difference) if it), key=width_of, default=None)


def width_of(difference: Difference) -> float:
    interval = difference.interval
    return interval.high / interval.low if interval else math.inf


def excludes_slower(difference: Difference) -> bool:
    """Return whether a difference is shown not to make anything slower by more than the margin."""
    interval = difference.interval
    return interval is not None and interval.high <= 1 + SLOWER_MARGIN


def calm_seconds(turns: Iterable[Turn]) -> dict[int, float]:
    """Return the seconds of an undisturbed iteration, by the number of the process."""
    values: dict[int, list[float]] = {}
    for turn in turns:
        values.setdefault(turn.round, []).extend(turn.samples.end_to_end)
    return {number: calm_mean(each) for number, each in values.items() if each}


def seconds_of_turns(turns: Iterable[Turn]) -> float | None:
    """Return the median of processes of the seconds of an undisturbed iteration."""
    seconds = sorted(calm_seconds(turns).values())
    return percentile_of(seconds, 50) if seconds else None


def shares_of(profile: Profile, executed: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the part of the time of all operators that each operator of a cache takes, by key,
    where nothing disturbs it."""
    times: dict[int, list[float]] = {}
    for each in profile.executions:
        if not each.warmup:
            times.setdefault(each.operator, []).append(each.compute_ns)
    spent = {place: calm_mean(values) for place, values in times.items()}
    total = math.fsum(spent.values()) or 1.0
    return {
        key: math.fsum(spent.get(place, 0.0) for place in places) / total
        for key, places in executed.items()
    }
