"""The records of a search for the fastest settings: its space, what was tried, what came out.

A search tries candidates in trials. A trial measures a few candidates and the plain run in turns,
in fresh processes on one machine; nothing is concluded from times that were not taken in turns.
All that a search decides is decided from its space and its trials, so that one which was killed
goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lar.errors import LarError, check_keywords
from lar.records.bench import OutputDifference, Turn
from lar.records.choices import Allowed, Choice, Dimension, Objective, OptionValue
from lar.records.facts import EngineFacts, MachineFacts, ModelFile
from lar.records.run import Encodable, Failure, FedInput, OutputSummary, Status, record_of_format
from lar.records.summary import Difference, Summary

# History of the format of what `lar tune --json` writes (`TuneResult.format`):
#   lar.tune/1  first version
TUNE_FORMAT = "lar.tune/1"

TrialKind = Literal["screen", "search", "race", "confirm"]
"""What a trial is for:

screen   a short look at candidates that were not measured yet
search   one candidate fills its cache: the engine measures algorithms, and nothing is timed
race     candidates that may be the fastest, measured longer
confirm  the winner against the plain run, when the search is over
"""

Ending = Literal["settled", "budget", "interrupted", "failed"]
"""Why a search ended: nothing that is left can win by the margin, the time is spent, the user or an
error has interrupted it, or the plain run cannot be measured."""


@dataclass(frozen=True, kw_only=True)
class ModelSpace:
    """What can be tried with one of the models that compete; they are twins in several formats.

    `options` hold for all its candidates, the plain run included: what the user gave.
    """

    model: str
    engine: str
    dimensions: tuple[Dimension, ...]
    options: dict[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, order=True)
class Candidate:
    """A model with settings: `choices` has their names, in the order of the dimensions.

    Without choices it is the plain run of its model; that of the first model is the baseline.
    """

    model: int = 0
    choices: tuple[str, ...] = ()


BASELINE = Candidate()


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """What became of a candidate in a trial.

    Attributes:
        turns: the samples; their `round` is the number of the trial's process, unique in a search.
        output_difference: against the baseline's outputs of the same data, by the rules of
            `lar compare`; None where it was not compared, as it was in an earlier trial.
        cache: the name of the cache that it has filled or read, in the session; empty without.
        seconds: how long its process lived.
    """

    candidate: Candidate
    status: Status | Literal["refused"] = "ok"
    failure: Failure | None = None
    turns: tuple[Turn, ...] = ()
    engine: EngineFacts | None = None
    fed: tuple[FedInput, ...] = ()
    outputs: tuple[OutputSummary, ...] = ()
    output_difference: OutputDifference | None = None
    load_seconds: float | None = None
    peak_memory_bytes: int | None = None
    cache: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Candidates that were measured in turns, with the baseline first unless it is a search.

    `began` is in seconds since the search began, without the time between its sessions.
    """

    number: int
    kind: TrialKind
    rows: tuple[TrialRow, ...]
    began: float = 0.0
    seconds: float = 0.0
    machine: MachineFacts | None = None


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What was asked for, as far as the search goes by it.

    `extent` is `quick`, `full`, or the file that names what is tried: in `full` nothing that can be
    tried is left out as long as there is time.
    `budget_seconds` is the time of all sessions together. `margin` is by how much a candidate must
    be able to win to be worth measuring: 0.01 for 1 %. `options` are those of all runs, inputs
    among them.
    """

    spaces: tuple[ModelSpace, ...]
    objective: Objective = "latency"
    extent: str = "quick"
    budget_seconds: float = 120.0
    margin: float = 0.01
    allowed: tuple[Allowed, ...] = ()
    tolerance: float | None = None
    seed: int = 0


# The verdict of a candidate that seemed to be better, and was not.
NOT_FASTER = "not faster than the plain run in fresh processes"


@dataclass(frozen=True, kw_only=True)
class RankedCandidate:
    """A row of the ranking.

    Attributes:
        difference: of its objective against the baseline's; None where it was not measured, and for
            the baseline itself.
        value: the objective as it was measured, in seconds or bytes.
        verdict: why it is not the winner: what was shown of it.
        looks: the processes that were measured.
    """

    candidate: Candidate
    name: str
    options: dict[str, OptionValue] = field(default_factory=dict)
    status: Status | Literal["refused", "wrong", "too slow"] = "ok"
    failure: Failure | None = None
    value: float | None = None
    difference: Difference | None = None
    output_difference: OutputDifference | None = None
    verdict: str = ""
    latency: Summary | None = None
    peak_memory_bytes: int | None = None
    looks: int = 0


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a choice does, from pairs of candidates that differ in it alone.

    `ratio` is the time with it over that without it, the geometric mean of all pairs; `low` and
    `high` are the extremes. `difference` is what all their processes show, by the statistics of
    `lar bench`; None where they are too few.
    """

    model: int
    choice: str
    ratio: float
    low: float
    high: float
    pairs: int
    difference: Difference | None = None

    @property
    def effect(self) -> Literal["faster", "slower", ""]:
        """What is shown, where all pairs agree; empty if nothing is."""
        verdict = self.difference.verdict if self.difference and self.pairs > 1 else ""
        if verdict == "faster" and self.high < 1:
            return "faster"
        return "slower" if verdict == "slower" and self.low > 1 else ""


@dataclass(frozen=True, kw_only=True)
class NotTried:
    """A choice that the space of a model leaves out, and why.

    `allow` is what the user would have to allow to have it tried, empty for another reason.
    """

    choice: str
    model: int = 0
    why: str = ""
    allow: str = ""


@dataclass(frozen=True, kw_only=True)
class TuneResult(Encodable):
    """Everything that a search found; the ranking has the winner first, and `wall_seconds` are
    those of all sittings. `failure` is that of the plain run, or of what has kept an interrupted
    search from going on."""

    request: TuneRequest
    ending: Ending
    ranking: tuple[RankedCandidate, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    trials: tuple[Trial, ...] = ()
    format: str = TUNE_FORMAT
    lar_version: str = ""
    started_at: str = ""
    models: tuple[ModelFile, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    machine: MachineFacts | None = None
    wall_seconds: float = 0.0
    failure: Failure | None = None

    @property
    def error(self) -> LarError | None:
        """What has kept the search from its end, None if nothing did but an interrupt."""
        if self.failure is None:
            return None
        of_plain = self.ending == "failed"
        return (self.failure.within("the plain run") if of_plain else self.failure).to_error()

    @property
    def winner(self) -> RankedCandidate | None:
        """The best, which is the baseline where nothing was shown to be better."""
        return self.ranking[0] if self.ranking else None

    @property
    def baseline(self) -> RankedCandidate | None:
        """The plain run of the first model, with which all others are compared."""
        return next((each for each in self.ranking if each.candidate == BASELINE), None)

    def rows(self) -> list[dict[str, str | int | float | None]]:
        """Return a dictionary for each candidate, as pandas takes them: `DataFrame(tune.rows())`.

        They are in the order of the ranking; `value` is in seconds, or in bytes of memory.
        """
        return [row_of(place, each, self) for place, each in enumerate(self.ranking, 1)]


def name_of(candidate: Candidate, spaces: tuple[ModelSpace, ...]) -> str:
    """Return what tables call a candidate: `plain`, `nchw88 + 2 threads`; with the engine's name
    where several compete."""
    name = " + ".join(candidate.choices) or "plain"
    return f"{spaces[candidate.model].engine}: {name}" if len(spaces) > 1 else name


def choices_by_name(space: ModelSpace) -> Mapping[str, Choice]:
    """Return the choices of a model's space by name."""
    return {choice.name: choice for each in space.dimensions for choice in each.choices}


def options_of(candidate: Candidate, space: ModelSpace) -> dict[str, OptionValue]:
    """Return the options that a candidate is run with, without the names of caches' files. Values
    of an option that may be repeated are joined."""
    found = dict(space.options)
    choices = choices_by_name(space)
    for name in candidate.choices:
        for key, value in choices[name].options.items():
            before = found.get(key)
            if isinstance(before, tuple) and isinstance(value, tuple):
                value = before + value
            found[key] = value
    return found


def row_of(
    place: int, ranked: RankedCandidate, result: TuneResult
) -> dict[str, str | int | float | None]:
    """Return what was found of a candidate; times are seconds."""
    space = result.request.spaces[ranked.candidate.model]
    difference, outputs = ranked.difference, ranked.output_difference
    interval = difference.interval if difference else None
    return {
        "place": place,
        "candidate": ranked.name,
        "model": space.model,
        "engine": space.engine,
        "status": ranked.status,
        "objective": result.request.objective,
        "value": ranked.value,
        "ratio": difference.ratio if difference else None,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "difference": difference.verdict if difference else "",
        "median": ranked.latency.median if ranked.latency else None,
        "iterations": ranked.latency.count if ranked.latency else 0,
        "processes": ranked.looks,
        "peak_memory_bytes": ranked.peak_memory_bytes,
        "outputs": outputs.agreement if outputs else "",
        "output_error": outputs.max_error if outputs else None,
        "verdict": ranked.verdict,
        "error": ranked.failure.message if ranked.failure else "",
    }


@check_keywords
def read_tune(data: bytes | str) -> TuneResult:
    """Decode what `lar tune --json` wrote, of any version so far.

    Raises:
        ValueError: the text is not JSON, or not the result of a search of a version that this lar
            reads.
    """
    return record_of_format(data, TuneResult, TUNE_FORMAT)
