"""The records of a search for the fastest settings: its space, the request, and the result.

Its measurements are results of runs (`RunResult`), one for each process, in a store like that of
`lar history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from lar.errors import LarError
from lar.records.goals import Allowed, Objective
from lar.records.record import Record, record_of_format
from lar.records.run import EngineFacts, MachineFacts, Made, ModelFile, Status
from lar.records.summary import Difference

# Choices of a search for the fastest settings, as engines and files declare them


OptionValue = bool | int | float | str | tuple[str, ...]


class Choice(Record):
    """One of the settings that a dimension offers.

    Attributes:
        name: its name in tables, which no other choice of the space has: `nchw88`.
        options: what it sets, by key, as `lar.run` takes it.
        search: the further options of a run that fills a cache before the first measurement; empty
            if nothing is searched. Such a run may take minutes.
        cache: the key of the option that names the cache's file; empty without a search. The file
            belongs to the session, and `options` do not hold it.
        cache_depends: the dimensions whose choices decide what the cache holds; candidates that
            agree in them share one.
        allow: what the user must allow, empty if nothing.
        for_full: it is tried in the space `full` alone.
        measures_at_load: the engine measures each time that it loads the model, which may take
            long; nothing is kept of it.
        objectives: the objectives that it can matter for, empty for all.
    """

    name: str
    options: dict[str, OptionValue] = field(default_factory=dict)
    search: dict[str, OptionValue] = field(default_factory=dict)
    cache: str = ""
    cache_depends: tuple[str, ...] = ()
    allow: Allowed | Literal[""] = ""
    for_full: bool = False
    measures_at_load: bool = False
    objectives: tuple[Objective, ...] = ()


class Dimension(Record):
    """Choices of which a candidate has one, or none: `layout`, `threads`."""

    name: str
    choices: tuple[Choice, ...]


# The records of a search for the fastest settings: its space, the request, and the result


Ending = Literal["settled", "budget", "interrupted", "failed"]
"""Why a search ended: nothing that is left can win by the margin, the time is spent, the user or an
error has interrupted it, or the plain run cannot be measured."""


class TunedSettings(Record):
    """The settings that won, for `lar MODEL --settings FILE`, and what they were found for.

    Attributes:
        options: by key, as `lar.run` takes them; the name of a cache is relative to the file.
        engine: the engine and its version, on which they were measured.
        value: the objective with them, and without them (`baseline_value`).
    """

    options: dict[str, OptionValue]
    engine: EngineFacts
    model: ModelFile
    machine: MachineFacts
    objective: Objective = "latency"
    value: float | None = None
    baseline_value: float | None = None
    difference: Difference | None = None
    command: str = ""
    # History: lar.settings/1  first version
    format: str = "lar.settings/1"
    lar_version: str = ""
    made_at: str = ""


class ModelSpace(Record):
    """What can be tried with one of the models that compete; they are twins in several formats.

    `options` hold for all its candidates, the plain run included: what the user gave.
    """

    model: str
    engine: str
    dimensions: tuple[Dimension, ...]
    options: dict[str, OptionValue] = field(default_factory=dict)


class Candidate(Record):
    """A model with settings: `choices` has their names, in the order of the dimensions.

    Without choices it is the plain run of its model; that of the first model is the baseline.
    """

    model: int = 0
    choices: tuple[str, ...] = ()


BASELINE = Candidate()


class NotTried(Record):
    """A choice that the space of a model leaves out, and why.

    `allow` is the permission that the choice needs, empty if it was left out for another reason.
    """

    choice: str
    model: int = 0
    why: str = ""
    allow: str = ""


class TuneRequest(Record):
    """The request that a search follows.

    `extent` is `quick`, `full`, or the file that names what is tried. `budget_seconds` is the time
    of all sittings of a session together. `margin` is the least gain that makes a candidate worth
    measuring: 0.01 for 1 %. `not_tried` are the choices that the spaces leave out.
    """

    spaces: tuple[ModelSpace, ...] = ()
    objective: Objective = "latency"
    extent: str = "quick"
    budget_seconds: float = 120.0
    margin: float = 0.01
    allowed: tuple[Allowed, ...] = ()
    tolerance: float | None = None
    not_tried: tuple[NotTried, ...] = ()
    seed: int = 0


class RankedCandidate(Record):
    """A row of the ranking, flat: `pandas.DataFrame(tuning.ranking)` has a column for each field.

    Attributes:
        name: what tables call it: `plain`, `nchw88 + 2 threads`.
        options: those that it adds to the plain run's, by key, without the files of caches.
        value: the objective, in seconds or bytes: the plain run's, times the ratio. It orders the
            ranking.
        ratio: to the plain run of the first model, of processes that took turns with its own.
        ratio_low, ratio_high: the interval of the ratio, None if there are too few processes.
        processes: how many were measured.
        outputs: how they agree with the plain run's; empty if they were not compared.
        verdict: what is shown of it.
        error: why it failed, or what is wrong with its numbers.
    """

    name: str
    model: str
    engine: str
    choices: tuple[str, ...] = ()
    options: dict[str, OptionValue] = field(default_factory=dict)
    status: Status | Literal["refused", "wrong"] = "ok"
    is_best: bool = False
    value: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    processes: int = 0
    memory_bytes: int | None = None
    outputs: Literal["equal", "within the tolerance", "different", ""] = ""
    output_error: float | None = None
    verdict: str = ""
    error: str = ""


class TuneResult(Made):
    """Everything that a search found; `wall_seconds` are those of all sittings.

    `tuned` are the best settings as `--settings` reads them, None if nothing was measured.
    `failure` says why the plain run failed, or why an interrupted search could not go on.
    """

    request: TuneRequest
    ending: Ending
    ranking: tuple[RankedCandidate, ...] = ()
    tuned: TunedSettings | None = None
    # History:
    #   lar.tune/1  first version, with all trials
    #   lar.tune/2  the ranking is flat; the trials are results in a store
    format: str = "lar.tune/2"
    engines: tuple[EngineFacts, ...] = ()
    rounds: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def error(self) -> LarError | None:
        """The error that ended the search early, None without one or after an interrupt."""
        if self.failure is None:
            return None
        of_plain = self.ending == "failed"
        return (self.failure.within("the plain run") if of_plain else self.failure).to_error()

    @property
    def best(self) -> RankedCandidate | None:
        """The row that won: the plain run's where nothing was shown to be better."""
        return next((each for each in self.ranking if each.is_best), None)

    @property
    def settings(self) -> dict[str, Any]:
        """The best settings by key: `lar.run(tuning.best.model, **tuning.settings)`."""
        return dict(self.tuned.options) if self.tuned else {}


def choices_by_name(space: ModelSpace) -> Mapping[str, Choice]:
    """Return the choices of a model's space by name."""
    return {choice.name: choice for each in space.dimensions for choice in each.choices}


def space_of(result: TuneResult) -> ModelSpace | None:
    """Return the space of the best candidate, None if nothing was measured."""
    best = result.best
    spaces = (it for it in result.request.spaces if best and it.engine == best.engine)
    return next((it for it in spaces if best and it.model == best.model), None)


def read_tune(data: bytes | str) -> TuneResult:
    """Decode what `lar tune --json` wrote.

    Raises:
        ValueError: the text is not JSON, or not the result of a search of a version that this lar
            reads.
    """
    return record_of_format(data, TuneResult)
