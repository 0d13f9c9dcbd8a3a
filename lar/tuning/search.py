"""The loop of a search: decide on the next step, measure its candidates, keep the results."""

from __future__ import annotations

import contextlib
import math
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, starmap
from pathlib import Path
from typing import Any, get_args

from lar import __version__
from lar.engines.listener import Listener
from lar.errors import LarError
from lar.files.work_folders import work_folder
from lar.options.command_line import parse_value
from lar.options.option import Option, Value, Word
from lar.options.table import KEYWORDS
from lar.records.comparison import Tolerance
from lar.records.goals import Allowed, Objective
from lar.records.run import Failure, RunResult, RunSpec
from lar.records.tuning import BASELINE, Candidate, Ending, RankedCandidate, TuneRequest
from lar.running.api import GivenInputs, Inputs, with_names
from lar.running.bench import check_keys
from lar.running.rounds import inputs_as_for
from lar.running.variants import Variant, list_models
from lar.tuning.decisions import Combinations, Ended, Step, Survey, choices_in, name_of, next_step
from lar.tuning.evidence import Evidence, RoundKind, Trial
from lar.tuning.outcome import Tuning, find_best, rank, settings_of
from lar.tuning.player import Entrant, LocalPlayer, Player, RoundOrder
from lar.tuning.session import Facts, Session, open_session, read_facts
from lar.tuning.space import make_request, plan_candidate

# A process that neither computes nor answers for this long counts as hanging.
STALL_SECONDS = 5.0
# How long the plain run may take until it is ready. A run of another candidate may take
# START_FACTOR times as long as the plain run took, and at least LEAST_START_SECONDS.
START_SECONDS = 60.0
LEAST_START_SECONDS = 10.0
START_FACTOR = 8.0
# The tolerance for float16 and bfloat16, if the user allows them. `lar compare` explains more by
# the rounding of each layer; here the outputs alone are known.
REDUCED = Tolerance(rtol=1e-2)

OBJECTIVE: Option[Any] = Option("objective", Word(*get_args(Objective)), "", default="latency")
ALLOW, ENGINES = (
    Option[Any](key, Value(str.strip, "NAME", known), "", repeatable=True, joined_by=",")
    for key, known in (("allow", get_args(Allowed)), ("engines", ()))
)


@dataclass(frozen=True)
class TuneProgress:
    """The progress of a search, with a ranking of all candidates measured so far."""

    doing: str
    rounds: int
    left_seconds: float
    ranking: tuple[RankedCandidate, ...] = ()


Report = Callable[[TuneProgress], None]


def tune(
    models: str | Path | Sequence[str | Path],
    *,
    inputs: Inputs | None = None,
    session: str | Path | None = None,
    budget: float | str = 120.0,
    space: str = "quick",
    engines: Sequence[str] = (),
    objective: Objective = "latency",
    allow: Sequence[Allowed] = (),
    tolerance: float | str | None = None,
    margin: float | str = 0.01,
    **options: Any,
) -> Tuning:
    """Search for the settings that make a model fastest and keep its outputs right.

    Args:
        models: a model file, or the files of one model in several formats, which compete.
        inputs: the inputs of all candidates, as `lar.run` takes them.
        session: a file that keeps all results. A later search with this file continues from these
            results.
        budget: how long to search at most: a number of seconds, "90s" or "2m". All searches with
            one session share the budget.
        space: one of `quick` and `full`, or a file that lists what to try.
        engines: the engines to try, by name. If `engines` is empty, each model has its default
            engine.
        objective: what to minimise.
        allow: what may be tried beyond the engines' own options.
        tolerance: how far outputs may be from the plain run's, as |a - e| / max(|a|, |e|, 1).
        margin: the search ends when no remaining candidate can win by this share of the time, such
            as 0.01 or "1%".
        options: the flags of `lar run` by key, for all candidates.

    Returns:
        The result, with `best`, `settings`, `ranking` and `write_settings(path)`. A candidate that
        crashes has a row in the ranking too.

    Raises:
        UsageError: a model, an option or a value cannot be used.
        LarError: the plain run fails.
    """
    check_keys(options, tune.__kwdefaults__)
    given = list_models(models)
    stack = contextlib.ExitStack()
    try:
        folder = Path(stack.enter_context(work_folder()))
        fed = GivenInputs(inputs, folder / "inputs")
        fed.add_to(options)
        asked = TuneRequest(
            objective=parse_value(OBJECTIVE, objective),
            extent=space,
            budget_seconds=parse_value(KEYWORDS["budget"], budget),
            margin=parse_value(KEYWORDS["margin"], margin),
            allowed=tuple(parse_value(ALLOW, allow or ())),
            tolerance=parse_value(KEYWORDS["tolerance"], tolerance),
        )
        request = make_request(given, options, asked, parse_value(ENGINES, engines or ()))
        place = os.fspath(session) if session is not None else str(folder / "session")
        found = search_with(request, place, folder, given=fed)
    except BaseException:
        stack.close()
        raise
    weakref.finalize(found, stack.close)
    if (error := found.error) is not None:
        raise error
    if found.ending == "interrupted":
        raise KeyboardInterrupt
    return found


def search_with(
    request: TuneRequest,
    place: str,
    folder: Path,
    *,
    player: Player | None = None,
    facts: Facts | None = None,
    given: GivenInputs | None = None,
    report: Report = lambda progress: None,
) -> Tuning:
    """Search with the session in a file, and return the result.

    Args:
        request: what to search for.
        place: the file of the session. A new session begins if the file does not exist.
        folder: the folder for temporary files of the search.
        player: plays the rounds, or None for this machine.
        facts: the facts about the player's machine, or None for this machine.
        given: inputs that the user knows by other names than their files' names.
        report: is called with the progress of the search.
    """
    is_new = not os.path.exists(place)
    with open_session(place, request, facts or read_facts(request)) as session:
        player = player or LocalPlayer(folder)
        found = Search(request, session, player, folder, given, report).run()
    if is_new and found.ending == "failed" and found.failure and found.failure.exit_code == 2:
        os.unlink(place)  # nothing was measured: the model or an option cannot be used
    return found


@dataclass
class Search:
    """A search, which starts from the results in a session and measures until the end."""

    request: TuneRequest
    session: Session
    player: Player
    folder: Path
    given: GivenInputs | None = None
    report: Report = lambda progress: None
    valid: dict[Candidate, bool] = field(default_factory=dict)
    inputs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    ranking: tuple[RankedCandidate, ...] = ()
    stopped: Failure | None = None

    def __post_init__(self) -> None:
        self.combinations = [*starmap(Combinations, enumerate(self.request.spaces))]
        self.session.load(self.spec_of)
        # All searches with this session share the budget.
        self.began = time.monotonic() - self.session.spent_seconds

    def run(self) -> Tuning:
        """Search until the end, and return the result.

        An interrupt or an error ends the search too. A later search can continue from the session.
        """
        ending: Ending
        try:
            ending = self.search()
        except KeyboardInterrupt:
            ending = "interrupted"
        except LarError as error:
            ending, self.stopped = "interrupted", Failure.of(error)
        trials, survey = self.session.trials, self.survey()
        results = [trial.result for trial in trials]
        best = find_best(survey)
        facts = self.session.facts
        caches = self.caches_of(best) if best != BASELINE else {}
        runs = (
            trial.result
            for candidate in dict.fromkeys((BASELINE, best))
            for trial in survey.evidence.trials_of(candidate)
            if trial.result.status == "ok" and trial.result.samples.end_to_end
        )
        found = Tuning(
            request=self.request,
            ending=ending,
            ranking=tuple(rank(survey)),
            tuned=settings_of(self.request, survey, dict(enumerate(facts.models)), caches),
            lar_version=__version__,
            started_at=results[0].started_at if results else "",
            engines=tuple({it.engine.name: it.engine for it in results if it.engine}.values()),
            machine=facts.machine,
            rounds=len({trial.number for trial in trials if trial.kind != "search"}),
            wall_seconds=time.monotonic() - self.began,
            warnings=(
                *self.session.warnings,
                *dict.fromkeys(chain(*(it.warnings for it in results))),
            ),
            failure=self.failure or self.stopped,
        )
        object.__setattr__(found, "runs", tuple(runs))
        return found

    @property
    def left_seconds(self) -> float:
        return self.request.budget_seconds - (time.monotonic() - self.began)

    @property
    def failure(self) -> Failure | None:
        """Why the plain run cannot be measured, or None if it can be measured."""
        own = [it.result for it in self.session.trials if it.candidate == BASELINE]
        return next((it.failure for it in own if it.status != "ok"), None)

    def survey(self) -> Survey:
        """Return a survey of the results so far, which decides the next step."""
        evidence = Evidence(self.request.objective, self.session.trials)
        return Survey(self.request, evidence, self.is_valid)

    def search(self) -> Ending:
        """Measure step after step, and return why the search ended."""
        while True:
            trials = self.session.trials
            step = next_step(self.request, trials, self.is_valid, self.left_seconds)
            if isinstance(step, Ended):
                return step.ending
            self.show(describe(step, self.request), ranked=bool(trials))
            (self.fill_cache if step.kind == "search" else self.play)(step)

    def show(self, doing: str, *, ranked: bool = False) -> None:
        """Report the progress of the search, with a new ranking if `ranked`."""
        numbers = {trial.number for trial in self.session.trials}
        if ranked:
            self.ranking = tuple(rank(self.survey()))
        left = max(0.0, self.left_seconds)
        self.report(TuneProgress(doing, len(numbers), left, self.ranking))

    def play(self, step: Step) -> None:
        """Play a round, and keep the result of each process as soon as the process has ended."""
        number, evidence = self.session.next_number, self.survey().evidence
        order = RoundOrder(
            number=number,
            seconds=step.seconds,
            left_seconds=self.left_seconds if evidence.scores else math.inf,
            entrants=tuple(self.entrant_of(it, evidence.fastest(it)) for it in step.candidates),
            seed=self.request.seed,
            names=self.given.names if self.given else {},
        )

        def keep(place: int, result: RunResult) -> None:
            if result.status != "interrupted":
                self.keep(Trial(step.kind, number, step.candidates[place], result))

        self.player.play(order, self.show, keep)

    def keep(self, trial: Trial) -> None:
        spec = self.spec_of(trial.candidate, trial.kind) or trial.result.spec
        self.session.add(trial._replace(result=replace(trial.result, spec=spec)))

    def fill_cache(self, step: Step) -> None:
        """Let an engine search for algorithms; after the time limit, keep what was found."""
        (candidate,) = step.candidates
        spec = self.plan(candidate, "search").spec
        assert spec is not None
        spec = replace(spec, warmup_iterations=1, iterations=0, timeout_seconds=step.seconds)
        name = name_of(candidate, self.request.spaces)
        began = time.monotonic()
        result = self.player.search(spec, SearchListener(self.show))
        if result.status == "interrupted":
            raise KeyboardInterrupt
        seconds = time.monotonic() - began
        result = replace(result, wall_seconds=seconds)
        if result.status == "timed_out":
            cut = f"{name}: its search was stopped after {seconds:.0f} s: its finds are used"
            has_part = any(map(os.path.exists, self.caches_of(candidate).values()))
            result = replace(result, warnings=(*result.warnings, cut)) if has_part else result
            result = replace(result, status="timed_out" if has_part else "failed")
        self.keep(Trial("search", self.session.next_number, candidate, result))

    # Candidates as runs

    def is_valid(self, candidate: Candidate) -> bool:
        """Return whether the options of a candidate may be combined; its cache may be missing."""
        if candidate not in self.valid:
            self.valid[candidate] = not plan_candidate(candidate, self.request.spaces).failure
        return self.valid[candidate]

    def spec_of(self, candidate: Candidate, kind: RoundKind) -> RunSpec | None:
        """Return the spec of the run that measures a candidate.

        Return None if rules refuse the run, or if the candidate's cache is gone.
        """
        spec = self.plan(candidate, kind).spec
        if spec is not None and kind == "search":
            spec = replace(spec, warmup_iterations=1, iterations=0)
        # The spec names inputs as the user gave them.
        return with_names(spec, self.given.names) if spec and self.given else spec

    def plan(self, candidate: Candidate, kind: RoundKind) -> Variant:
        """Return the planned run of a candidate; a run of kind "search" also fills a cache."""
        files = self.caches_of(candidate)
        return plan_candidate(candidate, self.request.spaces, files, searching=kind == "search")

    def caches_of(self, candidate: Candidate) -> dict[str, str]:
        """Return the candidate's cache file, by the key of the option that names the file."""
        choices = choices_in(candidate, self.request.spaces[candidate.model])
        keys = [choice.cache for choice in choices if choice.cache]
        name = self.combinations[candidate.model].cache_of(candidate)
        return {key: self.session.cache_place(name) for key in keys}

    def entrant_of(self, candidate: Candidate, seconds: float) -> Entrant:
        """Return a candidate as the entrant of a round.

        `seconds` is the time of an iteration.
        """
        variant = self.plan(candidate, "round")
        if variant.spec is None:  # the candidate's cache is gone
            raise variant.failure.to_error() if variant.failure else LarError("cannot be run")
        stall = variant.spec.stall_seconds
        spec = replace(
            variant.spec,
            stall_seconds=None if stall is None else min(stall, STALL_SECONDS),
            timeout_seconds=self.start_limit(candidate),
        )
        return Entrant(
            spec=spec,
            seconds=seconds,
            like_baseline=self.inputs_for(candidate, variant.spec),
            tolerance=self.tolerance_for(candidate),
        )

    def tolerance_for(self, candidate: Candidate) -> Tolerance:
        """Return how far the outputs of a candidate may be from the plain run's."""
        choices = choices_in(candidate, self.request.spaces[candidate.model])
        is_reduced = any(choice.allow == "reduced-precision" for choice in choices)
        if self.request.tolerance is None and is_reduced:
            return REDUCED
        return Tolerance(max_error=self.request.tolerance)

    def start_limit(self, candidate: Candidate) -> float:
        """Return the time limit of a candidate's process, in seconds."""
        own = [it.result for it in self.session.trials if it.candidate == BASELINE]
        known = [it.wall_seconds for it in own if it.status == "ok"]
        if candidate == BASELINE or not known:
            return START_SECONDS
        return max(LEAST_START_SECONDS, START_FACTOR * min(known))

    def inputs_for(self, candidate: Candidate, spec: RunSpec) -> tuple[str, ...]:
        """Return the items of `--input` that give another model the baseline's data."""
        if candidate.model == 0:
            return ()
        if candidate.model not in self.inputs:
            place = self.folder / f"inputs-{candidate.model}"
            base = plan_candidate(BASELINE, self.request.spaces).spec
            self.inputs[candidate.model] = inputs_as_for(base, spec, place)
        return self.inputs[candidate.model]


class SearchListener(Listener):
    """Shows the progress of an engine's search for algorithms."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show

    def on_progress(self, text: str, elapsed: float) -> None:
        self.show(f"the engine searches: {text}")


def describe(step: Step, request: TuneRequest) -> str:
    """Describe a step of the search in a few words."""
    names = [name_of(each, request.spaces) for each in step.candidates]
    if step.kind == "search":
        return f"the engine searches algorithms for {names[0]}"
    if step.kind == "proof":
        return f"proving {', '.join(names[1:])}"
    return f"trying {', '.join(names[1:] or names)}"
