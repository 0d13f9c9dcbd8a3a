"""The records of a search for the fastest settings: choices, request and result.

The measurements of a search are results of runs (`RunResult`), one for each process. The results of
runs are in a store of the kind that `lar history` uses.
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

# The choices of a search, as engines and files declare them


OptionValue = bool | int | float | str | tuple[str, ...]


class Choice(Record):
    """One of the settings that a dimension offers.

    Attributes:
        name: the name of the choice in tables, such as `nchw88`, unique in the space.
        options: the options that the choice sets, by key, as `lar.run` takes them.
        search: further options of a run that fills a cache before the first measurement, which may
            take minutes; empty if no cache is needed.
        cache: the key of the option that names the file of the cache, which is not in `options`
            since the file belongs to the session; empty without a cache.
        cache_depends: the dimensions whose choices determine the content of the cache; candidates
            with equal choices in these dimensions share one cache.
        allow: the permission that the user must give, or empty if no permission is needed.
        for_full: the choice is tried only in the space `full`.
        measures_at_load: the engine measures algorithms each time that it loads the model, which
            may take long, and does not store these measurements.
        objectives: the objectives that the choice can change, or empty if it can change all
            objectives.
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
    """A group of choices, such as `layout`, of which a candidate has at most one choice."""

    name: str
    choices: tuple[Choice, ...]


# The space, the request and the result of a search


Ending = Literal["settled", "budget", "interrupted", "failed"]
"""Why a search ended:

settled      no remaining candidate can win by the margin
budget       the time was spent
interrupted  the user or an error interrupted it
failed       the plain run cannot be measured
"""


class TunedSettings(Record):
    """The best settings, for `lar MODEL --settings FILE`, and the conditions of the search.

    Attributes:
        options: the options by key, as `lar.run` takes them; the path of a cache is relative to the
            file of settings.
        engine: the engine, and its version, with which the settings were measured.
        value: the value of the objective with the settings.
        baseline_value: the value of the objective without the settings.
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
    """All choices that can be tried with one of the competing models.

    The competing models are one network in several formats. `options` are the user's own options,
    which apply to all candidates of this model and also to its plain run.
    """

    model: str
    engine: str
    dimensions: tuple[Dimension, ...]
    options: dict[str, OptionValue] = field(default_factory=dict)


class Candidate(Record):
    """A model with settings.

    `choices` has the names of the chosen settings, in the order of the dimensions.

    A candidate without choices is the plain run of its model. The plain run of the first model is
    the baseline.
    """

    model: int = 0
    choices: tuple[str, ...] = ()


BASELINE = Candidate()


class NotTried(Record):
    """A choice that the space of a model leaves out, and the reason.

    `allow` is the permission that the choice needs; it is empty if there is another reason.
    """

    choice: str
    model: int = 0
    why: str = ""
    allow: str = ""


class TuneRequest(Record):
    """The user's request for a search.

    `extent` is `quick`, `full`, or a file that lists the choices to try. `budget_seconds` is the
    time that all runs of `lar tune` in one session may take together. `margin` is the smallest gain
    that is worth measuring, such as 0.01 for 1 %. `not_tried` are the choices that the spaces leave
    out.
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
    """A row of the ranking, without nested records.

    `pandas.DataFrame(tuning.ranking)` has a column for each field.

    Attributes:
        name: the name of the candidate in tables, such as `plain` or `nchw88 + 2 threads`.
        options: the options that the candidate adds to the plain run, by key, without the files of
            caches.
        value: the value of the objective in seconds or bytes, by which the ranking is sorted; it is
            the value of the plain run multiplied by `ratio`.
        ratio: the candidate's value of the objective divided by the value of the first model's
            plain run, measured in turns.
        ratio_low, ratio_high: the ends of the confidence interval of the ratio, or None if there
            are too few processes.
        processes: the number of measured processes.
        outputs: how the outputs agree with the outputs of the plain run; empty if they were not
            compared.
        verdict: whether the candidate is shown to be faster or slower, in words.
        error: why the candidate failed, or what is wrong with its outputs.
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
    """The result of a search.

    `wall_seconds` is the time that all runs of `lar tune` in the session have taken together.

    `tuned` has the best settings, in the form that `--settings` reads, or None if nothing was
    measured. `failure` says why the plain run failed, or why an interrupted search could not go on.
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
        """The error that ended the search early, or None if no error ended it."""
        if self.failure is None:
            return None
        of_plain = self.ending == "failed"
        return (self.failure.within("the plain run") if of_plain else self.failure).to_error()

    @property
    def best(self) -> RankedCandidate | None:
        """The best row of the ranking: the plain run, unless a candidate was shown to be better."""
        return next((each for each in self.ranking if each.is_best), None)

    @property
    def settings(self) -> dict[str, Any]:
        """The best settings by key, for `lar.run(tuning.best.model, **tuning.settings)`."""
        return dict(self.tuned.options) if self.tuned else {}


def choices_by_name(space: ModelSpace) -> Mapping[str, Choice]:
    """Return the choices of a model's space by name."""
    return {choice.name: choice for each in space.dimensions for choice in each.choices}


def space_of(result: TuneResult) -> ModelSpace | None:
    """Return the space of the best candidate, or None if nothing was measured."""
    best = result.best
    spaces = (it for it in result.request.spaces if best and it.engine == best.engine)
    return next((it for it in spaces if best and it.model == best.model), None)


def read_tune(data: bytes | str) -> TuneResult:
    """Decode a result of `lar tune --json`.

    Raises:
        UsageError: the text is not JSON, or not a result of a search in a format that this lar
            reads.
    """
    return record_of_format(data, TuneResult)
