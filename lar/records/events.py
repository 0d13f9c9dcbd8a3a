"""The events that a worker sends its parent while it runs, and the `RunResult` made of them.

An event is one line of JSON, `["Loaded", {...}]`. The samples do not travel as events: they stand
in shared memory (`lar.measurement.rows`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from lar.errors import ENGINE_HINT
from lar.records import run
from lar.records.record import ShortRecord


class Event(ShortRecord):
    """A message of a worker about its run."""


class EngineStarted(Event):
    """The engine's library is loaded."""

    engine: run.EngineFacts


class PhaseEntered(Event):
    """The run has come to a phase."""

    phase: run.Phase


class Loaded(Event):
    """The model is loaded; its inputs are known."""

    load_seconds: float
    inputs: tuple[run.TensorInfo, ...]


class Fed(Event):
    """The inputs are read and fit the model."""

    fed: tuple[run.FedInput, ...]
    warnings: tuple[str, ...]


class Prepared(Event):
    """The inputs are with the engine; the first iteration may start."""

    prepare_seconds: float
    sources: run.TimeSources
    noise_sources: run.NoiseSources | None = None


class CasesFound(Event):
    """The model has testcases; these are the outputs that they look at."""

    variables: tuple[str, ...]


class CaseStarted(Event):
    """The iterations of a testcase begin."""

    number: int


class TurnEnded(Event):
    """A turn is done: the rows of its iterations, or the file of its answer, stand already; or
    there is a problem, and no answer."""

    problem: str = ""


class Judged(Event):
    """An iteration of a testcase is done and its outputs are compared; its row stands already.

    Without verdicts there was nothing to compare with.
    """

    number: int
    name: str
    verdicts: tuple[run.Verdict, ...]


class Classified(Event):
    """Items of a data set have been run; the first output is taken for scores of classes."""

    items: tuple[run.ItemClasses, ...]


class ScenarioEnded(Event):
    """MLPerf's load generator has asked for its last query."""

    scenario: run.ScenarioResult


class Finished(Event):
    """All iterations are done."""

    outputs: tuple[run.OutputSummary, ...]
    peak_memory_bytes: int | None
    iterations_seconds: float | None = None
    warnings: tuple[str, ...] = ()
    uncached_operators: int = 0
    stopped: run.Stopped | None = None


class ModelRead(Event):
    """The content of a model file."""

    info: run.ModelInfo


class DevicesFound(Event):
    """The devices that an engine can run on."""

    devices: tuple[str, ...]


class Unpacked(Event):
    """The model of a file of testcases stands in a file of its own, and so do its testcases."""

    model: str
    cases: tuple[run.Case, ...]


class Packed(Event):
    """Testcases are packed: what each feeds, and the outputs that are expected."""

    fed: tuple[tuple[run.FedInput, ...], ...]
    outputs: tuple[run.OutputSummary, ...]
    warnings: tuple[str, ...]


class Failed(Event):
    """The worker ends here; nothing comes after this."""

    failure: run.Failure


Emit = Callable[[Event], None]

EVENTS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}

# A worker ends after one of these.
LAST_EVENTS = (Finished, ModelRead, DevicesFound, Unpacked, Packed, Failed)


def line_of(event: Event) -> bytes:
    """Encode an event as one line, with the standard library: it starts faster."""
    return json.dumps((type(event).__name__, event), default=vars).encode() + b"\n"


def event_of(line: bytes) -> Event:
    """Decode a line that `line_of` made; any other is a failure of the engine, since lar writes
    events alone."""
    import msgspec

    try:
        name, body = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
        return msgspec.json.decode(body, type=EVENTS[name])
    except (msgspec.MsgspecError, KeyError) as error:
        problem = f"the engine wrote into the pipe of lar's events: not an event: {error}"
        return Failed(run.Failure(problem, ENGINE_HINT))


def apply_event(result: run.RunResult, event: Event) -> run.RunResult:
    """Return the result with what an event adds to it: its fields of the same names, as a rule."""
    match event:
        case Judged(number, name, verdicts):
            return replace(result, cases=run.add_verdicts(result.cases, number, name, verdicts))
        case ModelRead() | DevicesFound() | Unpacked() | Packed():
            return replace(result, status="ok", phase="done")
        case Failed(failure):
            return replace(result, status="failed", failure=failure)
    given = {name: value for name, value in vars(event).items() if name in vars(result)}
    for name in {"fed", "warnings", "items"} & given.keys():  # what several events give
        given[name] = getattr(result, name) + given[name]
    if isinstance(event, Finished):
        given |= {"status": "ok", "phase": "done"}
    return replace(result, **given)
