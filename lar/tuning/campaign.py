"""The loop of a search: ask what to measure next, have it measured, record it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar import __version__
from lar.errors import LarError, UsageError
from lar.files.work_folders import work_folder
from lar.records.choices import Allowed, Objective
from lar.records.run import Failure, RunSpec
from lar.records.tuning import (
    BASELINE,
    Candidate,
    Ending,
    NotTried,
    Trial,
    TrialRow,
    TuneRequest,
    TuneResult,
    choices_by_name,
    name_of,
)
from lar.running.rounds import inputs_like
from lar.running.variants import Variant
from lar.tuning.numbers import judge_by_bits, judge_by_layers, judge_by_others
from lar.tuning.player import (
    CutShort,
    Entrant,
    Keep,
    Player,
    Show,
    TrialOrder,
    caches_filled,
    mark_cut_search,
    names_of_candidates,
)
from lar.tuning.ranking import contributions_of, rank_candidates
from lar.tuning.search import Ended, Step, next_step
from lar.tuning.session import EndedRow, TuningSession
from lar.tuning.space import cache_name, plan_candidate, survey_space

if TYPE_CHECKING:
    from lar.running.array_inputs import Inputs

# A process that neither computes nor answers for so long hangs.
STALL_SECONDS = 5.0
# The plain run's process may take so long until it is ready, and others so many times as long.
START_SECONDS = 60.0
LEAST_START_SECONDS = 10.0
START_FACTOR = 8.0
# A run that dumps all layers may take so many times as long.
LAYERS_FACTOR = 4.0
# The first trial, of which nobody knows how long it takes, has about such a share of the budget.
FIRST_SHARE = 1 / 3


@dataclass(frozen=True)
class TuneProgress:
    """How far a search has come.

    `best` is the name of the best candidate so far, and `ratio` its objective over the baseline's,
    None before one is known. Before it `has_begun` the plain run was not seen to work.
    """

    doing: str
    trials: int
    candidates: int
    left_seconds: float
    best: str = ""
    ratio: float | None = None
    has_begun: bool = True


Report = Callable[[TuneProgress], None]


def tune(
    models: str | Path | Sequence[str | Path],
    *,
    inputs: Inputs | None = None,
    session: str | Path | None = None,
    budget_seconds: float = 120.0,
    space: str = "quick",
    engines: Sequence[str] = (),
    objective: Objective = "latency",
    allow: Sequence[Allowed] = (),
    tolerance: float | None = None,
    margin: float = 0.01,
    **options: Any,
) -> TuneResult:
    """Search the fastest settings of a model that keep its numbers right.

    Args:
        models: a model file, or those of one model in several formats.
        inputs: what all candidates are fed with, as `lar.run` takes it.
        session: the file that keeps the search, and with which it goes on; None keeps nothing.
        budget_seconds: search for at most so long, all sittings of a session together.
        space: `quick`, `full`, or a file that says what to try.
        engines: the names of those to try; all that read the models if empty.
        objective: what is to be small.
        allow: what is tried beyond the engines' own options.
        tolerance: how far outputs may be from the plain run's, as |a - e| / max(|a|, |e|, 1).
        margin: end where nothing that is left can win by as much.
        options: the flags of `lar run` by key, for all candidates.

    Returns:
        The result, the winner first in its ranking. A candidate that crashes is one of its rows.

    Raises:
        UsageError: a model, an option or a value cannot be used.
        LarError: the plain run does not end well.
    """
    from lar.running.array_inputs import GivenInputs
    from lar.running.bench import check_keys
    from lar.tuning.player import LocalPlayer
    from lar.tuning.requests import make_request
    from lar.tuning.session import open_session

    given = [models] if isinstance(models, (str, os.PathLike)) else [*models]
    check_keys(options)
    with work_folder() as work:
        folder = Path(work)
        (folder / "inputs").mkdir()
        fed = None if inputs is None else GivenInputs(inputs, folder / "inputs")
        if fed is not None:
            options["input"] = (*fed.items, *(options.get("input") or ()))
        request = make_request(
            [os.fspath(each) for each in given],
            options,
            extent=space,
            engines=engines,
            objective=objective,
            allowed=allow,
            budget_seconds=budget_seconds,
            margin=margin,
            tolerance=tolerance,
        )
        place = os.fspath(session) if session is not None else str(folder / "session")
        is_new = not os.path.exists(place)
        with open_session(place, request) as opened:
            names = fed.names if fed else {}
            result = Campaign(opened, LocalPlayer(folder), folder, names=names).run()
        if is_new and is_refused(result):
            os.unlink(place)
    if (error := result.error) is not None:
        raise error
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    return result


def is_refused(result: TuneResult) -> bool:
    """Return whether the plain run was refused, as that of a file that is no model: then a session
    that was made for it is not worth keeping."""
    is_plain = result.ending == "failed" or not result.trials
    code = result.failure.exit_code if result.failure else 0
    return is_plain and code == UsageError.exit_code


class Campaign:
    """A search, from what its session holds to its end."""

    def __init__(
        self,
        session: TuningSession,
        player: Player,
        folder: Path,
        *,
        names: Mapping[str, str] | None = None,
        report: Report = lambda progress: None,
    ) -> None:
        """`folder` is a work folder for files; `names` are for inputs that the user knows by other
        names than their files'."""
        self.session = session
        self.request: TuneRequest = session.request
        self.player = player
        self.folder = folder
        self.names = dict(names or {})
        self.report = report
        self.plans: dict[Candidate, Variant] = {}
        self.like_baseline: dict[int, tuple[str, ...]] = {}
        self.caches: dict[str, Path] = {}
        self.best: tuple[str, float | None] = ("", None)
        self.stopped: Failure | None = None

    def run(self) -> TuneResult:
        """Search until the end, and return what was found; an interrupt ends it too, and an error:
        the search can go on later."""
        # Of all sittings: the budget is theirs together.
        began = self.session.spent_seconds - time.monotonic()
        try:
            ending = self.search()
        except KeyboardInterrupt:
            ending = "interrupted"
        except LarError as error:
            ending, self.stopped = "interrupted", Failure.of(error)
        self.session.finish(ending)
        trials = tuple(self.session.trials)
        return TuneResult(
            request=self.request,
            ending=ending,
            ranking=rank_candidates(self.request, trials),
            contributions=contributions_of(self.request, trials),
            trials=trials,
            lar_version=__version__,
            started_at=self.session.began_at,
            models=self.session.facts.models,
            # What this machine cannot do says nothing of another one.
            not_tried=() if self.player.make_on else tuple(find_not_tried(self.request)),
            machine=self.session.facts.machine,
            wall_seconds=began + time.monotonic(),
            failure=self.failure or self.stopped,
        )

    def winners_files(self, result: TuneResult) -> dict[str, str]:
        """Return the files of the winner's caches, by the key of the option that names them."""
        if result.winner is None:
            return {}
        candidate = result.winner.candidate
        return self.files_of(candidate, cache_name(candidate, self.request.spaces))

    def spec_of(self, candidate: Candidate) -> RunSpec | None:
        """Return the run that a candidate stands for."""
        spaces = self.request.spaces
        files = self.files_of(candidate, cache_name(candidate, spaces))
        return plan_candidate(candidate, spaces, files).spec

    @property
    def failure(self) -> Failure | None:
        """Why the plain run cannot be measured."""
        rows = [row for trial in self.session.trials for row in trial.rows]
        own = [row for row in rows if row.candidate == BASELINE]
        return next((row.failure for row in own if row.status != "ok"), None)

    def search(self) -> Ending:
        """Measure what the search asks for; return why it ended."""
        ended = time.monotonic()
        self.record_cut()
        while True:
            left = self.request.budget_seconds - self.session.spent_seconds
            left -= time.monotonic() - ended
            step = next_step(self.request, self.session.trials, self.is_valid, left)
            if isinstance(step, Ended):
                return step.ending
            order = self.order_of(step)
            self.show(names_of_candidates(order.entrants), left)
            played = time.monotonic()
            try:
                trial = self.player.play(order, self.shower(left), self.keeper(order))
            except CutShort:
                self.record_cut(time.monotonic() - ended)
                ended = time.monotonic()
                continue
            besides = played - ended - time.monotonic()
            trial = self.judge_numbers(trial)
            # What is done between two trials takes time of the budget too.
            ended = time.monotonic()
            trial = replace(trial, seconds=trial.seconds + besides + ended)
            filled = caches_filled(order, self.caches)
            if trial.kind == "search":
                trial = mark_cut_search(trial, filled)
            self.session.record(trial, filled)
            self.best = best_of(self.request, self.session.trials)

    def record_cut(self, seconds: float = 0.0) -> None:
        """Record what had ended of a trial that was cut short, as a trial; it has taken so long, or
        as long as is known of it."""
        trial = self.session.take_cut()
        if trial is not None:
            trial = replace(trial, seconds=max(seconds, trial.seconds))
            self.session.record(self.judge_numbers(trial))
            self.best = best_of(self.request, self.session.trials)

    def keeper(self, order: TrialOrder) -> Keep:
        """Return what keeps each row of a trial as soon as its process has ended, and what a search
        has found until now."""
        return lambda place, row, seconds: self.session.keep(
            EndedRow(order.number, order.kind, order.began, seconds, place, row),
            caches_filled(order, self.caches),
        )

    def shower(self, left_seconds: float) -> Show:
        """Return what shows how far a trial is."""
        began = time.monotonic()
        return lambda doing, _: self.show(
            doing, left_seconds - (time.monotonic() - began), has_begun=True
        )

    def show(self, doing: str, left_seconds: float, *, has_begun: bool = False) -> None:
        """Report how far it has come."""
        candidates = {row.candidate for trial in self.session.trials for row in trial.rows}
        name, ratio = self.best
        self.report(
            TuneProgress(
                doing=doing,
                trials=len(self.session.trials),
                candidates=len(candidates),
                left_seconds=max(0.0, left_seconds),
                best=name,
                ratio=ratio,
                has_begun=has_begun or bool(self.session.trials),
            )
        )

    def is_valid(self, candidate: Candidate) -> bool:
        """Return whether the options of a candidate go together."""
        if candidate not in self.plans:
            self.plans[candidate] = plan_candidate(candidate, self.request.spaces)
        return self.plans[candidate].failure is None

    def order_of(self, step: Step) -> TrialOrder:
        """Return what a player needs for a step."""
        searching = step.kind == "search"
        return TrialOrder(
            number=len(self.session.trials),
            kind=step.kind,
            seconds=step.seconds,
            entrants=tuple(self.entrant_of(each, searching) for each in step.candidates),
            most_seconds=None if self.session.trials else FIRST_SHARE * self.request.budget_seconds,
            began=self.session.spent_seconds,
            seed=self.request.seed,
            tolerance=self.request.tolerance,
            objective=self.request.objective,
            names=self.names,
        )

    def entrant_of(self, candidate: Candidate, searching: bool) -> Entrant:
        """Return a candidate with the spec that it is run by, and the files that this names."""
        spaces = self.request.spaces
        cache = cache_name(candidate, spaces)
        files = self.files_of(candidate, cache)
        variant = plan_candidate(candidate, spaces, files, searching=searching)
        spec = variant.spec
        if spec is not None:
            stall = spec.stall_seconds
            spec = replace(
                spec,
                stall_seconds=None if stall is None else min(stall, STALL_SECONDS),
                timeout_seconds=self.start_limit(candidate),
            )
        return Entrant(
            candidate=candidate,
            name=name_of(candidate, spaces),
            spec=spec,
            failure=variant.failure,
            cache=cache,
            like_baseline=self.inputs_for(candidate, variant),
        )

    def files_of(self, candidate: Candidate, cache: str) -> dict[str, str]:
        """Return the file of a candidate's cache, by the key of the option that names it."""
        choices = choices_by_name(self.request.spaces[candidate.model])
        keys = [choices[name].cache for name in candidate.choices if choices[name].cache]
        return {key: str(self.cache_file(cache)) for key in keys}

    def cache_file(self, name: str) -> Path:
        """Return the file of a cache, with what the session has of it."""
        if name not in self.caches:
            place = self.folder / f"cache-{len(self.caches)}"
            self.session.get_cache(name, place)
            self.caches[name] = place
        return self.caches[name]

    def start_limit(self, candidate: Candidate) -> float:
        """Return how long a process may compute until it is ready, or in its turns."""
        if candidate == BASELINE or not self.session.trials:
            return START_SECONDS
        rows = [row for trial in self.session.trials for row in trial.rows]
        known = [row.seconds for row in rows if row.candidate == BASELINE and row.turns]
        return max(LEAST_START_SECONDS, START_FACTOR * min(known, default=START_SECONDS))

    def inputs_for(self, candidate: Candidate, variant: Variant) -> tuple[str, ...]:
        """Return the items of `--input` that give another model the baseline's data."""
        if candidate.model == 0:
            return ()
        if candidate.model not in self.like_baseline:
            place = self.folder / f"inputs-{candidate.model}"
            base = plan_candidate(BASELINE, self.request.spaces)
            self.like_baseline[candidate.model] = inputs_like(base, variant, place)
        return self.like_baseline[candidate.model]

    def judge_numbers(self, trial: Trial) -> Trial:
        """Return a trial with what `lar compare` says of outputs that are past the tolerance."""
        if self.request.tolerance is not None:
            return trial
        rows: list[TrialRow] = []
        spaces, make_on = self.request.spaces, self.player.make_on
        before = [row for each in self.session.trials for row in each.rows]
        for row in trial.rows:
            found = row.output_difference
            if found is not None and found.agreement == "different":
                found = judge_by_bits(row, spaces, [*before, *rows])
            if found is not None and found.agreement == "different":
                files = self.files_of(row.candidate, cache_name(row.candidate, spaces))
                limit = LAYERS_FACTOR * self.start_limit(row.candidate)
                found = judge_by_layers(found, row.candidate, spaces, files, limit, make_on)
            rows.append(replace(row, output_difference=found))
        known = [*rows, *before]
        judged = (
            replace(row, output_difference=judge_by_others(row, spaces, known)) for row in rows
        )
        return replace(trial, rows=tuple(judged))


def find_not_tried(request: TuneRequest) -> Iterator[NotTried]:
    """Yield what the spaces of a request leave out; nothing where that is not known any more."""
    for number, space in enumerate(request.spaces):
        with contextlib.suppress(LarError):
            surveyed = survey_space(
                space.model,
                space.options,
                extent=request.extent,
                allowed=request.allowed,
                objective=request.objective,
                engine=space.engine,
            )
            for each in surveyed.left_out:
                yield NotTried(
                    choice=each.choice.name, model=number, why=each.why, allow=each.allow
                )


def best_of(request: TuneRequest, trials: Sequence[Trial]) -> tuple[str, float | None]:
    """Return the name of the best so far, and its objective over the baseline's."""
    ranking = rank_candidates(request, trials)
    if not ranking:
        return "", None
    first = ranking[0]
    return first.name, first.difference.ratio if first.difference else None
